"""Objects of one S3 store, written and read: nobody sees one before it is closed, and nothing is left if it is not.

A store has one client for the process, made at the first request, so that opening a table asks no network for
credentials. What is smaller than a part is uploaded in one request. The parts of what is larger are uploaded by the
store's threads while the rows after them are encoded. A process that is killed leaves parts that nobody sees; a rule of
the bucket (`AbortIncompleteMultipartUpload`) removes them. Metadata is read whole, in one request; a Parquet file from
its end, whose first request also tells its size.
"""

from __future__ import annotations

import atexit
import errno
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakSet

from botocore.exceptions import BotoCoreError, ClientError

from iceberg_ds.io.object_streams import Download, Upload
from iceberg_ds.io.places import check_place
from iceberg_ds.io.s3_client import FreshCredentials, s3_client
from iceberg_ds.io.s3_settings import S3Settings

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12

    from botocore.client import BaseClient


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_NOT_FOUND = 404
_FORBIDDEN = 403
_PRECONDITION_FAILED = 412
_CLIENT_ERRORS = range(400, 500)
_TAIL_BYTES = 64 * 1024
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlace:
    """Where one object is.

    Attributes:
        location: Its full location, as tables name it.
        bucket: The bucket.
        key: The key in it, exactly as the location spells it.
    """

    location: str
    bucket: str
    key: str

    @classmethod
    def of(cls, location: str) -> ObjectPlace:
        """Return the place of a location such as `s3://bucket/key`.

        Raises:
            ValueError: It names no object, or readers would understand it in different ways.
        """
        _, _, rest = location.partition("://")
        bucket, _, key = rest.partition("/")
        if not bucket or not key:
            raise ValueError(f"Location {location} names no object: expected s3://bucket/key.")
        check_place(location)
        return cls(location=location, bucket=bucket, key=key)

    @property
    def arguments(self) -> dict[str, str]:
        """What each request says of it."""
        return {"Bucket": self.bucket, "Key": self.key}


class S3Store:
    """A store, and the process's means to talk to it. Threads may share it; processes may not.

    Args:
        settings: How it is reached.
        renew: Gives credentials that end, None for those of the settings.
    """

    def __init__(self, settings: S3Settings, renew: Callable[[], FreshCredentials] | None = None) -> None:
        self.settings = settings
        self._renew = renew
        self._lock = Lock()
        self._client: BaseClient | None = None
        # One more than threads: the next part is at hand when one is done, and memory stays bounded.
        self._slots = BoundedSemaphore(settings.upload_threads + 1)

    @property
    def client(self) -> BaseClient:
        """The client, which threads share."""
        with self._lock:
            if self._client is None:
                self._client = s3_client(self.settings, self._renew)
            return self._client

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.settings.upload_threads, thread_name_prefix="iceberg-ds-upload")

    def in_background(
        self, call: Callable[_Parameters, _Result], *args: _Parameters.args, **kwargs: _Parameters.kwargs
    ) -> Future[_Result]:
        """Start `call` in another thread; wait first while as many calls as there may be are under way."""
        self._slots.acquire()
        try:
            future = self._threads.submit(call, *args, **kwargs)
        except BaseException:
            self._slots.release()
            raise
        future.add_done_callback(lambda _: self._slots.release())
        return future


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the store answered with, None if it did not answer."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(error: BaseException) -> str:
    """Return the store's own name of an error, empty if it did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def is_refusal(error: BaseException) -> bool:
    """Return whether the store says that it did not do what it was asked.

    Of a request that was sent again it may only say that the first one did it.
    """
    if not isinstance(error, ClientError) or error.response.get("ResponseMetadata", {}).get("RetryAttempts"):
        return False
    return status_of(error) in _CLIENT_ERRORS


@contextmanager
def storage_errors(action: str, place: ObjectPlace) -> Iterator[None]:
    """Turn the client's errors into Python's own for files, with the object's location.

    Raises:
        FileNotFoundError: The object is missing.
        FileExistsError: It is there although it must not be.
        PermissionError: The store forbids it.
        OSError: Anything else: a missing bucket, no connection, no credentials.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        text = f"Cannot {action} {place.location}: {error}"
        if code_of(error) in ("NoSuchKey", "404"):
            raise FileNotFoundError(errno.ENOENT, text, place.location) from error
        if status_of(error) == _PRECONDITION_FAILED:
            raise FileExistsError(errno.EEXIST, text, place.location) from error
        if status_of(error) == _FORBIDDEN:
            raise PermissionError(errno.EACCES, text, place.location) from error
        raise OSError(errno.EIO, text) from error


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
