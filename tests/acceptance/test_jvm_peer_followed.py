"""Streams of what Iceberg's own Spark runtime appends, beside its compactions, deletes and expiry."""

from __future__ import annotations

import pytest
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE
from support.tables.follower import Follower
from support.tables.sink import NAME, Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import StreamHistoryError

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment


@pytest.mark.parametrize("version", [pytest.param("1", marks=EXHAUSTIVE), pytest.param("2", marks=EXHAUSTIVE), "3"])
def test_rows_that_the_jvm_appends_come_once(shared: SharedCatalog, version: str) -> None:
    """Rows that the runtime compacted would come again, and those that it deletes would end no stream."""
    modes = "" if version == "1" else ", 'write.delete.mode' = 'merge-on-read'"
    properties = f"'format-version' = '{version}', 'commit.manifest.min-count-to-merge' = '2'{modes}"
    shared.create_by_jvm("id BIGINT, part STRING", f"PARTITIONED BY (part) TBLPROPERTIES ({properties})")
    options = embedded_options(shared.folder)
    sink = Sink(catalog=connect(catalog_settings(options)), options=options)
    query = Follower(sink=sink, options={"streaming_max_files_per_micro_batch": "1"})

    def insert(*ids: int) -> None:
        rows = ", ".join(f"({number}, 'p{number % 2}')" for number in ids)
        shared.jvm.run(f"INSERT INTO {NAME} VALUES {rows}")  # noqa: S608  # no outside input

    insert(1, 2)
    insert(3, 4)
    assert sorted(row["id"] for row in query.batch() or []) in ([1], [2])
    shared.jvm.run(f"CALL system.rewrite_data_files(table => '{NAME}', options => map('rewrite-all', 'true'))")
    shared.jvm.run(f"CALL system.rewrite_manifests('{NAME}')")
    insert(5)
    left = query.ids()
    assert sorted(left)[-3:] == [3, 4, 5]
    assert len(left) == 4
    insert(6)
    shared.jvm.run(f"CALL system.expire_snapshots(table => '{NAME}', older_than => TIMESTAMP'2100-01-01')")
    assert query.ids() == [6]
    shared.jvm.run(f"DELETE FROM {NAME} WHERE id IN (1, 5)")  # noqa: S608
    insert(7)
    with pytest.raises(StreamHistoryError, match=r"operation (overwrite|delete)"):
        query.batch()
    query.stop()
    query.options = {"on_change": "skip"}
    assert query.ids() == [7]
    shared.jvm.run(f"CALL system.expire_snapshots(table => '{NAME}', older_than => TIMESTAMP'2100-01-01')")
    assert sorted(Follower(sink=sink).ids()) == [2, 3, 4, 6, 7]
