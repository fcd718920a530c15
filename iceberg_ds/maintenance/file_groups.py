"""Pure: which data files of a snapshot are rewritten, and which of them together.

The files of one partition make groups, by the rules of Iceberg's Java library: a file is worth rewriting if it is too
small, too large, or has too many deleted rows; a group is if that makes fewer files, or files of a better size, or
takes deleted rows away. A group is divided into tasks; each writes one file of about the target size, or
several if one file is larger. A sorted group is one task, so that its files do not overlap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from operator import attrgetter

from pyiceberg.manifest import DataFile
from pyiceberg.types import IcebergType

from iceberg_ds.deletes.work import FileWork
from iceberg_ds.expressions.metrics_evaluator import facts_of
from iceberg_ds.maintenance.rewrite_options import RewriteOptions
from iceberg_ds.maintenance.rewrite_work import FileGroup
from iceberg_ds.snapshots.live_files import LiveFiles, only_path
from iceberg_ds.table.bin_packing import packed
from iceberg_ds.table.zorder import Range

# A rest of more than this share of the target size is worth a file of its own.
_WORTH_A_FILE = 0.75
# A file may be this much larger than the target before one more file is made of the rest.
_STRETCH = 1.1
# What a split file is allowed to be larger than its share.
_ROOM = 1.05


def deleted_rows(live: LiveFiles) -> Counter[str]:
    """Return how many rows of data files are deleted by deletes that are for one data file alone, by its path."""
    found = Counter({path: vector.cardinality for path, vector in live.vectors.items()})
    for deletes in live.positions:
        if (path := only_path(deletes.data_file)) is not None and path not in live.vectors:
            found[path] += deletes.data_file.record_count
    return found


def plan_groups(
    work: Iterable[FileWork],
    deleted: Mapping[str, int],
    options: RewriteOptions,
    *,
    spec_id: int,
    is_sorted: bool,
) -> list[FileGroup]:
    """Return the groups to rewrite, in the order in which they are rewritten.

    Args:
        work: The data files that may be rewritten, each with the deletes that apply to it.
        deleted: Deleted rows by data file, as `deleted_rows` returns them.
        options: What is rewritten.
        spec_id: Partition spec of new files; files of other specs are rewritten, too.
        is_sorted: Whether the rows of each group are sorted.
    """
    rules = _Rules(deleted, options, spec_id)
    groups: list[FileGroup] = []
    places = list(_by_place(work).values())
    if options.rewrite_job_order == "cold-first":  # writers are at work in recent ones, and make more small files there
        places.sort(key=lambda files: max(item.sequence_number for item in files))
    for files in places:
        wanted = [item for item in files if options.rewrite_all or rules.is_wanted(item)]
        for group in packed(wanted, options.max_file_group_size_bytes, attrgetter("size_bytes")):
            if options.rewrite_all or rules.is_worth_it(group):
                groups += _divided(group, options, rules, is_sorted=is_sorted)
    return _limited(_ordered(groups, options), options)


@dataclass(frozen=True, slots=True)
class _Rules:
    deleted: Mapping[str, int]
    options: RewriteOptions
    spec_id: int

    def is_wanted(self, item: FileWork) -> bool:
        """Return whether a file is worth rewriting if others are."""
        has_wrong_size = not self.options.min_file_size_bytes <= item.size_bytes <= self.options.max_file_size_bytes
        return has_wrong_size or self.has_to_go(item)

    def has_to_go(self, item: FileWork) -> bool:
        """Return whether a file is worth rewriting alone."""
        threshold, data_file = self.options.delete_file_threshold, item.data_file
        if threshold is not None and len(item.hidden_by.names) + len(item.keys) >= threshold:
            return True
        if data_file.spec_id != self.spec_id:
            return True
        deleted = min(self.deleted.get(item.path, 0), data_file.record_count)
        return deleted > 0 and deleted >= self.options.delete_ratio_threshold * data_file.record_count

    def is_worth_it(self, group: Sequence[FileWork]) -> bool:
        """Return whether a group is worth rewriting."""
        size, several = sum(item.size_bytes for item in group), len(group) > 1
        return (
            (several and len(group) >= self.options.min_input_files)
            or (several and size > self.options.target_file_size_bytes)
            or size > self.options.max_file_size_bytes
            or any(map(self.has_to_go, group))
        )


def _by_place(work: Iterable[FileWork]) -> dict[tuple[int, str], list[FileWork]]:
    found: dict[tuple[int, str], list[FileWork]] = defaultdict(list)
    for item in work:
        found[item.place].append(item)
    return found


def _divided(
    group: Sequence[FileWork], options: RewriteOptions, rules: _Rules, *, is_sorted: bool
) -> Iterator[FileGroup]:
    """Yield the tasks of a group, of about equal sizes, without those that would only copy one file."""
    total = sum(item.size_bytes for item in group)
    tasks = 1 if is_sorted else _new_files(total, options)
    for files in _shared_out(group, total, tasks):
        size = sum(item.size_bytes for item in files)
        is_copy = len(files) == 1 and size <= options.max_file_size_bytes and not rules.has_to_go(files[0])
        if options.rewrite_all or is_sorted or not is_copy:
            yield FileGroup(files=tuple(files), file_size_bytes=new_file_size(size, options))


def _shared_out(files: Sequence[FileWork], total: int, tasks: int) -> list[list[FileWork]]:
    """Return the files in at most so many parts of about equal sizes, in their order."""
    parts: list[list[FileWork]] = []
    before = 0
    for item in files:
        if not parts or before * tasks >= total * len(parts):
            parts.append([])
        parts[-1].append(item)
        before += item.size_bytes
    return parts


def _new_files(size: int, options: RewriteOptions) -> int:
    """Return how many files are made of files of `size` bytes together."""
    target = options.target_file_size_bytes
    whole, rest = divmod(size, target)
    is_too_much = whole == 0 or size / whole > min(_STRETCH * target, options.max_file_size_bytes)
    return whole + (rest > _WORTH_A_FILE * target or is_too_much)


def new_file_size(size: int, options: RewriteOptions) -> int:
    """Return the most bytes that each new file has, if files of `size` bytes together are rewritten."""
    count = _new_files(size, options)
    most = options.max_file_size_bytes
    return most if count == 1 else min(ceil(size / count * _ROOM), most)


def with_ranges(group: FileGroup, files: Mapping[str, DataFile], types: Mapping[int, IcebergType]) -> FileGroup:
    """Return a group with the ranges of columns in its files.

    Args:
        group: The group.
        files: Data files with their metrics, by path.
        types: The types of the columns, by id.
    """
    ranges = {}
    for field_id, kind in types.items():
        facts = [facts_of(files[item.path], field_id, kind) for item in group.files]
        known = [one for one in facts if not one.is_all_null]
        if known and all(one.low is not None and one.high is not None for one in known):
            ranges[field_id] = Range(low=min(one.low for one in known), high=max(one.high for one in known))
    return replace(group, ranges=ranges)


def _ordered(groups: list[FileGroup], options: RewriteOptions) -> list[FileGroup]:
    what, _, way = options.rewrite_job_order.partition("-")
    if what in {"none", "cold"}:
        return groups
    key: Callable[[FileGroup], int] = (lambda group: group.size_bytes) if what == "bytes" else _file_count
    return sorted(groups, key=key, reverse=way == "desc")


def _file_count(group: FileGroup) -> int:
    return len(group.files)


def _limited(groups: Sequence[FileGroup], options: RewriteOptions) -> list[FileGroup]:
    """Return the first groups, the last of them in part, so that they have at most as many files as asked for."""
    if options.max_files_to_rewrite is None:
        return [*groups]
    kept: list[FileGroup] = []
    left = options.max_files_to_rewrite
    for group in groups:
        files = group.files[:left]
        left -= len(files)
        if files == group.files:
            kept.append(group)
        elif len(files) > 1:  # one of several would only be copied
            size = sum(item.size_bytes for item in files)
            kept.append(FileGroup(files=files, file_size_bytes=new_file_size(size, options)))
    return kept
