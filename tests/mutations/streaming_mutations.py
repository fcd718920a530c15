"""Mutations of streams of what is appended: each loses rows, doubles them, or hides that they are not known."""

from __future__ import annotations

from mutations.mutating import Mutation

_NAMED = "unit/reading/test_consumers.py::"
_STREAM = "unit/reading/test_stream.py::"
_CHANGES = "unit/reading/test_row_changes.py::"

STREAMING = (
    Mutation(
        name="a row that is appended is read twice: files that were read of a snapshot are read again",
        file="reading/stream.py",
        before="        return start.file\n",
        after="        return 0\n",
        tests=(_STREAM + "test_limits_cut_micro_batches_and_repeats_are_the_same",),
    ),
    Mutation(
        name="a row that is appended is not read: the rest of a snapshot is passed over",
        file="reading/stream.py",
        before="        if start.is_done:\n            return since\n",
        after="        if since or start.is_done:\n            return since\n",
        tests=(_STREAM + "test_limits_cut_micro_batches_and_repeats_are_the_same",),
    ),
    Mutation(
        name="files of older snapshots in a merged manifest are read again",
        file="snapshots/manifests.py",
        before="        if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == number\n",
        after="        if entry.status is not ManifestEntryStatus.DELETED\n",
        tests=(_STREAM + "test_merged_manifests_have_the_files_of_their_snapshot_alone",),
    ),
    Mutation(
        name="compacted rows are read again",
        file="reading/stream.py",
        before="            return not keeps_rows(snapshot)\n",
        after="            return True\n",
        tests=(_STREAM + "test_compactions_are_passed_over",),
    ),
    Mutation(
        name="a snapshot that changes rows is passed over without a word",
        file="reading/stream.py",
        before="        if step.whole or self._on_change(step.snapshot) is not OnChange.FAIL:\n",
        after="        if step.whole or self._on_change(step.snapshot) is OnChange.FAIL:\n",
        tests=(
            _STREAM + "test_rows_before_a_change_come_and_then_the_stream_fails",
            _STREAM + "test_deletes_by_key_are_a_change",
        ),
    ),
    Mutation(
        name="rows that expired unread are passed over without a word",
        file="reading/stream.py",
        before="        if not (history and history[-1].parent_snapshot_id == snapshot_id):\n",
        after="        if not history:\n",
        tests=(
            _STREAM + "test_expired_history_is_an_error",
            _STREAM + "test_branch_that_was_set_back_is_an_error_until_it_is_set_forward",
        ),
    ),
    Mutation(
        name="the rest of an expired snapshot is passed over without a word",
        file="reading/stream.py",
        before="        if not own:  # the rest of its files is not known any more\n",
        after="        if not (own or since):\n",
        tests=(_STREAM + "test_rest_of_an_expired_snapshot_is_an_error",),
    ),
    Mutation(
        name="rows of another table of the same name are read",
        file="reading/stream.py",
        before="        if offset.uuid != str(self._metadata.table_uuid):\n",
        after="        if not offset.uuid:\n",
        tests=(
            _STREAM + "test_other_table_of_the_same_name_is_refused",
            _STREAM + "test_first_micro_batch_of_another_table_is_refused",
        ),
    ),
    Mutation(
        name="rows whose snapshots have expired are missing at the beginning",
        file="reading/stream.py",
        before="        return [Step(snapshot=step.snapshot, whole=True) for step in steps[:1]] + steps[1:]\n",
        after="        return steps\n",
        tests=(_STREAM + "test_stream_begins_with_all_rows_of_the_oldest_snapshot",),
    ),
    Mutation(
        name="a stream takes rows for the same that have one equal digest",
        file="reading/row_changes.py",
        before="    groups, deleted, inserted = _sides(rows, _OF_ROWS)\n",
        after="    groups, deleted, inserted = _sides(rows, _OF_ROWS[:1])\n",
        tests=(_CHANGES + "test_rows_with_one_equal_digest_are_different",),
    ),
    Mutation(
        name="a stream leaves out all copies of a row of which some were written again",
        file="reading/row_changes.py",
        before="    first = kinds.filter(pc.less(_ranks(side.combine_chunks()), ",
        after="    first = kinds.filter(pc.less_equal(_ranks(side.combine_chunks()), ",
        tests=(
            _CHANGES + "test_copies_are_carried_over_one_by_one",
            _CHANGES + "test_rows_that_an_overwrite_writes_again_are_no_changes",
        ),
    ),
    Mutation(
        name="a stream takes rows for changes that were written again unchanged",
        file="reading/row_changes.py",
        before="    is_left = pc.invert(carried_over(rows))\n",
        after="    is_left = pc.is_valid(carried_over(rows))\n",
        tests=(
            _CHANGES + "test_rows_that_an_overwrite_writes_again_are_no_changes",
            "properties/test_streams_of_changes.py::test_stream_has_the_changes_of_each_snapshot_once",
        ),
    ),
    Mutation(
        name="a stream compares the columns that are shown instead of whole rows",
        file="reading/row_changes.py",
        before="    keys, names = list(files.keys), list(files.compared)\n",
        after="    keys, names = list(files.keys), [name for name in files.compared if name in scan.columns]\n",
        tests=(_CHANGES + "test_rows_are_compared_whole_whatever_is_shown",),
    ),
    Mutation(
        name="a key that moves to another partition is read by two tasks of a stream",
        file="reading/stream_read.py",
        before="        if self._keys or len(specs) > 1 or not sources <= known:\n",
        after="        if len(specs) > 1 or not sources <= known:\n",
        tests=(_CHANGES + "test_row_that_moves_to_another_partition_is_an_update",),
    ),
    Mutation(
        name="a snapshot that changes rows is cut by the limits of a micro-batch",
        file="reading/stream.py",
        before="            taken = budget.take(files[done:], together=self.changed_by(step) is not None)\n",
        after="            taken = budget.take(files[done:], together=False)\n",
        tests=(_CHANGES + "test_snapshot_that_changes_rows_is_read_at_once",),
    ),
    Mutation(
        name="a stream takes rows for inserted that an expired snapshot had",
        file="reading/stream.py",
        before="            if before is None or find_snapshot(self._metadata, before) is not None:\n",
        after="            if before is None or before:\n",
        tests=(_CHANGES + "test_rows_before_the_change_of_an_expired_snapshot_come",),
    ),
    Mutation(
        name="rows with the same values and other ids count as the same where ids are asked for",
        file="reading/stream_read.py",
        before="(*names, *(ROW_ID.name for name in self._request.columns or () if name == ROW_ID.name))\n",
        after="tuple(names)\n",
        tests=(_CHANGES + "test_rows_are_told_apart_by_their_ids_if_these_are_asked_for",),
    ),
    Mutation(
        name="rows that only lack a dropped column are changes",
        file="reading/stream_read.py",
        before="        names = [field.name for field in self._columns.fields if field.field_id in now]\n",
        after="        names = [field.name for field in self._columns.fields if now]\n",
        tests=(_CHANGES + "test_rows_that_only_lack_a_dropped_column_are_no_changes",),
    ),
    Mutation(
        name="rows vanish of which no column of the table is asked for",
        file="reading/python_scan.py",
        before="        return Schema(*(wanted or self.schema.fields[:1]), *lineage)\n",
        after="        return Schema(*wanted, *lineage)\n",
        tests=(_CHANGES + "test_changes_come_without_a_column_of_the_table",),
    ),
    Mutation(
        name="ordinals of a stream of changes begin anew with each micro-batch",
        file="reading/stream.py",
        before="        first = start.ordinal + start.is_done\n",
        after="        first = 0\n",
        tests=(_CHANGES + "test_ordinals_ascend_over_restarts",),
    ),
    Mutation(
        name="expiry does not wait for a named stream",
        file="maintenance/resting.py",
        before="    held |= awaited_snapshots(metadata, retention.now_ms)\n",
        after="",
        tests=(_NAMED + "test_expiry_keeps_what_a_named_stream_has_not_read",),
    ),
    Mutation(
        name="expiry does not wait for a named stream before its second micro-batch",
        file="reading/stream_read.py",
        before="                self._note(replace(end, snapshot=first))\n",
        after="                pass\n",
        tests=(
            _NAMED + "test_expiry_waits_from_the_first_micro_batch_on",
            _NAMED + "test_expiry_waits_for_a_stream_that_waits_itself",
        ),
    ),
    Mutation(
        name="expiry takes the branch of a named stream",
        file="maintenance/resting.py",
        before="    expired = find_expired(metadata, retention, {*waiting, *followed})\n",
        after="    expired = find_expired(metadata, retention, waiting)\n",
        tests=(_NAMED + "test_expiry_keeps_a_branch_that_has_rows_to_read",),
    ),
    Mutation(
        name="expiry does not wait for a stream whose snapshot another engine expired",
        file="reading/consumers.py",
        before=" or (unread and unread[-1].parent_snapshot_id == self.snapshot)\n",
        after="\n",
        tests=(_NAMED + "test_expiry_waits_for_a_stream_whose_snapshot_others_expired",),
    ),
    Mutation(
        name="two streams of one name overwrite how far each has read",
        file="reading/consumers.py",
        before="    if found is not None and found.stream != end.stream and found.needed(metadata, now_ms):\n",
        after="    if found is not None and found.stream == end.stream and not found.needed(metadata, now_ms):\n",
        tests=(_NAMED + "test_name_of_another_stream_is_refused",),
    ),
    Mutation(
        name="a micro-batch is repeated without the rows of a change",
        file="reading/stream.py",
        before="        if taken != end.taken:\n",
        after="        if taken > end.taken:\n",
        tests=(_STREAM + "test_repeat_with_other_options_is_refused_wherever_the_change_is",),
    ),
    Mutation(
        name="a micro-batch is repeated that begins with another snapshot",
        file="reading/stream.py",
        before="        if end.first != (first := _first(start, steps)):\n",
        after="        if (first := _first(start, steps)) is None:\n",
        tests=(_STREAM + "test_first_micro_batch_whose_first_snapshot_expired_is_an_error",),
    ),
    Mutation(
        name="deletes of a file apply to it when it is added again",
        file="reading/stream_read.py",
        before="(*task_groups(whole), *task_groups(one_sided))",
        after="(*task_groups([*whole, *one_sided]),)",
        tests=(_STREAM + "test_file_that_is_added_again_has_all_its_rows",),
    ),
    Mutation(
        name="files that a snapshot says it added, and that are not found, are passed over without a word",
        file="reading/stream_read.py",
        before="        if len(tasks) < told:\n",
        after="        if len(tasks) > told:\n",
        tests=(_STREAM + "test_snapshot_that_lacks_files_is_an_error",),
    ),
    Mutation(
        name="a snapshot of the time that was asked for is passed over",
        file="reading/stream.py",
        before="            return steps[late[0] :]\n",
        after="            return steps[len(steps) - len(late) :]\n",
        tests=(_STREAM + "test_clock_that_went_back_hides_no_snapshot",),
    ),
    Mutation(
        name="the catalog's secrets go to the executors with a stream",
        file="reading/source.py",
        before="    def __getstate__(self) -> dict[str, object]:\n",
        after="    def state(self) -> dict[str, object]:\n",
        tests=(_STREAM + "test_reader_takes_no_options_into_tasks",),
    ),
    Mutation(
        name="the catalog's secrets go to the executors with the data source",
        file="reading/source.py",
        before="        self.options = {}\n",
        after="",
        tests=(_STREAM + "test_source_takes_no_options_into_tasks",),
    ),
)
