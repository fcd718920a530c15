"""The door to files for every store: open, delete, check; led to the implementation that a location's scheme asks for.

The driver's catalogs and the tasks use the same one, through PyIceberg's property `py-io-impl`, unless the user has
chosen another. What opens a store is loaded when the first file of that store is opened. A FileIO is made once per
process and set of properties, because Python workers live across tasks and micro-batches.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Protocol, runtime_checkable
from urllib.parse import urlparse

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.io.configuration import configured_catalog
from iceberg_ds.io.places import check_place

OBJECT_IO = f"{__name__}.ObjectIO"

_IMPLEMENTATIONS = {
    **dict.fromkeys(("s3", "s3a", "s3n", "oss"), ("iceberg_ds.io.s3_io", "S3FileIO")),
    **dict.fromkeys(("gs", "gcs"), ("iceberg_ds.io.fsspec_io", "GcsFileIO")),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), ("iceberg_ds.io.fsspec_io", "AzureFileIO")),
}
_OPENED_BY_ARROW = frozenset({"", "file", "viewfs"})
_LOCAL_SCHEME = re.compile("file:(//(localhost(?=/))?)?")


class ShippedFileIO(FileIO):
    """Opens files; pickled, it is its properties alone, for connections, locks and threads are of one process."""

    def __getstate__(self) -> dict[str, object]:
        return {"properties": dict(self.properties)}

    def __setstate__(self, state: Mapping[str, Properties]) -> None:
        self.__init__(state["properties"])  # type: ignore[misc]  # there is nothing else to restore


@runtime_checkable
class DiscardableStream(Protocol):
    """A stream into a file that nobody sees before it is closed, and that can be given up."""

    def discard(self) -> None:
        """Make sure that nothing is left of the file, closed or not."""


@runtime_checkable
class DeletesMany(Protocol):
    """Storage that deletes many files at once."""

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete the files; return why, for each that could not be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file that lies in a store.

    Attributes:
        path: Where it is.
        size_bytes: Its size.
        modified_ms: When it was last written, by the store's clock, milliseconds since the Unix epoch.
    """

    path: str
    size_bytes: int
    modified_ms: int


class Lists(Protocol):
    """Storage that tells what lies in it, and what time it is there."""

    def stored_files(self, location: str) -> Iterator[StoredFile]:
        """Yield what lies below `location`, in the order of the names."""

    def clock_ms(self, location: str) -> int:
        """Return what time it is for the store; ms since the Unix epoch."""


class ObjectIO(ShippedFileIO):
    """Opens files of any store that this package or PyIceberg knows.

    Args:
        properties: Storage properties, by PyIceberg's and Iceberg's names.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._lock = Lock()
        self._stores: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        """Return the file, to be read.

        Raises:
            ValueError: Readers do not agree on which file that is.
        """
        check_place(location)
        return self.store_of(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return the file, to be written.

        Raises:
            ValueError: Readers do not agree on which file that is.
        """
        check_place(location)
        return self.store_of(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file.

        Raises:
            FileNotFoundError: It is missing; object stores do not tell.
            ValueError: Readers do not agree on which file that is.
        """
        path = location if isinstance(location, str) else location.location
        check_place(path)
        self.store_of(path).delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete the files with few requests; return why, for each that could not be deleted.

        Raises:
            NotImplementedError: A store deletes only one after the other.
        """
        groups: dict[str, list[str]] = {}
        for location in locations:
            check_place(location)
            groups.setdefault(_scheme(location), []).append(location)
        stores = [self.store_of(group[0]) for group in groups.values()]
        deleting = [store for store in stores if isinstance(store, DeletesMany)]
        if len(deleting) < len(stores):
            raise NotImplementedError
        problems: dict[str, str] = {}
        for store, group in zip(deleting, groups.values(), strict=True):
            problems |= store.delete_many(group)
        return problems

    def store_of(self, location: str) -> FileIO:
        """Return what opens the files of the store of `location`.

        Raises:
            OptionError: The properties are wrong for that store, or its extra is not installed.
        """
        scheme = _scheme(location)
        with self._lock:
            if scheme not in self._stores:
                self._stores[scheme] = self._open(scheme, location)
            return self._stores[scheme]

    def _open(self, scheme: str, location: str) -> FileIO:
        if scheme in _OPENED_BY_ARROW:
            return load_file_io({key: self.properties[key] for key in self.properties if key != PY_IO_IMPL}, location)
        if scheme not in _IMPLEMENTATIONS:
            # fsspec's filesystems; not every process needs them.
            from iceberg_ds.io.fsspec_io import OtherFileIO, filesystem_class  # noqa: PLC0415

            filesystem_class(scheme)  # says now what is wrong with it
            return OtherFileIO(self.properties)
        module, name = _IMPLEMENTATIONS[scheme]
        store = getattr(importlib.import_module(module), name)(self.properties)
        assert isinstance(store, FileIO)  # noqa: S101  # the table above says so
        return store


def _scheme(location: str) -> str:
    return location.partition("://")[0] if "://" in location else ""


def file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the FileIO that opens files below `location`.

    Raises:
        OptionError: The properties are wrong for that store, or its extra is not installed.
    """
    return _file_io(frozenset(properties.items()), location)


@lru_cache(maxsize=32)
def _file_io(properties: frozenset[tuple[str, str]], location: str) -> FileIO:
    io = load_file_io({PY_IO_IMPL: OBJECT_IO, **dict(properties)}, location)
    if isinstance(io, ObjectIO):
        io.store_of(location)  # says now what is wrong with the properties
    return io


def default_file_io(catalog: str) -> dict[str, str]:
    """Return the property that leads a catalog's tables to our FileIO; none if PyIceberg's configuration has it."""
    configured = configured_catalog(catalog) or {}
    return {} if PY_IO_IMPL in configured else {PY_IO_IMPL: OBJECT_IO}


def is_local(path: str) -> bool:
    """Return whether `path` is on a local disk, which other machines may not see."""
    return urlparse(path).scheme in ("", "file")


def is_s3(path: str) -> bool:
    """Return whether `path` is in S3, or in a store that speaks like it."""
    return urlparse(path).scheme in ("s3", "s3a", "s3n")


def local_path(path: str) -> Path:
    """Return where a local file is."""
    return Path(path.removeprefix(local_scheme(path)))


def local_scheme(path: str) -> str:
    """Return how a local path begins before its first folder; Java writes `file:` with one slash after it or three."""
    found = _LOCAL_SCHEME.match(path)
    return found[0] if found else ""


def local_size(path: str) -> int | None:
    """Return the size in bytes of a local file, None if it is not there."""
    try:
        return local_path(path).stat().st_size
    except OSError:
        return None
