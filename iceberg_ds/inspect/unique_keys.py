"""Finds keys with several visible rows in a snapshot, although the table's identifier fields promise one row a key."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from iceberg_ds.cdc.reader import key_texts
from iceberg_ds.commit.cross_task import read_keys
from iceberg_ds.deletes.search import SnapshotReader
from iceberg_ds.inspect.checklist import CheckFailedError, Checklist, NotTriedError
from iceberg_ds.inspect.contents import counted
from iceberg_ds.inspect.visible_rows import SameValues, VisibleRows, heads

UNIQUE = "unique keys"
_NEXT_STEP = (
    "Find out which writer does not compare its rows with the keys in the table, such as an append without `keys`; "
    "upsert the keys once more, and each has one row again."
)


def check_unique_keys(checklist: Checklist, table: Table) -> None:
    """Check that each snapshot that a branch or tag points at has at most one visible row per key."""
    checklist.attempt(UNIQUE, lambda: _unique_keys(table))


def _unique_keys(table: Table) -> tuple[str, None]:
    metadata = table.metadata
    key_ids = tuple(sorted(metadata.schema().identifier_field_ids))
    if not key_ids:
        raise NotTriedError("the table has no identifier fields")
    types = {number: metadata.schema().find_type(number) for number in key_ids}
    reader, rows, problems = SnapshotReader(), 0, []
    checked = heads(metadata)
    for name, head in checked:
        keys = VisibleRows(table, reader.read(table.io, head).files, types)
        repeated = keys.repeated()
        rows += keys.count
        if repeated.values:
            examples = "; ".join(_described(table.io, example, key_ids) for example in repeated.examples)
            problems.append(
                f"on {name}, snapshot {head.snapshot_id} shows {counted(repeated.rows, 'row')} of "
                f"{counted(repeated.values, 'key')}: {examples}{repeated.and_more}"
            )
    if problems:
        raise CheckFailedError("; ".join(problems), _NEXT_STEP)
    return f"each has one row: {counted(rows, 'row')} of {counted(len(checked), 'snapshot')}", None


def _described(io: FileIO, example: SameValues, key_ids: tuple[int, ...]) -> str:
    """Return a text that says which key two rows share, and where they are."""
    try:
        (key,) = key_texts(*read_keys(io, example.one.path, [example.one.position], key_ids).to_batches())
    except KeyError:  # only the partition has the key
        return str(example)
    return f"{key} in {example}"
