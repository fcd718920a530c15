"""Random writes and deletes with rewrites in between and beside them, against a table that is never rewritten."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import AddPartitionSpecUpdate, SetDefaultSpecUpdate
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from support.checks.invariants import check_clean, check_sound
from support.checks.reader import listed, rows_of, visible_rows
from support.exhaustive import examples
from support.keys.conversions import ENCODINGS, convert, meanwhile
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_equal, delete_positions, with_ids
from support.tables.sink import Sink, embedded_options

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.fault_points import FaultPoint

STEPS = [
    FaultPoint.PLANNED,
    FaultPoint.FILE_CLOSED,
    FaultPoint.TASK_WRITTEN,
    FaultPoint.COMMIT_BEGUN,
    FaultPoint.TABLE_LOADED,
    FaultPoint.MANIFESTS_WRITTEN,
    FaultPoint.REQUEST_ANSWERED,
    FaultPoint.CLEANING_UP,
]
IDS = st.integers(0, 9)
changes = st.one_of(
    st.tuples(st.just("append"), st.lists(IDS, min_size=1, max_size=4)),
    st.tuples(st.just("delete keys"), st.lists(IDS, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("delete row"), st.integers(0, 99)),
    st.tuples(st.just("replace"), IDS),
    st.tuples(st.just("convert"), st.sampled_from(ENCODINGS)),
)
wishes = st.fixed_dictionaries(
    {},
    optional={
        "min_input_files": st.sampled_from(["1", "2"]),
        "rewrite_all": st.just("true"),
        "target_file_size_bytes": st.sampled_from(["700", "2000"]),
        "use_starting_sequence_number": st.just("false"),
        "remove_dangling_deletes": st.just("true"),
        "partial_progress_enabled": st.just("true"),
        "max_files_to_rewrite": st.sampled_from(["2", "4"]),
        "delete_ratio_threshold": st.sampled_from(["0.1", "1.0"]),
        "where": st.just("id < 5"),
        "strategy": st.just("sort"),
    },
)
rewrites = st.tuples(
    st.just("rewrite"),
    wishes,
    st.sampled_from(STEPS),
    st.lists(changes, max_size=3),
    st.booleans(),
)
histories = st.lists(st.one_of(changes, changes, rewrites, st.just(("partition",))), min_size=3, max_size=14)


class Died(BaseException):
    """A process dies."""


@settings(max_examples=examples(40))
@given(history=histories)
@example(history=[("rewrite", {"rewrite_all": "true"}, FaultPoint.TASK_WRITTEN, [("delete row", 1)], False)])
def test_rewrites_change_no_row(history: Any) -> None:
    """Rows would come back, be lost or be doubled, for some order of writes, deletes and rewrites."""
    folder = Path(tempfile.mkdtemp())
    try:
        _Trial(folder).run(history)
    finally:
        shutil.rmtree(folder)


def _sink(folder: Path) -> Sink:
    options = embedded_options(folder)
    return Sink(catalog=connect(catalog_settings(options)), options=options)


class _Trial:
    """Two tables with the same history, of which only one is rewritten."""

    def __init__(self, folder: Path) -> None:
        self._rewritten, self._plain = _sink(folder / "rewritten"), _sink(folder / "plain")
        self._number = itertools.count()
        self._died = False
        self._append([0, 1, 2])

    def run(self, history: Sequence[Any]) -> None:
        """Let it happen, and look at both tables after each step."""
        for name, *what in history:
            if name == "rewrite":
                self._rewrite(*what)
            elif name == "partition":
                self._partition()
            else:
                self._change(name, *what)
            found, expected = (rows_of(sink.table()) for sink in self._both)
            assert found == expected
            (check_sound if self._died else check_clean)(self._rewritten.table())

    @property
    def _both(self) -> tuple[Sink, Sink]:
        return self._rewritten, self._plain

    def _change(self, name: str, what: Any) -> None:
        match name:
            case "append":
                self._append(what)
            case "delete keys":
                for sink in self._both:
                    _delete_keys(sink, what)
            case "delete row":
                self._delete_row(what)
            case "replace":
                self._replace(what)
            case "convert":
                for sink in self._both:
                    convert(sink, what)

    def _append(self, ids: Sequence[int]) -> None:
        rows = [{"id": number, "name": f"row {next(self._number)}"} for number in ids]
        for sink in self._both:
            sink.commit(sink.write(rows))

    def _delete_row(self, chosen: int) -> None:
        """Delete one row by its position, which is another one in each table."""
        names = [row["name"] for row in rows_of(self._plain.table())]
        if not names:
            return
        for sink in self._both:
            path, position = next(
                (path, position)
                for path, position, row in visible_rows(sink.table())
                if row["name"] == names[chosen % len(names)]
            )
            delete_positions(sink, path, [position])

    def _replace(self, low: int) -> None:
        if listed(self._plain.table())[DataFileContent.EQUALITY_DELETES]:
            return  # files cannot be replaced in part
        rows = [{"id": low, "name": f"row {next(self._number)}"}]
        for sink in self._both:
            sink.overwrite(rows, replace_where=f"id between {low} and {low + 2}")

    def _partition(self) -> None:
        for sink in self._both:
            table = sink.table()
            if len(table.specs()) > 1:
                return
            spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "bucket"), spec_id=1)
            with table.transaction() as transaction:
                transaction._apply((AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate(spec_id=-1)), ())

    def _rewrite(self, wish: dict[str, str], step: FaultPoint, beside: Sequence[Any], dies: bool) -> None:  # noqa: FBT001
        def happen() -> None:
            for change in beside:
                self._change(*change)
            if dies:
                raise Died

        order = {"sort_order": "name desc"} if wish.get("strategy") == "sort" else {}
        with meanwhile(step, happen) as done:
            try:
                rewrite(self._rewritten, **{"min_input_files": "2", **wish, **order})  # type: ignore[arg-type]
            except Died:
                self._died = True
        if not done:
            for change in beside:
                self._change(*change)


def _delete_keys(sink: Sink, ids: Sequence[int]) -> None:
    """Delete by keys in the whole table: the first spec has no partitions."""
    everywhere = DataFile.from_args(content=DataFileContent.DATA, file_path="", partition=Record())
    everywhere.spec_id = 0
    delete_equal(sink, with_ids(pa.table({"id": pa.array(ids, pa.int64())}), id=1), [1], of=everywhere)
