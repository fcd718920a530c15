"""What is asked of PyIceberg's private part: a new version that answers otherwise is found here."""

from __future__ import annotations

from pyiceberg.table.snapshots import Snapshot
from support.tables.metadata import line, metadata_of

from iceberg_ds.pyiceberg_inner import summary_entries


def test_summary_says_the_same_by_its_private_name() -> None:
    """Marks of all writers would be overlooked, and each write repeated would land twice."""
    marked, bare = metadata_of(line(1, 2, s1={"app": "7"})).snapshots
    loaded = Snapshot.model_validate_json(marked.model_dump_json())
    none = marked.model_copy(update={"summary": None})

    assert marked.summary is not None
    assert summary_entries(marked) is marked.summary.additional_properties
    assert "_additional_properties" in (marked.summary.__pydantic_private__ or {})  # else the long way is taken
    assert [dict(summary_entries(snapshot)) for snapshot in (marked, loaded, bare, none)] == [{"app": "7"}] * 2 + [
        {}
    ] * 2
