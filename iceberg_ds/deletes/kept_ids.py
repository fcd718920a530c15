"""New rows take over the ids of the rows that they replace, in tables of format version 3: they are the same rows.

The tasks of a search write the ids of the rows that they find, with their keys, into files that are in no table. Then
the data files of the new rows whose keys were found are written once more, with these ids in a column. Rows of other
keys inherit new ids. Of several old rows of a key the one with the highest data sequence number stays, and of these the
one with the highest id: a row that an equality delete of the key hides has a lower number than the delete, and one
that the delete does not hide has none that is lower. Their ids may say otherwise, as in a table that was upgraded.
Source: Iceberg spec, "Row Lineage"; it leaves to the writer whether a row that is replaced by its key stays the same
row.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from iceberg_ds.cdc.dedup import key_names
from iceberg_ds.deletes.key_reader import KeyedRowReader
from iceberg_ds.deletes.match import ID, POSITION
from iceberg_ds.deletes.work import SearchPlan
from iceberg_ds.errors import DataFileError
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.messages import TaskCommit
from iceberg_ds.secrets import task_problem
from iceberg_ds.spark.task_job import TaskJob
from iceberg_ds.table.bin_packing import packed
from iceberg_ds.table.lineage import ROW_ID, FileLineage, KeptIds
from iceberg_ds.table.partitioning import identity_values
from iceberg_ds.writers.rewriting import FileRewriter
from iceberg_ds.writers.task_writer import TaskAttempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = "file"
_SEQUENCE = "sequence_number"
# Rows of new data files that a task writes again; up to as many in all, the driver does: a job of Spark takes longer.
_TASK_ROWS = 500_000


def ids_of(rows: pa.Table, positions: pa.Array, lineage: FileLineage) -> pa.Table:
    """Return keys and ids of the rows of a data file at some positions.

    Args:
        rows: `matched_rows` of the file.
        positions: The positions.
        lineage: What rows of the file inherit.
    """
    rows = rows.filter(pc.is_in(rows.column(POSITION), value_set=positions))
    ids = lineage.column(ROW_ID.name, rows.column(ID), rows.column(POSITION))
    return rows.set_column(rows.column_names.index(ID), ID, ids).drop_columns([POSITION])


class IdsFile:
    """A file of keys and ids of rows of data files; without rows it is not written.

    Args:
        io: Opens the table's storage.
        path: Where it goes.

    Attributes:
        path: As above.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self.path = path
        self._io = io
        self._parts: list[pa.Table] = []

    def add(self, data_file: str, sequence_number: int, rows: pa.Table) -> None:
        """Add the rows of a data file with this data sequence number, as `ids_of` returns them."""
        file = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows), pa.array([data_file]))
        number = pa.repeat(pa.scalar(sequence_number, pa.int64()), rows.num_rows)
        self._parts.append(rows.append_column(_FILE, file).append_column(_SEQUENCE, number))

    def close(self) -> None:
        """Write the file."""
        if self._parts:
            with self._io.new_output(self.path).create() as stream:
                pq.write_table(pa.concat_tables(self._parts).unify_dictionaries(), stream)

    def discard(self) -> None:
        """Delete the file."""
        if self._parts:
            delete_files(self._io, [self.path], Proof.TASK_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What tasks are told.

    Attributes:
        search: The plan of the search.
        ids: Paths of the files of ids, each with the data files whose rows count in it.
        as_written: Paths of the data files that are as tasks wrote them: no row of these has a kept id yet.
    """

    search: SearchPlan
    ids: Mapping[str, frozenset[str]]
    as_written: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a task wrote: new files by the path of the file whose rows they have; of files that stay, none."""

    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    problem: str | None = None


def with_kept_ids(  # noqa: PLR0913  # the last by name
    spark: SparkSession | None,
    plan: SearchPlan,
    ids: Mapping[str, frozenset[str]],
    commits: Sequence[TaskCommit],
    io: FileIO,
    *,
    as_written: frozenset[str],
) -> list[TaskCommit]:
    """Return the messages of tasks with data files in which rows have the ids of those that they replace.

    The files whose place others take are deleted; no snapshot has them. Ids that an earlier search has found, and this
    one has not, are taken back: the rows that had them may live on under another key.

    Args:
        spark: Runs the tasks; None to run them in this process.
        plan: The plan of the search.
        ids: Paths of the files of ids, each with the data files whose rows count in it.
        commits: The messages.
        io: Opens the table's storage.
        as_written: Paths of the data files that the tasks themselves wrote.

    Raises:
        DataFileError: Files could not be written; none of the new ones is left.
    """
    data_files = [file for commit in commits for file in commit.data_files]
    if not data_files or not (ids or any(file.file_path not in as_written for file in data_files)):
        return list(commits)
    told = _Plan(search=plan, ids=ids, as_written=as_written)
    write = plan.writing.write
    job = TaskJob(plan=told, write=write, action=f"keep row ids of {write.table}", answer=_answer, refuse=_refused)
    groups = list(packed(data_files, _TASK_ROWS, attrgetter("record_count")))
    answers = job.run(spark if len(groups) > 1 else None, groups)
    again = {path: files for answer in answers for path, files in answer.files.items()}
    if (problem := next((answer.problem for answer in answers if answer.problem), None)) is not None:
        delete_files(io, [file.file_path for files in again.values() for file in files], Proof.NEVER_SENT)
        raise DataFileError(f"Cannot write to {write.table}, nothing was committed: a task failed: {problem}")
    delete_files(io, list(again), Proof.NEVER_SENT)
    return [
        replace(
            commit,
            data_files=tuple(new for file in commit.data_files for new in again.get(file.file_path, (file,))),
        )
        for commit in commits
    ]


def _refused(problem: str) -> _Answer:
    return _Answer(problem=problem)


def _answer(plan: _Plan, number: int, work: Sequence[DataFile]) -> _Answer:
    """Write some data files again, with the ids that their rows keep."""
    attempt = TaskAttempt(partition_id=number, task_attempt_id=uuid.uuid4().int >> 96)
    writing = plan.search.writing
    io = file_io(writing.io_properties, writing.location)
    rewriter = FileRewriter(io, writing, attempt)
    written: dict[str, tuple[DataFile, ...]] = {}
    try:
        for path, kept in _kept(plan, io, work).items():
            file = next(one for one in work if one.file_path == path)
            spec, order = plan.search.specs[file.spec_id], plan.search.sort_orders.get(file.sort_order_id or 0)
            written[path] = rewriter.rewrite(file, spec, order, pa.array([], pa.int64()), kept)
    except BaseException as error:  # of any storage library
        delete_files(io, [file.file_path for files in written.values() for file in files], Proof.TASK_FAILED)
        if not isinstance(error, Exception):
            raise
        return _Answer(problem=task_problem(error, writing.io_properties))
    return _Answer(files=written)


def _kept(plan: _Plan, io: FileIO, work: Sequence[DataFile]) -> dict[str, KeptIds]:
    """Return the ids that rows of data files keep, by path; without files that are to stay as they are."""
    names = key_names([*plan.search.key_types])
    rows = pa.concat_tables(_keys_of(plan, io, number, file, names) for number, file in enumerate(work))
    found: dict[int, list[pa.Table]] = defaultdict(list)
    for ids in _ids(io, plan.ids):
        hits = rows.join(ids, names, join_type="inner").select([_FILE, POSITION, _SEQUENCE, ID])
        for number in pc.unique(hits.column(_FILE)).to_pylist():
            found[number].append(hits.filter(pc.equal(hits.column(_FILE), number)))
    none = KeptIds(positions=pa.array([], pa.int64()), row_ids=pa.array([], pa.int64()))
    kept = {file.file_path: none for file in work if file.file_path not in plan.as_written}
    for number, parts in found.items():
        kept[work[number].file_path] = _last(pa.concat_tables(parts))
    return kept


def _last(hits: pa.Table) -> KeptIds:
    """Return the id of the last old row of each new one."""
    ordered = hits.sort_by([(POSITION, "ascending"), (_SEQUENCE, "descending"), (ID, "descending")])
    last = ordered.group_by([POSITION], use_threads=False).aggregate([(ID, "first")])
    positions, row_ids = (last.column(name).combine_chunks() for name in (POSITION, f"{ID}_first"))
    return KeptIds(positions=positions, row_ids=row_ids)


def _keys_of(plan: _Plan, io: FileIO, number: int, file: DataFile, names: Sequence[str]) -> pa.Table:
    """Return file number, position and canonical keys of all rows of a data file."""
    values = identity_values(file, plan.search.specs[file.spec_id])
    parts = []
    for rows in KeyedRowReader(io, plan.search.key_types).read(file.file_path, values):
        columns = [pa.repeat(pa.scalar(number, pa.int32()), len(rows)), rows.positions, *rows.keys]
        parts.append(pa.Table.from_arrays(columns, names=[_FILE, POSITION, *names]))
    return pa.concat_tables(parts)


def _ids(io: FileIO, paths: Mapping[str, frozenset[str]]) -> Iterable[pa.Table]:
    """Yield keys and ids of the rows that count, of each file of ids."""
    for path, data_files in paths.items():
        with io.new_input(path).open() as stream:
            ids = pq.read_table(stream)
        counts = pc.is_in(ids.column(_FILE).cast(pa.string()), value_set=pa.array(sorted(data_files)))
        yield ids.filter(counts).drop_columns([_FILE])
