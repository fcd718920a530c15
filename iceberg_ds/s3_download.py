"""One object of S3 that is being read, in as few requests as its reader allows.

Metadata is read whole, which takes one request; a Parquet file from its end, whose first request also tells its size.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError

from iceberg_ds.s3_store import ObjectPlace, S3Store, code_of, storage_errors

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

READ_AHEAD_BYTES = 1024 * 1024
_TAIL_BYTES = 64 * 1024
_ATTEMPTS = 4


class S3Download(io.RawIOBase):
    """The bytes of an object, from wherever they are asked for.

    Args:
        store: The store.
        place: The object.
    """

    def __init__(self, store: S3Store, place: ObjectPlace) -> None:
        super().__init__()
        self._store = store
        self._place = place
        self._position = 0
        self._size: int | None = None
        self._tail = b""

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
        self._position = (self._read_tail() if base is None else base) + offset
        return self._position

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        if self._size is None and self._position == 0:
            data = self._get(None)
            self._size = len(data)
        else:
            data = self._bytes(self._position, max(self._read_tail() - self._position, 0))
        self._position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill the buffer and return the number of bytes, which is smaller at the end only."""
        with memoryview(buffer) as whole, whole.cast("B") as view:
            data = self._bytes(self._position, len(view))
            view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _read_tail(self) -> int:
        """Return the object's size; the request that tells it also brings its end."""
        if self._size is None:
            self._tail = self._get(f"bytes=-{_TAIL_BYTES}")
            if self._size is None:  # an empty object has no end to send
                self._size = len(self._tail)
        return self._size

    def _bytes(self, start: int, count: int) -> bytes:
        if self._size is not None:
            count = min(count, self._size - start)
            tail_start = self._size - len(self._tail)
            if self._tail and start >= tail_start:
                return self._tail[start - tail_start : start - tail_start + count]
        return self._get(f"bytes={start}-{start + count - 1}") if count > 0 else b""

    def _get(self, byte_range: str | None) -> bytes:
        with storage_errors("read", self._place):
            for attempt in range(_ATTEMPTS):
                try:
                    return self._request({} if byte_range is None else {"Range": byte_range})
                except BotoCoreError:  # an answer that breaks off is not asked for again by the client
                    if attempt + 1 == _ATTEMPTS:
                        raise
                except Exception as error:
                    if code_of(error) == "InvalidRange":
                        return b""
                    raise
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _request(self, arguments: dict[str, Any]) -> bytes:
        answer = self._store.client.get_object(**self._place.arguments, **arguments)
        if (told := re.search(r"/(\d+)$", answer.get("ContentRange", ""))) is not None:
            self._size = int(told.group(1))
        return bytes(answer["Body"].read())
