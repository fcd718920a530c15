"""Mutations of what happens to rows that cannot be written."""

from __future__ import annotations

from mutations.mutating import Mutation

_QUARANTINE = "unit/planning/test_quarantine.py::"
_BAD_ROWS = "unit/multi_table/test_bad_rows.py::"
_CASTS = "unit/table/test_casts.py::test_value_is_kept_or_told"
_REQUEUE = "unit/multi_table/test_requeue.py::"
_REPLAY = _QUARANTINE + "test_replay_changes_nothing"
_KINDS = _QUARANTINE + "test_bad_row_goes_into_the_quarantine_and_the_others_into_the_table"
_NULLS = _QUARANTINE + "test_bad_value_becomes_null_or_is_refused"

BAD_ROWS = (
    Mutation(
        name="a row that cannot be written is kept, and written as well",
        file="writers/bad_rows.py",
        before="        return rows.filter(pc.invert(is_bad))\n",
        after="        return rows\n",
        tests=(_KINDS,),
    ),
    Mutation(
        name="only the first thing that is wrong in a batch counts",
        file="writers/bad_rows.py",
        before="            is_bad = pc.or_(is_bad, problem.mask)\n",
        after="",
        tests=(_QUARANTINE + "test_each_bad_row_is_told_once_with_all_its_columns",),
    ),
    Mutation(
        name="rows outside the range to replace are not looked for",
        file="writers/bad_rows.py",
        before="        if not outside.true_count:\n",
        after="        if outside.true_count:\n",
        tests=(_KINDS,),
    ),
    Mutation(
        name="deletes need all columns of a row",
        file="writers/bad_rows.py",
        before="                if is_written is not None and not place.is_of_every_row:\n",
        after="                if is_written is not None and place.is_of_every_row:\n",
        tests=(_QUARANTINE + "test_columns_of_other_rows_than_written_ones_may_be_anything",),
    ),
    Mutation(
        name="a required value becomes null",
        file="writers/bad_rows.py",
        before="            if own.required:\n",
        after="            if own.name == '':\n",
        tests=(_QUARANTINE + "test_null_of_a_required_column_cannot_be_made_null",),
    ),
    Mutation(
        name="a bad value that delete-when reads becomes null",
        file="writers/bad_rows.py",
        before="            elif schema.names[source] in predicate:\n",
        after="            elif own.name == '':\n",
        tests=(_NULLS,),
    ),
    Mutation(
        name="a bad value that becomes null replaces the partition of null",
        file="writers/bad_rows.py",
        before="            elif position in replaced:\n",
        after="            elif own.name == '':\n",
        tests=(_NULLS,),
    ),
    Mutation(
        name="a bad value becomes null without a reason beside it",
        file="writers/bad_rows.py",
        before="            errors = _errors(problems, self._count(problems))\n",
        after="            self._count(problems)\n",
        tests=(_NULLS,),
    ),
    Mutation(
        name="a task sends more rows to the driver than it can take",
        file="writers/bad_rows.py",
        before="        if self._kept_bytes > MOST_LOOSE_BYTES:\n",
        after="        if self._kept_bytes > 2**60:\n",
        tests=(_QUARANTINE + "test_more_bad_rows_than_the_driver_can_take_fail_the_task",),
    ),
    Mutation(
        name="a cast cuts numbers off in silence",
        file="table/casts.py",
        before="    is_equal = pc.equal(back, values)\n",
        after="    is_equal = pc.equal(back, back)\n",
        tests=(_CASTS,),
    ),
    Mutation(
        name="text with 64-bit offsets is cast without a look",
        file="writers/reporting.py",
        before="    batches = with_short_offsets(batches)\n",
        after="",
        tests=(_QUARANTINE + "test_bad_row_is_told_alike_if_spark_sends_large_offsets",),
    ),
    Mutation(
        name="text of any form is read as a value",
        file="table/casts.py",
        before="    is_bad = _where(pc.invert(pc.match_substring_regex(values, _pattern(target))))\n",
        after="    is_bad = None\n",
        tests=(_CASTS,),
    ),
    Mutation(
        name="rows for the quarantine table are left behind by the commit",
        file="planning/quarantine.py",
        before="                made.append(TableWrite(commits=[_written(catalog, own, table[0], due)]))\n",
        after="                _written(catalog, own, table[0], due)\n",
        tests=(_KINDS, _REPLAY),
    ),
    Mutation(
        name="rows that are lost before the quarantine table are not missed",
        file="planning/quarantine.py",
        before='    check_rows(f"commit to {table}", "tasks sent", count,',
        after='    check_rows(f"commit to {table}", "tasks sent", commit.counts.to_add,',
        tests=(_QUARANTINE + "test_lost_bad_row_is_found_by_the_count",),
    ),
    Mutation(
        name="the quarantine table does not know the epoch",
        file="planning/quarantine.py",
        before="report_task(plan.in_epoch(epoch),",
        after="report_task(plan.in_epoch(epoch and replace(epoch, query_id=plan.write.operation_id)),",
        tests=(_QUARANTINE + "test_driver_that_dies_between_the_commits_finishes_forward",),
    ),
    Mutation(
        name="writers of one quarantine table are taken for each other",
        file="planning/quarantine.py",
        before='    full = f"{app_id} > {table}{branch}"\n',
        after="    full = app_id\n",
        tests=(
            _QUARANTINE + "test_one_quarantine_of_several_tables_keeps_the_rows_of_all",
            _BAD_ROWS + "test_repeated_version_keeps_the_bad_rows_of_each_table_apart",
        ),
    ),
    Mutation(
        name="a table gets its rows although the quarantine table did not get the others",
        file="commit/together.py",
        before="        _commit_first(catalog, writes, first, epoch_id)\n",
        after="        commit_tables(catalog, writes, epoch_id=epoch_id)\n"
        "        _commit_first(catalog, writes, first, epoch_id)\n",
        tests=(
            _QUARANTINE + "test_quarantine_whose_commit_fails_keeps_the_rows_out_of_the_table",
            _QUARANTINE + "test_driver_that_dies_between_the_commits_finishes_forward",
        ),
    ),
    Mutation(
        name="a server is believed to carry out a request for the quarantine table and the others as a whole",
        file="commit/together.py",
        before="    return catalog.is_atomic_over_tables and is_each_alone",
        after="    return catalog.takes_many_tables and is_each_alone",
        tests=(_BAD_ROWS + "test_catalog_that_loses_a_part_of_a_request_gets_the_bad_rows_before_it",),
    ),
    Mutation(
        name="a second driver adds bad rows of an epoch that its table refuses",
        file="planning/quarantine.py",
        before="    if (reason := why_refused(write, finding)) is not None:\n",
        after="    if (reason := why_refused(write, finding)) == 0:\n",
        tests=(_QUARANTINE + "test_second_driver_adds_no_bad_rows",),
    ),
    Mutation(
        name="bad rows of an epoch that the table has are added",
        file="planning/quarantine.py",
        before="    return finding.status in {CommitStatus.REPLAYED, CommitStatus.SUCCESS}\n",
        after="    return False\n",
        tests=(_QUARANTINE + "test_repeated_epoch_that_the_table_has_adds_no_bad_rows",),
    ),
    Mutation(
        name="the number alone tells that the bad rows of a repeated epoch are there",
        file="snapshots/quarantined.py",
        before="            is_same = told in {str(digest) for digest in rows(had)}\n",
        after="            is_same = told is not None\n",
        tests=(
            "unit/snapshots/test_quarantined.py::test_earlier_try_is_told_by_the_digest_of_its_snapshot",
            _QUARANTINE + "test_repeated_epoch_with_other_bad_rows_is_refused_until_the_user_decides",
        ),
    ),
    Mutation(
        name="rows that came before the last requeue come again",
        file="multi_table/requeue.py",
        before="(current.sequence_number or 0) > (after or 0):",
        after="(current.sequence_number or 0) > (after or 0) - 1:",
        tests=(_REQUEUE + "test_rows_of_the_table_come_in_order_and_once",),
    ),
    Mutation(
        name="rows of other tables are requeued",
        file="multi_table/requeue.py",
        before='    return found.filter(pc.is_in(found.column("table"), pa.array(names, pa.string())))\n',
        after="    return found\n",
        tests=(_REQUEUE + "test_rows_of_the_table_come_in_order_and_once",),
    ),
    Mutation(
        name="expired snapshots of the quarantine are passed over",
        file="multi_table/requeue.py",
        before="    if numbers != list(",
        after="    if False and numbers != list(",
        tests=(_REQUEUE + "test_expired_history_is_no_guess",),
    ),
    Mutation(
        name="deleted rows of the quarantine come back",
        file="multi_table/requeue.py",
        before="        if not kept.keys() <= live and later",
        after="        if kept is None and later",
        tests=(_REQUEUE + "test_deleted_rows_that_were_not_requeued_are_no_guess",),
    ),
    Mutation(
        name="there may be any number of bad rows",
        file="commit/commit.py",
        before="    if policy is None or not found:\n        return\n    count, received",
        after="    if policy is None or found:\n        return\n    count, received",
        tests=(_QUARANTINE + "test_too_many_bad_rows_commit_nothing_anywhere",),
    ),
    Mutation(
        name="a commit forgets rows for the quarantine table",
        file="commit/commit.py",
        before="    if any(commit.bad is not None and commit.bad.rows is not None for commit in commits):\n",
        after="    if not commits:\n",
        tests=(_QUARANTINE + "test_rows_for_the_quarantine_that_nobody_writes_are_refused",),
    ),
    Mutation(
        name="a number beyond the limits of a decimal wraps around",
        file="table/casts.py",
        before="    values = _within(values, target)\n",
        after="",
        tests=(_CASTS,),
    ),
    Mutation(
        name="rows that others appended to the quarantine are requeued",
        file="multi_table/requeue.py",
        before="        if why := _why_foreign(snapshot):\n",
        after="        if False and (why := _why_foreign(snapshot)):\n",
        tests=(_REQUEUE + "test_rows_that_others_wrote_are_never_taken",),
    ),
    Mutation(
        name="rows of a table that was dropped are requeued into the one made anew",
        file="multi_table/requeue.py",
        before="        if origin is not None and origin.table_uuid == target.table_uuid:\n",
        after="        if origin is not None and name == target.name:\n",
        tests=(_REQUEUE + "test_rows_of_a_table_that_was_dropped_are_not_those_of_the_one_made_anew",),
    ),
    Mutation(
        name="snapshots without a number are passed over",
        file="multi_table/requeue.py",
        before="    if after is None and not (",
        after="    if False and not (",
        tests=(
            _REQUEUE + "test_quarantine_table_of_the_first_version_is_refused_with_the_way_on",
            _REQUEUE + "test_expired_snapshots_of_the_first_version_are_no_guess",
        ),
    ),
    Mutation(
        name="bad rows of an epoch whose snapshot was cherry-picked come again",
        file="snapshots/quarantined.py",
        before="    if not picked and (",
        after="    if (",
        tests=(
            "unit/snapshots/test_quarantined.py::test_snapshot_that_was_picked_tells_its_rows",
            _QUARANTINE + "test_repeated_epoch_whose_bad_rows_were_picked_goes_on",
        ),
    ),
    Mutation(
        name="a write that is repeated after a rename puts its bad rows into the quarantine again",
        file="planning/quarantine.py",
        before="[write.table] if write.new_table is not None else [write.table_uuid, write.table]",
        after="[write.table]",
        tests=(_QUARANTINE + "test_write_that_is_repeated_after_a_rename_finds_its_bad_rows",),
    ),
    Mutation(
        name="bad rows of a write that was to create its table are looked for under the table's UUID alone",
        file="planning/quarantine.py",
        before="else [write.table_uuid, write.table]",
        after="else [write.table_uuid]",
        tests=(_QUARANTINE + "test_write_that_is_repeated_after_another_made_its_table_finds_its_bad_rows",),
    ),
    Mutation(
        name="rows of a table that was renamed are other rows",
        file="planning/quarantine.py",
        before="        name = names.get(self.write.table_uuid, self.write.table)\n",
        after="        name = self.write.table\n",
        tests=(_QUARANTINE + "test_write_that_is_repeated_after_a_rename_finds_its_bad_rows",),
    ),
    Mutation(
        name="rows from before their table began anew are requeued",
        file="snapshots/origins.py",
        before="    if own is None and _went_another_way(history, origin):\n",
        after="    if False and _went_another_way(history, origin):\n",
        tests=(
            _REQUEUE + "test_rows_from_before_the_table_was_replaced_are_no_guess",
            _REQUEUE + "test_rows_from_before_the_table_was_set_back_are_no_guess",
        ),
    ),
    Mutation(
        name="rows from before an overwrite are requeued",
        file="snapshots/origins.py",
        before="        if _replaces_rows(snapshot):\n",
        after="        if False and _replaces_rows(snapshot):\n",
        tests=(
            _REQUEUE + "test_rows_from_before_an_overwrite_are_no_guess",
            _REQUEUE + "test_what_others_did_to_the_table_since",
        ),
    ),
    Mutation(
        name="an overwrite leaves no sign in its snapshot",
        file="snapshots/snapshot.py",
        before="    if write.overwrite is not None:\n        markers",
        after="    if write.overwrite is None:\n        markers",
        tests=(_REQUEUE + "test_rows_from_before_an_overwrite_are_no_guess",),
    ),
    Mutation(
        name="rows from before an overwrite that has expired are requeued, although the quarantine knows it",
        file="multi_table/requeue.py",
        before="        one.replaces and one.branch",
        after="        False and one.branch",
        tests=(_REQUEUE + "test_rows_from_before_an_overwrite_that_expired_are_no_guess",),
    ),
    Mutation(
        name="rows of an overwrite that was killed are requeued before it replaces them",
        file="snapshots/origins.py",
        before="    if own is None and origin.replaces:",
        after="    if False and origin.replaces:",
        tests=(_REQUEUE + "test_rows_of_an_overwrite_that_was_killed_wait_for_it",),
    ),
    Mutation(
        name="rows of a table that a repeated write has created are taken for those of a dropped one",
        file="multi_table/requeue.py",
        before="origin.is_new and find_own(",
        after="False and find_own(",
        tests=(_REQUEUE + "test_rows_of_a_new_table_whose_driver_died_are_written",),
    ),
    Mutation(
        name="rows of another branch are requeued",
        file="snapshots/origins.py",
        before="    if own is None and origin.branch != branch:\n",
        after="    if False and origin.branch != branch:\n",
        tests=(_REQUEUE + "test_rows_of_another_branch_are_no_guess",),
    ),
)
