"""The executors' and the committer's door to files: open, delete, check.

Wraps PyIceberg's FileIO, which is made once per process and set of properties, because Python workers
live across tasks and micro-batches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlparse

from pyiceberg.io import FileIO, load_file_io


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the FileIO that opens files below `location`."""
    return _file_io(frozenset(properties.items()), location)


@lru_cache(maxsize=32)
def _file_io(properties: frozenset[tuple[str, str]], location: str) -> FileIO:
    return load_file_io(dict(properties), location)


def is_local(path: str) -> bool:
    """Return whether `path` is on a local disk, which other machines may not see."""
    return urlparse(path).scheme in ("", "file")


def local_size(path: str) -> int | None:
    """Return the size in bytes of a local file, None if it is not there."""
    try:
        return Path(re.sub("^file:(//)?", "", path)).stat().st_size
    except OSError:
        return None
