"""Environments for the parts of a cluster, each with some of this one's packages: nothing is downloaded or installed.

An executor, a client or a packed archive is to have what its installation brings and nothing else. So a new
environment gets links to, or copies of, the distributions that a requirement leads to.
"""

from __future__ import annotations

import re
import shutil
import venv
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from sysconfig import get_path
from zipfile import ZipFile

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[3]
_EXAMPLE = re.compile(r"^```(?:python|bash)\n# example: *(.+?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_PACKAGES = ("..", "__pycache__")


def make_environment(folder: Path, *wanted: str, without: Sequence[str] = (), copied: bool = False) -> Path:
    """Make an environment with what the requirements lead to, and return its interpreter.

    Args:
        folder: The environment's folder.
        wanted: Requirements of installed distributions, extras included, such as `pyspark[connect]`.
        without: Names of distributions that are left out; what they require is not.
        copied: Whether the environment holds copies, so that it can be moved, instead of links.
    """
    venv.create(folder, symlinks=not copied)
    target = Path(get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for found in _closure(wanted):
        if canonicalize_name(found.name) not in map(canonicalize_name, without):
            for top in _top_level(found):
                _put(Path(str(found.locate_file(top))), target / top, copied=copied)
    return folder / "bin" / "python"


def _closure(wanted: Sequence[str]) -> Iterator[Distribution]:
    """Yield the distributions that requirements lead to, each once."""
    waiting = [Requirement(text) for text in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        try:
            found = distribution(name)
        except PackageNotFoundError:  # of an extra of an extra that this interpreter does without
            continue
        is_new = not any(known == name for known, _ in seen)
        seen.add(key)
        waiting += _requirements(found, requirement.extras)
        if is_new:
            yield found


def _requirements(found: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, found.requires or []):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ["", *extras]):
            yield requirement


def _top_level(found: Distribution) -> set[str]:
    """Return the names of a distribution's folders and modules; an editable one has none but its metadata."""
    return {path.parts[0] for path in found.files or [] if path.parts[0] not in _NOT_PACKAGES and path.suffix != ".pth"}


def _put(source: Path, target: Path, *, copied: bool) -> None:
    if target.exists():  # a namespace that two distributions share
        return
    if not copied:
        target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "tests", "include"))
    else:
        shutil.copy2(source, target)


def zip_package(path: Path) -> Path:
    """Write the package into a zip file, as the documentation shows, and return its path."""
    with ZipFile(path, "w") as archive:
        for module in sorted((REPOSITORY / "iceberg_ds").rglob("*.py")):
            archive.write(module, module.relative_to(REPOSITORY))
    return path


def documented(name: str) -> str:
    """Return an example of the documentation of clusters."""
    pages = "".join((REPOSITORY / "docs" / page).read_text() for page in ("clusters.md", "connect.md"))
    examples = dict(_EXAMPLE.findall(pages))
    return str(examples[name])
