"""One S3 store of one process: its client, the threads that upload parts, and its errors in Python's words.

The client is made at the first request, so that opening a table asks no network for credentials.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from iceberg_ds.storage.places import check_place
from iceberg_ds.storage.s3_client import FreshCredentials, s3_client
from iceberg_ds.storage.s3_settings import S3Settings

if TYPE_CHECKING:
    from botocore.client import BaseClient

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

_NOT_FOUND = 404
_FORBIDDEN = 403
_PRECONDITION_FAILED = 412
_CLIENT_ERRORS = range(400, 500)


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
