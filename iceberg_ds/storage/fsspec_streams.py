"""One object that is written or read through gcsfs or adlfs.

Both commit whatever was written when a file is closed or forgotten; here a file that was not finished on purpose
does not appear. What is smaller than a block is written and read with one request.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem

from iceberg_ds.storage.object_streams import Download, Upload

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

# The libraries' own blocks of 50 MB would be too much for many open files.
_BLOCK_BYTES = 8 * 1024 * 1024


class FsspecUpload(Upload):
    """A stream into a new object that nobody sees before it is closed.

    Args:
        files: The file system.
        location: The object.
        if_absent: Whether an object that is there already is an error, or replaced.
    """

    def __init__(self, files: AbstractFileSystem, location: str, *, if_absent: bool) -> None:
        super().__init__(location, if_absent=if_absent)
        self._files = files
        self._first = bytearray()
        self._stream: Any = None  # the library's, once there is more than a block

    def tell(self) -> int:
        """Return how many bytes were written."""
        return len(self._first) if self._stream is None else int(self._stream.tell())

    def _take(self, data: Buffer) -> None:
        content = bytes(data)
        if self._stream is None and len(self._first) + len(content) <= _BLOCK_BYTES:
            self._first += content
            return
        if self._stream is None:
            mode = "xb" if self._if_absent else "wb"
            self._stream = self._files.open(self._location, mode, block_size=_BLOCK_BYTES)
            self._stream.write(bytes(self._first))
            self._first = bytearray()
        self._stream.write(content)

    def close(self) -> None:
        """Make the object appear, whole; raises as `Upload.close` does."""
        if self.closed:
            return
        try:
            self._may_exist = True
            if self._stream is None:
                mode = "create" if self._if_absent else "overwrite"
                self._files.pipe_file(self._location, bytes(self._first), mode=mode)
            else:
                self._stream.close()
            self.closed = True
        except BaseException:
            self.discard_unfinished()
            raise

    def _give_up(self) -> None:
        """End the library's stream without what it does at its end, which is to make the object appear."""
        if self._stream is not None:
            self._stream.forced = True
            with suppress(Exception):
                self._stream.discard()
            self._stream.close()

    def _delete(self) -> None:
        self._files.rm_file(self._location)


class FsspecDownload(Download):
    """The bytes of an object, from wherever they are asked for.

    Args:
        files: The file system.
        location: The object.
    """

    def __init__(self, files: AbstractFileSystem, location: str) -> None:
        super().__init__()
        self._files = files
        self._location = location

    def _find_size(self) -> int:
        if self._known_size is None:
            self._known_size = int(self._files.info(self._location)["size"])
        return self._known_size

    def _whole(self) -> bytes:
        return bytes(self._files.cat_file(self._location))

    def _bytes(self, start: int, count: int) -> bytes:
        end = min(start + count, self._find_size())
        return bytes(self._files.cat_file(self._location, start=start, end=end)) if start < end else b""
