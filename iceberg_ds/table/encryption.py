"""Pure: what in its metadata says that a table is encrypted, although PyIceberg keeps no more than a property of it.

The classes of PyIceberg have no field for the keys of a table (`encryption-keys`) nor for the key of a snapshot's
manifest list (`key-id`; table spec, "Encryption Keys"). A catalog that writes metadata files in this process would
leave them out, and without them no file of the table can be read. So whoever parses metadata notes them here, in the
parsed metadata itself: what is loaded and copied keeps the note, and what is written does not have it.
"""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.table.metadata import TableMetadata

_KEY_PROPERTY = "encryption.key-id"
_KEYS, _KEY_OF_LIST = "encryption-keys", "key-id"
# JSON without these words has none of the two; PyIceberg neither compares nor writes what has a name such as this one.
_WORDS = (f'"{_KEYS}"', f'"{_KEY_OF_LIST}"')
_NOTE = "_encrypted_by"


def noting_encryption(metadata: TableMetadata, content: bytes | str, *path: str) -> TableMetadata:
    """Return the metadata with a note of what PyIceberg leaves out of it; itself if that is nothing.

    Args:
        metadata: What PyIceberg has made of it.
        content: The JSON that it was parsed from.
        path: Names that lead to the metadata in that JSON.
    """
    words = _WORDS if isinstance(content, str) else [word.encode() for word in _WORDS]
    if not any(word in content for word in words):  # type: ignore[operator]  # both are text, or both bytes
        return metadata
    document: Any = json.loads(content)
    for name in path:
        document = document[name]
    found = _left_out(document)
    return metadata if found is None else metadata.model_copy(update={_NOTE: found})


def _left_out(document: dict[str, Any]) -> str | None:
    if document.get(_KEYS):
        return f"'{_KEYS}' in its metadata"
    for snapshot in document.get("snapshots") or ():
        if snapshot.get(_KEY_OF_LIST) is not None:
            return f"'{_KEY_OF_LIST}' of its snapshot {snapshot['snapshot-id']}"
    return None


def evidence_of_encryption(metadata: TableMetadata) -> str | None:
    """Return what says that the table is encrypted, in words; None if nothing does."""
    if (noted := vars(metadata).get(_NOTE)) is not None:
        return str(noted)
    return f"property {_KEY_PROPERTY}" if _KEY_PROPERTY in metadata.properties else None
