"""Lists the files below a location, locally and in object stores, and finds metadata files by their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import cast

from iceberg_ds.io.files import ObjectIO, is_local, local_path, local_scheme
from iceberg_ds.io.stores import Lists, StoredFile

# Packed files end with `.gz.metadata.json`; older versions of Iceberg's Java library use the last suffix.
_SUFFIXES = (".metadata.json", ".metadata.json.gz")
_LISTED = re.compile("(s3[an]?|gs|gcs|abfss?|wasbs?)://")
# The places that can be listed, in words.
LISTED_PLACES = "local folders, S3, Google Cloud Storage and Azure"


def can_list(location: str) -> bool:
    """Return whether the files below `location` can be listed."""
    return is_local(location) or _LISTED.match(location) is not None


def list_files(properties: Mapping[str, str], location: str) -> list[str]:
    """Return the files below `location`, or an empty list for a store that cannot be listed.

    Args:
        properties: Properties that open the storage.
        location: A folder, or the beginning of keys.
    """
    return [stored.path for stored in stored_files(properties, location)]


def stored_files(properties: Mapping[str, str], location: str) -> Iterator[StoredFile]:
    """Yield the files below `location` with size and age; arguments as in `list_files`."""
    if is_local(location):
        yield from _local_files(local_path(location), local_scheme(location))
    elif can_list(location):
        yield from _listing(properties, location).stored_files(location)


def store_clock_ms(properties: Mapping[str, str], location: str) -> int:
    """Return the time of the clock by which a store dates its files, in milliseconds since the Unix epoch.

    Object stores tell their time with each answer, in whole seconds. In a local folder, which may be on another
    machine, a hidden file is made for a moment.

    Args:
        properties: Properties that open the storage.
        location: An existing folder in a store that can be listed.

    Raises:
        LookupError: The store does not tell its time.
        OSError: No file can be made in the folder.
    """
    if is_local(location):
        with NamedTemporaryFile(prefix=".clock-", dir=local_path(location)) as probe:
            return os.fstat(probe.fileno()).st_mtime_ns // 1_000_000
    return _listing(properties, location).clock_ms(location)


def _local_files(folder: Path, prefix: str) -> Iterator[StoredFile]:
    """Yield the files below a folder, links to folders followed; raise if one of them cannot be listed."""
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=_raise_unless_gone, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # links may go round
            folders.clear()
            continue
        seen.add(real)
        for name in names:
            path = Path(place, name)
            try:
                state = path.stat()
            except FileNotFoundError:  # deleted in between
                continue
            if path.is_file():
                yield StoredFile(
                    path=f"{prefix}{os.fspath(path)}",
                    size_bytes=state.st_size,
                    modified_ms=state.st_mtime_ns // 1_000_000,
                )


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _listing(properties: Mapping[str, str], location: str) -> Lists:
    return cast("Lists", ObjectIO(dict(properties)).store_of(location))


def is_metadata_file(path: str) -> bool:
    """Return whether the path is that of a table's metadata file, packed or not."""
    return path.endswith(_SUFFIXES)


def metadata_file_in(properties: Mapping[str, str], location: str) -> StoredFile | None:
    """Return the first metadata file, by its name, of a table at `location`.

    Takes one request, unless the metadata's folder has more than a page of other files. Returns None if there is no
    metadata file, or the store cannot be listed.

    Args:
        properties: Properties that open the storage.
        location: Location of a table, which may be missing.
    """
    stored = stored_files(properties, f"{location}/metadata")
    found = (file for file in stored if is_metadata_file(file.path))
    # Objects are listed in the order of their names.
    return min(found, key=lambda file: file.path, default=None) if is_local(location) else next(found, None)
