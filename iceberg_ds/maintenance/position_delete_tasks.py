"""One task of a rewrite of position delete files: writes few in place of many, and proves that they hide the same rows.

Knows neither Spark nor the catalog, and publishes nothing. A position counts if its data file is live and not younger
than the delete file, as a reader applies it; each is written once. Then what was replaced and what was written are both
read from storage, and the positions of each data file are summed up as digests, which the driver compares before it
commits. A task that fails says so in its answer and leaves no file.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec

from iceberg_ds.fault_points import FaultPoint, fault_point
from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.messages import check_rows
from iceberg_ds.plan import WritePlan
from iceberg_ds.secrets import task_problem
from iceberg_ds.table.bin_packing import packed
from iceberg_ds.table.locations import FilePaths, data_locations
from iceberg_ds.table.names import FILE_PATH, POS
from iceberg_ds.table.partitioning import place_of
from iceberg_ds.writers.position_deletes import HiddenRows, write_position_deletes
from iceberg_ds.writers.task_writer import TaskAttempt, name_prefix

# The largest number of rows of data files whose positions are in memory at once: 8 bytes for each deleted row of them.
PORTION_ROWS = 20_000_000
# Deletes that are read at once, each with a path.
_BATCH_ROWS = 65_536
_COLUMNS = [FILE_PATH.name, POS.name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """A position delete file to replace.

    Attributes:
        path: Path of the file.
        sequence_number: Its data sequence number.
        record_count: Number of its deletes.
    """

    path: str
    sequence_number: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A live data file that the delete files may name.

    Attributes:
        path: Path of the file.
        sequence_number: Its data sequence number.
        record_count: Number of its rows.
    """

    path: str
    sequence_number: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup:
    """Position delete files of one partition, which become few.

    Attributes:
        like: One of them, without metrics: its spec and partition are those of all.
        replaced: The delete files.
        targets: The data files.
        positions_per_file: How many positions a new file is to have.
    """

    like: DataFile
    replaced: tuple[Replaced, ...]
    targets: tuple[Target, ...]
    positions_per_file: int

    @property
    def place(self) -> tuple[int, str]:
        """Partition of the files."""
        return place_of(self.like)

    @property
    def sequence_number(self) -> int:
        """Data sequence number of the new files: so they apply to every data file that one of the old applies to."""
        return max(found.sequence_number for found in self.replaced)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlan:
    """Everything that tasks are told of a rewrite.

    Attributes:
        writing: How files are written, and what opens storage.
        spec_of: The table's partition specs, by spec id.
        is_by_file: Whether each new file is for one data file only.
    """

    writing: WritePlan
    spec_of: Mapping[int, PartitionSpec]
    is_by_file: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAnswer:
    """What a task wrote in place of a group.

    Attributes:
        place: Partition of the group.
        written: The new position delete files.
        before: Digest of the positions that the old files hide, by data file; of files with such rows.
        after: The same for the new files, as they were read again.
        problem: Why the task failed, or None if it did not fail; a failed task has deleted its files.
    """

    place: tuple[int, str]
    written: tuple[DataFile, ...] = ()
    before: Mapping[str, bytes] = field(default_factory=dict)
    after: Mapping[str, bytes] = field(default_factory=dict)
    problem: str | None = None


def rewrite_group(plan: DeletePlan, number: int, group: DeleteGroup) -> DeleteAnswer:
    """Write few files in place of the delete files of a group, and return them with the proof.

    Args:
        plan: The plan of the rewrite.
        number: Number of the group.
        group: The group.
    """
    # A random number, so that no two attempts share a path.
    attempt = TaskAttempt(partition_id=number, task_attempt_id=uuid.uuid4().int >> 96)
    task = _Task(plan, attempt, group)
    try:
        return task.run()
    except Exception as error:  # of any storage library
        task.discard()
        return DeleteAnswer(place=group.place, problem=task_problem(error, plan.writing.io_properties))
    except BaseException:
        task.discard()
        raise


class _Task:
    def __init__(self, plan: DeletePlan, attempt: TaskAttempt, group: DeleteGroup) -> None:
        self._plan = plan
        self._group = group
        self._io: FileIO = file_io(plan.writing.io_properties, plan.writing.location)
        writing = plan.writing
        places = data_locations(writing.location, writing.properties, writing.write.location_provider)
        self._paths = FilePaths(places, writing.schema, name_prefix(writing, attempt), are_deletes=True)
        self._written: list[DataFile] = []
        self._begun: list[str] = []

    def run(self) -> DeleteAnswer:
        before: dict[str, bytes] = {}
        after: dict[str, bytes] = {}
        for targets in portions(self._group.targets):
            first = len(self._written)
            self._rewrite(targets)
            written = [
                Replaced(
                    path=file.file_path,
                    sequence_number=self._group.sequence_number,
                    record_count=file.record_count,
                )
                for file in self._written[first:]
            ]
            before |= hidden_digests(self._io, self._group.replaced, targets)
            after |= hidden_digests(self._io, written, targets)
        fault_point(FaultPoint.TASK_WRITTEN)
        return DeleteAnswer(place=self._group.place, written=tuple(self._written), before=before, after=after)

    def discard(self) -> None:
        """Delete every file of this attempt."""
        delete_files(self._io, self._begun, Proof.TASK_FAILED)

    def _rewrite(self, targets: Sequence[Target]) -> None:
        waiting: list[HiddenRows] = []
        count = 0
        for path, positions in self._positions(targets):
            if waiting and (self._plan.is_by_file or count + len(positions) > self._group.positions_per_file):
                self._write(waiting)
                waiting, count = [], 0
            waiting.append(HiddenRows(data_file=self._data_file(path), positions=positions))
            count += len(positions)
        if waiting:
            self._write(waiting)

    def _positions(self, targets: Sequence[Target]) -> Iterator[tuple[str, pa.Array]]:
        """Yield the data files with hidden rows, in order, each with the positions of these, ascending, each once."""
        numbers = {target.path: target.sequence_number for target in targets}
        found: dict[str, list[pa.Array]] = defaultdict(list)
        for deletes in self._group.replaced:
            count = 0
            for batch in _batches(self._io, deletes.path):
                count += batch.num_rows
                by_path = pa.table([batch.column(0), batch.column(1)], ["path", "pos"]).group_by("path")
                listed = by_path.aggregate([("pos", "list")]).to_batches()
                for part in listed:
                    for path, positions in zip(part.column("path"), part.column("pos_list"), strict=True):
                        number = numbers.get(path.as_py())
                        if number is not None and number <= deletes.sequence_number:
                            found[path.as_py()].append(pc.unique(positions.values))
            check_rows(f"rewrite {deletes.path}", "its entry counts", deletes.record_count, {"read from it": count})
        for path in sorted(found):
            positions = pc.unique(pa.concat_arrays(found.pop(path)))
            yield path, positions.take(pc.sort_indices(positions))

    def _data_file(self, path: str) -> DataFile:
        like = self._group.like
        data_file = DataFile.from_args(
            content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET, partition=like.partition
        )
        data_file.spec_id = like.spec_id
        return data_file

    def _write(self, hidden: Sequence[HiddenRows]) -> None:
        like = self._group.like
        path = self._paths.next(self._plan.spec_of[like.spec_id], like.partition)
        self._begun.append(path)
        self._written.append(write_position_deletes(self._io, path, hidden, self._plan.writing.write.files))
        fault_point(FaultPoint.FILE_CLOSED)


def portions(targets: Sequence[Target]) -> Iterator[list[Target]]:
    """Return groups of data files, ordered by path, such that the positions of all rows of a group fit into memory."""
    return packed(sorted(targets, key=attrgetter("path")), PORTION_ROWS, attrgetter("record_count"))


def hidden_digests(io: FileIO, deletes: Sequence[Replaced], targets: Sequence[Target]) -> dict[str, bytes]:
    """Return a digest of the positions that delete files hide in each data file; in others they hide none.

    Neither the order of positions nor how often one is named matters. It reads files in another way than the rewrite
    does, so that one mistake cannot be in both.

    Args:
        io: Opens the table's storage.
        deletes: The position delete files.
        targets: The data files.
    """
    numbers = {target.path: target.sequence_number for target in targets}
    found: dict[str, list[pa.Array]] = defaultdict(list)
    for file in deletes:
        for batch in _batches(io, file.path):
            ordered = batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in _COLUMNS]))
            runs = pc.run_end_encode(ordered.column(0))
            start = 0
            for path, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                if path in numbers and numbers[path] <= file.sequence_number:
                    found[path].append(ordered.column(1).slice(start, end - start))
                start = end
    return {path: _digest(pa.chunked_array(parts)) for path, parts in found.items()}


def _digest(positions: pa.ChunkedArray) -> bytes:
    known = positions.unique()
    ordered = known.take(pc.sort_indices(known))
    return hashlib.blake2b(memoryview(ordered.buffers()[1])[: 8 * len(ordered)], digest_size=16).digest()


def _batches(io: FileIO, path: str) -> Iterator[pa.RecordBatch]:
    with io.new_input(path).open() as stream:
        for batch in pq.ParquetFile(stream).iter_batches(_BATCH_ROWS, columns=_COLUMNS):
            paths, positions = (batch.column(name) for name in _COLUMNS)
            yield pa.RecordBatch.from_arrays([paths.cast(pa.string()), positions.cast(pa.int64())], _COLUMNS)
