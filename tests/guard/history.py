"""A table with a long history, made without its many commits.

One real commit gives the newest snapshot; the older ones are written into the metadata file in its likeness.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

_FIRST_ID = 10**18


def age(catalog: Catalog, identifier: tuple[str, ...], snapshots: int) -> Table:
    """Give the table, which has one snapshot, so many; return it as it is then."""
    table = catalog.load_table(identifier)
    content = json.loads(table.metadata.model_dump_json())
    _add_history(content, snapshots)
    path = f"{table.location()}/metadata/00099-{uuid.uuid4()}.metadata.json"
    with table.io.new_output(path).create() as output:
        output.write(json.dumps(content).encode())
    catalog.drop_table(identifier)
    return catalog.register_table(identifier, path)


def _add_history(content: dict[str, Any], snapshots: int) -> None:
    (head,) = content["snapshots"]
    ids = [*range(_FIRST_ID, _FIRST_ID + snapshots - 1), head["snapshot-id"]]
    moments = [head["timestamp-ms"] - 1000 * (snapshots - number) for number in range(1, snapshots + 1)]
    content["snapshots"] = [
        {
            **head,
            "snapshot-id": snapshot_id,
            "sequence-number": number,
            "timestamp-ms": moment,
            **({"parent-snapshot-id": ids[number - 2]} if number > 1 else {}),
        }
        for number, (snapshot_id, moment) in enumerate(zip(ids, moments, strict=True), start=1)
    ]
    content["last-sequence-number"] = snapshots
    content["snapshot-log"] = [
        {"snapshot-id": snapshot_id, "timestamp-ms": moment} for snapshot_id, moment in zip(ids, moments, strict=True)
    ]
    content["metadata-log"] = []  # its length is bounded in every table, and would differ below the bound
