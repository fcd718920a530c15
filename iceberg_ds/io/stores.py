"""Stores of files: what each one implements, and the streams and the FileIO that are made of it.

In a store of objects no reader sees an upload before it is closed, and a download has random access. A file of one
block is sent with one request when it is closed. The blocks of a larger file are sent before: those to S3 while the
caller writes the bytes after them, those to other stores by the caller's own thread, which waits for each.
`ObjectStore` is what a store implements; `s3_io` and `fsspec_io` do. A process connects once for each account and set
of credentials. Imports no library of a store, nor any other module of this room.
"""

from __future__ import annotations

import atexit
import io
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable
from weakref import WeakSet

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties
from typing_extensions import Self

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

logger = logging.getLogger(__name__)

_READ_AHEAD_BYTES = 1024 * 1024
_SHARED_FOR_S = 60
_AT_EXIT_S = 5  # for all open uploads: an interpreter that ends must not wait for a store that is away

_Store = TypeVar("_Store", bound="ObjectStore")


class ShippedFileIO(FileIO):
    """Opens files. Pickled, it is only its properties, because connections, locks and threads belong to one process."""

    def __getstate__(self) -> dict[str, object]:
        return {"properties": dict(self.properties)}

    def __setstate__(self, state: Mapping[str, Properties]) -> None:
        self.__init__(state["properties"])  # type: ignore[misc]  # there is nothing else to restore


@runtime_checkable
class DiscardableStream(Protocol):
    """A stream into a file that can be given up."""

    def discard(self) -> None:
        """Remove what there is of the file, closed or not; what may be another writer's file stays."""


@runtime_checkable
class DeletesMany(Protocol):
    """Storage that deletes many files with one request."""

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete the files; return the reason for each that could not be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file in a store.

    Attributes:
        path: Its location.
        size_bytes: Its size.
        modified_ms: Time of the last change by the store's clock, in milliseconds since the Unix epoch.
    """

    path: str
    size_bytes: int
    modified_ms: int


class Lists(Protocol):
    """Storage that lists its files and tells its time."""

    def stored_files(self, location: str, *, is_deep: bool = True) -> Iterator[StoredFile]:
        """Yield the files below `location` in the order of their names, or those that are in no folder below it."""

    def folders(self, location: str, pages: int) -> list[str] | None:
        """Return the folders just below `location`, or None if they take more than this number of pages."""

    def file_at(self, location: str) -> StoredFile | None:
        """Return the file at a location, or None if there is none."""

    def clock_ms(self, location: str) -> int:
        """Return the store's time in milliseconds since the Unix epoch."""


class Blocks(Protocol):
    """A large object that is being sent; readers see it once it is complete."""

    def send(self, block: io.BytesIO) -> None:
        """Send a block, or start to; raises OSError if an earlier block could not be sent."""

    def complete(self, last: io.BytesIO) -> None:
        """Send the last block and make the object appear; raises as `ObjectStore.put` does."""

    def abort(self, within_s: float | None = None) -> None:
        """Remove the blocks that were sent, unless the object has appeared; a failure to do so is logged.

        Args:
            within_s: Seconds after which a store on the network leaves the blocks; None to wait for it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a listing.

    Attributes:
        entries: Key, size in bytes and time of the last change (ms since the Unix epoch) of each object.
        next: Token of the next page, or None on the last one.
        date: The header `Date` of the answer.
        folders: Beginnings of keys, up to a slash, that stand for the objects below them; empty for a deep page.
    """

    entries: Sequence[tuple[str, int, int]]
    next: str | None
    date: str
    folders: Sequence[str] = ()


class ObjectStore(ABC):
    """The operations of a store that reading and writing files need. Threads may share it; processes may not.

    Attributes:
        block_bytes: Size of every block of a large object except the last one.
    """

    block_bytes: int

    @abstractmethod
    def put(self, location: str, data: io.BytesIO, *, if_absent: bool) -> None:
        """Make an object appear.

        Raises:
            FileExistsError: The object exists, and `if_absent` forbids to replace it.
            OSError: The object could not be written.
        """

    @abstractmethod
    def begin(self, location: str, *, if_absent: bool) -> Blocks:
        """Begin a large object; that the object exists already may be found out only at the end."""

    @abstractmethod
    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to `end`, or the whole object without them.

        Raises:
            FileNotFoundError: The object is missing.
            OSError: The object could not be read.
        """

    @abstractmethod
    def size(self, location: str) -> int:
        """Return the size of an object in bytes; raises as `get` does."""

    @abstractmethod
    def delete(self, location: str) -> None:
        """Delete an object; raises OSError, and FileNotFoundError for a missing object if the store reports it."""

    def tail(self, location: str) -> tuple[bytes, int]:
        """Return the last bytes of an object (possibly none) and the object's size in bytes; raises as `get` does."""
        return b"", self.size(location)

    def page(self, location: str, start: str | None, size: int | None = None, *, is_deep: bool = True) -> Page:
        """Return a page of the objects whose locations begin with `location`.

        Args:
            location: Beginning of the locations.
            start: Token of the page, or None for the first one.
            size: How many objects to return at most, or None for the store's own limit.
            is_deep: True: all of them. False: those with a further slash as the folders up to it.

        Raises:
            NotImplementedError: The store cannot be listed.
        """
        raise NotImplementedError

    def was_refused(self, error: BaseException) -> bool:  # noqa: ARG002  # for stores that can tell
        """Return whether an error of `put` or `complete` proves that no object has appeared."""
        return False


class Upload:
    """A stream into a new object, which stores of objects show to no reader before the stream is closed.

    Args:
        store: The store.
        location: Location of the object.
        if_absent: True: an object that exists already is an error, found out at the end. False: it is replaced.
    """

    def __init__(self, store: ObjectStore, location: str, *, if_absent: bool) -> None:
        self.closed = False
        self._store = store
        self._location = location
        self._if_absent = if_absent
        self._process = os.getpid()
        self._block = io.BytesIO()  # is sent as it is, without a copy
        self._size = 0
        self._blocks: Blocks | None = None
        self._may_exist = False
        self._is_given_up = False
        self._failure: BaseException | None = None

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
        # The stream was neither closed nor discarded: its object must not appear.
        with suppress(Exception):
            self.discard_unfinished()

    def readable(self) -> bool:
        """Return False: the stream only writes."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False: bytes are only appended."""
        return False

    def flush(self) -> None:
        """Do nothing: readers see the bytes when the stream is closed."""

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._size

    def write(self, data: Buffer) -> int:
        """Take bytes and return their number; an error gives up the upload, because its object would lack bytes.

        Raises:
            FileExistsError: The object exists already and may not be replaced.
            OSError: These bytes, or those of an earlier call, could not be uploaded.
            ValueError: The stream is closed.
        """
        with memoryview(data) as whole, whole.cast("B") as view:
            size = len(view)
            if self._is_given_up:  # an encoder that is closed later still writes its footer
                return size
            if self.closed:
                raise ValueError(f"Cannot write to {self._location}: it is closed.")
            try:
                self._take(view)
            except BaseException as error:
                self._failure = error
                self.discard_unfinished()
                raise
        self._size += size
        return size

    def close(self) -> None:
        """Make the whole object appear.

        Raises:
            FileExistsError: The object exists already and may not be replaced.
            OSError: The object could not be uploaded, its blocks by an earlier `write`, or the store's answer was lost.
                Only then may the object be there, whole; `discard` tells when it is removed.
        """
        if self._failure is not None:
            raise OSError(f"Cannot write {self._location}: bytes of it could not be uploaded.") from self._failure
        if self.closed:
            return
        self.closed = self._may_exist = True
        try:
            if self._blocks is None:
                self._store.put(self._location, self._block, if_absent=self._if_absent)
            else:
                self._blocks.complete(self._block)
        except BaseException as error:
            self._may_exist = not self._store.was_refused(error)
            self._abort()
            raise
        finally:
            self._block = io.BytesIO()

    def discard(self) -> None:
        """Remove what there is of the object, closed or not; a failure to do so is logged.

        An object that may not replace another one stays once `close` was called: after a lost answer, it may be another
        writer's.
        """
        self.discard_unfinished()
        if self._may_exist and not self._if_absent:
            self._may_exist = False
            try:
                self._store.delete(self._location)
            except FileNotFoundError:
                pass
            except Exception as error:  # the caller has its own failure to report
                logger.warning("Left behind %s, which no table refers to: %s", self._location, type(error).__name__)

    def discard_unfinished(self, within_s: float | None = None) -> None:
        """Give up the upload if the stream was not closed; `within_s` is as in `Blocks.abort`."""
        if not self.closed and self._process == os.getpid():
            self.closed = self._is_given_up = True
            self._block = io.BytesIO()
            self._abort(within_s)

    def _take(self, view: memoryview) -> None:
        taken = 0
        while taken < len(view):
            room = self._store.block_bytes - self._block.tell()
            if room == 0:  # not sooner: the last block is never empty, and a file of one block is one request
                self._send_block()
                continue
            taken += self._block.write(view[taken : taken + room])

    def _send_block(self) -> None:
        if self._blocks is None:
            self._blocks = self._store.begin(self._location, if_absent=self._if_absent)
            _discard_at_exit()
            _unfinished.add(self)
        block, self._block = self._block, io.BytesIO()
        self._blocks.send(block)

    def _abort(self, within_s: float | None = None) -> None:
        if self._blocks is not None:
            self._blocks.abort(within_s)


_unfinished: WeakSet[Upload] = WeakSet()


@cache
def _discard_at_exit() -> None:
    """Make the interpreter give up open uploads when it ends, so that neither objects nor blocks of them remain.

    Called once a store is connected: exit handlers run in reverse order, so uploads end before their connections.
    """
    atexit.register(_discard_unfinished)


def _discard_unfinished() -> None:
    end_s = time.monotonic() + _AT_EXIT_S
    for upload in list(_unfinished):
        with suppress(Exception):
            upload.discard_unfinished(max(0, end_s - time.monotonic()))


class Download(io.RawIOBase):
    """The bytes of an object, read from any position.

    Args:
        store: The store.
        location: Location of the object.
    """

    def __init__(self, store: ObjectStore, location: str) -> None:
        super().__init__()
        self._store = store
        self._location = location
        self._position = 0
        self._known_size: int | None = None
        self._tail = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: any position can be read."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        self._position = (self._find_size() if base is None else base) + offset
        return self._position

    def readall(self) -> bytes:
        """Return all bytes from the position to the end."""
        if self._known_size is None and self._position == 0:
            data = self._store.get(self._location)
            self._known_size = len(data)
        else:
            data = self._bytes(self._position, max(self._find_size() - self._position, 0))
        self._position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill the buffer and return the number of bytes, which is smaller only at the end of the object."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data = self._bytes(self._position, len(view))
            view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _find_size(self) -> int:
        """Return the object's size in bytes; the same request may also bring the object's last bytes."""
        if self._known_size is None:
            self._tail, self._known_size = self._store.tail(self._location)
        return self._known_size

    def _bytes(self, start: int, count: int) -> bytes:
        """Return `count` bytes from `start`, or fewer at the end of the object."""
        size = self._find_size()
        end, tail_start = min(start + count, size), size - len(self._tail)
        if start >= end:
            return b""
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        return self._store.get(self._location, start, end)


class ObjectFile(InputFile, OutputFile):
    """One object, to read or to write.

    Args:
        store: The store.
        location: Location of the object.
    """

    def __init__(self, store: ObjectStore, location: str) -> None:
        super().__init__(location=location)
        self._store = store

    def __len__(self) -> int:
        """Return the size in bytes."""
        return self._store.size(self.location)

    def exists(self) -> bool:
        """Return whether the object exists."""
        try:
            len(self)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002  # PyIceberg's signature
        """Return a stream of the object's bytes; the first read fails if the object is missing."""
        return io.BufferedReader(Download(self._store, self.location), _READ_AHEAD_BYTES)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  # PyIceberg's signature
        """Return a stream into the object; closing it fails if the object exists and may not be overwritten."""
        return Upload(self._store, self.location, if_absent=not overwrite)

    def to_input_file(self) -> Self:
        """Return the object itself, to be read."""
        return self


def _root(location: str) -> str:
    """Return scheme and authority of a location."""
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


class StoreFileIO(ShippedFileIO):
    """Opens the objects of a store; a process connects once for each account and set of credentials."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._lock = Lock()
        self._stores: dict[Hashable, Any] = {}

    def new_input(self, location: str) -> ObjectFile:
        """Return the object, to be read."""
        return ObjectFile(self._store(location), location)

    def new_output(self, location: str) -> ObjectFile:
        """Return the object, to be written."""
        return ObjectFile(self._store(location), location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object.

        Raises:
            FileNotFoundError: The object is missing, and the store reports that.
        """
        path = location if isinstance(location, str) else location.location
        self._store(path).delete(path)

    def stored_files(self, location: str, *, is_deep: bool = True) -> Iterator[StoredFile]:
        """Yield the files below `location` in the order of their names, with one request for each page.

        Args:
            location: The folder.
            is_deep: False for those alone that are in no folder below it.
        """
        root = _root(location)
        for page in self._pages(location, is_deep=is_deep):
            for key, size_bytes, modified_ms in page.entries:
                yield StoredFile(path=f"{root}/{key}", size_bytes=size_bytes, modified_ms=modified_ms)

    def folders(self, location: str, pages: int) -> list[str] | None:
        """Return the folders just below `location`, or None if they take more than this number of pages."""
        root, found = _root(location), []
        for number, page in enumerate(self._pages(location, is_deep=False)):
            if number == pages:
                return None
            found += [f"{root}/{folder}" for folder in page.folders]
        return found

    def _pages(self, location: str, *, is_deep: bool) -> Iterator[Page]:
        folder = f"{location.rstrip('/')}/"
        page = self._store(location).page(folder, None, is_deep=is_deep)
        yield page
        while page.next is not None:
            page = self._store(location).page(folder, page.next, is_deep=is_deep)
            yield page

    def file_at(self, location: str) -> StoredFile | None:
        """Return the file at a location, or None if there is none."""
        # Keys come in order, and the key itself is the first of those that begin with it.
        page = self._store(location).page(location, None, size=1)
        key = location.partition("://")[2].partition("/")[2]
        for found, size_bytes, modified_ms in page.entries:
            if found == key:
                return StoredFile(path=location, size_bytes=size_bytes, modified_ms=modified_ms)
        return None

    def clock_ms(self, location: str) -> int:
        """Return the store's time by its answer to a listing, in milliseconds since the Unix epoch."""
        page = self._store(location).page(location, None, size=1)
        return int(parsedate_to_datetime(page.date).timestamp() * 1000)

    @abstractmethod
    def _store(self, location: str) -> ObjectStore:
        """Return the store of an object."""

    def _kept(self, key: Hashable, connect: Callable[[], _Store]) -> _Store:
        """Return the store of a key, made once in each process, because connections do not survive a fork."""
        with self._lock:
            if (os.getpid(), key) not in self._stores:
                self._stores = {(os.getpid(), key): connect()}
            store: _Store = self._stores[os.getpid(), key]
            return store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A store, and the time of the monotonic clock, in seconds, when it was made."""

    store: ObjectStore
    made_s: float


_shared: dict[Hashable, _Shared] = {}


_shared_lock = Lock()


def shared(key: Hashable, connect: Callable[[], _Store]) -> _Store:
    """Return the store of a key, shared by all callers in a process for one minute.

    Each load of a table and each commit opens its storage anew. Each time it would find credentials and connect, which
    takes longer than a request. A store is not shared for longer, because files of credentials may change.
    """
    # The libraries read environment variables, and a forked process needs connections of its own.
    key = (os.getpid(), key, frozenset(os.environ.items()))
    with _shared_lock:
        now_s = time.monotonic()
        for old in [old for old, kept in _shared.items() if now_s - kept.made_s > _SHARED_FOR_S]:
            del _shared[old]
        if key not in _shared:
            _shared[key] = _Shared(store=connect(), made_s=now_s)
        return cast("_Store", _shared[key].store)
