"""Mutations of rewrites of data files."""

from __future__ import annotations

from mutations.mutating import Mutation

_REWRITE = "unit/maintenance/test_rewrite_data_files.py::"
_ANY = "properties/test_data_rewrites.py::test_rewrites_change_no_row"
_MEANWHILE = _REWRITE + "test_what_others_land_meanwhile_stays"
_MOVED = _REWRITE + "test_delete_that_lands_meanwhile_costs_no_work"

DATA_REWRITES = (
    Mutation(
        name="position deletes that land beside a rewrite are forgotten",
        file="maintenance/rebase.py",
        before="            is_behind = is_behind or there[0].hidden_by.names != found.positions[item.path]\n",
        after="            is_behind = False\n",
        tests=(_MEANWHILE, _MOVED, _ANY),
    ),
    Mutation(
        name="equality deletes that land beside a rewrite do not apply to its files",
        file="maintenance/rebase.py",
        before="            if (number := self._plan.number_of(found.group)) is not None\n",
        after="            if (number := self._plan.number_of(found.group)) is None\n",
        tests=(_MEANWHILE,),
    ),
    Mutation(
        name="rows that are deleted by a dropped column beside a rewrite come back",
        file="maintenance/rebase.py",
        before=" or not self._has_columns_of(late)):\n",
        after="):\n",
        tests=(_REWRITE + "test_late_delete_by_a_dropped_column_finds_its_rows",),
    ),
    Mutation(
        name="rows of a file that others removed meanwhile come back",
        file="maintenance/rebase.py",
        before="            if len(there) != 1 or _numbers(there[0]) != _numbers(item):\n",
        after="            if not there:\n                continue\n            if len(there) != 1:\n",
        tests=(_MEANWHILE,),
    ),
    Mutation(
        name="a delete is moved as if no row before it had been left out",
        file="maintenance/moved_places.py",
        before="            row = rows.first + position - gone\n",
        after="            row = rows.first + position\n",
        tests=(_MEANWHILE,),
    ),
    Mutation(
        name="rows that equality deletes hide come back",
        file="deletes/hidden.py",
        before="            by_key = found[item.path].positions if item.path in found else _NONE\n",
        after="            by_key = _NONE\n",
        tests=(_REWRITE + "test_deleted_rows_are_left_out_with_their_delete_files",),
    ),
    Mutation(
        name="deletes of a sorted group are moved to rows of other places",
        file="maintenance/rewrite_tasks.py",
        before="        if self._plan.keeps_order(work.group):\n",
        after="        if work.group:\n",
        tests=(_REWRITE + "test_late_deletes_of_a_sorted_group_cost_no_work",),
    ),
    Mutation(
        name="groups that are behind again and again keep all others from being committed",
        file="maintenance/rebase.py",
        before="        return Standing.BEHIND if found.moves < most else Standing.STALE\n",
        after="        return Standing.BEHIND\n",
        tests=(_REWRITE + "test_partition_that_others_keep_deleting_from_does_not_hold_up_another",),
    ),
    Mutation(
        name="a late delete of a sorted group hides all rows with its values",
        file="maintenance/moved_places.py",
        before="                wanted[digest] -= 1\n",
        after="",
        tests=(_REWRITE + "test_late_deletes_of_a_sorted_group_cost_no_work",),
    ),
    Mutation(
        name="a late delete of a sorted group whose row is not found is forgotten",
        file="maintenance/moved_places.py",
        before="    if left:\n",
        after="    if left < 0:\n",
        tests=(_REWRITE + "test_row_that_is_not_in_the_new_files_is_not_taken_for_another",),
    ),
    Mutation(
        name="late deletes of rows that go to several partitions are in one",
        file="maintenance/rewrite_tasks.py",
        before="            by_partition.setdefault(PartitionKey.of(rows.data_file.partition), []).append(rows)\n",
        after="            by_partition.setdefault(PartitionKey(()), []).append(rows)\n",
        tests=(_REWRITE + "test_late_deletes_of_a_group_that_goes_to_other_partitions_cost_no_work",),
    ),
    Mutation(
        name="rows that are read ahead come before those that were read",
        file="io/parallel.py",
        before="            yield item  # type: ignore[misc]  # not the end\n",
        after="            yield following.result() or item\n",
        tests=("unit/io/test_parallel.py::test_all_items_come_in_their_order",),
    ),
    Mutation(
        name="new files are committed with other rows than the old ones",
        file="maintenance/rewrite_tasks.py",
        before="        if visible.digest != after:\n",
        after="        if visible.digest.count != after.count:\n",
        tests=(_REWRITE + "test_other_rows_in_the_new_files_are_never_committed",),
    ),
    Mutation(
        name="new files are committed with the old rows in another order",
        file="maintenance/rewrite_tasks.py",
        before="        return OrderedDigest() if self._plan.keeps_order(group) else RowDigest()\n",
        after="        return RowDigest()\n",
        tests=(_REWRITE + "test_rows_in_another_order_are_never_committed",),
    ),
    Mutation(
        name="a null in a new file counts as the value behind it",
        file="cdc/row_digest.py",
        before="    yield _fixed(values.is_valid())\n",
        after="",
        tests=("unit/cdc/test_ordered_digest.py::test_values_that_differ_have_other_digests",),
    ),
    Mutation(
        name="strings in a new file may begin where others ended",
        file="cdc/row_digest.py",
        before="            yield _fixed(pc.binary_length(values))\n",
        after="",
        tests=("unit/cdc/test_ordered_digest.py::test_values_that_differ_have_other_digests",),
    ),
    Mutation(
        name="a struct of nulls in a new file counts as the null that it was",
        file="cdc/row_digest.py",
        before="        digests = mix(digests, pa.repeat(_OF_STRUCTS, len(values)))  # a struct of nulls is no null\n",
        after="",
        tests=("unit/cdc/test_row_digest.py::test_values_that_differ_have_other_digests",),
    ),
    Mutation(
        name="a group of more files than a call may rewrite is never begun",
        file="maintenance/file_groups.py",
        before="        elif len(files) > 1:  # one of several would only be copied\n",
        after="        elif len(files) > len(group.files):\n",
        tests=("unit/maintenance/test_file_groups.py::test_group_of_more_files_than_the_limit_is_begun",),
    ),
    Mutation(
        name="rows that go to another partition spec meet the deletes of its partitions",
        file="maintenance/rewrite_work.py",
        before="        return self.sequence_number if stays else None\n",
        after="        return self.sequence_number\n",
        tests=(_REWRITE + "test_delete_of_another_partition_does_not_reach_rows_that_move_there",),
    ),
    Mutation(
        name="files of a rewrite that is given up stay",
        file="maintenance/rewrite_data_files.py",
        before="            self._discard(plan, stale)\n",
        after="",
        tests=(_MEANWHILE,),
    ),
    Mutation(
        name="a Z-order sorts by its first column",
        file="table/zorder.py",
        before="for at in range(longest) for column in columns if at < column.count]",
        after="for column in columns for at in range(column.count) if at < longest]",
        tests=(
            "unit/table/test_zorder.py::test_bits_of_columns_take_turns",
            _REWRITE + "test_every_column_of_a_z_order_lets_readers_skip_files",
        ),
    ),
    Mutation(
        name="nulls lie among the values of a Z-order",
        file="table/zorder.py",
        before="[pc.if_else(values.is_valid(), word, _ZERO) for word in words]",
        after="[word.fill_null(0) for word in words]",
        tests=("unit/table/test_zorder.py::test_null_comes_before_all_values",),
    ),
)
