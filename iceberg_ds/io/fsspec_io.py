"""PyIceberg's FileIO for Google Cloud Storage, Azure and every other filesystem that fsspec knows.

The libraries gcsfs and adlfs come with extras of this package; the user installs those of other filesystems. Their own
streams make a file appear even if they are only garbage-collected. Here an object of a store appears only if it is
closed; a file of another filesystem may be seen while it is written, and is removed if it is given up.
"""

from __future__ import annotations

import errno
import importlib
import json
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from io import BytesIO
from threading import RLock
from typing import Any

from fsspec import AbstractFileSystem, get_filesystem_class
from fsspec.asyn import sync
from fsspec.core import strip_protocol, url_to_fs
from fsspec.dircache import DirCache
from fsspec.implementations.arrow import ArrowFSWrapper
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.errors import OptionError
from iceberg_ds.io.store_settings import azure_arguments, gcs_arguments, other_arguments
from iceberg_ds.io.stores import ObjectStore, Page, StoreFileIO, shared
from iceberg_ds.io.vended_credentials import CurrentProperties, renewing
from iceberg_ds.parsing import milliseconds, moment

logger = logging.getLogger(__name__)

# Others write, too: neither filesystems nor listings are cached.
_NOT_KEPT = {"skip_instance_cache": True, "use_listings_cache": False}
# Values that gcsfs reads as a way to find credentials, and not as a token.
_GCS_WORDS = frozenset({"anon", "cache", "cloud", "google_default"})


class FsspecStore(ObjectStore):
    """A store of objects behind a filesystem of fsspec.

    Args:
        files: The filesystem.
        path_of: Returns the filesystem's path of a location.
    """

    block_bytes = 8 * 1024 * 1024  # the libraries' default of 50 MB is too much for many open files

    def __init__(self, files: AbstractFileSystem, path_of: Callable[[str], str] = str) -> None:
        self._files = files
        self._path_of = path_of

    def put(self, location: str, data: BytesIO, *, if_absent: bool) -> None:
        """Make an object appear, with one request; raises as `ObjectStore.put` does."""
        self._files.pipe_file(self._path_of(location), data.getvalue(), mode="create" if if_absent else "overwrite")

    def begin(self, location: str, *, if_absent: bool) -> StreamBlocks:
        """Begin a large object."""
        mode = "xb" if if_absent else "wb"
        return StreamBlocks(self._files.open(self._path_of(location), mode, block_size=self.block_bytes))

    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to `end`, or the whole object without them."""
        return bytes(self._files.cat_file(self._path_of(location), start=start, end=end))

    def size(self, location: str) -> int:
        """Return the size of an object in bytes; a folder of objects counts as missing."""
        found = self._files.info(self._path_of(location))
        if found["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location)
        return int(found["size"])

    def delete(self, location: str) -> None:
        """Delete an object."""
        self._files.rm_file(self._path_of(location))


class StreamBlocks:
    """A large object that is written to a stream of fsspec; closing the stream makes the object appear.

    Args:
        stream: The stream.
    """

    def __init__(self, stream: Any) -> None:  # noqa: ANN401  # streams of fsspec share no type
        self._stream = stream
        self._process = os.getpid()

    def __del__(self) -> None:
        if self._process != os.getpid():
            # In a forked child the stream's own end would wait for ever for a thread that only the parent has.
            self._stream.closed = True

    def send(self, block: BytesIO) -> None:
        """Send a block."""
        self._stream.write(block.getvalue())

    def complete(self, last: BytesIO) -> None:
        """Send the last block and make the object appear."""
        self._stream.write(last.getvalue())
        self._stream.close()

    def abort(self, within_s: float | None = None) -> None:  # noqa: ARG002  # the libraries cannot be hurried
        """End the stream without making the object appear."""
        self._stream.forced = True
        with suppress(Exception):
            self._stream.discard()
        self._stream.close()


class _FsspecFileIO(StoreFileIO):
    """Opens objects through a library's filesystem, which is made anew when the credentials are renewed."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._credentials: CurrentProperties | None = None

    def _store(self, location: str) -> ObjectStore:
        self._credentials = self._credentials or renewing(self.properties, location)
        properties = dict(self.properties if self._credentials is None else self._credentials())
        key = (_host(location), frozenset(properties.items()))
        return self._kept(key, lambda: self._connect(properties, location))

    @abstractmethod
    def _connect(self, properties: Mapping[str, str], location: str) -> ObjectStore:
        """Return the store of a location."""


class GcsFileIO(_FsspecFileIO):
    """Opens the objects of Google Cloud Storage.

    Args:
        properties: The `gcs.*` properties of PyIceberg.

    Raises:
        OptionError: Properties are wrong, or the extra `gcs` is not installed.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        gcs_arguments(properties)
        _library("gcsfs", "gcs")

    def _connect(self, properties: Mapping[str, str], location: str) -> GcsStore:  # noqa: ARG002  # Azure's needs it
        arguments = gcs_arguments(properties)
        return shared(("gcs", _told(arguments)), lambda: GcsStore(self._files(arguments)))

    @staticmethod
    def _files(arguments: Mapping[str, Any]) -> AbstractFileSystem:
        token = arguments["token"]
        if token is not None and token not in _GCS_WORDS and not os.path.exists(token):  # noqa: PTH110  # `Path` refuses long texts
            # A token given as text would be sent, in a URL, to another server than the store to be checked.
            arguments = {**arguments, "token": _library("google.oauth2.credentials", "gcs").Credentials(token)}
        # The class that gcsfs itself exports first asks for the layout of each bucket.
        given = {name: value for name, value in arguments.items() if value is not None}
        return _library("gcsfs.core", "gcs").GCSFileSystem(**given, **_NOT_KEPT)


class GcsStore(FsspecStore):
    """A bucket of Google Cloud Storage."""

    def page(self, location: str, start: str | None, size: int | None = None, *, is_deep: bool = True) -> Page:
        """Return a page of a listing."""
        bucket, key, _ = self._files.split_path(location)
        asked = {"prefix": key, "pageToken": start, "maxResults": size, "delimiter": None if is_deep else "/"}
        headers, content = self._files.call("GET", "b/{}/o", bucket, **asked)
        found = json.loads(content)
        entries = [(item["name"], int(item["size"]), _ms(item["updated"])) for item in found.get("items", [])]
        return Page(
            entries=entries,
            next=found.get("nextPageToken"),
            date=headers["Date"],
            folders=found.get("prefixes", ()),
        )


def _ms(text: str) -> int:
    """Return a time such as `2026-11-23T07:30:00.25Z` in milliseconds since the Unix epoch."""
    if (found := moment(text)) is None:
        raise ValueError(f"{text!r} is no time")
    return milliseconds(found)


class AzureFileIO(_FsspecFileIO):
    """Opens the blobs of Azure.

    Args:
        properties: The `adls.*` properties of PyIceberg.

    Raises:
        OptionError: Properties are wrong, or the extra `azure` is not installed.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        azure_arguments(properties, "")
        _library("adlfs", "azure")

    def _connect(self, properties: Mapping[str, str], location: str) -> AzureStore:
        arguments = azure_arguments(properties, _host(location))
        token = properties.get("adls.token")
        return shared(("azure", _told(arguments), token), lambda: AzureStore(self._files(arguments, token), _abfs))

    @staticmethod
    def _files(arguments: Mapping[str, Any], token: str | None) -> AbstractFileSystem:
        if token is not None:
            arguments = {**arguments, "credential": _GivenToken(token)}
        return _azure_files()(**arguments, **_NOT_KEPT)


class AzureStore(FsspecStore):
    """A container of Azure."""

    def page(self, location: str, start: str | None, size: int | None = None, *, is_deep: bool = True) -> Page:
        """Return a page of a listing."""
        container, key, _ = self._files.split_path(self._path_of(location))
        dates: list[str] = []

        async def ask() -> Page:
            async with self._files.service_client.get_container_client(container) as client:
                pages = (client.list_blobs if is_deep else client.walk_blobs)(
                    name_starts_with=key,
                    include=["metadata"],  # by which folders of a hierarchical namespace are told
                    results_per_page=size,
                    raw_response_hook=lambda answer: dates.append(answer.http_response.headers["Date"]),
                ).by_page(start)
                found = [blob async for blob in await anext(pages)]
            # A folder has a name, and neither a size nor a time.
            entries = [
                (blob.name, blob.size, int(blob.last_modified.timestamp() * 1000))
                for blob in found
                if hasattr(blob, "size") and (blob.metadata or {}).get("hdi_isfolder") != "true"
            ]
            folders = [blob.name for blob in found if not hasattr(blob, "size")]
            return Page(entries=entries, next=pages.continuation_token or None, date=dates[-1], folders=folders)

        page: Page = sync(self._files.loop, ask)
        return page


def _abfs(location: str) -> str:
    """Return a location with the scheme `abfs` for `wasb`, which the library does not know."""
    return location.replace("wasb", "abfs", 1) if location.startswith("wasb") else location


@cache
def _azure_files() -> Any:  # noqa: ANN401  # a class of a library that may be absent
    """Return the class of adlfs without its search for a written file's folder, whose cached listing it would drop.

    The search takes the first folder of a key for a host, and fails after the write if that folder has a colon.
    """
    base: Any = _library("adlfs", "azure").AzureBlobFileSystem

    class AzureFiles(base):  # type: ignore[misc]  # see above
        @classmethod
        def _parent(cls, path: str) -> str:  # noqa: ARG003  # fsspec's signature
            return ""

    return AzureFiles


def _host(location: str) -> str:
    return location.partition("://")[2].partition("/")[0].rpartition("@")[2]


def _told(arguments: Mapping[str, Any]) -> Hashable:
    """Return arguments as a value that can be compared."""
    return json.dumps(arguments, sort_keys=True)


class FolderStore(FsspecStore):
    """Any filesystem of fsspec, used only through what all of them have: folders, and streams into files.

    Whether a file exists is looked up before it is written, because not every filesystem can refuse to replace one. A
    file that readers can see while it grows is removed if it is given up. A filesystem that is not made for several
    threads, as FTP's with its one connection, is used by one at a time.
    """

    def __init__(self, files: AbstractFileSystem, path_of: Callable[[str], str] = str) -> None:
        super().__init__(files, path_of)
        # Others write, too. Not every class takes an argument for it, and one may tell what it keeps itself.
        with suppress(AttributeError):
            files.dircache = DirCache(use_listings_cache=False)
        takes_threads = files.async_impl or isinstance(files, ArrowFSWrapper | LocalFileSystem)
        self._alone: AbstractContextManager[object] = nullcontext() if takes_threads else RLock()

    def put(self, location: str, data: BytesIO, *, if_absent: bool) -> None:
        """Write a file."""
        stream = self.begin(location, if_absent=if_absent)
        try:
            stream.complete(data)
        except BaseException:
            stream.abort()
            raise

    def begin(self, location: str, *, if_absent: bool) -> StreamBlocks:
        """Begin a file, and make its folders."""
        path = self._path_of(location)
        with self._alone:
            if if_absent and self._is_there(path):
                raise FileExistsError(errno.EEXIST, "There is a file already", location)
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            stream = self._files.open(path, "wb", block_size=self.block_bytes)
        return _FileInPlace(stream, location, lambda: self.delete(location), self._alone)

    def _is_there(self, path: str) -> bool:
        """Return whether there is a file: fsspec's own `exists` takes any failure to look for an answer."""
        try:
            self._files.info(path)
        except OSError as problem:
            if _is_missing(problem):
                return False
            raise
        return True

    def get(self, location: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes from `start` up to `end`, or the whole file without them."""
        # Through a stream: fsspec's `cat_file` fails at start 0 for Arrow's filesystems, such as HDFS.
        with self._alone, self._files.open(self._path_of(location), "rb") as stream:
            if start is None or end is None:
                return bytes(stream.read())
            stream.seek(start)
            return bytes(stream.read(end - start))

    def size(self, location: str) -> int:
        """Return the size of a file in bytes; a folder counts as missing."""
        with self._alone:
            return super().size(location)

    def delete(self, location: str) -> None:
        """Delete a file."""
        with self._alone:
            super().delete(location)


class _FileInPlace(StreamBlocks):
    """A file that readers may see while it is written.

    Args:
        stream: The stream into the file.
        location: The file.
        delete: Removes the file.
        alone: Held while the stream is used.
    """

    def __init__(
        self,
        stream: Any,  # noqa: ANN401  # as above
        location: str,
        delete: Callable[[], None],
        alone: AbstractContextManager[object],
    ) -> None:
        super().__init__(stream)
        self._location = location
        self._delete = delete
        self._alone = alone

    def send(self, block: BytesIO) -> None:
        """Send a block."""
        with self._alone:
            super().send(block)

    def complete(self, last: BytesIO) -> None:
        """Send the last block and close the file."""
        with self._alone:
            super().complete(last)

    def abort(self, within_s: float | None = None) -> None:
        """End the stream and remove the file."""
        with self._alone:
            with suppress(Exception):
                super().abort(within_s)
            try:
                self._delete()
            except Exception as failure:  # each filesystem raises its own; what went wrong before is to be told
                if not _is_missing(failure):  # its text may have an address with a token in it
                    logger.warning("Left behind %s, a part of a file: %s", self._location, type(failure).__name__)


def _is_missing(problem: Exception) -> bool:
    """Return whether a file is missing, by an error of a library: that of SMB is told by its number alone."""
    return isinstance(problem, FileNotFoundError) or (isinstance(problem, OSError) and problem.errno == errno.ENOENT)


class OtherFileIO(_FsspecFileIO):
    """Opens the files of any filesystem that fsspec knows by the scheme of their locations.

    Args:
        properties: Properties such as `fsspec.sftp.username` (`fsspec.`, scheme, argument) are arguments of the
            filesystem's class; so are PyIceberg's own for HDFS and Hugging Face, such as `hdfs.user`.
    """

    def _connect(self, properties: Mapping[str, str], location: str) -> FolderStore:
        scheme = location.partition("://")[0]
        arguments = other_arguments(properties, scheme)
        return shared((scheme, _host(location), _told(arguments)), lambda: self._open(scheme, location, arguments))

    @staticmethod
    def _open(scheme: str, location: str, arguments: Mapping[str, Any]) -> FolderStore:
        try:
            files, _ = url_to_fs(location, skip_instance_cache=True, **arguments)
        except TypeError as problem:
            kind = filesystem_class(scheme).__name__
            raise OptionError(
                f"Cannot open {scheme}://: its filesystem {kind} does not take the properties "
                f"fsspec.{scheme}.*: {problem}."
            ) from problem
        return FolderStore(files, strip_protocol)


def filesystem_class(scheme: str) -> type[AbstractFileSystem]:
    """Return fsspec's class for locations of a scheme.

    Raises:
        OptionError: fsspec knows none, a library is missing, or other processes would not see the files.
    """
    try:
        kind = get_filesystem_class(scheme)
    except ValueError:
        raise OptionError(
            f"Cannot open {scheme}:// locations: fsspec knows no filesystem of that name. Install one that registers "
            "itself with fsspec, on the driver and where the executors run, or name a FileIO in 'py-io-impl'."
        ) from None
    except ImportError as missing:
        raise OptionError(
            f"Cannot open {scheme}:// locations: {missing}. Install it on the driver and where the executors run."
        ) from missing
    if issubclass(kind, MemoryFileSystem):
        raise OptionError(
            f"Cannot write to {scheme}:// locations: their files are in the memory of one process, and tasks write in "
            "others, so that no table would have its rows. Use a folder of a disk, or an object store."
        )
    found: type[AbstractFileSystem] = kind
    return found


class _GivenToken:
    """A bearer token as Azure's library takes it, valid until the store refuses it."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_token(self, *_scopes: str, **_arguments: Any) -> Any:  # noqa: ANN401  # a class of the library
        """Return the token with an expiry in one hour."""
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
