"""Pure: checks that snapshots, refs, logs, manifest lists, manifests and summaries of a table agree with each other."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform
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

from iceberg_ds.inspect.contents import Contents, Entry, Manifest, file_key
from iceberg_ds.snapshots.history import CLOCKS_APART_MS, latest_ms
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.arrow_schema import repeated
from iceberg_ds.table.defaults import physical
from iceberg_ds.table.nested_fields import at_any_depth

_COUNTS = (
    (ManifestEntryStatus.ADDED, "added"),
    (ManifestEntryStatus.EXISTING, "existing"),
    (ManifestEntryStatus.DELETED, "deleted"),
)
_DELETES = {DataFileContent.POSITION_DELETES: "position", DataFileContent.EQUALITY_DELETES: "equality"}
_OF_ROWS = ("data-files", "records")


def history_problems(metadata: TableMetadata) -> list[str]:
    """Return what is wrong with snapshots, refs, the snapshot log and the ids that they name."""
    return [
        *_ref_problems(metadata),
        *_snapshot_problems(metadata),
        *_log_problems(metadata),
        *_id_problems(metadata),
    ]


def default_problems(metadata: TableMetadata) -> list[str]:
    """Return which default values of columns, and of fields inside them, are none of their type."""
    problems = []
    for schema in metadata.schemas:
        for field in at_any_depth(schema.fields):
            for kind, value in (("initial", field.initial_default), ("write", field.write_default)):
                if (reason := _why_no_value(value, field.field_type)) is not None:
                    name = schema.find_column_name(field.field_id)
                    problems.append(
                        f"the {kind} default {value!r} of column '{name}' is no {field.field_type}: {reason}"
                    )
    return list(dict.fromkeys(problems))  # schemas share columns


def _why_no_value(value: object, kind: IcebergType) -> str | None:
    try:
        repeated(physical(value), kind, 1)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        return str(error)
    return None


def expired_parents(metadata: TableMetadata) -> int:
    """Return how many snapshots have a parent that has expired."""
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    parents = {snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    return len(parents - present - {None})


def goes_in_circles(metadata: TableMetadata) -> bool:
    """Return whether a snapshot is among its own ancestors, so that no history can be followed."""
    parent = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    whole: set[int] = set()
    for start in parent:
        path: set[int] = set()
        at: int | None = start
        while at in parent and at not in whole:
            if at in path:
                return True
            path.add(at)
            at = parent[at]
        whole |= path
    return False


def _ref_problems(metadata: TableMetadata) -> Iterator[str]:
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in present:
            yield f"{ref.snapshot_ref_type.value} '{name}' points at snapshot {ref.snapshot_id}, which is not there"
    current = metadata.current_snapshot_id
    main = metadata.refs.get(MAIN_BRANCH)
    if current is not None and current not in present:
        yield f"the current snapshot {current} is not there"
    elif main is not None and main.snapshot_id != current:
        yield f"branch '{MAIN_BRANCH}' points at snapshot {main.snapshot_id}, but the current snapshot is {current}"


def _snapshot_problems(metadata: TableMetadata) -> Iterator[str]:
    if goes_in_circles(metadata):
        yield "a snapshot is among its own ancestors"
        return
    counts = Counter(snapshot.snapshot_id for snapshot in metadata.snapshots)
    yield from (f"snapshot {number} is there {count} times" for number, count in counts.items() if count > 1)
    if metadata.format_version == 1:
        return
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    for snapshot in metadata.snapshots:
        number, last = snapshot.sequence_number or 0, metadata.last_sequence_number
        if number > last:
            yield f"snapshot {snapshot.snapshot_id} has sequence number {number}, above the table's last, {last}"
        parent = by_id.get(snapshot.parent_snapshot_id or 0)
        if parent is not None and number and (parent.sequence_number or 0) >= number:
            yield _not_above(snapshot, parent)


def _not_above(snapshot: Snapshot, parent: Snapshot) -> str:
    return (
        f"snapshot {snapshot.snapshot_id} has sequence number {snapshot.sequence_number}, its parent "
        f"{parent.snapshot_id} has {parent.sequence_number}"
    )


def _log_problems(metadata: TableMetadata) -> Iterator[str]:
    log = metadata.snapshot_log
    if log and metadata.current_snapshot_id is not None and log[-1].snapshot_id != metadata.current_snapshot_id:
        yield (
            f"the snapshot log ends with snapshot {log[-1].snapshot_id}, but the current snapshot is "
            f"{metadata.current_snapshot_id}"
        )
    snapshots = [(f"snapshot {entry.snapshot_id}", entry.timestamp_ms) for entry in log]
    files = [(entry.metadata_file, entry.timestamp_ms) for entry in metadata.metadata_log]
    yield from (f"the snapshot log goes back in time at {name}" for name in _back_in_time(snapshots))
    yield from (f"the metadata log goes back in time at {name}" for name in _back_in_time(files))
    if metadata.last_updated_ms < latest_ms(metadata) - CLOCKS_APART_MS:
        yield "the last update is said to be before the last entry of a log"


def _back_in_time(entries: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Yield the names of entries whose time, in milliseconds, is earlier than that of the preceding entry."""
    for (_, earlier), (name, moment) in itertools.pairwise(entries):
        if moment < earlier - CLOCKS_APART_MS:
            yield name


def _id_problems(metadata: TableMetadata) -> Iterator[str]:
    schemas = {schema.schema_id for schema in metadata.schemas}
    for snapshot in metadata.snapshots:
        if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
            yield f"snapshot {snapshot.snapshot_id} has schema {snapshot.schema_id}, which is not there"
    columns = {number for schema in metadata.schemas for number in schema.field_ids}
    # Expiry may remove the last schema that has the column of an earlier spec, or of a field that was dropped.
    current = metadata.specs().get(metadata.default_spec_id)
    for used in () if current is None else current.fields:
        if used.source_id not in columns and not isinstance(used.transform, VoidTransform):
            yield f"partition spec {metadata.default_spec_id} is made of column {used.source_id}, which no schema has"
    if current is None:
        yield f"the default partition spec {metadata.default_spec_id} is not there"
    if metadata.current_schema_id not in schemas:
        yield f"the current schema {metadata.current_schema_id} is not there"
    orders = {order.order_id for order in metadata.sort_orders} | {0}
    if metadata.default_sort_order_id not in orders:
        yield f"the default sort order {metadata.default_sort_order_id} is not there"


def manifest_problems(contents: Contents) -> Iterator[str]:
    """Yield the manifest lists and manifests that are missing, unreadable, or not as recorded."""
    yield from map(str, contents.problems.values())
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
        yield manifest.problem.text
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
        counts = Counter(entry.file.name for entry in manifest.live)
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
    """Yield the files that a snapshot lists under several paths."""
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
    # Files that are listed in the same manifests are checked together.
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
    """Yield the files that two snapshots of one history added, although no snapshot between them dropped the file."""
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
    """Return the snapshots from `start` back to its nearest ancestor among `targets`, or None if it has none."""
    line, at = [start], parents.get(start)
    while at is not None and at in parents:
        line.append(at)
        if at in targets:
            return line
        at = parents[at]
    return None


def number_problems(contents: Contents) -> Iterator[str]:
    """Yield the sequence numbers that must be wrong."""
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
    """Yield the manifests whose partition spec is unknown, or whose partition values do not have its types."""
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
                if not (value is None or kind is None or isinstance(value, _python_types(kind)))
            )


def _sources(metadata: TableMetadata) -> Schema:
    """Return a schema with every column that any schema of the table has, each in its newest form."""
    by_id: dict[int, NestedField] = {}
    for schema in sorted(metadata.schemas, key=lambda schema: schema.schema_id):
        for number in schema.field_ids:
            kind = schema.find_type(number)
            if kind.is_primitive:
                by_id[number] = NestedField(number, f"column_{number}", kind, required=False)
    return Schema(*by_id.values())


def _partition_types(spec: PartitionSpec, sources: Schema) -> list[IcebergType | None]:
    """Return the type of each field of a spec, None if no schema has its column any more."""
    known = [used for used in spec.fields if used.source_id in sources.field_ids]
    types = {used.field_id: used.transform.result_type(sources.find_type(used.source_id)) for used in known}
    return [types.get(used.field_id) for used in spec.fields]


def _python_types(kind: IcebergType) -> tuple[type, ...]:  # noqa: PLR0911  # one return per type
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
    # Dates and times are numbers, unless the reader converted them to Python's types.
    return (int, dt.date, dt.time)


def summary_problems(contents: Contents) -> Iterator[str]:
    """Yield the entries of summaries that contradict the manifests; an absent entry contradicts nothing."""
    for snapshot, listed in _tallied(contents):
        if snapshot.summary is None:
            continue
        for key, actual in expected_summary(snapshot.snapshot_id, listed).items():
            said = snapshot.summary[key]
            if said is not None and (not said.isdigit() or int(said) != actual):
                yield (
                    f"the summary of snapshot {snapshot.snapshot_id} says {key}={said}, its manifests come to {actual}"
                )


def continuity_problems(contents: Contents) -> Iterator[str]:
    """Yield the snapshots whose totals differ from those of their parent plus what they added minus what they dropped.

    Files that a commit leaves out without marking them as deleted are lost rows, although all listed files are intact.
    """
    expected = {
        snapshot.snapshot_id: (snapshot, expected_summary(snapshot.snapshot_id, listed))
        for snapshot, listed in _tallied(contents)
    }
    for snapshot, now in expected.values():
        if snapshot.parent_snapshot_id is None or snapshot.parent_snapshot_id not in expected:
            continue
        _, before = expected[snapshot.parent_snapshot_id]
        for thing in _OF_ROWS:
            total, added, dropped = (now[f"{verb}-{thing}"] for verb in ("total", "added", "deleted"))
            had = before[f"total-{thing}"]
            if had + added - dropped != total:
                yield (
                    f"snapshot {snapshot.snapshot_id} has {total} {thing.replace('-', ' ')}: its parent had {had}, it "
                    f"adds {added} and says that it drops {dropped}"
                )


def _tallied(contents: Contents) -> Iterator[tuple[Snapshot, list[ManifestTally]]]:
    """Yield each snapshot that could be read, and the tallies of its manifests."""
    tallies = {path: ManifestTally(manifest.entries) for path, manifest in contents.manifests.items()}
    for snapshot in contents.read_snapshots():
        yield snapshot, [tallies[used.manifest_path] for used in contents.lists[snapshot.snapshot_id]]


class ManifestTally:
    """Counts of a manifest, computed once for all snapshots that list it.

    Args:
        entries: Entries of the manifest.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.live: Counter[str] = Counter()
        self.added: dict[int | None, Counter[str]] = defaultdict(Counter)
        self.removed: dict[int | None, Counter[str]] = defaultdict(Counter)
        for entry in entries:
            numbers = _numbers(entry)
            if entry.is_live:
                self.live.update(numbers)
            if entry.status is ManifestEntryStatus.ADDED:
                self.added[entry.snapshot_id].update(numbers)
            elif entry.status is ManifestEntryStatus.DELETED:
                self.removed[entry.snapshot_id].update(numbers)


def expected_summary(snapshot_id: int, listed: Sequence[ManifestTally]) -> dict[str, int]:
    """Return the expected summary counts, by key, of a snapshot that lists these manifests."""
    nothing: Counter[str] = Counter()
    total, added, removed = Counter[str](), Counter[str](), Counter[str]()
    for tally in listed:
        total.update(tally.live)
        added.update(tally.added.get(snapshot_id, nothing))
        removed.update(tally.removed.get(snapshot_id, nothing))
    return {
        **_named(total, "total", "total"),
        **_named(added, "added", "added"),
        **_named(removed, "removed", "deleted"),
    }


def _numbers(entry: Entry) -> dict[str, int]:
    file = entry.file
    if file.content is DataFileContent.DATA:
        return {"data-files": 1, "records": file.record_count, "files-size": file.own_bytes}
    return {
        "delete-files": 1,
        f"{_DELETES[file.content]}-deletes": file.record_count,
        "files-size": file.own_bytes,
    }


def _named(numbers: Counter[str], verb: str, of_rows: str) -> dict[str, int]:
    """Return the counts by summary key; summaries have two words for what is dropped."""
    return {
        f"{of_rows if thing in _OF_ROWS else verb}-{thing}": numbers[thing]
        for thing in (*_OF_ROWS, "delete-files", "position-deletes", "equality-deletes", "files-size")
    }
