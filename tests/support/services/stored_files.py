"""Single files of any store, written and read through a FileIO as a table's files are."""

from __future__ import annotations

from pyiceberg.io import FileIO


def write(io: FileIO, location: str, data: bytes, *, overwrite: bool = True) -> None:
    """Write one file."""
    with io.new_output(location).create(overwrite=overwrite) as stream:
        stream.write(data)


def write_half(io: FileIO, location: str, data: bytes) -> None:
    """Begin a file, and fail."""
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(data)
        raise KeyError


def read(io: FileIO, location: str) -> bytes:
    """Read one file."""
    with io.new_input(location).open() as source:
        return source.read()
