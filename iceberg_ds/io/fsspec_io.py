"""PyIceberg's door to files for Google Cloud Storage and Azure, through gcsfs and adlfs.

Each comes with an extra of this package. Both commit what was written when a file is closed or forgotten; here a file
that was not finished on purpose does not appear. What is smaller than a block is written and read with one request.
"""

from __future__ import annotations

import atexit
import errno
import importlib
import json
import os
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from fsspec import AbstractFileSystem
from fsspec.asyn import sync
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.errors import OptionError
from iceberg_ds.io.credential_renewal import CurrentProperties, renewing
from iceberg_ds.io.files import ShippedFileIO, StoredFile
from iceberg_ds.io.object_streams import Download, ObjectFile, Upload
from iceberg_ds.io.store_properties import KnownProperties, PropertyReader
from iceberg_ds.parsing import boolean

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # of Python 3.12


_SAS_OF_HOST = "adls.sas-token."

_GCS = KnownProperties(
    store="Google Cloud Storage",
    prefixes=("gcs.",),
    used=frozenset(
        f"gcs.{name}"
        for name in (
            *("oauth2.token", "project-id", "access", "consistency", "cache-timeout", "requester-pays"),
            *("session-kwargs", "service.host", "default-bucket-location", "version-aware"),
        )
    ),
    nothing_to_do=re.compile(r"gcs\.(oauth2\.(token-expires-at|refresh-credentials)|channel\.|delete\.)"),
    protects=re.compile(r"gcs\.(encr|decr|kms|oauth2|user-project|no-auth|credential)"),
)
_AZURE = KnownProperties(
    store="Azure",
    prefixes=("adls.",),
    used=frozenset(
        f"adls.{name}"
        for name in (
            *("connection-string", "credential", "account-name", "account-key", "sas-token", "tenant-id"),
            *("client-id", "client-secret", "account-host", "token", "anon"),
        )
    ),
    nothing_to_do=re.compile(
        r"adls\.(sas-token\.|sas-token-expires-at-ms|refresh-credentials|read\.|write\.|(blob|dfs)-storage-)"
    ),
    protects=re.compile(r"adls\.(auth|connection|encr|key|token)"),
)
# The libraries' own blocks of 50 MB would be too much for many open files.
_BLOCK_BYTES = 8 * 1024 * 1024
# Others write, too: neither a file system nor a listing is kept for the next one who asks.
_NOT_KEPT = {"skip_instance_cache": True, "use_listings_cache": False}
# What gcsfs takes for a way to find credentials, and not for a token.
_GCS_WORDS = frozenset({"anon", "cache", "cloud", "google_default"})


def gcs_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of gcsfs; None stands for its own default.

    Raises:
        OptionError: Properties are wrong, or would not be heeded although they must be.
    """
    reader = PropertyReader(properties)
    arguments: dict[str, Any] = {
        "project": reader.text("gcs.project-id"),
        "access": reader.text("gcs.access") or "full_control",
        "token": reader.text("gcs.oauth2.token"),
        "consistency": reader.text("gcs.consistency") or "none",
        "cache_timeout": reader.value(("gcs.cache-timeout",), _number, default=None),
        "requester_pays": reader.value(("gcs.requester-pays",), boolean, default=False),
        "session_kwargs": reader.value(("gcs.session-kwargs",), _object, default=None),
        "endpoint_url": reader.text("gcs.service.host"),
        "default_location": reader.text("gcs.default-bucket-location"),
        "version_aware": reader.value(("gcs.version-aware",), boolean, default=False),
    }
    reader.check(_GCS)
    return arguments


def azure_arguments(properties: Mapping[str, str], host: str) -> dict[str, Any]:
    """Return the arguments of adlfs; None stands for its own default.

    Args:
        properties: Properties of the store.
        host: The account's host in the location, such as `account.dfs.core.windows.net`; may be empty.

    Raises:
        OptionError: Properties are wrong, or would not be heeded although they must be.
    """
    reader = PropertyReader(properties)
    hosts = [name.removeprefix(_SAS_OF_HOST) for name in sorted(properties) if name.startswith(_SAS_OF_HOST)]
    account = host if "." in host else next(iter(hosts), "")
    arguments: dict[str, Any] = {
        "connection_string": reader.text("adls.connection-string"),
        "credential": reader.text("adls.credential"),
        "account_name": reader.text("adls.account-name") or account.partition(".")[0] or None,
        "account_key": reader.text("adls.account-key"),
        "sas_token": reader.text("adls.sas-token", _SAS_OF_HOST + account),
        "tenant_id": reader.text("adls.tenant-id"),
        "client_id": reader.text("adls.client-id"),
        "client_secret": reader.text("adls.client-secret"),
        "account_host": reader.text("adls.account-host"),
        "anon": reader.value(("adls.anon",), boolean, default=None),
    }
    reader.check(_AZURE)
    return arguments


def _number(text: str) -> float | None:
    return float(text)


def _object(text: str) -> dict[str, Any] | None:
    parsed: object = json.loads(text)
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004  # what a property's parser raises
    return parsed


class FsspecUpload(Upload):
    """A stream into a new object that nobody sees before it is closed.

    Args:
        files: The file system.
        location: The object.
        if_absent: Whether an object that is there already is an error, or replaced.
    """

    def __init__(self, files: AbstractFileSystem, location: str, *, if_absent: bool) -> None:
        super().__init__(location, if_absent=if_absent)
        self._files = files
        self._first = bytearray()
        self._stream: Any = None  # the library's, once there is more than a block
        _open.add(self)
        _discard_at_exit()

    def __del__(self) -> None:
        if self._stream is not None and self._process != os.getpid():
            # At its end the library's stream would ask the parent's thread, and wait for ever in a child of a fork.
            self._stream.closed = True
        super().__del__()

    def tell(self) -> int:
        """Return how many bytes were written."""
        return len(self._first) if self._stream is None else int(self._stream.tell())

    def _take(self, data: Buffer) -> None:
        content = bytes(data)
        if self._stream is None and len(self._first) + len(content) <= _BLOCK_BYTES:
            self._first += content
            return
        if self._stream is None:
            mode = "xb" if self._if_absent else "wb"
            self._stream = self._files.open(self._location, mode, block_size=_BLOCK_BYTES)
            self._stream.write(bytes(self._first))
            self._first = bytearray()
        self._stream.write(content)

    def close(self) -> None:
        """Make the object appear, whole; raises as `Upload.close` does."""
        if self.closed:
            return
        try:
            self._may_exist = True
            if self._stream is None:
                mode = "create" if self._if_absent else "overwrite"
                self._files.pipe_file(self._location, bytes(self._first), mode=mode)
            else:
                self._stream.close()
            self.closed = True
        except BaseException:
            self.discard_unfinished()
            raise

    def _give_up(self) -> None:
        """End the library's stream without what it does at its end, which is to make the object appear."""
        if self._stream is not None:
            self._stream.forced = True
            with suppress(Exception):
                self._stream.discard()
            self._stream.close()

    def _delete(self) -> None:
        self._files.rm_file(self._location)


_open: WeakSet[FsspecUpload] = WeakSet()


@cache
def _discard_at_exit() -> None:
    """See to it that a process gives up at its end what it left open, while the libraries' own thread still runs.

    Called when a file system has been made: what is registered last runs first, and its connections are closed at
    the end.
    """
    atexit.register(_discard_open)


def _discard_open() -> None:
    for upload in list(_open):
        with suppress(Exception):
            upload.discard_unfinished()


class FsspecDownload(Download):
    """The bytes of an object, from wherever they are asked for.

    Args:
        files: The file system.
        location: The object.
    """

    def __init__(self, files: AbstractFileSystem, location: str) -> None:
        super().__init__()
        self._files = files
        self._location = location

    def _find_size(self) -> int:
        if self._known_size is None:
            self._known_size = _size(self._files, self._location)
        return self._known_size

    def _whole(self) -> bytes:
        return bytes(self._files.cat_file(self._location))

    def _bytes(self, start: int, count: int) -> bytes:
        end = min(start + count, self._find_size())
        return bytes(self._files.cat_file(self._location, start=start, end=end)) if start < end else b""


def _size(files: AbstractFileSystem, location: str) -> int:
    """Return the size in bytes of an object.

    Raises:
        FileNotFoundError: There is none; with objects below it, it is a folder for the libraries.
    """
    found = files.info(location)
    if found["type"] != "file":
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)
    return int(found["size"])


class FsspecFile(ObjectFile):
    """One object, to read or to write."""

    def __init__(self, files: AbstractFileSystem, location: str) -> None:
        super().__init__(location=location)
        self._files = files

    def __len__(self) -> int:
        """Return the size in bytes."""
        return _size(self._files, self.location)

    def _download(self) -> FsspecDownload:
        return FsspecDownload(self._files, self.location)

    def _upload(self, *, if_absent: bool) -> FsspecUpload:
        return FsspecUpload(self._files, self.location, if_absent=if_absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """A part of what a store lists.

    Attributes:
        entries: Key, size in bytes and time of the last change (ms since the Unix epoch) of each object.
        next: Where the next page starts, None after the last one.
        date: The header `Date` of the answer.
    """

    entries: Sequence[tuple[str, int, int]]
    next: str | None
    date: str


def _ms(text: str) -> int:
    """Return a time such as `2026-11-23T07:30:00.25Z` in milliseconds since the Unix epoch."""
    second, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.fromisoformat(second).replace(tzinfo=timezone.utc)
    return int(moment.timestamp()) * 1000 + int(fraction[:3].ljust(3, "0"))


class _FsspecFileIO(ShippedFileIO):
    """Opens objects through one file system for each process, account and set of credentials."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._lock = Lock()
        self._current: CurrentProperties | None = None
        self._file_systems: dict[tuple[int, str, int], AbstractFileSystem] = {}

    def new_input(self, location: str) -> FsspecFile:
        """Return the object, to be read."""
        return FsspecFile(self._files(location), self._plain(location))

    def new_output(self, location: str) -> FsspecFile:
        """Return the object, to be written."""
        return FsspecFile(self._files(location), self._plain(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object.

        Raises:
            FileNotFoundError: It is missing.
        """
        text = location if isinstance(location, str) else location.location
        self._files(text).rm_file(self._plain(text))

    def stored_files(self, location: str) -> Iterator[StoredFile]:
        """Yield what lies below `location`, in the order of the names; a request for each page."""
        scheme, _, rest = location.partition("://")
        root = f"{scheme}://{rest.partition('/')[0]}"
        folder = f"{self._plain(location).rstrip('/')}/"
        page = self._list(self._files(location), folder, None)
        while True:
            for key, size_bytes, modified_ms in page.entries:
                yield StoredFile(path=f"{root}/{key}", size_bytes=size_bytes, modified_ms=modified_ms)
            if page.next is None:
                return
            page = self._list(self._files(location), folder, page.next)

    def clock_ms(self, location: str) -> int:
        """Return what time it is for the store, as its answer to a listing says; ms since the Unix epoch."""
        page = self._list(self._files(location), self._plain(location), None, size=1)
        return int(parsedate_to_datetime(page.date).timestamp() * 1000)

    def _files(self, location: str) -> AbstractFileSystem:
        host = location.partition("://")[2].partition("/")[0].rpartition("@")[2]
        with self._lock:
            self._current = self._current or renewing(self.properties, location)
            properties = dict(self.properties if self._current is None else self._current())
            key = (os.getpid(), host, hash(frozenset(properties.items())))
            if key not in self._file_systems:
                self._file_systems = {key: self._connect(properties, host)}
            return self._file_systems[key]

    @staticmethod
    def _plain(location: str) -> str:
        """Return the location as the library understands it."""
        return location

    @staticmethod
    @abstractmethod
    def _list(files: Any, location: str, start: str | None, size: int | None = None) -> _Page:  # noqa: ANN401  # of each library
        """Return a page of what begins with `location`: the first one, or the one at `start`."""

    @staticmethod
    @abstractmethod
    def _connect(properties: Mapping[str, str], host: str) -> AbstractFileSystem:
        """Return a new file system."""


class GcsFileIO(_FsspecFileIO):
    """Opens the objects of Google Cloud Storage.

    Args:
        properties: The `gcs.*` properties of PyIceberg.

    Raises:
        OptionError: They are wrong, or the extra `gcs` is not installed.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        gcs_arguments(properties)
        _library("gcsfs", "gcs")

    @staticmethod
    def _list(files: Any, location: str, start: str | None, size: int | None = None) -> _Page:  # noqa: ANN401  # of a library
        bucket, key, _ = files.split_path(location)
        headers, content = files.call("GET", "b/{}/o", bucket, prefix=key, pageToken=start, maxResults=size)
        found = json.loads(content)
        entries = [(item["name"], int(item["size"]), _ms(item["updated"])) for item in found.get("items", [])]
        return _Page(entries=entries, next=found.get("nextPageToken"), date=headers["Date"])

    @staticmethod
    def _connect(properties: Mapping[str, str], host: str) -> AbstractFileSystem:  # noqa: ARG004  # Azure's is told
        arguments = gcs_arguments(properties)
        token = arguments["token"]
        if token is not None and token not in _GCS_WORDS and not Path(token).exists():
            # As text, the library sends it in a URL to be checked by another server than the store.
            arguments["token"] = _library("google.oauth2.credentials", "gcs").Credentials(token)
        # The class that gcsfs itself names asks for the layout of each bucket first.
        given = {name: value for name, value in arguments.items() if value is not None}
        return _library("gcsfs.core", "gcs").GCSFileSystem(**given, **_NOT_KEPT)


class AzureFileIO(_FsspecFileIO):
    """Opens the blobs of Azure.

    Args:
        properties: The `adls.*` properties of PyIceberg.

    Raises:
        OptionError: They are wrong, or the extra `azure` is not installed.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        azure_arguments(properties, "")
        _library("adlfs", "azure")

    @staticmethod
    def _plain(location: str) -> str:
        # The library knows one of the two schemes that Azure gives the same blobs.
        return location.replace("wasb", "abfs", 1) if location.startswith("wasb") else location

    @staticmethod
    def _list(files: Any, location: str, start: str | None, size: int | None = None) -> _Page:  # noqa: ANN401  # of a library
        container, key, _ = files.split_path(location)
        dates: list[str] = []

        async def ask() -> _Page:
            async with files.service_client.get_container_client(container) as client:
                pages = client.list_blobs(
                    name_starts_with=key,
                    include=["metadata"],  # by which folders of a hierarchical namespace are told
                    results_per_page=size,
                    raw_response_hook=lambda answer: dates.append(answer.http_response.headers["Date"]),
                ).by_page(start)
                found = [blob async for blob in await anext(pages)]
            entries = [
                (blob.name, blob.size, int(blob.last_modified.timestamp() * 1000))
                for blob in found
                if (blob.metadata or {}).get("hdi_isfolder") != "true"
            ]
            return _Page(entries=entries, next=pages.continuation_token or None, date=dates[-1])

        page: _Page = sync(files.loop, ask)
        return page

    @staticmethod
    def _connect(properties: Mapping[str, str], host: str) -> AbstractFileSystem:
        arguments = azure_arguments(properties, host)
        if (token := properties.get("adls.token")) is not None:
            arguments["credential"] = _GivenToken(token)
        return _azure_files()(**arguments, **_NOT_KEPT)


@cache
def _azure_files() -> Any:  # noqa: ANN401  # a class of a library that may be absent
    """Return the class of adlfs without its look for the folder of what it has written, whose listing is not kept.

    It takes the first folder of a key for a host, and fails after the write if there is a colon in it.
    """
    base: Any = _library("adlfs", "azure").AzureBlobFileSystem

    class AzureFiles(base):  # type: ignore[misc]  # see above
        @classmethod
        def _parent(cls, path: str) -> str:  # noqa: ARG003  # fsspec's signature
            return ""

    return AzureFiles


class _GivenToken:
    """Azure's form of a token that is good until the store says otherwise."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_token(self, *_scopes: str, **_arguments: Any) -> Any:  # noqa: ANN401  # a class of the library
        """Return the token, as one that lasts for an hour."""
        token = _library("azure.core.credentials", "azure").AccessToken
        return token(self._token, int(time.time()) + 3600)

    async def close(self) -> None:
        """Do nothing: it holds no connection."""


def _library(name: str, extra: str) -> Any:  # noqa: ANN401  # a module that may be absent
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise OptionError(
            f"Cannot open this kind of store: the library {missing.name} is not installed. "
            f"Run: pip install 'iceberg-ds[{extra}]', on the driver and where the executors run."
        ) from missing
