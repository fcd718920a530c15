"""PyIceberg's FileIO for local disks, on Arrow's files; a file is made only if there is none.

PyIceberg's own loads Arrow's datasets, and with them pandas: a quarter of a second of a planner's and of a committer's
first call. It also looks for a file before it makes one, so that of two writers both may.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream

from iceberg_ds.io.local_paths import local_path
from iceberg_ds.io.stores import ShippedFileIO


class LocalFileIO(ShippedFileIO):
    """Opens files of this machine."""

    def new_input(self, location: str) -> LocalFile:
        """Return the file, to be read."""
        return LocalFile(location)

    def new_output(self, location: str) -> LocalFile:
        """Return the file, to be written."""
        return LocalFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file.

        Raises:
            FileNotFoundError: The file is missing.
        """
        local_path(location if isinstance(location, str) else location.location).unlink()


class LocalFile(InputFile, OutputFile):
    """A local file; readers see what is written before it is closed.

    Args:
        location: Its path, with `file:` or without.
    """

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._path = local_path(location)

    def __len__(self) -> int:
        """Return its size in bytes.

        Raises:
            FileNotFoundError: It is missing.
        """
        return self._path.stat().st_size

    def exists(self) -> bool:
        """Return whether there is such a file."""
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  # PyIceberg's signature
        """Open it to be read.

        Raises:
            FileNotFoundError: It is missing.
        """
        stream: InputStream = pa.OSFile(str(self._path), "rb")
        return stream

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  # PyIceberg's signature
        """Open it to be written, and make its folder.

        Raises:
            FileExistsError: It exists, and `overwrite` is False.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not overwrite:
            new: OutputStream = self._path.open("xb")
            return new
        stream: OutputStream = pa.OSFile(str(self._path), "wb")
        return stream

    def to_input_file(self) -> LocalFile:
        """Return the file, to be read."""
        return self
