"""Files from before Iceberg, as the runtime's `add_files` brings them into a table: changed by ours, read by both."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.exhaustive import few
from support.keys.upserts import commit_upsert
from support.tables.data_rewrites import rewrite
from support.tables.reading import read_by_tasks
from support.tables.sink import NAME, Sink

import iceberg_ds
from iceberg_ds.deletes.work import RowEncoding
from iceberg_ds.planning.plan_write import WriteMode

pytestmark = pytest.mark.timeout(900)  # the first one may have to make the peer's environment

COLUMNS = (
    "id BIGINT, name STRING, of STRUCT<code: INT, text: STRING>, tags ARRAY<STRUCT<k: STRING>>, "
    "counts MAP<STRING, INT>, price DECIMAL(9, 2), at TIMESTAMP, part STRING"
)
KEYED = spark.StructType().add("id", "long").add("name", "string").add("part", "string")


def row(number: int) -> dict[str, Any]:
    """Return a row, as files have it."""
    return {
        "id": number,
        "name": f"n{number}",
        "of": None if number % 4 == 3 else {"text": f"t{number}", "code": number},  # in another order than the table
        "tags": [{"k": "a"}, {"k": None}],
        "counts": {"x": number}.items(),
        "price": Decimal(number) / 4,
        "at": number * 1_000_000,
    }


KINDS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("of", pa.struct([("text", pa.string()), ("code", pa.int32())])),
        ("tags", pa.list_(pa.struct([("k", pa.string())]))),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.fixture(params=["2", "3"])
def added(shared: SharedCatalog, tmp_path: Path, request: pytest.FixtureRequest) -> Sink:
    """Return the sink of a table with a Hive table's two folders of six rows each, whose names have the partition."""
    for part in ("a", "b"):
        folder = tmp_path / "hive" / f"part={part}"
        folder.mkdir(parents=True)
        first = 0 if part == "a" else 6
        rows = [row(number) for number in range(first, first + 6)]
        pq.write_table(
            pa.Table.from_pylist([{**one, "counts": list(one["counts"])} for one in rows], KINDS),
            folder / "0.parquet",
            use_deprecated_int96_timestamps=part == "b",
        )
    shared.create_by_jvm(COLUMNS, f"PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '{request.param}')")
    shared.jvm.run(
        f"CALL default.system.add_files(table => '{NAME}', source_table => '`parquet`.`{tmp_path / 'hive'}`')"
    )
    return shared.sink()


def upsert(sink: Sink, encoding: RowEncoding) -> None:
    """Replace row 1, and add row 100."""
    plan = sink.plan(KEYED, WriteMode.UPSERT, keys=("id", "part"))
    rows = [{"id": 1, "name": "new", "part": "a"}, {"id": 100, "name": "new", "part": "b"}]
    commit_upsert(sink, plan, encoding, sink.write(rows, schema=KEYED, plan=plan))


def replace_where(sink: Sink) -> None:
    """Replace what is in a range, beside which rows stay in their files."""
    sink.overwrite([{"id": 2, "name": "new", "part": "a"}], schema=KEYED, replace_where="id BETWEEN 1 AND 7")


CHANGES: dict[str, tuple[Callable[[Sink], object], set[int], set[int]]] = {
    "upsert, position": (lambda sink: upsert(sink, "position"), {1}, {1, 100}),
    "upsert, copy-on-write": (lambda sink: upsert(sink, "copy-on-write"), {1}, {1, 100}),
    "replace-where": (replace_where, set(range(1, 8)), {2}),
    "rewrite": (lambda sink: rewrite(sink, min_input_files="1", rewrite_all="true"), set(), set()),
}


@pytest.mark.parametrize("change", few(1, CHANGES))
def test_rows_that_stay_are_the_same_rows(shared: SharedCatalog, added: Sink, change: str) -> None:
    """Values would be lost, or stand in other columns, as soon as a file from before Iceberg is written again."""
    columns = "id, name, of, tags, counts, price, at, part"
    before = {found[0]: found for found in shared.jvm.run(f"SELECT {columns} FROM {NAME}").rows}  # noqa: S608
    assert len(before) == 12
    apply, gone, new = CHANGES[change]

    apply(added)

    after = {found[0]: found for found in shared.jvm.run(f"SELECT {columns} FROM {NAME}").rows}  # noqa: S608
    assert after.keys() == (before.keys() - gone) | new
    assert {key: after[key] for key in before.keys() - gone} == {key: before[key] for key in before.keys() - gone}
    assert {found["id"] for found in read_by_tasks(added)} == after.keys()
    verified = iceberg_ds.verify(NAME, options={"warehouse": str(shared.folder)}, deep=True)
    failed = {check.name for check in verified.checks if check.outcome == "failed"}
    assert failed <= {"summaries"}, str(verified)  # the runtime records no bytes of added files
