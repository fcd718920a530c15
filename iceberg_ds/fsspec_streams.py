"""One object that is written or read through gcsfs or adlfs.

Both commit whatever was written when a file is closed or forgotten; here a file that was not finished on purpose
does not appear. What is smaller than a block is written and read with one request.
"""

from __future__ import annotations

import io
import logging
import os
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem
from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

logger = logging.getLogger(__name__)

READ_AHEAD_BYTES = 1024 * 1024
# The libraries' own blocks of 50 MB would be too much for many open files.
_BLOCK_BYTES = 8 * 1024 * 1024


class FsspecUpload:
    """A stream into a new object that nobody sees before it is closed.

    Args:
        files: The file system.
        location: The object.
        if_absent: Whether an object that is there already is an error, or replaced.
    """

    def __init__(self, files: AbstractFileSystem, location: str, *, if_absent: bool) -> None:
        self.closed = False
        self._files = files
        self._location = location
        self._if_absent = if_absent
        self._process = os.getpid()
        self._may_exist = False
        self._is_given_up = False
        self._first = bytearray()
        self._stream: Any = None  # the library's, once there is more than a block

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # Dropped without a word: its object must not appear.
        with suppress(Exception):
            self._give_up()

    def readable(self) -> bool:
        """Return that it cannot be read."""
        return False

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def seekable(self) -> bool:
        """Return that it goes forward only."""
        return False

    def tell(self) -> int:
        """Return how many bytes were written."""
        return len(self._first) if self._stream is None else int(self._stream.tell())

    def flush(self) -> None:
        """Do nothing: what is written is seen when the object is closed, and not before."""

    def write(self, data: Buffer) -> int:
        """Take bytes and return their number."""
        content = bytes(data)
        if self._is_given_up:  # an encoder that is closed after that writes its end
            return len(content)
        if self.closed:
            raise ValueError(f"Cannot write to {self._location}: it is closed.")
        if self._stream is None and len(self._first) + len(content) <= _BLOCK_BYTES:
            self._first += content
            return len(content)
        if self._stream is None:
            mode = "xb" if self._if_absent else "wb"
            self._stream = self._files.open(self._location, mode, block_size=_BLOCK_BYTES)
            self._stream.write(bytes(self._first))
            self._first = bytearray()
        return int(self._stream.write(content))

    def close(self) -> None:
        """Make the object appear, whole.

        Raises:
            FileExistsError: There is one already, and it may not be replaced.
            OSError: It could not be uploaded.
        """
        if self.closed:
            return
        try:
            self._may_exist = not self._if_absent
            if self._stream is None:
                mode = "create" if self._if_absent else "overwrite"
                self._files.pipe_file(self._location, bytes(self._first), mode=mode)
            else:
                self._stream.close()
            self.closed = True
        except BaseException:
            self._give_up()
            raise

    def discard(self) -> None:
        """Make sure that nothing is left of it, closed or not; what cannot be removed is logged."""
        self._give_up()
        if self._may_exist:
            self._may_exist = False
            try:
                self._files.rm_file(self._location)
            except FileNotFoundError:
                pass
            except Exception as error:  # the caller has its own failure to report
                logger.warning("Left behind %s, which no table refers to: %s", self._location, type(error).__name__)

    def _give_up(self) -> None:
        """End the stream without what it does at its end, which is to make the object appear."""
        if self.closed or self._process != os.getpid():
            return
        self.closed = self._is_given_up = True
        if self._stream is not None:
            self._stream.forced = True
            with suppress(Exception):
                self._stream.discard()
            self._stream.close()


class FsspecDownload(io.RawIOBase):
    """The bytes of an object, from wherever they are asked for.

    Args:
        files: The file system.
        location: The object.
    """

    def __init__(self, files: AbstractFileSystem, location: str) -> None:
        super().__init__()
        self._files = files
        self._location = location
        self._position = 0
        self._known_size: int | None = None

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def seekable(self) -> bool:
        """Return that it can be read from anywhere."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        self._position = (self._size if base is None else base) + offset
        return self._position

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        if self._known_size is None and self._position == 0:
            data = bytes(self._files.cat_file(self._location))
            self._known_size = len(data)
        else:
            data = self._bytes(self._position, self._size)
        self._position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill the buffer and return the number of bytes, which is smaller at the end only."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data = self._bytes(self._position, min(self._position + len(view), self._size))
            view[: len(data)] = data
        self._position += len(data)
        return len(data)

    @property
    def _size(self) -> int:
        if self._known_size is None:
            self._known_size = int(self._files.info(self._location)["size"])
        return self._known_size

    def _bytes(self, start: int, end: int) -> bytes:
        return bytes(self._files.cat_file(self._location, start=start, end=end)) if start < end else b""
