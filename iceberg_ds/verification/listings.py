"""Pure: whether manifest lists and manifests agree with each other, with the table and with the summaries."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    NestedField,
    StringType,
    UUIDType,
)

from iceberg_ds.verification.contents import Contents, Entry, Manifest
from iceberg_ds.verification.paths import file_key

_COUNTS = (
    (ManifestEntryStatus.ADDED, "added"),
    (ManifestEntryStatus.EXISTING, "existing"),
    (ManifestEntryStatus.DELETED, "deleted"),
)


def manifest_problems(contents: Contents) -> Iterator[str]:
    """Yield the manifest lists and manifests that are missing, unreadable, or not as recorded."""
    yield from contents.problems.values()
    seen: set[tuple[str, int]] = set()
    for snapshot_id, manifests in contents.lists.items():
        paths = Counter(used.manifest_path for used in manifests)
        yield from (
            f"snapshot {snapshot_id} lists manifest {path} {count} times" for path, count in paths.items() if count > 1
        )
        for used in manifests:
            if (used.manifest_path, used.manifest_length) not in seen:
                seen.add((used.manifest_path, used.manifest_length))
                yield from _manifest_problems(used, contents.manifests[used.manifest_path])


def _manifest_problems(used: ManifestFile, manifest: Manifest) -> Iterator[str]:
    name = f"manifest {used.manifest_path}"
    if manifest.problem is not None:
        yield manifest.problem
        return
    if manifest.size_bytes != used.manifest_length:
        yield f"{name} has {manifest.size_bytes:,} bytes, its recorded size is {used.manifest_length:,}"
    is_of_rows = used.content == ManifestContent.DATA
    yield from (
        f"{name} is one of {'data' if is_of_rows else 'delete'} files, and lists {entry.file.path}, which is none"
        for entry in manifest.entries
        if (entry.file.content is DataFileContent.DATA) is not is_of_rows
    )
    recorded = {
        "added": (used.added_files_count, used.added_rows_count),
        "existing": (used.existing_files_count, used.existing_rows_count),
        "deleted": (used.deleted_files_count, used.deleted_rows_count),
    }
    for status, word in _COUNTS:
        entries = [entry for entry in manifest.entries if entry.status is status]
        actual = (len(entries), sum(entry.file.record_count for entry in entries))
        for said, is_there, thing in zip(recorded[word], actual, ("files", "rows"), strict=True):
            if said is not None and said != is_there:
                yield f"{name} has {is_there:,} {word} {thing}, its manifest list says {said:,}"


def repeated_files(contents: Contents) -> Iterator[str]:
    """Yield the files that are live twice in a snapshot, or were added twice."""
    live: dict[str, set[str]] = defaultdict(set)
    added: dict[str, set[int]] = defaultdict(set)
    for path, manifest in contents.manifests.items():
        counts = Counter(entry.file.name for entry in manifest.entries if entry.is_live)
        yield from (f"file {name} is {count} times in manifest {path}" for name, count in counts.items() if count > 1)
        for entry in manifest.entries:
            if entry.is_live:
                live[entry.file.name].add(path)
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id is not None:
                added[entry.file.name].add(entry.snapshot_id)
    shared = {name: paths for name, paths in live.items() if len(paths) > 1}
    if shared:
        yield from _live_twice(contents, shared)
    again = {name: snapshots for name, snapshots in added.items() if len(snapshots) > 1}
    if again:
        yield from _added_twice(contents, again)
    yield from _spelled_twice(contents, live)


def _spelled_twice(contents: Contents, live: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the files that a snapshot has by several paths."""
    names: dict[str, list[str]] = defaultdict(list)
    for name in live:
        names[file_key(name)].append(name)
    for key, alike in names.items():
        for snapshot_id, manifests in contents.lists.items() if len(alike) > 1 else ():
            listed = {used.manifest_path for used in manifests}
            both = sorted(name for name in alike if live[name] & listed)
            if len(both) > 1:
                yield f"snapshot {snapshot_id} has {' and '.join(both)}, which are one file: {key}"


def _live_twice(contents: Contents, shared: Mapping[str, set[str]]) -> Iterator[str]:
    # Files that were written into new manifests together are looked at together.
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for name, paths in shared.items():
        groups[frozenset(paths)].append(name)
    for snapshot_id, manifests in contents.lists.items():
        listed = {used.manifest_path for used in manifests}
        for group, names in groups.items():
            if len(both := sorted(group & listed)) > 1:
                yield from (
                    f"snapshot {snapshot_id} has file {name} twice: in {both[0]} and {both[1]}" for name in names
                )


def _added_twice(contents: Contents, again: Mapping[str, set[int]]) -> Iterator[str]:
    """Yield the files that a snapshot added although one before it had, and none between dropped it."""
    dropped: dict[str, set[int | None]] = defaultdict(set)
    for manifest in contents.manifests.values():
        for entry in manifest.entries:
            if not entry.is_live and entry.file.name in again:
                dropped[entry.file.name].add(entry.snapshot_id)
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in contents.metadata.snapshots}
    for name, snapshots in again.items():
        for later in snapshots:
            line = _line_to(parents, later, snapshots - {later})
            if line is not None and not dropped[name] & {*line[:-1]}:
                yield f"file {name} was added by snapshot {line[-1]} and again by snapshot {later}"


def _line_to(parents: Mapping[int, int | None], start: int, targets: set[int]) -> list[int] | None:
    """Return the snapshots from `start` back to the first of `targets` among its ancestors, None if there is none."""
    line, at = [start], parents.get(start)
    while at is not None and at in parents:
        line.append(at)
        if at in targets:
            return line
        at = parents[at]
    return None


def number_problems(contents: Contents) -> Iterator[str]:
    """Yield the sequence numbers that cannot be right."""
    numbers = {snapshot.snapshot_id: snapshot.sequence_number or 0 for snapshot in contents.metadata.snapshots}
    checked: set[str] = set()
    for snapshot_id, manifests in contents.lists.items():
        for used in manifests:
            if used.sequence_number > numbers[snapshot_id]:
                yield (
                    f"manifest {used.manifest_path} has sequence number {used.sequence_number}, above that of "
                    f"snapshot {snapshot_id}, which lists it ({numbers[snapshot_id]})"
                )
            if used.manifest_path not in checked:
                checked.add(used.manifest_path)
                yield from _numbers_in(used, contents.manifests[used.manifest_path].entries)


def _numbers_in(used: ManifestFile, entries: Sequence[Entry]) -> Iterator[str]:
    where = f"in manifest {used.manifest_path}"
    live = [entry for entry in entries if entry.is_live]
    for entry in live:
        number, of_file = entry.sequence_number, entry.file_sequence_number
        if number is None or of_file is None:
            yield f"file {entry.file.name} {where} is no new one and has no sequence number"
        elif max(number, of_file) > used.sequence_number:
            yield (
                f"file {entry.file.name} has sequence number {max(number, of_file)}, above that of its manifest "
                f"{used.manifest_path} ({used.sequence_number})"
            )
        elif number < used.min_sequence_number:
            yield (
                f"file {entry.file.name} has sequence number {number}, below the lowest that the manifest list has of "
                f"{used.manifest_path} ({used.min_sequence_number})"
            )


def partition_problems(contents: Contents) -> Iterator[str]:
    """Yield the manifests whose partition spec is unknown, or whose partition values are not of its types."""
    specs = contents.metadata.specs()
    sources = _sources(contents.metadata)
    for path, used in contents.listed_manifests().items():
        spec = specs.get(used.partition_spec_id)
        if spec is None:
            yield f"manifest {path} is of partition spec {used.partition_spec_id}, which is not there"
            continue
        types = _partition_types(spec, sources)
        for values in contents.manifests[path].partitions:
            if len(values) != len(types):
                yield f"a partition in manifest {path} has {len(values)} values, its spec {len(types)} fields"
                continue
            yield from (
                f"a partition in manifest {path} has {value!r} in field '{partition.name}', which is of type {kind}"
                for value, kind, partition in zip(values, types, spec.fields, strict=True)
                if value is not None and not isinstance(value, _python_types(kind))
            )


def _sources(metadata: TableMetadata) -> Schema:
    """Return a schema with each column that there ever was, the newest of each."""
    by_id: dict[int, NestedField] = {}
    for schema in sorted(metadata.schemas, key=lambda schema: schema.schema_id):
        for number in schema.field_ids:
            kind = schema.find_type(number)
            if kind.is_primitive:
                by_id[number] = NestedField(number, f"column_{number}", kind, required=False)
    return Schema(*by_id.values())


def _partition_types(spec: PartitionSpec, sources: Schema) -> list[IcebergType]:
    known = [used for used in spec.fields if used.source_id in sources.field_ids]
    types = {used.field_id: used.transform.result_type(sources.find_type(used.source_id)) for used in known}
    return [types.get(used.field_id, StringType()) for used in spec.fields]


def _python_types(kind: IcebergType) -> tuple[type, ...]:  # noqa: PLR0911  # one return a type
    match kind:
        case StringType():
            return (str,)
        case BooleanType():
            return (bool,)
        case FloatType() | DoubleType():
            return (float, int)
        case DecimalType():
            return (decimal.Decimal,)
        case BinaryType() | FixedType():
            return (bytes,)
        case UUIDType():
            return (uuid.UUID, bytes)
    # Dates and times are numbers, unless the reader has made them what they mean.
    return (int, dt.date, dt.time)
