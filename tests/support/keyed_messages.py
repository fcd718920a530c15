"""What tasks of a write by keys report, without any such task: messages that name files of deletes, too."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from support.tables import local

from iceberg_ds.changes.values import ChangeFeed, TaskKeys
from iceberg_ds.messages import TaskCommit, WriteIdentity
from iceberg_ds.plan import WritePlan

FEED = ChangeFeed(key_ids=(1,))
NO_KEYS = TaskKeys(count=0, modulus=0)


def by_keys(plan: WritePlan) -> WritePlan:
    """Return the plan of the same rows by key `id`, the table's first column."""
    return replace(plan, changes=FEED, delete_spec=plan.spec)


def with_deletes(message: TaskCommit) -> TaskCommit:
    """Return the message of a task that wrote a file of deletes as well; the file is there."""
    path = f"{message.data_files[0].file_path}-deletes.parquet"
    local(path).write_bytes(b"deletes")
    delete_file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=message.data_files[0].partition,
        record_count=4,
        file_size_in_bytes=7,
        equality_ids=list(FEED.key_ids),
    )
    delete_file.spec_id = message.data_files[0].spec_id
    write = keyed_identity(message.write)
    return replace(message, write=write, delete_files=(delete_file,), keys=NO_KEYS)


def keyed_identity(write: WriteIdentity) -> WriteIdentity:
    """Return the same write, by keys."""
    return replace(write, changes=FEED, delete_spec_id=0)
