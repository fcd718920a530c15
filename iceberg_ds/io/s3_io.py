"""PyIceberg's FileIO for S3, through s3fs, with as few requests as possible.

A process that is killed leaves parts of uploads, which no reader sees; so does one that ends while the store is away. A
lifecycle rule of the bucket (`AbortIncompleteMultipartUpload`) removes them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cached_property
from io import BytesIO
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.io.io_loop import io_loop
from iceberg_ds.io.places import check_place
from iceberg_ds.io.store_settings import S3Settings, s3_settings
from iceberg_ds.io.stores import ObjectStore, Page, StoreFileIO, shared
from iceberg_ds.io.vended_credentials import expires_at_ms, renewing

if TYPE_CHECKING:
    from iceberg_ds.io.s3_session import FreshCredentials, S3Requests

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)

_NOT_FOUND = ("NoSuchKey", "404")
_FORBIDDEN = 403
_PRECONDITION_FAILED = 412
_CLIENT_ERRORS = range(400, 500)
_NO_UPLOAD = "NoSuchUpload"
_CONDITION_UNKNOWN = "NotImplemented"
_TAIL_BYTES = 64 * 1024
_ATTEMPTS = 4
_MOST_PARTS = 10_000
_BULK = 1000  # keys of one request at most


def object_arguments(location: str) -> dict[str, str]:
    """Return the arguments by which each request names the object at a location such as `s3://bucket/key`.

    The key is exactly as the location spells it.

    Raises:
        ValueError: The location names no object, or readers would understand it in different ways.
    """
    bucket, _, key = location.partition("://")[2].partition("/")
    if not bucket or not key:
        raise ValueError(f"Location {location} names no object: expected s3://bucket/key.")
    check_place(location)
    return {"Bucket": bucket, "Key": key}


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of the store's answer, or None if it did not answer."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(error: BaseException) -> str:
    """Return the store's own code of an error, or an empty text if it did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def was_sent_again(error: BaseException) -> bool:
    """Return whether the answer is to a retried request, which may have succeeded the first time."""
    return isinstance(error, ClientError) and bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))


Mark: TypeAlias = dict[str, dict[str, str]]


def _new_mark(*, if_absent: bool) -> Mark:
    """Return metadata that no other object has, or nothing for an object that may replace another."""
    return {"Metadata": {"iceberg-ds-upload": uuid4().hex}} if if_absent else {}


@contextmanager
def storage_errors(action: str, location: str) -> Iterator[None]:
    """Turn errors of the libraries into Python's own for files, with the object's location.

    Raises:
        FileNotFoundError: The object is missing.
        FileExistsError: The object exists although it must not.
        PermissionError: The store forbids it.
        OSError: Any other error, such as a missing bucket, no connection or no credentials.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        text = f"Cannot {action} {location}: {error}"
        if code_of(error) in _NOT_FOUND:
            raise FileNotFoundError(errno.ENOENT, text, location) from error
        if status_of(error) == _PRECONDITION_FAILED:
            raise FileExistsError(errno.EEXIST, text, location) from error
        if status_of(error) == _FORBIDDEN:
            raise PermissionError(errno.EACCES, text, location) from error
        raise OSError(errno.EIO, text) from error


class S3Store(ObjectStore):
    """A store on S3. Its client is made at the first request, so that opening a table needs no network.

    Args:
        settings: How the store is reached.
        renew: Returns new credentials before the old ones expire; None to use those of the settings.
    """

    def __init__(self, settings: S3Settings, renew: Callable[[], FreshCredentials] | None = None) -> None:
        self.block_bytes = settings.part_bytes
        self._settings = settings
        self._renew = renew
        self._lock = Lock()
        # How many parts of all files are sent at the same time, which bounds the memory.
        self.slots = BoundedSemaphore(settings.upload_threads)

    @property
    def files(self) -> S3Requests:
        """The filesystem of s3fs, which threads share."""
        with self._lock:
            return self._files

    @cached_property
    def _files(self) -> S3Requests:
        from iceberg_ds.io.s3_session import s3_filesystem  # noqa: PLC0415  # loads Amazon's libraries

        return s3_filesystem(self._settings, self._renew, io_loop())

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  # they are Amazon's
        """Return the store's answer to a request, which has its name in botocore; a `Body` in the answer is bytes.

        Raises:
            ClientError: The store refuses the request.
            BotoCoreError: The store does not answer.
        """
        return self.in_background(self.answer(request, **arguments)).result()

    async def answer(self, request: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  # they are Amazon's
        """Do as `ask` does, inside the event loop that makes the requests."""
        return await self._files.answer(request, **arguments)

    def in_background(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Start work in the event loop that makes the requests."""
        return asyncio.run_coroutine_threadsafe(work, self.files.loop)

    def put(self, location: str, data: BytesIO, *, if_absent: bool) -> None:
        """Make an object appear, with one request; raises as `ObjectStore.put` does."""
        mark = _new_mark(if_absent=if_absent)
        self.finish("put_object", location, mark, Body=data, **mark)

    def finish(self, request: str, location: str, mark: Mark, **arguments: Any) -> None:  # noqa: ANN401  # Amazon's
        """Send the request that makes an object appear; raises as `put` does.

        Args:
            request: Name of the request in botocore.
            location: Location of the object.
            mark: Metadata of the object if it must not replace another one; empty if it may.
            arguments: Further arguments of the request.
        """
        named = {**object_arguments(location), **arguments}
        condition = {"IfNoneMatch": "*"} if mark else {}
        with storage_errors("write", location):
            try:
                self.ask(request, **named, **condition)
            except ClientError as error:
                if condition and code_of(error) == _CONDITION_UNKNOWN:
                    # The store does not know the condition. Names are unique, so the file is ours to write.
                    self.ask(request, **named)
                elif not (condition and was_sent_again(error) and self._holds(location, mark)):
                    raise

    def _holds(self, location: str, mark: Mark) -> bool:
        """Return whether the object was written by our own request, whose answer was lost."""
        return bool(self.ask("head_object", **object_arguments(location)).get("Metadata") == mark["Metadata"])

    def was_refused(self, error: BaseException) -> bool:
        """Return whether the store says that no object has appeared; a retried request leaves that open."""
        cause = error.__cause__ or error
        return status_of(cause) in _CLIENT_ERRORS and not was_sent_again(cause)

    def begin(self, location: str, *, if_absent: bool) -> Parts:
        """Begin an upload in parts."""
        return Parts(self, location, if_absent=if_absent)

    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to `end`, or the whole object without them."""
        byte_range = {} if start is None or end is None else {"Range": f"bytes={start}-{end - 1}"}
        return bytes(self._read(location, **byte_range)["Body"])

    def tail(self, location: str) -> tuple[bytes, int]:
        """Return the end of an object and the object's size, both from one answer."""
        try:
            answer = self._read(location, Range=f"bytes=-{_TAIL_BYTES}")
        except OSError as error:
            if code_of(error.__cause__ or error) == "InvalidRange":  # an empty object has no end to send
                return b"", 0
            raise
        told = re.search(r"/(\d+)$", answer.get("ContentRange", ""))
        return answer["Body"], len(answer["Body"]) if told is None else int(told[1])

    def _read(self, location: str, **arguments: str) -> dict[str, Any]:
        named = {**object_arguments(location), **arguments}
        with storage_errors("read", location):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self.ask("get_object", **named)
                except BotoCoreError as error:  # botocore does not ask again for an answer that breaks off
                    logger.debug("Asking for %s again: %s", location, type(error).__name__)
            return self.ask("get_object", **named)

    def size(self, location: str) -> int:
        """Return the size of an object in bytes."""
        with storage_errors("read", location):
            return int(self.ask("head_object", **object_arguments(location))["ContentLength"])

    def delete(self, location: str) -> None:
        """Delete an object; a missing one counts as deleted."""
        with storage_errors("delete", location):
            self.ask("delete_object", **object_arguments(location))

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete many objects with few requests; return the reason for each that could not be deleted."""
        problems: dict[str, str] = {}
        buckets: dict[str, list[tuple[str, str]]] = {}
        for location in locations:
            named = object_arguments(location)
            buckets.setdefault(named["Bucket"], []).append((named["Key"], location))
        for bucket, keys in buckets.items():
            for start in range(0, len(keys), _BULK):
                problems |= self._delete_in_one_request(bucket, dict(keys[start : start + _BULK]))
        return problems

    def _delete_in_one_request(self, bucket: str, keys: Mapping[str, str]) -> dict[str, str]:
        """Delete objects by their keys, which are given with their locations; return as `delete_many` does."""
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        with storage_errors("delete", next(iter(keys.values()))):
            errors = self.ask("delete_objects", Bucket=bucket, Delete=objects).get("Errors", [])
        return {keys[error["Key"]]: f"{error.get('Code')}: {error.get('Message')}" for error in errors}

    def page(self, location: str, start: str | None, size: int | None = None, *, is_deep: bool = True) -> Page:
        """Return a page of a listing."""
        bucket, _, key = location.partition("://")[2].partition("/")
        asked = {"ContinuationToken": start, "MaxKeys": size, "Delimiter": None if is_deep else "/"}
        given = {name: value for name, value in asked.items() if value is not None}
        answer = self.ask("list_objects_v2", Bucket=bucket, Prefix=key, **given)
        entries = [
            (entry["Key"], entry["Size"], int(entry["LastModified"].timestamp() * 1000))
            for entry in answer.get("Contents", [])
        ]
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        folders = [folder["Prefix"] for folder in answer.get("CommonPrefixes", [])]
        return Page(entries=entries, next=answer.get("NextContinuationToken"), date=date, folders=folders)


class Parts:
    """An upload in parts, which are sent at the same time, while the caller writes the bytes after them.

    Args:
        store: The store.
        location: Location of the object.
        if_absent: Whether an object that exists already is an error, which is raised at the end.
    """

    def __init__(self, store: S3Store, location: str, *, if_absent: bool) -> None:
        self._store = store
        self._location = location
        self._mark = _new_mark(if_absent=if_absent)
        self._sent: list[Future[dict[str, Any]]] = []
        named = object_arguments(location)
        with storage_errors("write", location):
            answer = store.ask("create_multipart_upload", **named, **self._mark, **self._checksum())
        self._upload = {**named, "UploadId": str(answer["UploadId"])}

    def _checksum(self) -> dict[str, str]:
        """Return the argument that announces checksums of the parts; S3 refuses them otherwise."""
        config = self._store.files.s3.meta.config
        return {"ChecksumAlgorithm": "CRC32"} if config.request_checksum_calculation == "when_supported" else {}

    def send(self, block: BytesIO) -> None:
        """Start to send a part; raises OSError if an earlier part could not be sent."""
        number = len(self._sent) + 1
        if number > _MOST_PARTS:
            raise OSError(
                f"Cannot write {self._location}: S3 takes at most {_MOST_PARTS} parts, and the file needs more of "
                f"{self._store.block_bytes} bytes. Raise s3.multipart.part-size-bytes."
            )
        with storage_errors("write", self._location):
            for part in self._sent:
                if part.done():
                    part.result()  # raises the error of the part before more is sent
        self._store.slots.acquire()
        try:
            part = self._store.in_background(self._send(number, block))
        except BaseException:
            self._store.slots.release()
            raise
        part.add_done_callback(lambda _: self._store.slots.release())
        self._sent.append(part)

    async def _send(self, number: int, block: BytesIO) -> dict[str, Any]:
        """Send a part and return its entry in the request that completes the upload."""
        answer = await self._store.answer("upload_part", **self._upload, PartNumber=number, Body=block)
        return {"PartNumber": number, **{name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}}

    def complete(self, last: BytesIO) -> None:
        """Send the last part and make the object appear; raises as `ObjectStore.put` does."""
        self.send(last)
        with storage_errors("write", self._location):
            parts = {"Parts": [part.result() for part in self._sent]}
        arguments = {"UploadId": self._upload["UploadId"], "MultipartUpload": parts}
        self._store.finish("complete_multipart_upload", self._location, self._mark, **arguments)

    def abort(self, within_s: float | None = None) -> None:
        """Remove the parts; a failure to do so within this time, in seconds, is logged. None waits for the store."""
        aborting = self._store.in_background(self._abort(within_s))
        if io_loop().is_mine():  # garbage may be collected inside the loop, which must not wait for itself
            return
        try:
            aborting.result(within_s)
        except FutureTimeoutError as error:
            aborting.cancel()
            self._log_left(error)

    async def _abort(self, within_s: float | None) -> None:
        # A part that is still being sent would appear again after the abort, so all parts end first. If the time is
        # short, half of it is for them; later ones are broken off, and one that arrived whole may stay behind.
        sent = asyncio.gather(*map(asyncio.wrap_future, self._sent), return_exceptions=True)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(sent, within_s and within_s / 2)
        try:
            await self._store.answer("abort_multipart_upload", **self._upload)
        except Exception as error:  # the caller has its own failure to report
            if code_of(error) != _NO_UPLOAD:  # otherwise the upload was completed, and the answer was lost
                self._log_left(error)

    def _log_left(self, error: Exception) -> None:
        logger.warning("Left behind parts of %s, which no reader sees: %s", self._location, type(error).__name__)


class S3FileIO(StoreFileIO):
    """Opens the objects of S3 and of stores with the same interface.

    Args:
        properties: The `s3.*` and `client.*` properties of PyIceberg and Iceberg.

    Raises:
        OptionError: Properties are wrong, or ask for something that is not supported.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        s3_settings(properties)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete many objects with few requests; return the reason for each that could not be deleted."""
        paths = list(locations)
        return self._store(paths[0]).delete_many(paths) if paths else {}

    def _store(self, location: str) -> S3Store:
        return self._kept(location.startswith("oss:"), lambda: self._connect(location))

    def _connect(self, location: str) -> S3Store:
        settings = s3_settings(self.properties)
        if location.startswith("oss:"):
            settings = settings.for_alibaba()
        credentials = renewing(self.properties, location)
        if credentials is None:
            return _shared_store(settings)
        return S3Store(settings, lambda: _fresh(credentials()))


def s3_store(properties: Mapping[str, str]) -> S3Store:
    """Return the store that the properties describe; raises as `S3FileIO` does."""
    return _shared_store(s3_settings(properties))


def _shared_store(settings: S3Settings) -> S3Store:
    return shared(settings, lambda: S3Store(settings))


def _fresh(properties: Mapping[str, str]) -> FreshCredentials:
    """Return vended credentials in the form that botocore takes."""
    settings = s3_settings(properties)
    # Credentials that do not say when they expire are asked for again every hour.
    end_ms = expires_at_ms(properties) or (time.time() + 3600) * 1000
    return {
        "access_key": settings.access_key_id or "",
        "secret_key": settings.secret_access_key or "",
        "token": settings.session_token or "",
        "expiry_time": datetime.fromtimestamp(end_ms / 1000, tz=timezone.utc).isoformat(),
    }
