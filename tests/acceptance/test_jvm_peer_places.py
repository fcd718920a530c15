"""Tables in folders of any name: the runtime and the sink find each other's files, or the sink says why not."""

from __future__ import annotations

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import EXHAUSTIVE

from iceberg_ds.errors import IcebergSinkError

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

NAMES = ["a b", "100%", "a%20b", "a+b", "a:b;c", "ü日本👍", "a&b=c,d*'\"", "a\\b"]
SCHEMA = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("part", spark.StringType())])


def table_in(shared: SharedCatalog, number: int, name: str) -> str:
    """Create a table of the runtime's in such a folder, with partitions of such names, and return its name."""
    location = f"file://{shared.folder}/{name}/t".replace("\\", "\\\\").replace("'", "\\'")
    shared.jvm.run("CREATE NAMESPACE IF NOT EXISTS db")
    shared.jvm.run(
        f"CREATE TABLE db.t{number} (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part) "
        f"LOCATION '{location}' TBLPROPERTIES ('write.data.path' = '{location} d')"
    )
    return f"db.t{number}"


@EXHAUSTIVE
def test_runtime_and_sink_find_each_others_files_in_folders_of_any_name(shared: SharedCatalog) -> None:
    """Rows of one would be missing for the other, or be written over."""
    parts = [*NAMES, "a#b", "a?b", "a\nb", "..", ".", "a/b", ""]
    for number, name in enumerate(NAMES):
        table = table_in(shared, number, name)
        rows = [{"id": n, "part": part} for n, part in enumerate(parts)]
        shared.jvm.append(table, rows, SCHEMA)
        sink = shared.sink(table=table)
        sink.commit(sink.write(rows, schema=SCHEMA))

        found = shared.jvm.run(f"SELECT id, part FROM {table} ORDER BY id").rows  # noqa: S608  # no outside input

        assert found == [[n, part] for n, part in enumerate(parts) for _ in range(2)], name
        assert sink.ids() == [n for n in range(len(parts)) for _ in range(2)], name


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_table_of_the_runtime_that_others_cannot_find_is_refused_with_the_reason(
    shared: SharedCatalog, name: str
) -> None:
    """The write would end with a file that is not found, though it is there."""
    table = table_in(shared, 0, name)
    shared.jvm.append(table, [{"id": 1, "part": "x"}], SCHEMA)
    sink = shared.sink(table=table)

    with pytest.raises(IcebergSinkError, match=r"names no one file: it has '[#?]' in it"):
        sink.commit(sink.write([{"id": 2, "part": "x"}], schema=SCHEMA))
    assert shared.jvm.values(f"SELECT id FROM {table}") == [1]  # noqa: S608
