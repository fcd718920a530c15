"""Checks of deletion vectors: one a data file, whole, and with all that readers leave out because of it.

A reader that finds a deletion vector of a data file leaves out the position delete files of that data file, so the
vector has to hide their rows, too. Readers refuse a data file with two vectors. A vector whose data file is gone does
no harm: commits drop such vectors if they see them. Source: Iceberg spec, "Deletion Vectors" and "Scan Planning".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent

from iceberg_ds.errors import DataFileError
from iceberg_ds.inspect.checklist import Checklist, CheckWarnedError, NotTriedError
from iceberg_ds.inspect.contents import (
    Contents,
    Entry,
    ListedFile,
    counted,
    file_key,
    found,
    why_unreadable,
)
from iceberg_ds.io.parallel import in_parallel
from iceberg_ds.snapshots.live_files import DeletionVector
from iceberg_ds.writers.deletion_vectors import read_vector, vector_owners, vector_positions
from iceberg_ds.writers.position_deletes import positions_by_file, without

VECTORS, DANGLING, HIDDEN = "deletion vectors", "dangling deletion vectors", "rows of deletion vectors"
_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotDeletes:
    """The live deletes by position of a snapshot.

    Attributes:
        snapshot_id: The snapshot.
        vectors: The deletion vectors.
        positions: The position delete files.
        data: The data files that the vectors name, as far as they are live, by path.
    """

    snapshot_id: int
    vectors: Sequence[Entry]
    positions: Sequence[Entry]
    data: Mapping[str, Entry]

    @classmethod
    def of(cls, contents: Contents, snapshot_id: int) -> SnapshotDeletes:
        """Return the deletes of a snapshot whose manifests could all be read."""
        deletes = [
            entry
            for entry in _live(contents, snapshot_id, ManifestContent.DELETES)
            if entry.file.content is DataFileContent.POSITION_DELETES
        ]
        vectors = [entry for entry in deletes if entry.file.is_vector]
        named = {entry.file.referenced for entry in vectors}
        every = _live(contents, snapshot_id, ManifestContent.DATA) if named else ()
        return cls(
            snapshot_id=snapshot_id,
            vectors=vectors,
            positions=[entry for entry in deletes if not entry.file.is_vector],
            data={entry.file.path: entry for entry in every if entry.file.path in named},
        )

    def applying(self) -> Iterator[tuple[ListedFile, Entry]]:
        """Yield each deletion vector that says where it is and whose data file is live, with its data file."""
        for entry in self.vectors:
            data = self.data.get(entry.file.referenced or "")
            if entry.file.vector is not None and data is not None:
                yield entry.file, data


def _live(contents: Contents, snapshot_id: int, content: ManifestContent) -> Iterator[Entry]:
    for used in contents.lists[snapshot_id]:
        if used.content == content:
            yield from contents.manifests[used.manifest_path].live


def check_vectors(
    checklist: Checklist, io: FileIO, contents: Contents, scope: Collection[int] | None, sound: Collection[str]
) -> None:
    """Make the checks of deletion vectors.

    Args:
        checklist: Gets the checks.
        io: Opens the table's files.
        contents: The manifest lists and manifests of the table.
        scope: The snapshots to look at; None for all.
        sound: The paths of the files that are there, as long as recorded.
    """
    ids = [found.snapshot_id for found in contents.read_snapshots() if scope is None or found.snapshot_id in scope]
    names = {entry.file.name for deletes in _each(contents, ids) for entry in deletes.vectors}
    listed = f"{counted(len(names), 'vector')} of {counted(len(ids), 'snapshot')}"

    def alone() -> tuple[str, None]:
        _require(names)
        return found(
            vector_problems(_each(contents, ids)),
            f"one a data file at most, each with its place: {listed}",
            "Readers refuse the data file, or show rows that were deleted. Find out who committed it before anyone "
            "writes again, and roll back to a snapshot before it.",
        )

    def dangling() -> tuple[str, None]:
        _require(names)
        left = list(dict.fromkeys(dangling_deletes(_each(contents, ids))))
        if left:
            more = f"; and {len(left) - _EXAMPLES} more" if len(left) > _EXAMPLES else ""
            raise CheckWarnedError(
                f"{'; '.join(left[:_EXAMPLES])}{more}: readers leave them out",
                "They hide no row and take some place. A rewrite_data_files with rewrite-all=true and "
                "remove-dangling-deletes=true drops them.",
            )
        return f"each applies to a data file: {listed}", None

    def hidden() -> tuple[str, None]:
        _require(names)
        return found(
            (*damaged_vectors(io, _each(contents, ids), sound), *shown_again(io, _each(contents, ids), sound)),
            f"whole, with rows that their data files have: {listed}",
            "Reads fail, or show rows that were deleted. Restore the file from a backup of the store, or roll back to "
            "a snapshot before it.",
        )

    checklist.attempt(VECTORS, alone)
    checklist.attempt(DANGLING, dangling)
    checklist.attempt(HIDDEN, hidden)


def _each(contents: Contents, snapshot_ids: Iterable[int]) -> Iterator[SnapshotDeletes]:
    return (SnapshotDeletes.of(contents, number) for number in snapshot_ids)


def _require(names: Collection[str]) -> None:
    if not names:
        raise NotTriedError("the table has none")


def vector_problems(snapshots: Iterable[SnapshotDeletes]) -> Iterator[str]:
    """Yield where entries of deletion vectors lack what readers need, or contradict each other or their data files."""
    for snapshot in snapshots:
        of: dict[str, set[str]] = defaultdict(set)
        for entry in snapshot.vectors:
            name = f"deletion vector {entry.file.name}"
            if entry.file.vector is None:
                yield f"{name} does not say where in its file it is"
            if entry.file.referenced is None:
                yield f"{name} does not name its data file"
                continue
            of[entry.file.referenced].add(entry.file.name)
            data, number = snapshot.data.get(entry.file.referenced), entry.sequence_number or 0
            if data is not None and (data.sequence_number or 0) > number:
                yield (
                    f"{name} has sequence number {number}, below that of its data file {data.file.path} "
                    f"({data.sequence_number})"
                )
        for path, names in of.items():
            if len(names) > 1:
                yield (
                    f"snapshot {snapshot.snapshot_id} has {len(names)} deletion vectors of {path}: "
                    f"{' and '.join(sorted(names))}"
                )


def dangling_deletes(snapshots: Iterable[SnapshotDeletes]) -> Iterator[str]:
    """Yield the deletion vectors whose data file is gone, and what they have taken the place of."""
    for snapshot in snapshots:
        of = {entry.file.referenced for entry in snapshot.vectors}
        for entry in snapshot.vectors:
            path = entry.file.referenced
            if path is not None and path not in snapshot.data:
                yield (
                    f"deletion vector {entry.file.name} is of {path}, which snapshot {snapshot.snapshot_id} does not "
                    "have"
                )
        for entry in snapshot.positions:
            if entry.file.referenced is not None and entry.file.referenced in of:
                yield f"delete file {entry.file.path} is of {entry.file.referenced} alone, which has a deletion vector"


def damaged_vectors(io: FileIO, snapshots: Iterable[SnapshotDeletes], sound: Collection[str]) -> Iterator[str]:
    """Yield the deletion vectors that cannot be read, or that hide rows which their data file does not have.

    Args:
        io: Opens the table's files.
        snapshots: The files of snapshots; vectors that apply to no data file are not read.
        sound: The paths of the files to read.
    """
    by_file: dict[str, dict[str, tuple[ListedFile, int]]] = defaultdict(dict)
    for snapshot in snapshots:
        for vector, data in snapshot.applying():
            if vector.path in sound and not vector.is_encrypted:
                by_file[vector.path][vector.name] = vector, data.file.record_count
    for problems in in_parallel(lambda path: list(_damaged(io, path, by_file[path].values())), by_file):
        yield from problems


def _damaged(io: FileIO, path: str, vectors: Collection[tuple[ListedFile, int]]) -> Iterator[str]:
    """Yield what is wrong with the vectors in one file, each given with the number of rows of its data file."""
    size_bytes = next(file.size_bytes for file, _ in vectors)
    try:
        with io.new_input(path).open() as stream:
            owners = vector_owners(stream, size_bytes)
            for file, rows in vectors:
                problem = _mistaken(file, owners) or _damage(stream, file, rows)
                if problem is not None:
                    yield problem
    except Exception as error:  # any error of a storage library
        yield f"delete file {path} {why_unreadable(error)}"


def _mistaken(file: ListedFile, owners: Mapping[tuple[int, int], str]) -> str | None:
    owner = owners.get(file.vector or (0, 0))
    if owner is None or file.referenced is None or file_key(owner) == file_key(file.referenced):
        return None
    return f"deletion vector {file.name} is of {owner} by its file, and of {file.referenced} by its manifest"


def _damage(stream: InputStream, file: ListedFile, rows: int) -> str | None:
    name, vector = f"deletion vector {file.name}", _place(file)
    if not 0 <= vector.offset <= vector.offset + vector.length <= file.size_bytes:
        return (
            f"{name} is said to be at {vector.offset:,} and {vector.length:,} bytes long, in a file of "
            f"{file.size_bytes:,} bytes"
        )
    try:
        read_vector(stream, vector, rows)
    except DataFileError as error:
        return f"{str(error).removesuffix('.')}; it is of {file.referenced}"
    return None


def _place(file: ListedFile) -> DeletionVector:
    offset, length = file.vector or (0, 0)
    return DeletionVector(path=file.path, offset=offset, length=length, cardinality=file.record_count)


def shown_again(io: FileIO, snapshots: Iterable[SnapshotDeletes], sound: Collection[str]) -> Iterator[str]:
    """Yield the position delete files with rows that the deletion vectors of their data files do not hide.

    Args:
        io: Opens the table's files.
        snapshots: The files of snapshots.
        sound: The paths of the files to read.
    """
    wanted: dict[str, dict[int, _Beside]] = defaultdict(dict)
    for snapshot in snapshots:
        vectors = {data.file.path: vector for vector, data in snapshot.applying() if vector.path in sound}
        for deletes in snapshot.positions if vectors else ():
            file = deletes.file
            if file.file_format is FileFormat.PARQUET and file.path in sound and not file.is_encrypted:
                wanted[file.path][snapshot.snapshot_id] = _Beside(deletes=deletes, vectors=vectors, data=snapshot.data)
    for problems in in_parallel(lambda path: list(_shown(io, path, wanted[path].values())), wanted):
        yield from problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """A position delete file in a snapshot with deletion vectors.

    Attributes:
        deletes: The file.
        vectors: The vectors of the snapshot, by the paths of their data files.
        data: These data files, by path.
    """

    deletes: Entry
    vectors: Mapping[str, ListedFile]
    data: Mapping[str, Entry]

    def paths(self) -> Collection[str]:
        """Return the data files with vectors whose rows it may hide."""
        only = self.deletes.file.referenced
        return self.vectors.keys() if only is None else self.vectors.keys() & {only}

    def applies_to(self, path: str) -> bool:
        """Return whether it would hide rows of a data file of the snapshot, if that had no vector."""
        is_there = path in self.paths()
        return is_there and (self.data[path].sequence_number or 0) <= (self.deletes.sequence_number or 0)


def _shown(io: FileIO, path: str, snapshots: Collection[_Beside]) -> Iterator[str]:
    """Yield the vectors that do not hide what one position delete file hides, in any of the snapshots."""
    named: dict[str, list[pa.Array]] = defaultdict(list)
    try:
        wanted = {data_file for beside in snapshots for data_file in beside.paths()}
        for data_file, positions in positions_by_file(io, path, list(wanted)):
            named[data_file].append(positions)
    except Exception as error:  # errors of Arrow and of the storage library
        yield f"delete file {path} {why_unreadable(error)}"
    for data_file, found_positions in named.items():
        applying = (
            (beside.vectors[data_file], beside.data[data_file].file.record_count)
            for beside in snapshots
            if beside.applies_to(data_file)
        )
        for name, (vector, rows) in {vector.name: (vector, rows) for vector, rows in applying}.items():
            try:
                hidden = vector_positions(io, _place(vector), rows)
            except Exception:  # noqa: S112  # `damaged_vectors` says why
                continue
            if len(left := without(pa.concat_arrays(found_positions), hidden)):
                yield (
                    f"delete file {path} hides {counted(len(left), 'row')} of {data_file} that its deletion vector "
                    f"{name} does not hide, such as row {left[0].as_py():,}"
                )
