"""When two paths name one file: writers spell the same place in several ways.

Errs on the side of "the same": a file that is taken for a referenced one stays.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

_SAME_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
_LOCAL = re.compile(r"^(file:(//(localhost)?(?=/))?)?(?=/)")


def file_key(path: str) -> str:
    """Return the form of `path` that all spellings of it share.

    `s3a://b/k` and `s3n://b/k` are `s3://b/k`; `file:/x`, `file:///x` and `/x` are one, links to folders followed.
    """
    scheme, separator, rest = path.partition("://")
    if not separator or scheme == "file":
        return f"file://{_real(_LOCAL.sub('', path))}"
    return f"{_SAME_SCHEMES.get(scheme, scheme)}://{re.sub('/{2,}', '/', rest)}"


def within_store(key: str) -> str:
    """Return the part of a key behind scheme and authority."""
    rest = key.partition("://")[2]
    return rest.partition("/")[2].lstrip("/")


def _real(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{_real_folder(folder)}/{name}"


@lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder or "/").rstrip("/")


def folder_key(location: str) -> str:
    """Return the key that all files below a folder begin with."""
    return file_key(f"{location.rstrip('/')}/x").removesuffix("x")
