"""PyIceberg's door to files for Google Cloud Storage and Azure, through gcsfs and adlfs.

Each comes with an extra of this package. Both commit what was written when a file is closed or forgotten; here a file
that was not finished on purpose does not appear. What is smaller than a block is written and read with one request.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from fsspec import AbstractFileSystem
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.errors import OptionError
from iceberg_ds.io.credential_renewal import CurrentProperties, renewing
from iceberg_ds.io.files import ShippedFileIO
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
            self._known_size = int(self._files.info(self._location)["size"])
        return self._known_size

    def _whole(self) -> bytes:
        return bytes(self._files.cat_file(self._location))

    def _bytes(self, start: int, count: int) -> bytes:
        end = min(start + count, self._find_size())
        return bytes(self._files.cat_file(self._location, start=start, end=end)) if start < end else b""


class FsspecFile(ObjectFile):
    """One object, to read or to write."""

    def __init__(self, files: AbstractFileSystem, location: str) -> None:
        super().__init__(location=location)
        self._files = files

    def __len__(self) -> int:
        """Return the size in bytes."""
        return int(self._files.info(self.location)["size"])

    def _download(self) -> FsspecDownload:
        return FsspecDownload(self._files, self.location)

    def _upload(self, *, if_absent: bool) -> FsspecUpload:
        return FsspecUpload(self._files, self.location, if_absent=if_absent)


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
    def _connect(properties: Mapping[str, str], host: str) -> AbstractFileSystem:  # noqa: ARG004  # Azure's is told
        arguments = gcs_arguments(properties)
        token = arguments["token"]
        if token is not None and token not in _GCS_WORDS and not Path(token).exists():
            # As text, the library sends it in a URL to be checked by another server than the store.
            arguments["token"] = _library("google.oauth2.credentials", "gcs").Credentials(token)
        # The class that gcsfs itself names asks for the layout of each bucket first.
        return _library("gcsfs.core", "gcs").GCSFileSystem(**arguments, skip_instance_cache=True)


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
    def _connect(properties: Mapping[str, str], host: str) -> AbstractFileSystem:
        arguments = azure_arguments(properties, host)
        if (token := properties.get("adls.token")) is not None:
            arguments["credential"] = _GivenToken(token)
        return _library("adlfs", "azure").AzureBlobFileSystem(**arguments, skip_instance_cache=True)


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
