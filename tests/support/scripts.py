"""Scripts of the repository that belong to no package, loaded as modules or run with few kills."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType


def load_script(path: Path) -> ModuleType:
    """Return the module of a script, without what it does as a program."""
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


def run_with_two_kills(path: Path, folder: Path, *arguments: str) -> str:
    """Run one of the scripts that kill processes, and return what it prints.

    Raises:
        AssertionError: It failed, or killed nothing.
    """
    told = ["--kills", "2", "--minutes", "5", "--folder", str(folder), *arguments]
    done = subprocess.run([sys.executable, str(path), *told], capture_output=True, text=True, check=False, timeout=880)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 kills" in done.stdout
    return done.stdout
