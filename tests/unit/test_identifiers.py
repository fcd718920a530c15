"""Names of tables as text: what Spark understands, and the way back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_ds.table.names import identifier_text, names_branch, parse_identifier

LEVELS = st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("db.events", ("db", "events")),
        ("a.b.c.t", ("a", "b", "c", "t")),
        ("`db`.`my.table`", ("db", "my.table")),
        ("db.`my table`", ("db", "my table")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("`a``.``b`.t", ("a`.`b", "t")),
        ("db.``````", ("db", "``")),
        (" db . ` t ` ", ("db", " t ")),
        ("db.my-table", ("db", "my-table")),
        ("db.größe", ("db", "größe")),
        ("db.2026", ("db", "2026")),
    ],
)
def test_identifier_has_the_levels_that_spark_sees(text: str, levels: tuple[str, ...]) -> None:
    """Rows would go into another table."""
    assert parse_identifier(text) == levels


@pytest.mark.parametrize("text", ["", " ", "db.", ".t", "db..t", "db.``", "db.` `"])
def test_blank_levels_are_refused(text: str) -> None:
    """A table without a name would be created."""
    with pytest.raises(ValueError, match="expected namespace and table separated by a dot"):
        parse_identifier(text)


@pytest.mark.parametrize(
    "text",
    [
        *("s3://my.bucket/lake/t", "abfss://c@account.dfs.core.windows.net/db/t", "hdfs://nn:8020/lake/db.db/t"),
        *("file:/lake/db.db/t", "/lake/db.db/t", " /lake/db/t", "./db.t", "../db/t", "~/db.t", "C:\\lake\\db.t"),
        *("s3://bucket/t", "jdbc:postgresql://h/db.t"),
    ],
)
def test_place_is_no_name_of_a_table(text: str) -> None:
    """Users who name a place elsewhere got a new table in namespaces made of its parts, and their own had no row."""
    with pytest.raises(ValueError, match="and this is a place: tables belong to a catalog"):
        parse_identifier(text)


@pytest.mark.parametrize(("text", "levels"), [("db.a/b", ("db", "a/b")), ("`/x`.t", ("/x", "t"))])
def test_slash_within_a_name_is_no_place(text: str, levels: tuple[str, ...]) -> None:
    """A table that others have made could not be written."""
    assert parse_identifier(text) == levels


@pytest.mark.parametrize("text", ["db.`t", "db.t`", "db.a`b", "`db`t", "db.`a`b`", "`db`.`t`x"])
def test_backticks_without_counterpart_are_refused(text: str) -> None:
    """Rows would go into a table with a backtick in its name, instead of the one that is meant."""
    with pytest.raises(ValueError, match="each as it is or whole in backticks"):
        parse_identifier(text)


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        (("db", "events"), "db.events"),
        (("db", "my.table"), "db.`my.table`"),
        (("a`b", "t t"), "`a``b`.`t t`"),
        (("db", "2026"), "db.`2026`"),
        (("db", "my-table"), "db.`my-table`"),
    ],
)
def test_text_shows_what_belongs_to_which_level(levels: tuple[str, ...], text: str) -> None:
    """An error would name another table than the one that it is about."""
    assert identifier_text(levels) == text


@given(LEVELS)
def test_text_is_parsed_to_the_levels_that_it_is_made_of(levels: list[str]) -> None:
    """A commit would go into another table than the one that was planned for."""
    assert parse_identifier(identifier_text(levels)) == tuple(levels)


@pytest.mark.parametrize(
    ("level", "branch"),
    [
        ("branch_audit", "audit"),
        ("branch_a b", "a b"),
        ("tag_v1", ""),
        ("snapshot_id_17", ""),
        ("at_timestamp_17", ""),
        ("snapshot_id_x", None),
        ("branch_", None),
        ("my_branch_x", None),
    ],
)
def test_what_the_runtime_reads_as_a_part_of_a_table(level: str, branch: str | None) -> None:
    """A user of the runtime would write to a new table instead of the branch."""
    assert names_branch(level) == branch
