"""Random deletion vectors: what is written is what this package and PyIceberg read, and no damage goes unseen."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.typedef import Record

from iceberg_ds.errors import DataFileError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.snapshots.live_files import DeletionVector
from iceberg_ds.snapshots.version_3 import deletion_vector, referenced_data_file
from iceberg_ds.writers.deletion_vectors import vector_positions, write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows

IO = LocalFileIO()
ROWS = 2**34  # of a data file, where it does not matter
_numbers = itertools.count()

# Rows here and there, rows in a line, and rows so far behind that a file has them in theory alone.
_RUNS = st.tuples(st.sampled_from([0, 65_530, 2**32 - 3, 2**33]), st.integers(0, 100), st.integers(1, 5_000)).map(
    lambda run: range(run[0] + run[1], run[0] + run[1] + run[2])
)
POSITIONS = st.one_of(
    st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=50),
    st.lists(_RUNS, min_size=1, max_size=3).map(lambda runs: set().union(*runs)),
).map(sorted)
FILES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), POSITIONS, min_size=1, max_size=4
)


def written(folder: Path, files: dict[str, list[int]]) -> list[tuple[str, DeletionVector]]:
    """Write the vectors of data files, and return where each is."""
    hidden = []
    for path, positions in files.items():
        data_file = DataFile.from_args(file_path=path, file_format=FileFormat.PARQUET, partition=Record())
        data_file.spec_id = 0
        hidden.append(HiddenRows(data_file=data_file, positions=positions))
    found = []
    for entry in write_deletion_vectors(IO, f"{folder}/{next(_numbers)}.puffin", hidden):
        path, place = referenced_data_file(entry), deletion_vector(entry)
        assert path is not None
        assert place is not None
        offset, length = place
        vector = DeletionVector(path=entry.file_path, offset=offset, length=length, cardinality=entry.record_count)
        found.append((path, vector))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for the files of all examples."""
    return tmp_path_factory.mktemp("vectors")


@given(FILES)
def test_every_reader_finds_the_positions_that_were_written(folder: Path, files: dict[str, list[int]]) -> None:
    """Deleted rows would come back, or others would be hidden, in one engine or in all."""
    vectors = written(folder, files)

    assert {path: vector_positions(IO, vector, ROWS).to_pylist() for path, vector in vectors} == files
    puffin = PuffinFile(Path(vectors[0][1].path).read_bytes())
    # PyIceberg 0.12 fails at positions from here on in a file without any before.
    near = {path: positions for path, positions in files.items() if positions[-1] < 2**32}
    read = {
        one.referenced_data_file: one.to_vector().to_pylist()
        for one in deletion_vectors_from_puffin_file(puffin)
        if one.referenced_data_file in near
    }
    assert read == near
    places = [(blob.properties["referenced-data-file"], blob.offset, blob.length) for blob in puffin.footer.blobs]
    assert places == [(path, vector.offset, vector.length) for path, vector in vectors]


@given(FILES, st.data())
def test_every_damaged_byte_is_seen(folder: Path, files: dict[str, list[int]], data: st.DataObject) -> None:
    """Deleted rows would come back, or others would be hidden, and nobody would know."""
    vectors = written(folder, files)
    _, vector = data.draw(st.sampled_from(vectors))
    content = bytearray(Path(vector.path).read_bytes())
    byte = vector.offset + data.draw(st.integers(0, vector.length - 1))
    content[byte] ^= data.draw(st.integers(1, 255))
    Path(vector.path).write_bytes(content)

    with pytest.raises(DataFileError, match="it is damaged"):
        vector_positions(IO, vector, ROWS)


@given(FILES, st.data())
def test_every_file_that_is_cut_off_is_seen(folder: Path, files: dict[str, list[int]], data: st.DataObject) -> None:
    """Deleted rows would come back."""
    _, vector = written(folder, files)[-1]
    content = Path(vector.path).read_bytes()
    left = data.draw(st.integers(0, vector.offset + vector.length - 1))
    Path(vector.path).write_bytes(content[:left])

    with pytest.raises(DataFileError, match="it is damaged"):
        vector_positions(IO, vector, ROWS)
