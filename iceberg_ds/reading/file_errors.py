"""What is said of files of a table that cannot be read: which, why, and what to do, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.error_hints import advice
from iceberg_ds.errors import DataFileError, IcebergSinkError
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.table.name_mapping import UnknownColumnsError

# What to do about data files that cannot be read.
GONE = "If its snapshot has expired meanwhile, read the table again; else iceberg_ds.verify names what is missing."


def naming_manifests(name: str, io: FileIO, snapshot: Snapshot | None) -> AbstractContextManager[None]:
    """Say of any error in this block which snapshot's manifests cannot be read.

    Raises:
        DataFileError: They cannot be read.
    """
    number = snapshot.snapshot_id if snapshot else None
    return _naming(io, f"Cannot read {name}: the manifests of snapshot {number} cannot be read", "")


def naming_data_file(name: str, io: FileIO, path: str) -> AbstractContextManager[None]:
    """Say of any error in this block which data file cannot be read.

    Raises:
        DataFileError: It is missing or damaged.
        UnknownColumnsError: It is not known what its columns are.
    """
    cannot = f"Cannot read {name}: data file {path} is missing or damaged"
    return _naming(io, cannot, GONE, IcebergSinkError, UnknownColumnsError)


def naming_delete_file(io: FileIO, path: str) -> AbstractContextManager[None]:
    """Say of any error in this block which delete file cannot be read.

    Raises:
        DataFileError: It cannot be read.
    """
    return _naming(io, f"Cannot read delete file {path}", "Rows that it deletes would come back.", IcebergSinkError)


@contextmanager
def _naming(io: FileIO, cannot: str, then: str, *told: type[Exception]) -> Iterator[None]:
    """Say of any error in this block what cannot be done.

    Args:
        io: Opens the table's storage.
        cannot: What cannot be done, without a full stop.
        then: What follows the reason; empty for nothing.
        told: Errors that say it already.
    """
    try:
        yield
    except told:
        raise
    except Exception as error:  # of any storage library, or of Arrow
        reason = mask_text(f"{type(error).__name__}: {error}", io.properties)
        text = " ".join(filter(None, (f"{cannot}: {reason}.", then, advice(error))))
        raise DataFileError(text) from masked_cause(error, io.properties)
