"""How a task tells of its files: one by one, or by a manifest if they are many.

The commit then reads a line for each task, and not one for each file. Knows neither Spark nor the catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import file_io
from iceberg_ds.messages import TaskManifest
from iceberg_ds.plan import ManifestLayout, WritePlan
from iceberg_ds.secrets import mask_text
from iceberg_ds.snapshots.manifest_file import ManifestDraft, added_entry, write_manifest
from iceberg_ds.snapshots.summary import totals_of
from iceberg_ds.table.locations import metadata_locations
from iceberg_ds.writers.task_writer import TaskAttempt

logger = logging.getLogger(__name__)

# From so many files of a task on a manifest pays: named one by one, they take the commit 0.15 ms each, which is more by
# then than a task needs for another small file.
MANY_FILES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a task tells of its files.

    Attributes:
        data_files: Files that it names one by one.
        manifests: Manifests that name the others.
    """

    data_files: tuple[DataFile, ...] = ()
    manifests: tuple[TaskManifest, ...] = ()


def report_files(plan: WritePlan, attempt: TaskAttempt, data_files: Sequence[DataFile]) -> Report:
    """Return what a task tells of the files that it wrote, and write the manifest if there is to be one.

    A manifest that cannot be written is no reason to fail: the files are named one by one then. If the task is
    stopped meanwhile, all its files are deleted.

    Args:
        plan: What the driver decided.
        attempt: Becomes part of the manifest's name, so that no two attempts share a path.
        data_files: All files of the attempt.
    """
    singly = Report(data_files=tuple(data_files))
    # Of a write by keys the commit must see each file, because it hides rows by file and position.
    if plan.manifests is None or plan.write.changes is not None or len(data_files) < MANY_FILES:
        return singly
    io = file_io(plan.io_properties, plan.location)
    name = f"{attempt.partition_id:05d}-{attempt.task_attempt_id}-{plan.write.operation_id}-m0.avro"
    path = metadata_locations(plan.location, plan.properties).new_metadata_location(name)
    try:
        return Report(manifests=(_write(io, plan, plan.manifests, path, data_files),))
    except Exception as problem:  # of whatever storage library
        reason = mask_text(f"{type(problem).__name__}: {problem}", plan.io_properties)
        logger.warning("Cannot write manifest %s, so the message names %d files: %s", path, len(data_files), reason)
        delete_files(io, [path], Proof.NEVER_SENT)
        return singly
    except BaseException:
        delete_files(io, [*(data_file.file_path for data_file in data_files), path], Proof.TASK_FAILED)
        raise


def _write(
    io: FileIO, plan: WritePlan, layout: ManifestLayout, path: str, data_files: Sequence[DataFile]
) -> TaskManifest:
    entries = tuple(added_entry(data_file, plan.write.snapshot_id) for data_file in data_files)
    draft = ManifestDraft(path=path, spec_id=plan.spec.spec_id, entries=entries)
    return TaskManifest(
        file=write_manifest(io, layout, draft, plan.write.snapshot_id),
        format_version=layout.format_version,
        totals=totals_of(data_files, {plan.spec.spec_id: plan.spec}, plan.schema),
        example=(data_files[0].file_path, data_files[0].file_size_in_bytes),
    )
