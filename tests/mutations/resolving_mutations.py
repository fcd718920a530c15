"""Mutations of the search for keys, and of conversions of deletes."""

from __future__ import annotations

from mutations.mutating import Mutation

_SCAN = "unit/resolving/test_scan.py::"
_KEYS = "unit/resolving/test_key_sets.py::"
_CONVERTING = "unit/resolving/test_converting.py::"

RESOLVING: tuple[Mutation, ...] = (
    Mutation(
        name="a delete by key applies to rows of its own commit",
        file="resolving/scan.py",
        before="self.files[bisect_right(self.numbers, number) :]",
        after="self.files[bisect_right(self.numbers, number - 1) :]",
        tests=(_SCAN + "test_delete_by_key_applies_to_older_data_only",),
    ),
    Mutation(
        name="a delete without partitions applies to files without partitions only",
        file="resolving/scan.py",
        before="is_everywhere = spec is not None and is_global(spec)",
        after="is_everywhere = spec is None",
        tests=(_SCAN + "test_delete_without_partitions_applies_to_the_whole_table",),
    ),
    Mutation(
        name="a key hides rows that are newer than it",
        file="resolving/key_sets.py",
        before="return places.filter(pc.and_(is_same, is_meant)).cast(pa.int64())",
        after="return places.filter(pc.or_(is_same, is_meant)).cast(pa.int64())",
        tests=(_KEYS + "test_key_is_meant_for_older_files_only",),
    ),
    Mutation(
        name="files whose nulls may meet are passed over by their bounds",
        file="resolving/bounds.py",
        before="if (one.may_be_null and other.may_be_null) or",
        after="if (one.may_be_null and other.is_all_null) or",
        tests=("unit/resolving/test_bounds.py::test_null_meets_null_whatever_the_bounds",),
    ),
    Mutation(
        name="data files that came meanwhile are not searched",
        file="resolving/swap.py",
        before="        if missing:\n            raise StaleWorkError(",
        after="        if missing is None:\n            raise StaleWorkError(",
        tests=(_CONVERTING + "test_compaction_that_lands_meanwhile_brings_no_row_back",),
    ),
    Mutation(
        name="a rewritten file takes the place of one that is gone",
        file="resolving/swap.py",
        before="        if changed:\n",
        after="        if changed is None:\n",
        tests=(_CONVERTING + "test_compaction_with_new_numbers_that_lands_meanwhile_doubles_no_row",),
    ),
    Mutation(
        name="a conversion lands though another one has dropped all deletes",
        file="resolving/swap.py",
        before="        if not sources:\n            raise StaleWorkError(",
        after="        if sources is None:\n            raise StaleWorkError(",
        tests=(_CONVERTING + "test_two_conversions_at_once_leave_each_row_once",),
    ),
    Mutation(
        name="a branch without deletes is converted",
        file="resolving/search.py",
        before="        if not sources:\n            return None",
        after="        if sources is None:\n            return None",
        tests=(
            _CONVERTING + "test_again_there_is_nothing_to_do",
            "faults/test_conversion_kills.py::test_conversion_that_is_killed_changes_no_row",
        ),
    ),
    Mutation(
        name="a rewritten file is as new as its snapshot",
        file="commits/manifests.py",
        before="added_entry(data_file, write.snapshot_id, numbers.get(data_file.file_path))",
        after="added_entry(data_file, write.snapshot_id)",
        tests=(
            _CONVERTING + "test_epoch_that_lands_meanwhile_loses_nothing",
            _CONVERTING + "test_rewritten_file_keeps_order_partition_and_number",
        ),
    ),
    Mutation(
        name="deletes that came meanwhile are dropped, too",
        file="resolving/resolution.py",
        before="return [found for found in live.equalities if found.path in self.paths]",
        after="return list(live.equalities)",
        tests=(_CONVERTING + "test_epoch_that_lands_meanwhile_loses_nothing",),
    ),
)
