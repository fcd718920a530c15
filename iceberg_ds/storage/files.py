"""The executors' and the committer's door to files: open, delete, check.

A FileIO is made once per process and set of properties, because Python workers live across tasks and micro-batches.
It is ours (`object_io.py`), unless the user has chosen another by PyIceberg's property `py-io-impl`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlparse

from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io

from iceberg_ds.configuration import configured_catalog
from iceberg_ds.storage.object_io import OBJECT_IO, ObjectIO

_LOCAL_SCHEME = re.compile("file:(//(localhost(?=/))?)?")


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the FileIO that opens files below `location`.

    Raises:
        OptionError: The properties are wrong for that store, or its extra is not installed.
    """
    return _file_io(frozenset(properties.items()), location)


@lru_cache(maxsize=32)
def _file_io(properties: frozenset[tuple[str, str]], location: str) -> FileIO:
    io = load_file_io({PY_IO_IMPL: OBJECT_IO, **dict(properties)}, location)
    if isinstance(io, ObjectIO):
        io.store_of(location)  # says now what is wrong with the properties
    return io


def default_file_io(catalog: str) -> dict[str, str]:
    """Return the property that leads a catalog's tables to our FileIO; none if PyIceberg's configuration has it."""
    configured = configured_catalog(catalog) or {}
    return {} if PY_IO_IMPL in configured else {PY_IO_IMPL: OBJECT_IO}


def is_local(path: str) -> bool:
    """Return whether `path` is on a local disk, which other machines may not see."""
    return urlparse(path).scheme in ("", "file")


def is_s3(path: str) -> bool:
    """Return whether `path` is in S3, or in a store that speaks like it."""
    return urlparse(path).scheme in ("s3", "s3a", "s3n")


def local_path(path: str) -> Path:
    """Return where a local file is."""
    return Path(path.removeprefix(local_scheme(path)))


def local_scheme(path: str) -> str:
    """Return how a local path begins before its first folder; Java writes `file:` with one slash after it or three."""
    found = _LOCAL_SCHEME.match(path)
    return found[0] if found else ""


def local_size(path: str) -> int | None:
    """Return the size in bytes of a local file, None if it is not there."""
    try:
        return local_path(path).stat().st_size
    except OSError:
        return None
