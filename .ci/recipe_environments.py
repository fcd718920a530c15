"""Make `.recipes/`: an environment for each example with a `requirements.txt`, as its user has it, with this checkout.

What an example pins counts; all other packages have the versions of `constraints.txt`. An environment is made by pip
once and kept as long as what it was made from stays the same.

    python .ci/recipe_environments.py          all environments, then the stamp `.recipes/ready.json`
    python .ci/recipe_environments.py airflow  some of them, by name
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from installing import alone, finish, is_finished, run

REPOSITORY = Path(__file__).resolve().parents[1]
# A link to the environments is those environments, and not others to make.
FOLDER = (REPOSITORY / ".recipes").resolve()
CONSTRAINTS = REPOSITORY / ".ci" / "constraints.txt"


def recipes() -> dict[str, Path]:
    """Return the `requirements.txt` of each example that has one, by the example's name."""
    return {path.parent.name: path for path in sorted(REPOSITORY.glob("examples/*/requirements.txt"))}


def package(requirement: str) -> str:
    """Return the name of the package that a line of requirements is about."""
    return re.split(r"[\[=<>~! ]", requirement)[0].lower()


def requirements(path: Path) -> list[str]:
    """Return the lines of a `requirements.txt` that name a package, but for our own, which is this checkout."""
    lines = [line.partition("#")[0].strip() for line in path.read_text().splitlines()]
    return [line for line in lines if line and package(line) != "iceberg-ds"]


def own_extras(path: Path) -> str:
    """Return the extras of our own package that a `requirements.txt` asks for, such as `[upserts]`."""
    found = re.search(r"^iceberg-ds(\[[^\]]*\])", path.read_text(), re.MULTILINE)
    return found[1] if found else ""


def constraints(path: Path) -> list[str]:
    """Return the project's pinned versions of the packages that a `requirements.txt` does not name."""
    named = {package(line) for line in requirements(path)}
    return [line for line in CONSTRAINTS.read_text().splitlines() if package(line) not in named]


def wanted(path: Path) -> dict[str, object]:
    """Return what the finished environment of a `requirements.txt` says of itself."""
    project = (REPOSITORY / "pyproject.toml").read_text()
    return {
        "checkout": str(REPOSITORY),
        "interpreter": f"{sys.base_prefix} {sys.version}",
        "requirements": [f"iceberg-ds{own_extras(path)}", *requirements(path)],
        "constraints": constraints(path),
        "project": project.partition("\n[project]")[2].partition("\n[dependency-groups]")[0],
    }


def make(name: str, path: Path) -> None:
    """Make the environment of an example unless it is there."""
    folder = FOLDER / name
    if is_finished(folder, wanted(path)):
        return
    print(f"Making {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    run(folder, sys.executable, "-m", "venv", folder)
    file = folder / "constraints.txt"
    file.write_text("\n".join(constraints(path)) + "\n")
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    run(folder, *pip, "--upgrade", "pip")
    ours = f"{REPOSITORY}{own_extras(path)}"
    run(folder, *pip, "--constraint", file, *requirements(path), "--editable", ours)
    finish(folder, wanted(path))


def main() -> None:
    """Make the environments that are named, or all."""
    known = recipes()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(known)}; all without")
    names = parser.parse_args().names
    unknown = sorted({*names} - {*known})
    if unknown:
        parser.error(f"no example with a requirements.txt is named {', '.join(unknown)}; there are {', '.join(known)}")
    with alone(FOLDER):
        for name in names or known:
            make(name, known[name])
        if not names:
            finish(FOLDER, {"recipes": sorted(known)})


if __name__ == "__main__":
    main()
