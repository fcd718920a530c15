"""PyIceberg's door to files for Google Cloud Storage and Azure, through gcsfs and adlfs.

Each comes with an extra of this package.
"""

from __future__ import annotations

import importlib
import os
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from fsspec import AbstractFileSystem
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.errors import OptionError
from iceberg_ds.storage.fsspec_settings import azure_arguments, gcs_arguments
from iceberg_ds.storage.fsspec_streams import FsspecDownload, FsspecUpload
from iceberg_ds.storage.object_streams import ObjectFile
from iceberg_ds.storage.renewal import CurrentProperties, renewing
from iceberg_ds.storage.shipped_io import ShippedFileIO

# What gcsfs takes for a way to find credentials, and not for a token.
_GCS_WORDS = frozenset({"anon", "cache", "cloud", "google_default"})


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
