"""Tables whose names need backticks: every way into the package finds the one table that is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from support.tables.sink import SCHEMA, Sink, epoch, rows

from iceberg_ds import convert_deletes, publish, verify
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.cli import main
from iceberg_ds.errors import OptionError, SchemaMismatchError
from iceberg_ds.inspect.check import check
from iceberg_ds.options.parse import parse_options

NAME = "`db`.`my.table`"
SHOWN = "db.`my.table`"


def sink_of(warehouse: Path, name: str = NAME, **options: str) -> Sink:
    """Return a table of the embedded catalog."""
    parsed = parse_options({"path": name, "warehouse": str(warehouse), **options})
    return Sink(catalog=connect(catalog_settings(parsed)), options=parsed)


def tables(warehouse: Path) -> list[tuple[str, ...]]:
    """Return what PyIceberg finds in namespace `db`."""
    properties = {"type": "sql", "uri": f"sqlite:///{warehouse}/catalog.db", "warehouse": f"file://{warehouse}"}
    catalog = load_catalog("default", **properties)
    return catalog.list_tables("db")


@pytest.mark.parametrize("name", [NAME, SHOWN, "db.`my.table` "])
def test_batch_creates_and_finds_the_table_that_is_named(tmp_path: Path, name: str) -> None:
    """Rows would go into another table, in a namespace that nobody asked for."""
    sink = sink_of(tmp_path, name)

    sink.append(1)
    sink.append(2)

    assert tables(tmp_path) == [("db", "my.table")]
    assert sink.ids() == [1, 2]


def test_level_of_its_own_is_found_by_option_and_namespace(tmp_path: Path) -> None:
    """A table whose name has a dot could not be named beside `namespace`."""
    sink_of(tmp_path).append(1)

    parsed = parse_options({"table": "`my.table`", "namespace": "`db`", "warehouse": str(tmp_path)})

    assert parsed.table == ("db", "my.table")
    assert Sink(catalog=connect(catalog_settings(parsed)), options=parsed).ids() == [1]


def test_epochs_and_aborted_writes_and_overwrites_find_the_table(tmp_path: Path) -> None:
    """A replay would land again, or its commit fail for a table that is not there."""
    sink = sink_of(tmp_path)
    messages = sink.write(rows(1), of_epoch=epoch(0))

    sink.commit(messages)
    replay = sink.commit(sink.write(rows(1), of_epoch=epoch(0)))
    sink.overwrite(rows(5), replace_where="id < 9")

    assert replay.was_replayed
    assert sink.ids() == [5]


def test_branch_is_published(tmp_path: Path) -> None:
    """What was audited could not be shown."""
    sink_of(tmp_path).append(1)
    audit = {"branch": "audit", "create-branch": "true"}
    sink_of(tmp_path, **audit).append(2)

    publish(NAME, "audit", options={"warehouse": str(tmp_path)})

    assert sink_of(tmp_path).ids() == [1, 2]


def test_deletes_by_keys_are_converted_and_the_table_is_verified(tmp_path: Path) -> None:
    """Tables with such names could be written, and not looked after."""
    sink = sink_of(tmp_path, keys="id")
    for number in (0, 1):
        sink.commit(sink.write(rows(1), plan=sink.plan(SCHEMA), of_epoch=epoch(number)))
    options: dict[str, Any] = {"warehouse": str(tmp_path)}

    converted = convert_deletes(NAME, options=options)
    found = verify(NAME, options=options)
    checked = check(NAME, options=options, schema="id BIGINT NOT NULL, name STRING")

    assert converted.table == SHOWN
    assert sink_of(tmp_path).ids() == [1]
    assert (found.table, found.ok) == (SHOWN, True)
    assert checked.ok


def test_published_conversion_finds_the_table(tmp_path: Path) -> None:
    """Epochs would wait on their branch for ever."""
    sink = sink_of(tmp_path, keys="id", **{"publish-converted": "true"})

    for number in (0, 1):
        sink.commit(sink.write(rows(1), plan=sink.plan(SCHEMA), of_epoch=epoch(number)))

    assert sink_of(tmp_path).ids() == [1]


def test_command_line_takes_backticks(tmp_path: Path) -> None:
    """Tables with such names could not be proven whole by a script."""
    sink_of(tmp_path).append(1)

    result = CliRunner().invoke(main, ["verify", NAME, "--option", f"warehouse={tmp_path}", "--json"])

    assert result.exit_code == 0, result.output
    assert '"table": "db.`my.table`"' in result.output


def test_errors_show_the_name_as_it_can_be_given_back(tmp_path: Path) -> None:
    """A user would look for the table in a namespace that is not there."""
    sink_of(tmp_path).append(1)
    renamed = type(SCHEMA)([SCHEMA[0], type(SCHEMA[1])("nom", SCHEMA[1].dataType)])

    with pytest.raises(SchemaMismatchError, match=r"ALTER TABLE db\.`my\.table` RENAME COLUMN name TO nom"):
        sink_of(tmp_path).plan(renamed)


@pytest.mark.parametrize("place", ["path", "table"])
def test_backtick_without_counterpart_is_refused(tmp_path: Path, place: str) -> None:
    """A table with a backtick in its name would be created by a slip."""
    with pytest.raises(OptionError, match="each as it is or whole in backticks"):
        parse_options({place: "db.`t", "warehouse": str(tmp_path)})
