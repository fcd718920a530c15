"""One object of S3 that is being read, in as few requests as its reader allows.

Metadata is read whole, which takes one request; a Parquet file from its end, whose first request also tells its size.
"""

from __future__ import annotations

import re
from typing import Any

from botocore.exceptions import BotoCoreError

from iceberg_ds.storage.object_streams import Download
from iceberg_ds.storage.s3_store import ObjectPlace, S3Store, code_of, storage_errors

_TAIL_BYTES = 64 * 1024
_ATTEMPTS = 4


class S3Download(Download):
    """The bytes of an object, from wherever they are asked for.

    Args:
        store: The store.
        place: The object.
    """

    def __init__(self, store: S3Store, place: ObjectPlace) -> None:
        super().__init__()
        self._store = store
        self._place = place
        self._tail = b""

    def _whole(self) -> bytes:
        return self._get(None)

    def _find_size(self) -> int:
        """Return the object's size; the request that tells it also brings its end."""
        if self._known_size is None:
            self._tail = self._get(f"bytes=-{_TAIL_BYTES}")
            if self._known_size is None:  # an empty object has no end to send
                self._known_size = len(self._tail)
        return self._known_size

    def _bytes(self, start: int, count: int) -> bytes:
        if self._known_size is not None:
            count = min(count, self._known_size - start)
            tail_start = self._known_size - len(self._tail)
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
            self._known_size = int(told.group(1))
        return bytes(answer["Body"].read())
