"""Random change feeds into a table that Iceberg's own Spark runtime reads, merges into and compacts between epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from support.keys.machine import ID, LSN, REGION, REGIONS, KeyedTable, Row
from support.peer.jvm_peer import CATALOG, PeerCatalog, shared_peer
from support.tables.sink import NAME

MODES = ("copy-on-write", "merge-on-read")
# Of each key: its number, its region, and whether its row goes.
merged = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(REGIONS), st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row[0],
)


class KeyedTableOfTwo(KeyedTable):
    """The table in the hands of the sink and of the runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.jvm: PeerCatalog = shared_peer().open_catalog(self.folder)

    def teardown(self) -> None:
        """Read by the runtime once more, and let go of its session."""
        try:
            super().teardown()
        finally:
            self.jvm.close()

    def names(self) -> dict[int, str]:
        """Return the table's columns by their ids."""
        return {field.field_id: f"`{field.name}`" for field in self.sink.table().schema().fields}

    def call(self, procedure: str, arguments: str = "") -> None:
        """Call one of the runtime's procedures."""
        self.jvm.run(f"CALL {CATALOG}.system.{procedure}(table => '{NAME}'{arguments and ', ' + arguments})")
        self.note()

    @rule(is_all=st.booleans())
    @precondition(lambda self: self.history)
    def compact(self, *, is_all: bool) -> None:
        """Rewrite data files."""
        option = (
            "'rewrite-all', 'true'" if is_all else "'delete-file-threshold', '1', 'remove-dangling-deletes', 'true'"
        )
        self.call("rewrite_data_files", f"options => map({option})")

    @rule()
    @precondition(lambda self: self.history)
    def compact_position_deletes(self) -> None:
        """Rewrite files of position deletes."""
        self.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")

    @rule(mode=st.sampled_from(MODES), rows=merged)
    @precondition(lambda self: self.history)
    def merge(self, mode: str, rows: Sequence[tuple[int, str, bool]]) -> None:
        """Merge rows in: of each key they delete, update or insert."""
        names, number = self.names(), next(self.numbers)
        self.jvm.run(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.merge.mode' = '{mode}')")
        values = ", ".join(f"({key}, '{region}', {str(gone).lower()})" for key, region, gone in rows)
        same = " AND ".join(f"t.{names[number]} = s.k{number}" for number in self.keys)
        self.jvm.run(
            f"MERGE INTO {NAME} t USING (SELECT col1 AS k{ID}, col2 AS k{REGION}, col3 AS gone FROM VALUES {values}) s "  # noqa: S608
            f"ON {same} WHEN MATCHED AND gone THEN DELETE WHEN MATCHED THEN UPDATE SET t.{names[LSN]} = {number} "
            f"WHEN NOT MATCHED AND NOT gone THEN INSERT ({names[ID]}, {names[REGION]}, {names[LSN]}) "
            f"VALUES (k{ID}, k{REGION}, {number})"
        )
        for key, region, gone in rows:
            row: Row = {ID: key, REGION: region, LSN: number}
            found = self.model.pop(self.key_of(row), [])
            if found and not gone:
                self.model[self.key_of(row)] = [{**old, LSN: number} for old in found]
            elif not found and not gone:
                self.model[self.key_of(row)] = [row]
        self.note()

    @rule(mode=st.sampled_from(MODES), key=st.integers(0, 4))
    @precondition(lambda self: self.history)
    def delete(self, mode: str, key: int) -> None:
        """Delete the rows with a number."""
        self.jvm.run(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
        self.jvm.run(f"DELETE FROM {NAME} WHERE {self.names()[ID]} = {key}")  # noqa: S608  # no outside input
        self.model = {known: rows for known, rows in self.model.items() if rows[0][ID] != key}
        self.note()

    @invariant()
    def runtime_reads_the_model(self) -> None:
        """Read the table by the runtime."""
        found: list[list[Any]] = self.jvm.run(f"SELECT * FROM {NAME}").rows  # noqa: S608  # no outside input
        assert sorted(found, key=str) == self.expected(self.sink.table())


@pytest.mark.exhaustive
@pytest.mark.timeout(900)  # the first one may have to make the peer's environment
@pytest.mark.usefixtures("peer")
class TestKeyedTableOfTwo(KeyedTableOfTwo.TestCase):  # type: ignore[misc]  # Hypothesis makes it
    """The machine as a test."""

    settings = settings(max_examples=4, stateful_step_count=12)
