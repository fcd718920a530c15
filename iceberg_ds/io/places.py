"""Pure: finds locations that do not name the same file for every reader; they are neither written nor read.

Iceberg's Java library takes a location in S3, Google Cloud Storage or Azure apart at `?` and `#`, PyIceberg a local one
at `;`, too, and it drops line breaks and tabs (`urllib.parse`); Hadoop's local files have all of them in their names.
PyIceberg takes the host of a local location for a folder below the working directory, Hadoop what follows two slashes
for a host, and a scheme in capitals for an unknown one. Hadoop takes `hdfs:/x` for a place in its own store, fsspec for
a local folder. Stores and file systems resolve the steps `.` and `..`, or do not. Everything else is taken as it
stands, `%` and spaces included: nothing is decoded or encoded on the way. Two slashes within a location of a store,
which Hadoop's filesystems take for one, are no reason: `reading` keeps such locations from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from iceberg_ds.secrets import has_password, mask_password

# Properties of a table that say where its files go.
FOLDER_PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
# What the name of a folder or file has at most on the disks of Linux, macOS and Windows.
MOST_BYTES_OF_NAME = 255
_CUT_OFF, _CONTROL = re.compile("[#?]"), re.compile("[\x00-\x1f\x7f-\x9f]")
_CUT_OFF_IN_LOCAL_NAMES = ";"
# A location from the root of a disk, or of a store.
_WHOLE = re.compile(r"/|[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_NO_TWO_SLASHES = re.compile(r"([a-z][a-z0-9+.-]+):(?!//)", re.IGNORECASE)
_LOCAL_SCHEME, _LOCAL_HOST = re.compile("file(?=:)", re.IGNORECASE), re.compile("file://([^/]+)", re.IGNORECASE)
_STEPS = frozenset({".", ".."})


def why_not_a_place(location: str) -> str | None:
    """Return why readers would not agree on which file a location names, or None if they agree."""
    if has_password(location):
        return "it has a password in it, which some readers take for a part of a name, and errors and logs show"
    if (found := _CUT_OFF.search(location)) is not None:
        return f"it has '{found[0]}' in it, from which on some readers cut it off"
    if (found := _CONTROL.search(location)) is not None:
        return f"it has the control character U+{ord(found[0]):04X} in it, which some readers drop"
    steps = location.partition("://")[2].split("/") if "://" in location else location.split("/")
    step = next((step for step in steps if step in _STEPS), None)
    if step is not None:
        return f"it has the step '{step}' in it, which some readers resolve"
    is_local = location.startswith("/") or _LOCAL_SCHEME.match(location)
    return _why_not_local(location, steps[-1]) if is_local else _why_not_in_a_store(location)


def _why_not_in_a_store(location: str) -> str | None:
    """Return why readers would not agree on a file that is on no local disk, or None if they agree."""
    if (scheme := _NO_TWO_SLASHES.match(location)) is not None:
        return f"its scheme '{scheme[1]}' is not followed by two slashes, and some readers take it for a folder"
    return None


def _why_not_local(location: str, last_step: str) -> str | None:
    """Return why readers would not agree on a file on a local disk, or None if they agree."""
    if (host := _LOCAL_HOST.match(location)) is not None:
        return f"it has the host '{host[1]}' in it, which some readers take for a folder"
    if (scheme := _LOCAL_SCHEME.match(location)) is not None and not scheme[0].islower():
        return f"it has the scheme '{scheme[0]}' in it, which some readers know in lower case alone"
    if not _LOCAL_SCHEME.sub("", location).strip(":/"):
        return "it names no folder"
    if location.startswith("//"):
        return "it begins with two slashes, and some readers take what follows for a host"
    if _CUT_OFF_IN_LOCAL_NAMES in last_step:
        return f"it has '{_CUT_OFF_IN_LOCAL_NAMES}' in its last step, from which on some readers cut it off"
    return None


def longest_name(names: Iterable[str]) -> int:
    """Return the bytes of the longest of these names of folders and files, as disks count them."""
    return max(len(name.encode()) for name in names)


def _why_not_one_place(location: str) -> str | None:
    """Return why processes and readers would not agree on which file a whole location names, or None if they agree."""
    if not _WHOLE.match(location):
        return "it is relative to the folder that a process works in"
    return why_not_a_place(location)


def check_place(location: str) -> None:
    """Refuse a location on which readers do not agree.

    Raises:
        ValueError: Readers do not agree; the message says why.
    """
    if (reason := _why_not_one_place(location)) is not None:
        raise ValueError(f"Location {mask_password(location)!r} names no one file: {reason}. Use a place without it.")


def misplaced(location: str, properties: Mapping[str, str]) -> list[str]:
    """Return one sentence for each place of a table's files on which readers do not agree.

    Args:
        location: Location of the table; empty for the one that the catalog chooses.
        properties: Properties of the table.
    """
    places = {"location": location} if location else {}
    places |= {f"property {key}": properties[key] for key in FOLDER_PROPERTIES if key in properties}
    # Files are below these folders.
    reasons = {name: (place, _why_not_one_place(f"{place}/")) for name, place in places.items()}
    return [
        f"its {name} is {mask_password(place)!r}, which readers do not agree on: {reason}"
        for name, (place, reason) in reasons.items()
        if reason is not None
    ]
