"""Which files are metadata of a table, by their names; and whether a place has some already."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_ds.storage.files import is_local
from iceberg_ds.storage.listing import stored_files

# Packed ones end with `.gz.metadata.json`, or, as older versions of Iceberg's Java library write them, with the last.
_SUFFIXES = (".metadata.json", ".metadata.json.gz")


def is_metadata_file(path: str) -> bool:
    """Return whether a path is that of a table's metadata, packed or not."""
    return path.endswith(_SUFFIXES)


def metadata_file_in(properties: Mapping[str, str], location: str) -> str | None:
    """Return a metadata file of a table at `location`, the first one by its name; None if there is none.

    One request, as long as no more than a page of other files lies in the folder of the metadata; None for a store
    that cannot be listed.

    Args:
        properties: What opens the storage.
        location: Location of a table that is or may be.
    """
    stored = stored_files(properties, f"{location}/metadata")
    found = (file.path for file in stored if is_metadata_file(file.path))
    # Objects are listed in the order of their names.
    return min(found, default=None) if is_local(location) else next(found, None)
