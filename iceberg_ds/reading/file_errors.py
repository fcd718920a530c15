"""What is said of files of a table that cannot be read: which, why, and what to do, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from iceberg_ds.error_hints import advice
from iceberg_ds.errors import DataFileError, IcebergSinkError
from iceberg_ds.secrets import mask_text, masked_cause
from iceberg_ds.table.name_mapping import UnknownColumnsError

# What to do about data files that cannot be read.
GONE = "If its snapshot has expired meanwhile, read the table again; else iceberg_ds.verify names what is missing."


@contextmanager
def naming_manifests(name: str, io: FileIO, snapshot: Snapshot | None) -> Iterator[None]:
    """Say of any error in this block which snapshot's manifests cannot be read.

    Raises:
        DataFileError: They cannot be read.
    """
    try:
        yield
    except Exception as error:  # of any storage library
        reason = mask_text(f"{type(error).__name__}: {error}", io.properties)
        raise DataFileError(
            f"Cannot read {name}: the manifests of snapshot {snapshot.snapshot_id if snapshot else None} cannot be "
            f"read: {reason}. {advice(error)}".rstrip()
        ) from masked_cause(error, io.properties)


@contextmanager
def naming_data_file(name: str, io: FileIO, path: str) -> Iterator[None]:
    """Say of any error in this block which data file cannot be read.

    Raises:
        DataFileError: It is missing or damaged.
        UnknownColumnsError: It is not known what its columns are.
    """
    try:
        yield
    except (IcebergSinkError, UnknownColumnsError):
        raise
    except Exception as error:  # of any storage library, or of Arrow
        reason = mask_text(f"{type(error).__name__}: {error}", io.properties)
        raise DataFileError(
            f"Cannot read {name}: data file {path} is missing or damaged: {reason}. {GONE} {advice(error)}".rstrip()
        ) from masked_cause(error, io.properties)


@contextmanager
def naming_delete_file(io: FileIO, path: str) -> Iterator[None]:
    """Say of any error in this block which delete file cannot be read.

    Raises:
        DataFileError: It cannot be read.
    """
    try:
        yield
    except IcebergSinkError:
        raise
    except Exception as error:  # of any storage library, or of Arrow
        reason = mask_text(f"{type(error).__name__}: {error}", io.properties)
        raise DataFileError(
            f"Cannot read delete file {path}: {reason}. Rows that it deletes would come back. {advice(error)}".rstrip()
        ) from masked_cause(error, io.properties)
