"""The FileIO of every store: opens and deletes files through the implementation that a location's scheme names.

The driver's catalogs and the tasks use the same one, through PyIceberg's property `py-io-impl`, unless the user has
chosen another. The libraries of a store are loaded when its first file is opened. A FileIO is made once per process and
set of properties, because Python workers live across tasks and micro-batches.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from threading import Lock
from urllib.parse import urlparse

from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.io.configuration import configured_catalog
from iceberg_ds.io.places import check_place
from iceberg_ds.io.stores import DeletesMany, ShippedFileIO

OBJECT_IO = f"{__name__}.ObjectIO"

_IMPLEMENTATIONS = {
    **dict.fromkeys(("", "file"), ("iceberg_ds.io.local_io", "LocalFileIO")),
    **dict.fromkeys(("s3", "s3a", "s3n", "oss"), ("iceberg_ds.io.s3_io", "S3FileIO")),
    **dict.fromkeys(("gs", "gcs"), ("iceberg_ds.io.fsspec_io", "GcsFileIO")),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), ("iceberg_ds.io.fsspec_io", "AzureFileIO")),
}
_OPENED_BY_ARROW = "viewfs"


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
            ValueError: Readers do not agree on which file the location names.
        """
        check_place(location)
        return self.store_of(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return the file, to be written.

        Raises:
            ValueError: Readers do not agree on which file the location names.
        """
        check_place(location)
        return self.store_of(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the file.

        Raises:
            FileNotFoundError: The file is missing; not every object store reports that.
            ValueError: Readers do not agree on which file the location names.
        """
        path = location if isinstance(location, str) else location.location
        check_place(path)
        self.store_of(path).delete(location)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete the files with few requests; return the reason for each that could not be deleted.

        Raises:
            NotImplementedError: One of the stores deletes only one file with each request.
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
        """Return the FileIO of the store of `location`.

        Raises:
            OptionError: The properties are wrong for that store, or its extra is not installed.
        """
        scheme = _scheme(location)
        with self._lock:
            if scheme not in self._stores:
                self._stores[scheme] = self._open(scheme, location)
            return self._stores[scheme]

    def _open(self, scheme: str, location: str) -> FileIO:
        if scheme == _OPENED_BY_ARROW:
            return load_file_io({key: self.properties[key] for key in self.properties if key != PY_IO_IMPL}, location)
        if scheme not in _IMPLEMENTATIONS:
            # Imported here, because not every process needs fsspec.
            from iceberg_ds.io.fsspec_io import OtherFileIO, filesystem_class  # noqa: PLC0415

            filesystem_class(scheme)  # raises now if it cannot be opened
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
        io.store_of(location)  # raises now if the properties are wrong
    return io


def default_file_io(catalog: str) -> dict[str, str]:
    """Return the property that makes a catalog use our FileIO, or nothing if PyIceberg's configuration names one."""
    configured = configured_catalog(catalog) or {}
    return {} if PY_IO_IMPL in configured else {PY_IO_IMPL: OBJECT_IO}


def is_s3(path: str) -> bool:
    """Return whether `path` is in S3, or in a store with the same interface."""
    return urlparse(path).scheme in ("s3", "s3a", "s3n")
