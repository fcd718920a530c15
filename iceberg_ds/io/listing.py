"""Lists the files below a location, locally and in object stores, and finds metadata files by their names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from tempfile import NamedTemporaryFile
from typing import cast

from iceberg_ds.io.files import ObjectIO
from iceberg_ds.io.local_paths import is_local, local_path, local_scheme
from iceberg_ds.io.stores import Lists, StoredFile

# Packed files end with `.gz.metadata.json`; older versions of Iceberg's Java library use the last suffix.
_SUFFIXES = (".metadata.json", ".metadata.json.gz")
_LISTED = re.compile("(s3[an]?|gs|gcs|abfss?|wasbs?)://")
# The places that can be listed, in words.
LISTED_PLACES = "local folders, S3, Google Cloud Storage and Azure"
# A folder with more entries is listed as a whole: to look for folders in it would take as long.
_PAGES = 50


def can_list(location: str) -> bool:
    """Return whether the files below `location` can be listed."""
    return is_local(location) or _LISTED.match(location) is not None


def is_missing(location: str) -> bool:
    """Return whether `location` is a local folder that is not there: writers make it with their first file."""
    return is_local(location) and not local_path(location).exists()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingPart:
    """A part of a listing, which one task lists.

    Attributes:
        location: A folder.
        is_deep: Whether all files below it are listed; else those that are in no folder below it.
    """

    location: str
    is_deep: bool


def listing_parts(properties: Mapping[str, str], location: str, wanted: int) -> list[ListingPart]:
    """Return parts that together list all files below `location`, each once unless links go round.

    Folders are divided into those below them until there are so many parts as `wanted`, or no folder is left to divide.

    Args:
        properties: Properties that open the storage.
        location: A folder in a place that can be listed.
        wanted: How many parts there should be at least.
    """
    divided: list[ListingPart] = []
    whole = [location]
    while whole and len(divided) + len(whole) < wanted:
        folder = whole.pop(0)
        below = _folders(properties, folder)
        divided.append(ListingPart(location=folder, is_deep=not below))
        whole += below
    return divided + [ListingPart(location=folder, is_deep=True) for folder in whole]


def files_of_part(properties: Mapping[str, str], part: ListingPart) -> Iterator[StoredFile]:
    """Yield the files of a part of a listing, with size and age."""
    if part.is_deep:
        yield from stored_files(properties, part.location)
    elif is_local(part.location):
        paths = (f"{part.location.rstrip('/')}/{entry.name}" for entry in _entries(part.location))
        yield from filter(None, (file_at(properties, path) for path in paths))
    else:
        yield from _listing(properties, part.location).stored_files(part.location, is_deep=False)


def file_at(properties: Mapping[str, str], path: str) -> StoredFile | None:
    """Return the file at a path, or None if there is none, in a place that can be listed."""
    if not is_local(path):
        return _listing(properties, path).file_at(path)
    return _local_file(local_path(path), path)


def _folders(properties: Mapping[str, str], location: str) -> list[str]:
    """Return the folders just below a location; none if they are not worth looking for."""
    if not is_local(location):
        return _listing(properties, location).folders(location, _PAGES) or []
    return [f"{location.rstrip('/')}/{entry.name}" for entry in _entries(location) if entry.is_dir()]


def _entries(location: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a local folder one at a time, because there may be millions; none if it is gone."""
    try:
        with os.scandir(local_path(location)) as entries:
            yield from entries
    except OSError as error:
        _raise_unless_gone(error)


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
            path = os.path.join(place, name)  # noqa: PTH118  # thousands of files
            if (found := _local_file(path, f"{prefix}{path}")) is not None:
                yield found


def _local_file(path: Path | str, location: str) -> StoredFile | None:
    """Return the file at a path, by the location that is given; None if there is none."""
    try:
        state = os.stat(path)  # noqa: PTH116  # as above
    except (FileNotFoundError, NotADirectoryError):  # deleted in between
        return None
    if not S_ISREG(state.st_mode):
        return None
    return StoredFile(path=location, size_bytes=state.st_size, modified_ms=state.st_mtime_ns // 1_000_000)


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
