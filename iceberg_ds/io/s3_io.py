"""PyIceberg's door to files for S3, through s3fs, with no request that could be spared.

A process that is killed leaves parts that nobody sees; a rule of the bucket (`AbortIncompleteMultipartUpload`) removes
them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from io import BytesIO
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.io.credential_renewal import renewing
from iceberg_ds.io.fsspec_io import StoreFileIO, shared
from iceberg_ds.io.io_loop import io_loop
from iceberg_ds.io.object_streams import ObjectStore, Page
from iceberg_ds.io.places import check_place
from iceberg_ds.io.s3_settings import S3Settings, s3_settings
from iceberg_ds.io.vended_credentials import expires_at_ms

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


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the store answered with, None if it did not answer."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status if isinstance(status, int) else None


def code_of(error: BaseException) -> str:
    """Return the store's own name of an error, empty if it did not answer."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def was_sent_again(error: BaseException) -> bool:
    """Return whether the store's answer is to a request that was sent before, and may have done it then."""
    return isinstance(error, ClientError) and bool(error.response.get("ResponseMetadata", {}).get("RetryAttempts"))


Mark: TypeAlias = dict[str, dict[str, str]]


def _new_mark(*, if_absent: bool) -> Mark:
    """Return metadata that no other object has, for one that may not replace another; else nothing."""
    return {"Metadata": {"iceberg-ds-upload": uuid4().hex}} if if_absent else {}


@contextmanager
def storage_errors(action: str, place: ObjectPlace) -> Iterator[None]:
    """Turn errors of the libraries into Python's own for files, with the object's location.

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
        if code_of(error) in _NOT_FOUND:
            raise FileNotFoundError(errno.ENOENT, text, place.location) from error
        if status_of(error) == _PRECONDITION_FAILED:
            raise FileExistsError(errno.EEXIST, text, place.location) from error
        if status_of(error) == _FORBIDDEN:
            raise PermissionError(errno.EACCES, text, place.location) from error
        raise OSError(errno.EIO, text) from error


class S3Store(ObjectStore):
    """A store, and the process's means to talk to it, made at the first request: opening a table asks no network.

    Args:
        settings: How it is reached.
        renew: Gives credentials that end, None for those of the settings.
    """

    def __init__(self, settings: S3Settings, renew: Callable[[], FreshCredentials] | None = None) -> None:
        self.block_bytes = settings.part_bytes
        self._settings = settings
        self._renew = renew
        self._lock = Lock()
        # Parts are sent side by side, and memory stays bounded.
        self.slots = BoundedSemaphore(settings.upload_threads)

    @property
    def files(self) -> S3Requests:
        """The filesystem, which threads share."""
        with self._lock:
            return self._files

    @cached_property
    def _files(self) -> S3Requests:
        from iceberg_ds.io.s3_session import s3_filesystem  # noqa: PLC0415  # it loads Amazon's libraries

        return s3_filesystem(self._settings, self._renew, io_loop())

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  # they are Amazon's
        """Return the store's answer to a request by its name in botocore; a `Body` in it is read.

        Raises:
            ClientError: The store says no.
            BotoCoreError: It does not answer.
        """
        return self.in_background(self.answer(request, **arguments)).result()

    async def answer(self, request: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401  # they are Amazon's
        """Return what `ask` does, in the loop where requests are made."""
        return await self._files.answer(request, **arguments)

    def in_background(self, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Begin to do something in the loop where requests are made."""
        return asyncio.run_coroutine_threadsafe(work, self.files.loop)

    def put(self, location: str, data: BytesIO, *, if_absent: bool) -> None:
        """Make an object appear; raises as `ObjectStore.put` does."""
        mark = _new_mark(if_absent=if_absent)
        self.finish("put_object", ObjectPlace.of(location), mark, Body=data, **mark)

    def finish(self, request: str, place: ObjectPlace, mark: Mark, **arguments: Any) -> None:  # noqa: ANN401  # Amazon's
        """Send the request that makes an object appear; raises as `put` does.

        Args:
            request: Its name in botocore.
            place: The object.
            mark: What the object is known by, if there may be none yet; empty if it may be replaced.
            arguments: What else the request says.
        """
        condition = {"IfNoneMatch": "*"} if mark else {}
        with storage_errors("write", place):
            try:
                self.ask(request, **place.arguments, **arguments, **condition)
            except ClientError as error:
                if condition and code_of(error) == _CONDITION_UNKNOWN:
                    # Stores that do not know the condition: names are unique, so that the file is ours to write.
                    self.ask(request, **place.arguments, **arguments)
                elif not (condition and was_sent_again(error) and self._holds(place, mark)):
                    raise

    def _holds(self, place: ObjectPlace, mark: Mark) -> bool:
        """Return whether the object that is there was written by the request whose answer was lost."""
        return bool(self.ask("head_object", **place.arguments).get("Metadata") == mark["Metadata"])

    def was_refused(self, error: BaseException) -> bool:
        """Return whether the store says that no object has appeared; of a request sent again it cannot say so."""
        cause = error.__cause__ or error
        return status_of(cause) in _CLIENT_ERRORS and not was_sent_again(cause)

    def begin(self, location: str, *, if_absent: bool) -> Parts:
        """Begin an upload in parts."""
        return Parts(self, ObjectPlace.of(location), if_absent=if_absent)

    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to `end`, the whole object without them."""
        byte_range = {} if start is None or end is None else {"Range": f"bytes={start}-{end - 1}"}
        return bytes(self._read(ObjectPlace.of(location), **byte_range)["Body"])

    def tail(self, location: str) -> tuple[bytes, int]:
        """Return the end of an object, and the object's size, which its answer tells."""
        try:
            answer = self._read(ObjectPlace.of(location), Range=f"bytes=-{_TAIL_BYTES}")
        except OSError as error:
            if code_of(error.__cause__ or error) == "InvalidRange":  # an empty object has no end to send
                return b"", 0
            raise
        told = re.search(r"/(\d+)$", answer.get("ContentRange", ""))
        return answer["Body"], len(answer["Body"]) if told is None else int(told[1])

    def _read(self, place: ObjectPlace, **arguments: str) -> dict[str, Any]:
        with storage_errors("read", place):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self.ask("get_object", **place.arguments, **arguments)
                except BotoCoreError as error:  # an answer that breaks off is not asked for again by botocore
                    logger.debug("Asking for %s again: %s", place.location, type(error).__name__)
            return self.ask("get_object", **place.arguments, **arguments)

    def size(self, location: str) -> int:
        """Return the size of an object in bytes."""
        place = ObjectPlace.of(location)
        with storage_errors("read", place):
            return int(self.ask("head_object", **place.arguments)["ContentLength"])

    def page(self, location: str, start: str | None, size: int | None = None) -> Page:
        """Return a page of a listing."""
        bucket, _, key = location.partition("://")[2].partition("/")
        asked = {"ContinuationToken": start, "MaxKeys": size}
        given = {name: value for name, value in asked.items() if value is not None}
        answer = self.ask("list_objects_v2", Bucket=bucket, Prefix=key, **given)
        entries = [
            (entry["Key"], entry["Size"], int(entry["LastModified"].timestamp() * 1000))
            for entry in answer.get("Contents", [])
        ]
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        return Page(entries=entries, next=answer.get("NextContinuationToken"), date=date)

    def delete(self, location: str) -> None:
        """Delete an object; one that is missing counts as deleted."""
        place = ObjectPlace.of(location)
        with storage_errors("delete", place):
            self.ask("delete_object", **place.arguments)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete many objects with few requests; return why, for each that could not be deleted."""
        problems: dict[str, str] = {}
        buckets: dict[str, list[ObjectPlace]] = {}
        for location in locations:
            place = ObjectPlace.of(location)
            buckets.setdefault(place.bucket, []).append(place)
        for places in buckets.values():
            for start in range(0, len(places), _BULK):
                problems |= self._delete_in_one_request(places[start : start + _BULK])
        return problems

    def _delete_in_one_request(self, places: list[ObjectPlace]) -> dict[str, str]:
        keys = {place.key: place.location for place in places}
        objects = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        with storage_errors("delete", places[0]):
            errors = self.ask("delete_objects", Bucket=places[0].bucket, Delete=objects).get("Errors", [])
        return {keys[error["Key"]]: f"{error.get('Code')}: {error.get('Message')}" for error in errors}


class Parts:
    """An upload in parts, which are sent side by side while the bytes after them are written.

    Args:
        store: The store.
        place: The object.
        if_absent: Whether an object that is there already is an error at the end.
    """

    def __init__(self, store: S3Store, place: ObjectPlace, *, if_absent: bool) -> None:
        self._store = store
        self._place = place
        self._mark = _new_mark(if_absent=if_absent)
        self._sent: list[Future[dict[str, Any]]] = []
        with storage_errors("write", place):
            answer = store.ask("create_multipart_upload", **place.arguments, **self._mark, **self._checksum())
        self._upload = {**place.arguments, "UploadId": str(answer["UploadId"])}

    def _checksum(self) -> dict[str, str]:
        """Return what announces checksums of parts, which S3 refuses else."""
        config = self._store.files.s3.meta.config
        return {"ChecksumAlgorithm": "CRC32"} if config.request_checksum_calculation == "when_supported" else {}

    def send(self, block: BytesIO) -> None:
        """Begin to send a part; raises OSError for an earlier one that could not be sent."""
        number = len(self._sent) + 1
        if number > _MOST_PARTS:
            raise OSError(
                f"Cannot write {self._place.location}: S3 takes {_MOST_PARTS} parts at most, and the file has more of "
                f"{self._store.block_bytes} bytes. Raise s3.multipart.part-size-bytes."
            )
        with storage_errors("write", self._place):
            for part in self._sent:
                if part.done():
                    part.result()  # raises what went wrong, rather than sending the rest first
        self._store.slots.acquire()
        try:
            part = self._store.in_background(self._send(number, block))
        except BaseException:
            self._store.slots.release()
            raise
        part.add_done_callback(lambda _: self._store.slots.release())
        self._sent.append(part)

    async def _send(self, number: int, block: BytesIO) -> dict[str, Any]:
        """Send a part and return what the completing request has to say of it."""
        answer = await self._store.answer("upload_part", **self._upload, PartNumber=number, Body=block)
        return {"PartNumber": number, **{name: answer[name] for name in ("ETag", "ChecksumCRC32") if name in answer}}

    def complete(self, last: BytesIO) -> None:
        """Send the last part, and make the object appear; raises as `ObjectStore.put` does."""
        self.send(last)
        with storage_errors("write", self._place):
            parts = {"Parts": [part.result() for part in self._sent]}
        arguments = {"UploadId": self._upload["UploadId"], "MultipartUpload": parts}
        self._store.finish("complete_multipart_upload", self._place, self._mark, **arguments)

    def abort(self) -> None:
        """Remove the parts; those that cannot be removed are logged."""
        aborting = self._store.in_background(self._abort())
        if not io_loop().is_mine():  # which collects garbage, too, and must not wait for itself
            aborting.result()

    async def _abort(self) -> None:
        # A part that is still under way would come back after that, so they end first.
        await asyncio.gather(*map(asyncio.wrap_future, self._sent), return_exceptions=True)
        try:
            await self._store.answer("abort_multipart_upload", **self._upload)
        except Exception as error:  # the caller has its own failure to report
            if code_of(error) == _NO_UPLOAD:  # it was completed, and the answer was lost
                return
            logger.warning("Left behind parts of %s, which nobody sees: %s", self._place.location, type(error).__name__)


class S3FileIO(StoreFileIO):
    """Opens the objects of S3 and of stores that speak like it.

    Args:
        properties: The `s3.*` and `client.*` properties of PyIceberg and Iceberg.

    Raises:
        OptionError: They are wrong, or ask for what is not to be had.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        s3_settings(properties)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete many objects with few requests; return why, for each that could not be deleted."""
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
    """Return the store that properties tell of; raises as `S3FileIO` does."""
    return _shared_store(s3_settings(properties))


def _shared_store(settings: S3Settings) -> S3Store:
    return shared(settings, lambda: S3Store(settings))


def _fresh(properties: Mapping[str, str]) -> FreshCredentials:
    """Return vended credentials as botocore wants them."""
    settings = s3_settings(properties)
    # Without an end they are asked for again, in vain and for nothing, once an hour.
    end_ms = expires_at_ms(properties) or (time.time() + 3600) * 1000
    return {
        "access_key": settings.access_key_id or "",
        "secret_key": settings.secret_access_key or "",
        "token": settings.session_token or "",
        "expiry_time": datetime.fromtimestamp(end_ms / 1000, tz=timezone.utc).isoformat(),
    }
