"""One task of a search: finds rows by key or position, and hides them by position deletes or rewrites their files.

Knows neither Spark nor the catalog, and publishes nothing. A task that fails says so in its answer and leaves no file,
so that no message of another task is lost, as it would be if the job failed.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from iceberg_ds.deletes.hidden import hidden_by_position
from iceberg_ds.deletes.indexed import IndexedMatcher
from iceberg_ds.deletes.kept_ids import IdsFile, ids_of
from iceberg_ds.deletes.key_reader import SequenceRule
from iceberg_ds.deletes.match import Matcher, Matches
from iceberg_ds.deletes.work import (
    PORTION_ROWS,
    FileAnswer,
    FileWork,
    GroupAnswer,
    SearchPlan,
    WrittenDeletes,
    portions,
)
from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.plan import NO_SPEC
from iceberg_ds.secrets import task_problem
from iceberg_ds.snapshots.version_3 import first_row_id, lineage_of
from iceberg_ds.table.locations import FilePaths, data_locations
from iceberg_ds.table.name_mapping import parsed_mapping
from iceberg_ds.writers.deletion_vectors import write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows, positions_by_file, without, write_position_deletes
from iceberg_ds.writers.rewriting import FileRewriter
from iceberg_ds.writers.task_writer import TaskAttempt, name_prefix

# The largest number of positions of a task that wait to be written: 8 bytes each.
MOST_POSITIONS = 4_000_000


def answer_group(plan: SearchPlan, number: int, work: Sequence[FileWork]) -> GroupAnswer:
    """Look for keys in some data files, and return what was found and written.

    Args:
        plan: The plan of the search.
        number: Number of the group.
        work: The data files; files of one partition follow each other.
    """
    # A random number, so that no two attempts share a path.
    attempt = TaskAttempt(partition_id=number, task_attempt_id=uuid.uuid4().int >> 96)
    task = _Task(plan, attempt)
    try:
        return task.run(work)
    except Exception as error:  # of any storage library
        task.discard()
        return GroupAnswer(problem=task_problem(error, plan.writing.io_properties))
    except BaseException:
        task.discard()
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Positions of the visible rows of a data file that have one of the keys, and of its rows hidden before.

    Rows that win over the incoming row are not among `positions`; `late_keys` has their keys. `ids` has those of the
    rows at `positions`, and their keys.
    """

    work: FileWork
    positions: pa.Array
    hidden: pa.Array
    late_keys: pa.Table | None = None
    ids: pa.Table | None = None

    @property
    def all_hidden(self) -> pa.Array:
        """Positions of all its rows that do not stay, ascending, each once."""
        gone = pc.unique(pa.concat_arrays([self.positions, self.hidden])).sort()
        return gone.filter(pc.less(gone, self.work.data_file.record_count))

    @property
    def is_whole(self) -> bool:
        """Whether no row of the data file stays."""
        return len(self.all_hidden) == self.work.data_file.record_count


class _Task:
    def __init__(self, plan: SearchPlan, attempt: TaskAttempt) -> None:
        self._plan = plan
        self._io: FileIO = file_io(plan.writing.io_properties, plan.writing.location)
        self._finder = _finder(plan, self._io)
        self._rewriter = FileRewriter(self._io, plan.writing, attempt)
        prefix, writing = name_prefix(plan.writing, attempt), plan.writing
        places = data_locations(writing.location, writing.properties, writing.write.location_provider)
        self._paths = FilePaths(places, writing.schema, prefix, are_deletes=True)
        self._written_deletes: list[WrittenDeletes] = []
        self._rewritten: list[DataFile] = []
        self._waiting: list[HiddenRows] = []
        self._waiting_count = 0
        self._ids = IdsFile(self._io, self._paths.next(NO_SPEC, Record()))

    def run(self, work: Sequence[FileWork]) -> GroupAnswer:
        answers = []
        # With an index, each key is looked up once, and not in each partition again.
        known = self._finder.find(work) if isinstance(self._finder, IndexedMatcher) else None
        for items in portions(work, self._finder.portion_rows):
            for found in self._find(items, self._finder.find(items) if known is None else known):
                rewritten = self._hide(found) if len(found.positions) else None
                if found.ids is not None:
                    self._ids.add(found.work.path, found.work.sequence_number, found.ids)
                answers.append(
                    FileAnswer(
                        path=found.work.path,
                        sequence_number=found.work.sequence_number,
                        rows=len(found.positions),
                        rewritten=rewritten,
                        positions=found.work.hidden_by.names,
                        with_vectors=self._plan.with_vectors,
                        first_row_id=first_row_id(found.work.data_file),
                        late_keys=found.late_keys,
                        ids_path=None if found.ids is None else self._ids.path,
                    )
                )
            if not self._plan.with_vectors:
                self._write_deletes()
        self._write_deletes()
        self._ids.close()
        fault_point(FaultPoint.TASK_WRITTEN)
        read_bytes = self._finder.read_bytes + self._rewriter.read_bytes
        return GroupAnswer(files=tuple(answers), written_deletes=tuple(self._written_deletes), read_bytes=read_bytes)

    def discard(self) -> None:
        """Delete every file of this attempt."""
        written = [*(deletes.file for deletes in self._written_deletes), *self._rewritten]
        delete_files(self._io, dict.fromkeys(file.file_path for file in written), Proof.TASK_FAILED)
        self._ids.discard()

    def _find(self, work: Sequence[FileWork], found: Mapping[str, Matches]) -> Iterator[_Found]:
        for item in work:
            matches = found.get(item.path)
            if matches is None:
                nothing = pa.array([], pa.int64())
                yield _Found(work=item, positions=nothing, hidden=nothing)
                continue
            hidden = hidden_by_position(self._io, item)
            newer = None if matches.newer is None else matches.newer.but(hidden)
            positions = without(matches.positions, hidden)
            lineage = lineage_of(item.data_file, item.sequence_number) if self._plan.keeps_ids else None
            yield _Found(
                work=item,
                positions=positions,
                hidden=hidden,
                late_keys=None if newer is None else newer.keys,
                ids=None if lineage is None or matches.rows is None else ids_of(matches.rows, positions, lineage),
            )

    def _hide(self, found: _Found) -> tuple[DataFile, ...] | None:
        if not self._plan.key_types and found.is_whole:
            return ()
        if self._plan.encoding == "position":
            positions = found.all_hidden if self._plan.with_vectors else found.positions
            self._waiting.append(HiddenRows(data_file=found.work.data_file, positions=positions))
            self._waiting_count += len(positions)
            if self._waiting_count > MOST_POSITIONS or self._plan.is_by_file:
                self._write_deletes()
            return None
        data_file = found.work.data_file
        spec, order = self._plan.specs[data_file.spec_id], self._plan.sort_orders.get(data_file.sort_order_id or 0)
        left_out = pa.concat_arrays([found.positions, found.hidden])
        lineage = lineage_of(data_file, found.work.sequence_number)
        written = self._rewriter.rewrite(data_file, spec, order, left_out, lineage)
        self._rewritten += written
        return written

    def _write_deletes(self) -> None:
        if not self._waiting:
            return
        if self._plan.with_vectors:
            vectors = write_deletion_vectors(self._io, self._paths.next_of_vectors(), self._waiting)
            self._written_deletes += [
                WrittenDeletes(file=file, paths=frozenset({rows.data_file.file_path}))
                for file, rows in zip(vectors, self._waiting, strict=True)
            ]
        else:
            first = self._waiting[0].data_file
            path = self._paths.next(self._plan.specs[first.spec_id], first.partition)
            file = write_position_deletes(self._io, path, self._waiting, self._plan.writing.write.files)
            self._written_deletes.append(
                WrittenDeletes(file=file, paths=frozenset(rows.data_file.file_path for rows in self._waiting))
            )
        self._waiting, self._waiting_count = [], 0
        fault_point(FaultPoint.FILE_CLOSED)


def _finder(plan: SearchPlan, io: FileIO) -> Matcher | IndexedMatcher | _ChosenRows:
    if plan.index is not None:
        return IndexedMatcher(io, plan.index)
    if not plan.key_types:
        return _ChosenRows(io)
    mapping = parsed_mapping(plan.writing.name_mapping)
    return Matcher(io, plan.key_types, SequenceRule.of(plan.writing), with_ids=plan.keeps_ids, mapping=mapping)


class _ChosenRows:
    """Finds rows that a job has chosen by position: their positions are read from files that are in no table.

    Args:
        io: Opens the table's storage.

    Attributes:
        read_bytes: 0: no column of a data file is read.
        portion_rows: The largest number of rows of data files that are searched together.
    """

    read_bytes = 0
    portion_rows = PORTION_ROWS

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def find(self, work: Sequence[FileWork]) -> dict[str, Matches]:
        """Return the chosen rows, each once, by path of the data file; files without such rows are left out.

        Args:
            work: Data files of one partition.
        """
        named: dict[str, list[str]] = defaultdict(list)
        for item in work:
            for path in item.chosen:
                named[path].append(item.path)
        found: dict[str, list[pa.Array]] = defaultdict(list)
        for path, data_files in named.items():
            for data_file, positions in positions_by_file(self._io, path, data_files):
                found[data_file].append(positions)
        return {path: Matches(positions=pc.unique(pa.concat_arrays(parts)).sort()) for path, parts in found.items()}
