"""What files of object stores have in common: uploads that nobody sees before they are closed, downloads from anywhere.

The stores differ in their requests only; those stand in `s3_objects` and `fsspec_io`.
"""

from __future__ import annotations

import io
import logging
import os
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

logger = logging.getLogger(__name__)

_READ_AHEAD_BYTES = 1024 * 1024


class Upload(ABC):
    """A stream into a new object that nobody sees before it is closed.

    Args:
        location: The object's location, for errors.
        if_absent: Whether an object that is there already is an error (it is found out at the end), or replaced.
    """

    def __init__(self, location: str, *, if_absent: bool) -> None:
        self.closed = False
        self._location = location
        self._if_absent = if_absent
        self._process = os.getpid()
        self._may_exist = False
        self._is_given_up = False

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
            self.discard_unfinished()

    def readable(self) -> bool:
        """Return that it cannot be read."""
        return False

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def seekable(self) -> bool:
        """Return that it goes forward only."""
        return False

    def flush(self) -> None:  # noqa: B027  # most streams have nothing to do here
        """Do nothing: what is written is seen when the object is closed, and not before."""

    def write(self, data: Buffer) -> int:
        """Take bytes and return their number.

        Raises:
            OSError: What was written earlier could not be uploaded.
            ValueError: It is closed.
        """
        with memoryview(data) as view:
            size = view.nbytes
        if self._is_given_up:  # an encoder that is closed after that writes its end
            return size
        if self.closed:
            raise ValueError(f"Cannot write to {self._location}: it is closed.")
        self._take(data)
        return size

    def discard(self) -> None:
        """Make sure that nothing is left of it, closed or not; what cannot be removed is logged."""
        self.discard_unfinished()
        if self._may_exist and not self._if_absent:
            self._may_exist = False
            try:
                self._delete()
            except FileNotFoundError:
                pass
            except Exception as error:  # the caller has its own failure to report
                logger.warning("Left behind %s, which no table refers to: %s", self._location, type(error).__name__)

    def discard_unfinished(self) -> None:
        """Give up an upload that was not closed."""
        if not self.closed and self._process == os.getpid():
            self.closed = self._is_given_up = True
            self._give_up()

    @abstractmethod
    def tell(self) -> int:
        """Return how many bytes were written."""

    @abstractmethod
    def close(self) -> None:
        """Make the object appear, whole.

        Raises:
            FileExistsError: There is one already, and it may not be replaced.
            OSError: It could not be uploaded; nothing is left of it.
        """

    @abstractmethod
    def _take(self, data: Buffer) -> None:
        """Keep bytes, or upload them."""

    @abstractmethod
    def _give_up(self) -> None:
        """Remove what was uploaded of an object that has not appeared."""

    @abstractmethod
    def _delete(self) -> None:
        """Delete the object."""


class Download(io.RawIOBase):
    """The bytes of an object, from wherever they are asked for."""

    def __init__(self) -> None:
        super().__init__()
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
        self._position = (self._find_size() if base is None else base) + offset
        return self._position

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        if self._known_size is None and self._position == 0:
            data = self._whole()
            self._known_size = len(data)
        else:
            data = self._bytes(self._position, max(self._find_size() - self._position, 0))
        self._position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill the buffer and return the number of bytes, which is smaller at the end only."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data = self._bytes(self._position, len(view))
            view[: len(data)] = data
        self._position += len(data)
        return len(data)

    @abstractmethod
    def _find_size(self) -> int:
        """Return the object's size in bytes, asked for at most once."""

    @abstractmethod
    def _whole(self) -> bytes:
        """Return all bytes."""

    @abstractmethod
    def _bytes(self, start: int, count: int) -> bytes:
        """Return `count` bytes from `start` on, fewer at the end only."""


class ObjectFile(InputFile, OutputFile):
    """One object, to read or to write."""

    def exists(self) -> bool:
        """Return whether there is such an object."""
        try:
            len(self)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  # PyIceberg's signature
        """Return a stream of its bytes; a missing object is found out at the first read."""
        return io.BufferedReader(self._download(), _READ_AHEAD_BYTES)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  # PyIceberg's signature
        """Return a stream into it; one that exists and may not be overwritten is found out at its end."""
        return self._upload(if_absent=not overwrite)

    def to_input_file(self) -> Self:
        """Return it, to be read."""
        return self

    @abstractmethod
    def _download(self) -> Download:
        """Return what reads it."""

    @abstractmethod
    def _upload(self, *, if_absent: bool) -> Upload:
        """Return what writes it."""
