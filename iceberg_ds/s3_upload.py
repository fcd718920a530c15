"""One object that is being written to S3. Nobody sees it before it is closed, and nothing is left if it is not.

What is smaller than a part goes in one request. The parts of what is larger are uploaded by the store's threads
while the rows after them are encoded. A process that is killed leaves parts that nobody sees; a rule
of the bucket (`AbortIncompleteMultipartUpload`) removes them.
"""

from __future__ import annotations

import atexit
import logging
import os
from concurrent.futures import Future, wait
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from typing_extensions import Self

from iceberg_ds.s3_store import ObjectPlace, S3Store, code_of, is_refusal, storage_errors

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

logger = logging.getLogger(__name__)

_MOST_PARTS = 10_000
_CONDITION_UNKNOWN = "NotImplemented"

_open: WeakSet[S3Upload] = WeakSet()


class S3Upload:
    """A stream into a new object.

    Args:
        store: The store.
        place: The object.
        if_absent: Whether an object that is there already is an error (it is found out at the end), or replaced.
    """

    def __init__(self, store: S3Store, place: ObjectPlace, *, if_absent: bool) -> None:
        self.closed = False
        self._store = store
        self._place = place
        self._if_absent = if_absent
        self._process = os.getpid()
        self._buffer = bytearray()
        self._size = 0
        self._upload_id: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._may_exist = False
        self._is_given_up = False
        _open.add(self)

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

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: what is written is seen when the object is closed, and not before."""

    def write(self, data: Buffer) -> int:
        """Take bytes and return their number.

        Raises:
            OSError: An earlier part could not be uploaded.
            ValueError: It is closed.
        """
        with memoryview(data) as view:
            size = view.nbytes
        if self._is_given_up:  # an encoder that is closed after that writes its end
            return size
        if self.closed:
            raise ValueError(f"Cannot write to {self._place.location}: it is closed.")
        self._buffer += data
        self._size += size
        # A last part is kept back: it is never empty, and a file of one part needs one request only.
        while len(self._buffer) > self._store.settings.part_bytes:
            self._send_part(self._store.settings.part_bytes)
        return size

    def close(self) -> None:
        """Make the object appear, whole.

        Raises:
            FileExistsError: There is one already, and it may not be replaced.
            OSError: It could not be uploaded; nothing is left of it.
        """
        if self.closed:
            return
        self.closed = True
        try:
            with storage_errors("write", self._place):
                if self._upload_id is None:
                    self._put()
                else:
                    self._complete(self._upload_id)
        except BaseException:
            self._abort()
            raise
        finally:
            self._buffer = bytearray()
            _open.discard(self)

    def discard(self) -> None:
        """Make sure that nothing is left of it, closed or not; what cannot be removed is logged."""
        self.discard_unfinished()
        if self._may_exist and not self._if_absent:
            self._may_exist = False
            try:
                self._store.client.delete_object(**self._place.arguments)
            except Exception as error:  # the caller has its own failure to report
                logger.warning("Left behind %s, which no table refers to: %s", self._place.location, error)

    def discard_unfinished(self) -> None:
        """Give up an upload that was not closed."""
        if not self.closed and self._process == os.getpid():
            self.closed = self._is_given_up = True
            self._buffer = bytearray()
            _open.discard(self)
            self._abort()

    def _put(self) -> None:
        self._finish(self._store.client.put_object, Body=bytes(self._buffer), **self._new_object_arguments)

    def _complete(self, upload_id: str) -> None:
        self._send_part(len(self._buffer))
        parts = [part.result() for part in self._parts]
        self._finish(self._store.client.complete_multipart_upload, UploadId=upload_id, MultipartUpload={"Parts": parts})

    def _finish(self, request: Any, **arguments: Any) -> None:  # noqa: ANN401  # a method that botocore makes
        """Send the request that makes the object appear."""
        condition = {"IfNoneMatch": "*"} if self._if_absent else {}
        self._may_exist = True
        try:
            request(**self._place.arguments, **arguments, **condition)
        except BaseException as error:
            self._may_exist = not is_refusal(error)
            if not condition or code_of(error) != _CONDITION_UNKNOWN:
                raise
            # Stores that do not know the condition: names are unique, so that the file is ours to write.
            request(**self._place.arguments, **arguments)

    def _send_part(self, size: int) -> None:
        with storage_errors("write", self._place):
            if self._upload_id is None:
                self._upload_id = self._begin()
            for part in self._parts:
                if part.done():
                    part.result()  # raises what went wrong, rather than uploading the rest first
        number = len(self._parts) + 1
        if number > _MOST_PARTS:
            raise OSError(
                f"Cannot write {self._place.location}: S3 takes {_MOST_PARTS} parts at most, and the file has more of "
                f"{self._store.settings.part_bytes} bytes. Raise s3.multipart.part-size-bytes."
            )
        with memoryview(self._buffer) as view:
            body = bytes(view[:size])
        del self._buffer[:size]
        self._parts.append(self._store.in_background(self._upload_part, number, body))

    def _begin(self) -> str:
        client = self._store.client
        arguments = {**self._place.arguments, **self._new_object_arguments}
        if client.meta.config.request_checksum_calculation == "when_supported":  # the default, with CRC32
            arguments["ChecksumAlgorithm"] = "CRC32"  # S3 refuses parts whose checksum was not announced
        return str(client.create_multipart_upload(**arguments)["UploadId"])

    def _upload_part(self, number: int, body: bytes) -> dict[str, Any]:
        """Upload one part and return what the completing request has to say of it."""
        answer = self._store.client.upload_part(
            **self._place.arguments, UploadId=self._upload_id, PartNumber=number, Body=body
        )
        told = ("ETag", "ChecksumCRC32")
        return {"PartNumber": number, **{name: answer[name] for name in told if name in answer}}

    @property
    def _new_object_arguments(self) -> dict[str, str]:
        return dict(self._store.settings.upload_arguments)

    def _abort(self) -> None:
        """Remove the parts; a part that is still under way would come back after that, so they end first."""
        if self._upload_id is None:
            return
        for part in self._parts:
            part.cancel()
        wait(self._parts)
        self._parts = []
        try:
            self._store.client.abort_multipart_upload(**self._place.arguments, UploadId=self._upload_id)
        except Exception as error:  # the caller has its own failure to report
            logger.warning("Left behind parts of %s, which nobody sees: %s", self._place.location, error)


@atexit.register
def _discard_open() -> None:
    """Give up what a process that ends left open: neither an object nor parts of one remain."""
    for upload in list(_open):
        with suppress(Exception):
            upload.discard_unfinished()
