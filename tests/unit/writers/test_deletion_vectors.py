"""Deletion vectors: every position in the vector of its file, as the Puffin spec has it, and damage is seen."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from iceberg_ds import __version__
from iceberg_ds.errors import DataFileError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.messages import RowCountError
from iceberg_ds.snapshots.live_files import DeletionVector
from iceberg_ds.snapshots.version_3 import deletion_vector, referenced_data_file
from iceberg_ds.writers import deletion_vectors
from iceberg_ds.writers.deletion_vectors import vector_owners, vector_positions, write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows

IO = LocalFileIO()
ROWS = 2**34  # of a data file, where it does not matter


def data_file(path: str, region: str = "EU") -> DataFile:
    """Return the entry of a file of rows of a region, by spec 3."""
    found = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(region),
        record_count=1000,
        file_size_in_bytes=1,
    )
    found.spec_id = 3
    return found


def write(folder: Path, **hidden: list[int]) -> tuple[DataFile, ...]:
    """Write the positions of these files, and return the entries."""
    rows = [HiddenRows(data_file=data_file(path), positions=positions) for path, positions in hidden.items()]
    return write_deletion_vectors(IO, f"{folder}/deletes.puffin", rows)


def place_of(entry: DataFile) -> DeletionVector:
    """Return where the vector of an entry is."""
    place = deletion_vector(entry)
    assert place is not None
    return DeletionVector(path=entry.file_path, offset=place[0], length=place[1], cardinality=entry.record_count)


def framed(bitmap: bytes) -> bytes:
    """Return a deletion vector of a bitmap, whole or not, with a right checksum."""
    body = bytes.fromhex("D1D33964") + bitmap
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def blob(positions: list[int]) -> bytes:
    """Return a deletion vector as the Puffin spec has it."""
    body = bytes.fromhex("D1D33964") + BitMap64(positions).serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def test_each_data_file_has_an_entry_of_its_own(tmp_path: Path) -> None:
    """Readers would hide rows of another file, or none."""
    entries = write(tmp_path, b=[0, 7], a=[3], c=[1, 2, 2**33])

    whole = (tmp_path / "deletes.puffin").stat().st_size
    assert [referenced_data_file(entry) for entry in entries] == ["b", "a", "c"]
    assert [entry.record_count for entry in entries] == [2, 1, 3]
    assert [vector_positions(IO, place_of(entry), ROWS).to_pylist() for entry in entries] == [
        [0, 7],
        [3],
        [1, 2, 2**33],
    ]
    for entry in entries:
        assert (entry.content, entry.file_format) == (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN)
        assert (entry.spec_id, entry.partition, entry.file_size_in_bytes) == (3, Record("EU"), whole)
        assert entry.lower_bounds is None
        assert entry.upper_bounds is None


def test_file_is_laid_out_as_the_puffin_spec_has_it(tmp_path: Path) -> None:
    """Other engines would not read the deletes."""
    first, second = write(tmp_path, a=[3], b=[0, 7])

    content, vectors = (tmp_path / "deletes.puffin").read_bytes(), [blob([3]), blob([0, 7])]
    begin = b"PFA1" + b"".join(vectors)
    assert content.startswith(begin + b"PFA1")
    length = struct.unpack("<i", content[-12:-8])[0]
    assert content[-8:] == b"\0\0\0\0PFA1"
    assert content[len(begin) + 4 : -12] == content[-12 - length : -12]
    assert json.loads(content[-12 - length : -12]) == {
        "blobs": [
            {
                "type": "deletion-vector-v1",
                "fields": [2147483645],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": place_of(entry).offset,
                "length": place_of(entry).length,
                "properties": {"referenced-data-file": path, "cardinality": count},
            }
            for entry, path, count in [(first, "a", "1"), (second, "b", "2")]
        ],
        "properties": {"created-by": f"iceberg-ds {__version__}"},
    }
    assert (place_of(first).offset, place_of(second).offset) == (4, 4 + len(vectors[0]))


@pytest.mark.parametrize(
    ("begin", "end", "content"),
    [(0, 0, b""), (-4, None, b"PFA2"), (-8, -4, b"\1\0\0\0"), (-12, -8, b"\xff\xff\xff\x7f"), (-30, -12, b"?" * 18)],
    ids=["sound", "no Puffin file", "compressed", "too long", "no JSON"],
)
def test_footer_says_whose_vectors_there_are(tmp_path: Path, begin: int, end: int | None, content: bytes) -> None:
    """A vector that is taken for another would not be noticed, or a footer that nobody needs be refused."""
    entries = write(tmp_path, a=[3], b=[0, 7])
    whole = bytearray((tmp_path / "deletes.puffin").read_bytes())
    whole[begin:end] = content

    with pa.BufferReader(bytes(whole)) as stream:
        found = vector_owners(stream, len(whole))

    assert found == ({} if content else {deletion_vector(entry): referenced_data_file(entry) for entry in entries})


def test_vectors_of_several_partitions_share_a_file(tmp_path: Path) -> None:
    """Each partition would take a small file of its own, or a vector would get another's partition."""
    rows = [HiddenRows(data_file=data_file(region, region), positions=[1]) for region in ("EU", "US")]

    entries = write_deletion_vectors(IO, f"{tmp_path}/deletes.puffin", rows)

    assert [entry.partition for entry in entries] == [Record("EU"), Record("US")]


def test_part_of_an_array_is_written_alone(tmp_path: Path) -> None:
    """Positions of another data file, in the same memory, would be hidden in this one."""
    positions = pa.array([9, 1, 5, 8], pa.int64())[1:3]

    (entry,) = write_deletion_vectors(
        IO, f"{tmp_path}/deletes.puffin", [HiddenRows(data_file=data_file("a"), positions=positions)]
    )

    assert vector_positions(IO, place_of(entry), ROWS).to_pylist() == [1, 5]


def test_many_rows_in_a_line_take_few_bytes(tmp_path: Path) -> None:
    """A file of which nearly all rows are deleted would have a vector of a bit for each row."""
    (entry,) = write(tmp_path, a=[*range(200_000)])

    assert place_of(entry).length < 200


def test_data_file_with_two_vectors_is_refused() -> None:
    """Readers would take one of them, and rows that the other one deletes would come back."""
    rows = [HiddenRows(data_file=data_file("a"), positions=[position]) for position in (1, 2)]

    with pytest.raises(ValueError, match="a would have two deletion vectors in p"):
        write_deletion_vectors(IO, "p", rows)


def test_row_that_comes_twice_is_refused(tmp_path: Path) -> None:
    """The table's count of deleted rows would be wrong for good."""
    with pytest.raises(RowCountError, match="vector of a is to hide 3 rows, and 2 are accounted for"):
        write(tmp_path, a=[1, 1, 2])

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_file_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each failed attempt would leave a file behind."""
    monkeypatch.setattr(deletion_vectors, "_footer", lambda _: "no bytes")

    with pytest.raises(TypeError):
        write(tmp_path, a=[1])

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [0, 3, 8, 12, 20])
def test_cut_off_deletion_vector_fails_the_read(tmp_path: Path, length: int) -> None:
    """Deleted rows would come back."""
    path, content = tmp_path / "dv.puffin", blob([1, 5])
    path.write_bytes(content)
    shorter = DeletionVector(path=str(path), offset=0, length=length, cardinality=2)

    with pytest.raises(DataFileError, match=r"the deletion vector at 0 in .*dv\.puffin: it is damaged"):
        vector_positions(IO, shorter, ROWS)

    path.write_bytes(content[:length])
    with pytest.raises(DataFileError, match=f"it is damaged, {length} bytes of {len(content)} are there"):
        vector_positions(IO, DeletionVector(path=str(path), offset=0, length=len(content), cardinality=2), ROWS)


@pytest.mark.parametrize(("byte", "why"), [(0, "its length"), (4, "it begins with"), (9, "checksum"), (-1, "checksum")])
def test_damaged_deletion_vector_fails_the_read_and_says_why(tmp_path: Path, byte: int, why: str) -> None:
    """Deleted rows would come back, or others would be hidden."""
    path, content = tmp_path / "dv.puffin", bytearray(blob([1, 5, 70_000]))
    content[byte] ^= 0x55
    path.write_bytes(content)

    with pytest.raises(DataFileError, match=f"it is damaged, .*{why}"):
        vector_positions(IO, DeletionVector(path=str(path), offset=0, length=len(content), cardinality=3), ROWS)


@pytest.mark.parametrize("vector", [b"", b"\1" + b"\0" * 7, BitMap64([2**63]).serialize()])
def test_vector_of_a_broken_writer_fails_the_read(tmp_path: Path, vector: bytes) -> None:
    """A checksum that is right says nothing about what it was taken of."""
    content = framed(vector)
    path = tmp_path / "dv.puffin"
    path.write_bytes(content)

    with pytest.raises(DataFileError, match=r"it is damaged|it hides row 9223372036854775808"):
        vector_positions(IO, DeletionVector(path=str(path), offset=0, length=len(content), cardinality=1), ROWS)


def test_deletion_vector_of_another_file_fails_the_read(tmp_path: Path) -> None:
    """A whole vector in the wrong place would hide the wrong rows."""
    path = tmp_path / "dv.puffin"
    path.write_bytes(blob([1, 5]))
    length = path.stat().st_size

    with pytest.raises(DataFileError, match="it hides 2 rows, and its manifest says 3"):
        vector_positions(IO, DeletionVector(path=str(path), offset=0, length=length, cardinality=3), ROWS)


def test_vector_beyond_the_end_of_its_data_file_fails_the_read(tmp_path: Path) -> None:
    """The vector of another data file would hide no row of this one, and those that it should hide would come back."""
    (entry,) = write(tmp_path, a=[0, 2])

    assert vector_positions(IO, place_of(entry), 3).to_pylist() == [0, 2]
    with pytest.raises(DataFileError, match="it hides row 2, counted from 0, and its data file has 2 rows"):
        vector_positions(IO, place_of(entry), 2)


@pytest.mark.parametrize(("offset", "length"), [(-1, 30), (4, -1), (4, 10**12), (0, 2**31)])
def test_impossible_place_of_a_vector_fails_the_read(tmp_path: Path, offset: int, length: int) -> None:
    """A process would run out of memory, or say nothing of the file."""
    (entry,) = write(tmp_path, a=[0, 2])
    wrong = replace(place_of(entry), offset=offset, length=length)

    with pytest.raises(DataFileError, match=rf"it is said to have {length} bytes there, for a data file with 3 rows"):
        vector_positions(IO, wrong, 3)


def test_vector_with_more_rows_than_its_manifest_says_is_not_unfolded(tmp_path: Path) -> None:
    """Some hundred bytes that stand for all rows of a huge file would take the memory of a process."""
    runs = BitMap64()
    runs.add_range(0, 2**34)
    runs.run_optimize()
    path = tmp_path / "dv.puffin"
    path.write_bytes(framed(runs.serialize()))
    vector = DeletionVector(path=str(path), offset=0, length=path.stat().st_size, cardinality=1)

    with pytest.raises(DataFileError, match="it hides 17179869184 rows, and its manifest says 1"):
        vector_positions(IO, vector, ROWS)


@pytest.mark.parametrize("step", [1, 2, 3, 16, 70_000])
def test_vector_of_a_writer_that_does_not_shorten_it_is_read(tmp_path: Path, step: int) -> None:
    """A whole vector would be refused for its size."""
    positions = range(0, 300_000, step)
    path = tmp_path / "dv.puffin"
    path.write_bytes(framed(BitMap64(positions).serialize()))
    vector = DeletionVector(path=str(path), offset=0, length=path.stat().st_size, cardinality=len(positions))

    assert vector_positions(IO, vector, positions[-1] + 1).to_pylist() == [*positions]
