"""One measurement of `bench_storage.py`, in a process of its own: its time, and how far its memory grew."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_CHUNK_BYTES = 1 << 20
_LARGE_BYTES = 100_000_000
_SMALL_BYTES = 20_000
_SMALL_FILES = 40
_ROWS = 1_500_000
_ROW_GROUPS = 8
_WRITERS = 4


def open_store(variant: str, properties: dict[str, str]) -> FileIO:
    """Return the FileIO of a competitor; its libraries are loaded here, and nowhere before."""
    if variant == "arrow":
        from pyiceberg.io.pyarrow import PyArrowFileIO as Chosen  # noqa: PLC0415
    elif variant == "s3fs":
        from pyiceberg.io.fsspec import FsspecFileIO as Chosen  # noqa: PLC0415
    else:
        from iceberg_ds.io.files import ObjectIO as Chosen  # noqa: PLC0415
    return Chosen(properties)


def start(io: FileIO, place: str) -> None:
    """Write a first file."""
    with io.new_output(f"{place}/first").create(overwrite=True) as stream:
        stream.write(b"x" * 1000)


def large(io: FileIO, place: str) -> None:
    """Write one large file."""
    _write_in_turn(io, [f"{place}/large"])


def four(io: FileIO, place: str) -> None:
    """Write the same bytes into four files, in turn."""
    _write_in_turn(io, [f"{place}/large-{number}" for number in range(_WRITERS)])


def _write_in_turn(io: FileIO, locations: list[str]) -> None:
    chunk = bytes(range(256)) * (_CHUNK_BYTES // 256)
    streams = [io.new_output(location).create(overwrite=True) for location in locations]
    for number in range(_LARGE_BYTES // _CHUNK_BYTES):
        streams[number % len(streams)].write(chunk)
    for stream in streams:
        stream.close()


def parquet(io: FileIO, place: str) -> None:
    """Encode rows into one Parquet file, as a task does."""
    import numpy as np  # noqa: PLC0415  # its time is not the store's
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    random = np.random.default_rng(1)
    rows = _ROWS // _ROW_GROUPS
    table = pa.table({name: random.integers(0, 10**6, rows) for name in "abcdefgh"})
    with io.new_output(f"{place}/rows.parquet").create(overwrite=True) as stream:
        writer = pq.ParquetWriter(stream, table.schema, compression="zstd")
        for _ in range(_ROW_GROUPS):
            writer.write_table(table)
        writer.close()


def small(io: FileIO, place: str) -> None:
    """Write small files as a commit does, and read each back."""
    for number in range(_SMALL_FILES):
        location = f"{place}/small-{number}.avro"
        with io.new_output(location).create(overwrite=True) as stream:
            stream.write(b"y" * _SMALL_BYTES)
        with io.new_input(location).open() as source:
            assert len(source.read()) == _SMALL_BYTES  # noqa: S101  # a wrong answer is no measurement


CASES: dict[str, Callable[[FileIO, str], None]] = {
    "start": start,
    "large": large,
    "four": four,
    "parquet": parquet,
    "small": small,
}


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    """Run the case that the standard input describes, and print what it took."""
    case = json.loads(sys.stdin.read())
    begin = time.perf_counter()
    io = open_store(case["variant"], case["properties"])
    if case["case"] != "start":
        start(io, case["place"] + "-warm-up")
        begin = time.perf_counter()
    before = peak_bytes()
    CASES[case["case"]](io, case["place"])
    print(json.dumps({"seconds": time.perf_counter() - begin, "grown_mb": (peak_bytes() - before) / 1e6}))


if __name__ == "__main__":
    main()
