"""Local files and folders: the paths of locations on this machine, and those that options name, as absolute ones.

A path in an option that is relative to a folder that Spark makes for a session of Spark Connect would be deleted with
it, and is refused.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlparse

# Set by Spark for its Python processes: `default`, or the session that they have a folder of their own for.
_SESSION_FOLDER = "SPARK_JOB_ARTIFACT_UUID"
_LOCAL_SCHEME = re.compile("file:(//(localhost(?=/))?)?")
# Of a location, also one with one slash, as Hadoop writes them; a single letter is a drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_local(path: str) -> bool:
    """Return whether `path` is on a local disk, which other machines may not see."""
    return urlparse(path).scheme in ("", "file")


def local_path(path: str) -> Path:
    """Return the path of a local file on the disk."""
    return Path(path.removeprefix(local_scheme(path)))


def local_scheme(path: str) -> str:
    """Return the scheme of a local path, up to its first slash; Java writes one slash after `file:`, or three."""
    found = _LOCAL_SCHEME.match(path)
    return found[0] if found else ""


def local_size(path: str) -> int | None:
    """Return the size of a local file in bytes, or None if it is missing."""
    try:
        return local_path(path).stat().st_size
    except OSError:
        return None


def is_folder_of_session() -> bool:
    """Return whether this process runs in a folder that Spark made for a session of Spark Connect, and will delete."""
    return os.environ.get(_SESSION_FOLDER, "default") != "default"


def local_file(text: str) -> str:
    """Return the absolute path of a local file.

    Raises:
        ValueError: The text is no such path, or the path is relative to a folder that does not last.
    """
    if not text or _names_a_store(text) or text.endswith("/"):
        raise ValueError("expected the path of a local file, such as /var/log/spark/commits.jsonl")
    return str(_lasting(Path(text)))


def embedded_warehouse(folder: Path) -> str:
    """Return the absolute path of an embedded warehouse.

    Raises:
        ValueError: The path cannot be part of a URL, which the locations of tables are; or it is relative to a folder
            that does not last.
    """
    path = str(_lasting(folder))
    if any(character in path for character in "?#"):
        raise ValueError("expected a path without ? and #, which cannot stand in the locations of tables")
    return path


def warehouse(text: str) -> str:
    """Return the absolute path of a local folder; raises as `embedded_warehouse` does, and for what is no folder's."""
    if not text.strip() or "\0" in text:
        raise ValueError("expected the path of a local folder, such as /lake")
    if _names_a_store(text):
        raise ValueError("expected a local folder; for object stores configure a catalog with catalog.* options")
    return embedded_warehouse(Path(text))


def _names_a_store(text: str) -> bool:
    return "://" in text or _SCHEME.match(text) is not None


def _lasting(given: Path) -> Path:
    path = given.expanduser()
    if not path.is_absolute() and is_folder_of_session():
        raise ValueError(
            "expected an absolute path: Spark runs sessions of Spark Connect in folders of its own, and deletes these "
            "with all that is in them"
        )
    return path.absolute()
