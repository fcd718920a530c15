"""The keys of a branch's data files on the driver's disk: tells which rows have a key, without reading the table.

Data files never change, so what is known of one holds as long as it is listed: whoever commits to the table, the index
only has to read the keys of files that it does not know. It is a cache and proves nothing by itself: a file's keys are
complete or not there, everything that is read from disk has a checksum, and the keys themselves are compared. What is
missing or damaged is read from the table again.

The keys of a few data files are one sorted file of blocks (`key_blocks`). Files of about the same size are merged, a
part of all digests at a time, so a lookup reads few of them and memory stays bounded. One process at a time uses it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
import re
import stat
import tempfile
import uuid
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType

from iceberg_ds.cdc.dedup import key_names
from iceberg_ds.cdc.keys import mix, mix_column
from iceberg_ds.deletes.key_blocks import (
    DIGEST,
    FILE,
    Blocks,
    BlocksEntry,
    DamagedBlocksError,
    Indexed,
    write_blocks,
)
from iceberg_ds.deletes.key_reader import KeyedRows, canonical_type
from iceberg_ds.deletes.match import ID, POSITION, anything
from iceberg_ds.deletes.work import KeyIndexPlace
from iceberg_ds.errors import OptionError

logger = logging.getLogger(__name__)

# Rows whose keys are sorted in memory at once.
_SORTED_ROWS = 2_000_000
# As many files of blocks of about one size are merged into one.
_FAN_IN = 4
_LEAST_ROWS = 4_096
_MANIFEST, _LOCK = "index.json", "lock"
_LAYOUT = 1
_SEED_BYTES = 8
_NULL = pa.scalar(0x6E756C6C, pa.uint64())
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0  # its user id
# Files of blocks, and files that were not finished.
_OWN_NAME = re.compile(rf"[0-9a-f]{{32}}(\.new)?|{re.escape(_MANIFEST)}\.new")

_opened: dict[Path, Blocks] = {}


def index_place(
    parent: str | None,
    table_uuid: str,
    branch: str,
    key_types: Mapping[int, IcebergType],
    name_mapping: str | None = None,
) -> KeyIndexPlace:
    """Return the place of the index of a branch by some keys.

    Args:
        parent: The folder of all indexes; None for one in the folder of temporary files, which is the user's alone.
        table_uuid: The table.
        branch: The branch.
        key_types: The types of the key columns, by field id.
        name_mapping: What the columns of files without field ids are; None if the table does not tell. With another
            one, files have other keys.
    """
    top = (
        Path(parent).resolve() if parent is not None else Path(tempfile.gettempdir(), f"iceberg_ds-keys-{os.getuid()}")
    )
    types = {number: key_types[number] for number in sorted(key_types)}
    told = [table_uuid, branch, [[number, str(of)] for number, of in types.items()], name_mapping]
    name = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]
    return KeyIndexPlace(folder=str(top / name), key_types=types, name_mapping=name_mapping)


@contextmanager
def open_index(place: KeyIndexPlace) -> Iterator[KeyIndex]:
    """Yield the index once no other process uses it; it is made if it is not there.

    Raises:
        OptionError: The folder is another user's, or others may write into it.
        OSError: The folder cannot be made or written.
    """
    import fcntl  # noqa: PLC0415  # only some systems have it, and only drivers need it

    folder = Path(place.folder)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_own(folder)
    with (folder / _LOCK).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield KeyIndex(folder, place.key_types)


def _check_own(folder: Path) -> None:
    """Refuse a folder that others may write, or could put another one, or a link, in the place of."""
    found, around, own = folder.lstat(), folder.parent.lstat(), os.getuid()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == own and not found.st_mode & _OTHERS_MAY_WRITE
    is_open = around.st_mode & _OTHERS_MAY_WRITE and not around.st_mode & stat.S_ISVTX
    if not is_own or not stat.S_ISDIR(around.st_mode) or around.st_uid not in {own, _ROOT} or is_open:
        raise OptionError(
            f"Cannot keep keys in {folder}: it, or the folder that it stands in, is not one that this user alone may "
            "write. Give another one with option 'key-index-folder', such as a new folder inside the one given."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedFile:
    """The rows of a data file that the index does not know.

    Attributes:
        file: The data file.
        batches: Yields its rows in order, with the row ids that the file has.
    """

    file: Indexed
    batches: Iterable[KeyedRows]


class KeyIndex:
    """The index of a branch by some keys; `open_index` makes it.

    Args:
        folder: Its folder.
        key_types: The types of the key columns, by field id.
    """

    def __init__(self, folder: Path, key_types: Mapping[int, IcebergType]) -> None:
        self._folder = folder
        self._names = key_names([*key_types])
        keys = [(name, canonical_type(of)) for name, of in zip(self._names, key_types.values(), strict=True)]
        fixed = [(DIGEST, pa.uint64()), (FILE, pa.int32()), (POSITION, pa.int64()), (ID, pa.int64())]
        self._schema = pa.schema([*fixed, *keys])
        self._seed, listed = self._load()
        self._parts: list[Blocks] = []
        for entry in listed:
            self._open_if_sound(entry)
        self._delete_unlisted()

    def _load(self) -> tuple[bytes, list[BlocksEntry]]:
        """Return the seed of digests, and the files of blocks; a new seed and no files if there is no sound list."""
        try:
            check, _, text = (self._folder / _MANIFEST).read_text("utf-8").partition("\n")
            if int(check) == zlib.crc32(text.encode()):
                listed = json.loads(text)
                if listed["layout"] == _LAYOUT and listed["folder"] == self._folder.name:
                    return bytes.fromhex(listed["seed"]), [BlocksEntry(**entry) for entry in listed["parts"]]
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as problem:
            logger.warning("The list of %s cannot be read, and the keys are read from the table: %s", self, problem)
        return os.urandom(_SEED_BYTES), []

    def _save(self) -> None:
        listed = {
            "layout": _LAYOUT,
            "folder": self._folder.name,  # says which keys of which branch these are
            "seed": self._seed.hex(),
            "parts": [asdict(part.entry) for part in self._parts],
        }
        text = json.dumps(listed)
        unfinished = self._folder / f"{_MANIFEST}.new"
        unfinished.write_text(f"{zlib.crc32(text.encode())}\n{text}", "utf-8")
        unfinished.replace(self._folder / _MANIFEST)

    def _open(self, entry: BlocksEntry) -> None:
        path = self._folder / entry.name
        if path not in _opened:
            _opened[path] = Blocks(self._folder, entry, self._schema)
        self._parts.append(_opened[path])

    def _open_if_sound(self, entry: BlocksEntry) -> None:
        try:
            self._open(entry)
        except DamagedBlocksError as problem:
            logger.warning("A part of %s is lost, and its keys are read from the table: %s", self, problem)

    def _delete_unlisted(self) -> None:
        """Delete what no list names: parts that were merged, or not listed before a process died."""
        listed = {part.entry.name for part in self._parts}
        for path in self._folder.iterdir():
            if path.name not in listed and _OWN_NAME.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()
        for path in [path for path in _opened if path.parent == self._folder and path.name not in listed]:
            del _opened[path]  # another process may have deleted the file

    def __str__(self) -> str:
        return f"the key index in {self._folder}"

    def missing(self, files: Iterable[Indexed]) -> list[Indexed]:
        """Return the data files whose keys are not known."""
        known = {file for part in self._parts for file in part.files}
        return [file for file in files if file not in known]

    def add(self, files: Iterable[KeyedFile]) -> None:
        """Read the keys of data files, and keep them.

        Raises:
            OSError: They cannot be written.
            DamagedBlocksError: A file has other rows than its entry says, or what was written cannot be read.
        """
        waiting: list[pa.Table] = []
        indexed: list[Indexed] = []
        for keyed in files:
            read = self._rows_of(keyed, len(indexed))
            if read.num_rows != keyed.file.record_count:
                raise DamagedBlocksError(
                    f"{keyed.file.path} has {read.num_rows} rows, and is listed with {keyed.file.record_count}"
                )
            waiting.append(read)
            indexed.append(keyed.file)
            if sum(rows.num_rows for rows in waiting) >= _SORTED_ROWS:
                self._keep(indexed, [_sorted(waiting)])
                waiting, indexed = [], []
        if indexed:
            self._keep(indexed, [_sorted(waiting)])
        self._save()

    def _rows_of(self, keyed: KeyedFile, number: int) -> pa.Table:
        parts = []
        for rows in keyed.batches:
            file = pa.repeat(pa.scalar(number, pa.int32()), len(rows))
            columns = [self.digests(rows.keys), file, rows.positions, rows.row_ids, *rows.keys]
            parts.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return pa.Table.from_batches(parts, self._schema)

    def _keep(self, files: Sequence[Indexed], parts: Iterable[pa.Table]) -> None:
        entry = write_blocks(self._folder, uuid.uuid4().hex, files, parts)
        self._open(entry)

    def digests(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the digest of each row's key, by its canonical columns."""
        digests = pa.repeat(pa.scalar(int.from_bytes(self._seed, "little"), pa.uint64()), len(columns[0]))
        for column in columns:
            filled = column
            if column.null_count:
                filled = pc.fill_null(column, anything(column.type))
            digests = mix_column(digests, filled)
            if column.null_count:
                digests = pc.if_else(column.is_null(), mix(digests, pa.repeat(_NULL, len(column))), digests)
        return digests

    def find(self, columns: Sequence[pa.Array], wanted: Collection[Indexed]) -> Iterator[Found]:
        """Yield the rows of some data files that may have one of these keys; their keys are still to be compared.

        Args:
            columns: The canonical columns of the keys.
            wanted: Data files; all are known.

        Raises:
            DamagedBlocksError: A part is damaged; it is forgotten.
        """
        digests = pc.unique(self.digests(columns))
        looked_up = digests.to_pylist()
        for part in list(self._parts):
            numbers = [number for number, file in enumerate(part.files) if file in wanted]
            if not numbers:
                continue
            try:
                rows = part.find(looked_up)
            except DamagedBlocksError:
                self._parts.remove(part)
                self._save()
                raise
            is_meant = pc.is_in(rows.column(DIGEST), value_set=digests)
            if len(numbers) < len(part.files):
                is_meant = pc.and_(is_meant, pc.is_in(rows.column(FILE), value_set=pa.array(numbers, pa.int32())))
            if (rows := rows.filter(is_meant).combine_chunks()).num_rows:
                yield Found(
                    files=part.files, rows=rows, keys=[rows.column(name).combine_chunks() for name in self._names]
                )

    def tidy(self, live: Collection[Indexed]) -> None:
        """Forget data files that the branch does not list any more, and merge parts.

        Args:
            live: The data files that it lists.

        Raises:
            OSError: A part cannot be written; the other parts stay.
        """
        tiers: dict[int, list[Blocks]] = defaultdict(list)
        stale: list[list[Blocks]] = []
        for part in self._parts:
            rows = sum(file.record_count for file in part.files if file in live)
            if 2 * rows < part.entry.rows:
                stale.append([part])
            else:
                tiers[int(math.log(max(rows, _LEAST_ROWS), _FAN_IN))].append(part)
        merges = [*stale, *(parts for parts in tiers.values() if len(parts) >= _FAN_IN)]
        for parts in merges:
            self._merge(parts, live)
        if merges:
            self._save()
            self._delete_unlisted()

    def _merge(self, parts: Sequence[Blocks], live: Collection[Indexed]) -> None:
        files: list[Indexed] = []
        numbers: list[pa.Array] = []  # for each part, the new numbers of its files; null for those that are gone
        for part in parts:
            own: list[int | None] = []
            for file in part.files:
                own.append(len(files) if file in live else None)
                files += [file] if file in live else []
            numbers.append(pa.array(own, pa.int32()))
        try:
            if files:
                self._keep(files, self._merged(parts, numbers))
        except DamagedBlocksError as problem:
            logger.warning("A part of %s is lost, and its keys are read from the table: %s", self, problem)
        self._parts = [part for part in self._parts if part not in parts]

    def _merged(self, parts: Sequence[Blocks], numbers: Sequence[pa.Array]) -> Iterator[pa.Table]:
        # Rows of data files that are gone are read, too.
        steps = max(1, math.ceil(sum(part.entry.rows for part in parts) / _SORTED_ROWS))
        bounds = [(step << 64) // steps for step in range(steps + 1)]
        for low, high in itertools.pairwise(bounds):
            merged = []
            for part, own in zip(parts, numbers, strict=True):
                rows = part.between(low, high)
                renumbered = own.take(rows.column(FILE).combine_chunks())
                rows = rows.set_column(1, self._schema.field(FILE), renumbered)
                merged.append(rows.filter(renumbered.is_valid()))
            yield _sorted(merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows that may have one of the keys.

    Attributes:
        files: The data files, by number.
        rows: The rows: `FILE`, `POSITION`, `ID` (null where a row inherits its id), and others.
        keys: Their canonical key columns.
    """

    files: Sequence[Indexed]
    rows: pa.Table
    keys: Sequence[pa.Array]


def _sorted(parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts).combine_chunks()
    return rows.take(pc.sort_indices(rows.column(DIGEST))) if rows.num_rows else rows
