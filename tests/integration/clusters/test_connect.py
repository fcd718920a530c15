"""Spark Connect: the sink is installed where the server runs, and clients need not know of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.spark.cluster_environment import documented
from support.spark.cluster_tables import Lake
from support.spark.connect import EVENTS, Client
from support.spark.jobs import write_source

from iceberg_ds.snapshots.txn import EPOCHS

ON_SERVER = {"catalog": "lake"}  # the server's environment describes it

pytestmark = pytest.mark.timeout(900)


@pytest.mark.exhaustive
def test_client_needs_pyspark_alone(thin_client: Client, lake: Lake) -> None:
    """Every notebook that connects would need the sink, PyIceberg and the catalog's settings."""
    table, replaced = lake.new_name(), lake.new_name()

    modules, *_ = thin_client.run(
        ("modules", []),
        ("write", [table, ON_SERVER, ["append", 0, 10], ["append", 10, 20]]),
        ("write", [replaced, lake.options, ["append", 0, 10], ["overwrite", 5, 8]]),
    )

    thin_client.call("-c", documented("connect"))

    assert modules == ["grpc"]
    assert lake.ids(table) == list(range(20))
    assert len(lake.summaries(table)) == 2
    assert lake.ids(replaced) == [5, 6, 7]
    assert lake.ids("db.from_a_notebook") == list(range(10))


@pytest.mark.exhaustive
def test_streams_of_a_client_land_once(thin_client: Client, lake: Lake, tmp_path: Path) -> None:
    """A client that starts its stream again would write the rows again."""
    table, several, source = lake.new_name(), [lake.new_name(), lake.new_name()], tmp_path / "source"
    write_source(source, [range(10), range(10, 20)])
    one = ("stream", [table, ON_SERVER, str(source), str(tmp_path / "one")])
    many = ("split", [several, ON_SERVER, str(source), str(tmp_path / "many")])

    before = thin_client.run(one)
    write_source(source, [range(20, 30)], first_file=2)
    after, _ = thin_client.run(one, many)

    assert before == [after]
    assert lake.ids(table) == list(range(30))
    assert [found[EPOCHS.number_key] for found in lake.summaries(table)] == ["0", "1", "2"]
    assert [lake.ids(name) for name in several] == [list(range(30))] * 2


@pytest.mark.exhaustive
def test_client_is_told_what_to_do_and_no_secret(thin_client: Client, lake: Lake, connect_folder: Path) -> None:
    """A client would read of an error on the server, or the server's credentials."""
    table, secret = lake.new_name(), lake.service.properties["s3.secret-access-key"]

    _, wrong_type, missing, misspelt, refused = thin_client.run(
        ("write", [table, ON_SERVER, ["append", 0, 10]]),
        ("refusal", [table, ON_SERVER]),
        ("refusal", ["db.none", {**lake.options, "create-table": "false"}]),
        ("refusal", [table, {**ON_SERVER, "merge-shema": "true"}]),
        ("refusal", [lake.new_name(), {**lake.options, "catalog.s3.access-key-id": "nobody"}]),
    )

    assert "column 'id' is string in the DataFrame and bigint in the table: cast it to that" in wrong_type
    assert "Table db.none does not exist in catalog" in missing
    assert "create-table" in missing
    assert "merge-schema" in misspelt
    assert "DataFileError" in refused or "CatalogError" in refused
    assert secret not in wrong_type + missing + misspelt + refused
    assert secret not in (connect_folder / "server.log").read_text(errors="replace")


@pytest.mark.exhaustive
def test_client_that_has_the_sink_can_register_distribute_and_publish(full_client: Client, lake: Lake) -> None:
    """The functions of the package would work in Spark's classic sessions only."""
    table = lake.new_name()

    assert full_client.run(("package", [table, lake.options])) == ["2147483647"]

    assert lake.ids(table) == list(range(50))
    assert len(lake.summaries(table)) == 2


@pytest.mark.exhaustive
def test_client_that_has_the_sink_can_read(full_client: Client, lake: Lake, tmp_path: Path) -> None:
    """Deleted rows would come back in a notebook that connects, or it could not read at all."""
    table, local = lake.new_name(), {"warehouse": str(tmp_path / "warehouse")}
    wanted = [[number, f"from {0 if number < 20 else 20}"] for number in range(60)]

    _, in_store, _, by_spark, by_tasks = full_client.run(
        ("upsert", [table, lake.options]),
        ("read_back", [table, lake.options, "auto"]),
        ("upsert", ["db.read", local]),
        ("read_back", ["db.read", local, "spark"]),
        ("read_back", ["db.read", local, "python"]),
    )

    assert in_store == by_spark == by_tasks == [wanted, [row for row in wanted if row[0] % 2 == 0]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_client_that_has_the_sink_can_change_rows(full_client: Client, lake: Lake, tmp_path: Path, mode: str) -> None:
    """A notebook that connects could not correct a row, or would not see what became of it."""
    table, copy = lake.new_name(), lake.new_name()
    follow = ("copy_by_changes", [table, copy, lake.options, str(tmp_path / "checkpoint")])

    read, read_copy = (("read_back", [name, lake.options, "auto"]) for name in (table, copy))
    found, _, _, rows, copied = full_client.run(
        ("change_rows", [table, lake.options, mode]), follow, follow, read, read_copy
    )

    *counts, changes = found
    assert counts == [3, 4, 5, 10]
    assert changes == {"INSERT": 30, "DELETE": 3, "UPDATE_BEFORE": 9, "UPDATE_AFTER": 9}
    assert [row[0] for row in rows[0]] == lake.ids(table) == list(range(3, 30))
    assert copied == rows


@pytest.mark.exhaustive
def test_client_that_has_the_sink_can_keep_a_table_small(full_client: Client, lake: Lake) -> None:
    """Whoever has a notebook that connects, and nothing else, could not compact a table."""
    table = lake.new_name()

    assert full_client.run(("keep_small", [table, lake.options])) == [[3, 3]]

    assert lake.ids(table) == [0, 1, 2]
    assert len(lake.summaries(table)) == 1


@pytest.mark.exhaustive
def test_client_that_has_the_sink_sees_the_progress_of_its_stream(
    full_client: Client, lake: Lake, tmp_path: Path
) -> None:
    """A stream of a client could not be watched from where it was started."""
    table, source = lake.new_name(), tmp_path / "source"
    write_source(source, [range(10), range(10, 15)])

    (found,) = full_client.run(("progress", [table, lake.options, str(source), str(tmp_path / "checkpoint")]))

    assert found == [1, "table", 5, 1]


@pytest.mark.exhaustive
def test_client_that_has_the_sink_can_convert_deletes(full_client: Client, lake: Lake) -> None:
    """A notebook that connects could not make a table readable for all."""
    table = lake.new_name()

    assert full_client.run(("convert", [table, lake.options])) == [[20, 1, None]]

    assert lake.ids(table) == list(range(60))


@pytest.mark.exhaustive
def test_client_that_has_the_sink_can_upsert(full_client: Client, lake: Lake, tmp_path: Path) -> None:
    """A notebook that connects could not write by key into a table that all can read, or its stream would twice."""
    marked, rewritten, streamed, source = lake.new_name(), lake.new_name(), lake.new_name(), tmp_path / "source"
    write_source(source, [range(10), range(5, 15)])
    numbered = {**lake.options, "txn-app-id": "visits"}

    *batches, _, _ = full_client.run(
        ("upsert", [marked, lake.options]),
        ("upsert", [rewritten, {**lake.options, "delete-encoding": "copy-on-write"}]),
        ("upsert_stream", [streamed, numbered, str(source), str(tmp_path / "one")]),
        ("upsert_stream", [streamed, numbered, str(source), str(tmp_path / "again")]),
    )

    assert batches == [[40, 20], [40, 20]]
    assert lake.ids(marked) == lake.ids(rewritten) == list(range(60))
    assert lake.ids(streamed) == list(range(15))
    assert len(lake.summaries(streamed)) == 2


@pytest.mark.exhaustive
def test_client_that_has_the_sink_can_write_several_tables_together(full_client: Client, lake: Lake) -> None:
    """A notebook that connects could not write two tables in one epoch."""
    tables = [lake.new_name(), lake.new_name()]

    (told,) = full_client.run(("transaction", [tables, lake.options]))

    assert told == [[20, False], [20, False], [0, True], [0, True]]
    assert [lake.ids(table) for table in tables] == [list(range(20))] * 2


@pytest.mark.exhaustive
def test_client_keeps_transactions_of_the_source_whole(full_client: Client, lake: Lake, tmp_path: Path) -> None:
    """A client that starts its stream again would lose what was held, or show a part of it."""
    table, source = lake.new_name(), tmp_path / "source"
    write_source(source, [range(10), range(10, 20)])
    step = ("whole_sevens", [table, lake.options, str(source), str(tmp_path / "checkpoint")])

    full_client.run(step)
    before = lake.ids(table)
    write_source(source, [range(20, 30)], first_file=2)
    full_client.run(step)

    assert before == list(range(14))
    assert lake.ids(table) == list(range(28))


@pytest.mark.exhaustive
def test_client_that_registers_has_its_secrets_hidden_in_event_logs(
    full_client: Client, lake: Lake, connect_folder: Path
) -> None:
    """Spark Connect would keep every option of every write in clear, in files for all who look at old jobs."""
    secret = "MARKED-secret-of-an-option"  # noqa: S105  # the thing to hide
    options = {**lake.options, "catalog.header.x-any": secret, "catalog.token": secret}

    full_client.run(("package", [lake.new_name(), options]))

    events = "".join(path.read_text() for path in (connect_folder / EVENTS).rglob("*") if path.is_file())
    assert "SparkListenerConnectOperationStarted" in events
    assert "*********(redacted)" in events
    assert secret not in events
