"""One object that is being written to S3. Nobody sees it before it is closed, and nothing is left if it is not.

What is smaller than a part goes in one request. The parts of what is larger are uploaded by the store's threads
while the rows after them are encoded. A process that is killed leaves parts that nobody sees; a rule
of the bucket (`AbortIncompleteMultipartUpload`) removes them.
"""

from __future__ import annotations

import atexit
import logging
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from iceberg_ds.storage.object_streams import Upload
from iceberg_ds.storage.s3_store import ObjectPlace, S3Store, code_of, is_refusal, storage_errors

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

logger = logging.getLogger(__name__)

_MOST_PARTS = 10_000
_CONDITION_UNKNOWN = "NotImplemented"

_open: WeakSet[S3Upload] = WeakSet()


class S3Upload(Upload):
    """A stream into a new object.

    Args:
        store: The store.
        place: The object.
        if_absent: Whether an object that is there already is an error (it is found out at the end), or replaced.
    """

    def __init__(self, store: S3Store, place: ObjectPlace, *, if_absent: bool) -> None:
        super().__init__(place.location, if_absent=if_absent)
        self._store = store
        self._place = place
        self._buffer = bytearray()
        self._size = 0
        self._upload_id: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        _open.add(self)

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size

    def _take(self, data: Buffer) -> None:
        self._buffer += data
        with memoryview(data) as view:
            self._size += view.nbytes
        # A last part is kept back: it is never empty, and a file of one part needs one request only.
        while len(self._buffer) > self._store.settings.part_bytes:
            self._send_part(self._store.settings.part_bytes)

    def close(self) -> None:
        """Make the object appear, whole; raises as `Upload.close` does."""
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

    def _give_up(self) -> None:
        self._buffer = bytearray()
        _open.discard(self)
        self._abort()

    def _delete(self) -> None:
        self._store.client.delete_object(**self._place.arguments)

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
            logger.warning("Left behind parts of %s, which nobody sees: %s", self._place.location, type(error).__name__)


@atexit.register
def _discard_open() -> None:
    """Give up what a process that ends left open: neither an object nor parts of one remain."""
    for upload in list(_open):
        with suppress(Exception):
            upload.discard_unfinished()
