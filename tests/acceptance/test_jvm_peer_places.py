"""Tables in folders of any name: the runtime and the sink find each other's files, or the sink says why not."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from pyspark.sql import types as spark
from support.catalogs.shared_catalog import SharedCatalog
from support.checks.invariants import check_sound
from support.exhaustive import EXHAUSTIVE
from support.peer.jvm_peer import CATALOG
from support.tables.data_rewrites import rewrite
from support.tables.expiry import expired
from support.tables.sink import NAME, local

import iceberg_ds
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.snapshots.manifests import live_manifests

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


def test_table_that_the_runtime_copied_is_changed_and_maintained(shared: SharedCatalog, tmp_path: Path) -> None:
    """The procedure leaves the sizes of the former manifests in the lists: the whole table would seem to be damaged."""
    shared.create_by_jvm("id BIGINT, part STRING", f"LOCATION '{tmp_path}/a-folder-with-a-much-longer-name/t'")
    shared.append_by_jvm([{"id": 1, "part": "a"}], SCHEMA)
    move(shared, tmp_path, "first")
    since = Path(shared.table().metadata_location).name
    shared.append_by_jvm([{"id": 2, "part": "b"}], SCHEMA)
    move(shared, tmp_path, "then", f", start_version => '{since}'")
    current = Path(shared.table().metadata_location).name
    shared.jvm.run(f"DROP TABLE {NAME}")
    shared.jvm.run(
        f"CALL {CATALOG}.system.register_table(table => '{NAME}', metadata_file => '{tmp_path}/t/metadata/{current}')"
    )
    listed = live_manifests(shared.table().io, shared.table().current_snapshot())
    assert any(local(used.manifest_path).stat().st_size < used.manifest_length for used in listed)

    shared.append([{"id": 3, "part": "c"}], SCHEMA)
    rewrite(shared.sink(), rewrite_all="true")
    iceberg_ds.rewrite_manifests(NAME, options={"warehouse": str(shared.folder)})
    expired(shared.sink())

    assert shared.rows_of_jvm() == shared.rows()
    check_sound(shared.table())


def move(shared: SharedCatalog, folder: Path, step: str, more: str = "") -> None:
    """Let the runtime write a table's metadata for its files in another folder, and copy the files there."""
    (row,) = shared.jvm.sql(
        f"CALL {CATALOG}.system.rewrite_table_path(table => '{NAME}', source_prefix => '{shared.table().location()}', "
        f"target_prefix => 'file://{folder}/t', staging_location => 'file://{folder}/{step}'{more})"
    )
    plan = local(row["file_list_location"])
    parts = [plan] if plan.is_file() else [part for part in plan.iterdir() if not part.name.startswith((".", "_"))]
    for old, new in (line for part in parts for line in csv.reader(part.read_text().splitlines())):
        local(new).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(local(old), local(new))
