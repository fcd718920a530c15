"""Mutations of how several tables change together."""

from __future__ import annotations

from mutations.mutating import Mutation

_TOGETHER = "unit/commit/test_together.py::"
_IN_TURN = "unit/commit/test_in_turn.py::"
_REST = "integration/catalogs/test_rest_many_tables.py::"
_CUT = "unit/multi_table/test_cut.py::"
_THERE = "unit/multi_table/test_cut_of_what_is_there.py::"
_PAST = "properties/test_cuts_of_any_past.py::test_cut_is_the_state_after_one_epoch"
_CUTS = "properties/test_cuts.py::test_last_cut_is_always_one_of_whole_epochs"
_COLUMNS = "unit/multi_table/test_new_columns.py::"
_SQL = "unit/catalog/test_sql.py::"

MANY_TABLES = (
    Mutation(
        name="a table of cuts that was cut off is read as if nothing had been recorded",
        file="multi_table/cut_table.py",
        before="            all_entries(cuts.io, manifest)  # PyIceberg reads nothing where one was cut off\n",
        after="            pass\n",
        tests=("unit/multi_table/test_cut.py::test_cut_that_was_cut_off_is_not_taken_for_none",),
    ),
    Mutation(
        name="a pointer that has moved is left out of the transaction",
        file="catalog/sql.py",
        before="""            raise RolledBackError(f"{identifier_text(name)} has been updated by another process")""",
        after="            return",
        tests=(
            _SQL + "test_pointer_that_has_moved_keeps_the_other_where_it_is",
            _TOGETHER + "test_table_that_can_never_land_keeps_the_other_from_landing",
        ),
    ),
    Mutation(
        name="each pointer moves in a transaction of its own",
        file="catalog/sql.py",
        before="                    self._move(session, current, after)\n",
        after="                    self._move(session, current, after)\n                    session.commit()\n",
        tests=(
            _SQL + "test_pointer_that_has_moved_keeps_the_other_where_it_is",
            _TOGETHER + "test_reader_of_both_pointers_never_sees_half_an_epoch",
        ),
    ),
    Mutation(
        name="tables are committed one after the other where the catalog changes them together",
        file="commit/together.py",
        before="is_one_request = catalog.takes_many_tables and not",
        after="is_one_request = False and not",
        tests=("faults/test_many_tables_kills.py::test_killed_driver_leaves_all_tables_or_none_and_the_replay_all",),
    ),
    Mutation(
        name="a table shows its rows before the files of the next are written",
        file="commit/in_turn.py",
        before="            part.make_ready()\n",
        after="            part.finish()\n",
        tests=(
            _IN_TURN + "test_nothing_but_requests_comes_between_the_first_table_and_the_last",
            _IN_TURN + "test_table_that_can_never_land_keeps_the_others_from_landing",
            "faults/test_many_tables_kills.py::test_where_each_table_gets_a_request_the_replay_finishes_the_epoch",
        ),
    ),
    Mutation(
        name="other tables show their rows while the first one waits for its own",
        file="commit/in_turn.py",
        before="        if part.is_first or not shows_rows(parts):\n",
        after="        if False:\n",
        tests=(
            _IN_TURN + "test_nothing_is_sent_after_a_failure_before_the_first_table_shows",
            _IN_TURN + "test_outcome_that_stays_unknown_keeps_the_others_from_landing",
        ),
    ),
    Mutation(
        name="files of tables that are not asked for any more stay",
        file="commit/in_turn.py",
        before="        if part.is_due:\n            part.abandon()\n",
        after="        if part.is_due:\n            part.is_abandoned = True\n",
        tests=(_IN_TURN + "test_table_that_can_never_land_keeps_the_others_from_landing",),
    ),
    Mutation(
        name="files of tables that an interruption keeps from being asked for stay",
        file="commit/in_turn.py",
        before="                part.abandon()\n",
        after="                part.is_abandoned = True\n",
        tests=("unit/commit/test_reports_of_failures.py::test_tables_after_an_interruption_are_told_as_failed",),
    ),
    Mutation(
        name="the time of other tables counts against a table",
        file="commit/retry.py",
        before="        self._started += time.monotonic() - self._stopped\n",
        after="",
        tests=(_IN_TURN + "test_time_of_other_tables_counts_not_against_a_table",),
    ),
    Mutation(
        name="two appends to one table race each other",
        file="commit/in_turn.py",
        before="        if part.table_uuid not in seen:\n",
        after="        if True:\n",
        tests=(_IN_TURN + "test_two_appends_to_one_table_do_not_race_each_other",),
    ),
    Mutation(
        name="bad rows of a table that failed are added",
        file="commit/epoch_part.py",
        before="failed.issuperset(part.sources)",
        after="False",
        tests=(_TOGETHER + "test_bad_rows_of_a_table_that_may_not_get_the_epoch_are_not_added",),
    ),
    Mutation(
        name="a request in turn is no attempt",
        file="commit/epoch_part.py",
        before="                self._tried.base, self._tried.problem = ready.table, sent\n",
        after="                pass\n",
        tests=(
            _IN_TURN + "test_wait_that_the_catalog_asks_for_is_kept",
            _IN_TURN + "test_table_is_tried_as_often_as_its_properties_say",
        ),
    ),
    Mutation(
        name="staged metadata is deleted in the store of another table",
        file="catalog/staged_metadata.py",
        before="delete_files(of_table[-1].io,",
        after="delete_files(next(iter(due.values()))[-1].io,",
        tests=(_IN_TURN + "test_staged_metadata_is_deleted_in_the_store_of_its_own_table",),
    ),
    Mutation(
        name="a failure of one table's store is told of all tables",
        file="commit/together.py",
        before="self._problem, self._concerned = prepared, [part]",
        after="self._problem, self._concerned = prepared, None",
        tests=(_TOGETHER + "test_error_and_reports_name_the_broken_table_alone",),
    ),
    Mutation(
        name="an epoch that has begun is given up because one table cannot be written",
        file="commit/together.py",
        before="            if shows_rows(self._parts):\n                bring_in_turn(self._parts)",
        after="            for part in self._due:\n                part.give_up(self._problem)",
        tests=(_TOGETHER + "test_epoch_that_has_begun_is_finished_where_another_table_cannot_be",),
    ),
    Mutation(
        name="a confirmation for several tables is believed",
        file="commit/together.py",
        before="        self._is_confirmed, self._problem = failure is None, failure\n",
        after=(
            "        self._is_confirmed, self._problem = failure is None, failure\n"
            "        for part in self._asked if failure is None else []:\n"
            "            part.result = CommitResult(snapshot_id=1)\n"
        ),
        tests=(
            _TOGETHER + "test_change_that_the_server_loses_is_committed_singly_and_told",
            _TOGETHER + "test_server_that_loses_everything_is_found_out",
            _REST + "test_change_that_is_lost_behind_an_answer_204_is_made_up_for",
            "properties/test_many_tables.py::test_any_sequence_of_epochs_equals_the_model",
        ),
    ),
    Mutation(
        name="a table that can never land does not keep the others back",
        file="commit/epoch_part.py",
        before="and not shows_rows(parts)",
        after="and False",
        tests=(
            _TOGETHER + "test_table_that_can_never_land_keeps_the_other_from_landing",
            _TOGETHER + "test_refused_rows_of_one_table_keep_the_other_from_landing",
            _IN_TURN + "test_table_that_can_never_land_keeps_the_others_from_landing",
        ),
    ),
    Mutation(
        name="a new table that others took away is created again under its UUID",
        file="commit/epoch_part.py",
        before="                self._update_due.note_created()\n",
        after="",
        tests=(_TOGETHER + "test_new_table_that_others_take_away_at_once_is_not_created_twice",),
    ),
    Mutation(
        name="an epoch that is half there is not finished",
        file="commit/epoch_part.py",
        before="and not shows_rows(parts)",
        after="and True",
        tests=(
            _TOGETHER + "test_table_that_can_never_land_does_not_keep_back_an_epoch_that_has_begun",
            _IN_TURN + "test_epoch_that_has_begun_is_finished_where_another_table_cannot_be",
        ),
    ),
    Mutation(
        name="files of a table are deleted while a request may still arrive",
        file="commit/snapshot_update.py",
        before=(
            "        if not self._finding.is_final:\n"
            "            self._raise_unknown(\n"
            '                "an earlier request'
        ),
        after=(
            "        if not self._finding.status:\n"
            "            self._raise_unknown(\n"
            '                "an earlier request'
        ),
        tests=(_TOGETHER + "test_refusal_of_a_server_is_no_proof_for_a_table_that_has_not_moved",),
    ),
    Mutation(
        name="a refusal of a server is believed for every table of the request",
        file="commit/requests.py",
        before="if failure.is_lost_race and not failure.is_certain:",
        after="if False:",
        tests=(_TOGETHER + "test_refusal_of_a_server_is_no_proof_for_a_table_that_has_not_moved",),
    ),
    Mutation(
        name="one table tells of the metadata file of another",
        file="catalog/staged_metadata.py",
        before="        if not (staged := self._open.pop(name, None)):\n            return\n",
        after=(
            "        staged = [file for files in self._open.values() for file in files]\n        self._open.clear()\n"
        ),
        tests=("unit/catalog/test_staged_metadata.py::test_one_table_tells_nothing_of_the_file_of_another",),
    ),
    Mutation(
        name="the cut of a later epoch is taken for recorded",
        file="multi_table/record_cut.py",
        before="        if marker is not None and marker.number >= numbered.number:\n",
        after="        if marker is not None:\n",
        tests=(_CUT + "test_death_before_the_record_leaves_the_cut_before", _CUTS),
    ),
    Mutation(
        name="a table without rows in an epoch leaves the cut",
        file="multi_table/record_cut.py",
        before='{row["table_name"]: row for row in read_cuts(catalog, cuts, writer.app_id).to_pylist()}',
        after="{}",
        tests=(_CUT + "test_table_without_rows_keeps_its_snapshot", _CUTS),
    ),
    Mutation(
        name="the cut names the newest snapshot in place of the epoch's",
        file="multi_table/record_cut.py",
        before="    if metadata.snapshot_by_id(snapshot_id) is not None:\n",
        after="    if False:\n",
        tests=(_CUT + "test_rows_of_other_writers_are_not_in_the_cut",),
    ),
    Mutation(
        name="a table that was rolled back before it was tagged keeps its entry of the last cut",
        file="multi_table/record_cut.py",
        before="        if is_exhausted:\n            raise problem\n",
        after="        if is_exhausted:\n            return table, branch_snapshot_id(table.metadata, branch)\n",
        tests=(_CUT + "test_table_that_was_rolled_back_before_its_tag_makes_no_cut",),
    ),
    Mutation(
        name="tables that an epoch without the option has written keep their entries of the last cut",
        file="multi_table/record_cut.py",
        before="        if marker is not None and marker.number == numbered.number - 1 and not is_repeated:\n",
        after="        if True:\n",
        tests=(
            _CUT + "test_epochs_without_the_option_are_in_the_next_cut",
            _CUT + "test_last_epoch_of_the_old_checkpoint_is_in_the_cut_of_the_new_one",
            _CUTS,
        ),
    ),
    Mutation(
        name="a later version of a table is in the cut of an earlier one",
        file="multi_table/cut_table.py",
        before="        if marker is not None and writer == of and marker.number > up_to:\n",
        after="        if False:\n",
        tests=(_CUT + "test_later_version_of_another_table_is_not_in_the_cut",),
    ),
    Mutation(
        name="an old version that runs again makes a cut",
        file="multi_table/record_cut.py",
        before="            if last is not None and last.number > numbered.number:",
        after="            if False:",
        tests=(_CUT + "test_old_version_of_a_batch_makes_no_cut",),
    ),
    Mutation(
        name="the tag of the last cut is dropped by the next epoch",
        file="multi_table/record_cut.py",
        before="    dropped = others[KEPT_TAGS - 1 :]\n",
        after="    dropped = others\n",
        tests=(_CUT + "test_last_tags_are_kept", _CUTS),
    ),
    Mutation(
        name="tags of users are taken for those of a cut",
        file="multi_table/record_cut.py",
        before=" and ref.max_ref_age_ms == _FOR_EVER_MS",
        after="",
        tests=(_CUT + "test_tags_of_others_stay",),
    ),
    Mutation(
        name="the tag of the last cut moves to another snapshot",
        file="multi_table/record_cut.py",
        before="    if own in metadata.refs and tags.get(own) != snapshot_id:\n",
        after="    if False:\n",
        tests=(_CUT + "test_new_checkpoint_does_not_move_the_tag_of_the_last_cut",),
    ),
    Mutation(
        name="a table property lets tags of a cut expire",
        file="multi_table/record_cut.py",
        before="        max_ref_age_ms=_FOR_EVER_MS,",
        after="        max_ref_age_ms=None,",
        tests=(_CUT + "test_snapshots_of_the_cut_do_not_expire",),
    ),
    Mutation(
        name="a tag moves without the condition that it is as seen",
        file="multi_table/record_cut.py",
        before="    conditions = {own: tags.get(own), **",
        after="    conditions = {**",
        tests=(_CUT + "test_tag_is_set_under_the_condition_that_it_is_as_seen",),
    ),
    Mutation(
        name="a table that is away keeps its entry of the last cut",
        file="multi_table/record_cut.py",
        before="    return told or untold\n",
        after="    return told or row\n",
        tests=(_THERE + "test_table_that_is_away_is_told_until_a_cut_has_it", _PAST),
    ),
    Mutation(
        name="a table that was away for one cut is not asked again",
        file="multi_table/record_cut.py",
        before='            others = {name for name in others if found[name]["snapshot_id"] is None}\n',
        after="            others = set()\n",
        tests=(_THERE + "test_table_that_is_gone_for_a_moment_is_asked_by_the_next_cut",),
    ),
    Mutation(
        name="a table that was rolled back before an epoch without the option is taken for one without it",
        file="multi_table/record_cut.py",
        before="    return None if marker is None or lost is not None else",
        after="    return None if marker is None else",
        tests=(_THERE + "test_table_that_is_away_is_told_until_a_cut_has_it",),
    ),
    Mutation(
        name="an answer from an older state hides an epoch without the option",
        file="multi_table/record_cut.py",
        before="    if if_at is not None:\n",
        after="    if False:\n",
        tests=(_THERE + "test_left_out_table_that_the_catalog_tells_of_late_is_seen_as_it_is",),
    ),
    Mutation(
        name="a cut replaces one that it has not read",
        file="multi_table/record_cut.py",
        before="    plan = replace(plan, write=replace(plan.write, overwrite=_of_what_was_read(cuts)))\n",
        after="",
        tests=(_THERE + "test_cut_replaces_the_rows_that_it_has_read",),
    ),
    Mutation(
        name="a table that the catalog tells of late is taken for one that was rolled back",
        file="multi_table/record_cut.py",
        before="            is_exhausted |= stray is not None",
        after="            is_exhausted |= stray is None or stray is not None",
        tests=(_THERE + "test_table_that_the_catalog_tells_of_late_is_asked_again",),
    ),
    Mutation(
        name="readers get no snapshot of a table whose cut is untold",
        file="multi_table/cut.py",
        before="        if snapshot_id is None:\n",
        after="        if False:\n",
        tests=(_THERE + "test_table_that_is_away_is_told_until_a_cut_has_it",),
    ),
    Mutation(
        name="a table that was replaced is read in its cut",
        file="multi_table/cut.py",
        before="        row = self._by_uuid.get(str(metadata.table_uuid))\n",
        after="        row = self._by_name.get(name)\n",
        tests=(
            _CUT + "test_table_that_was_dropped_or_replaced_is_named",
            _CUT + "test_table_under_a_new_name_has_one_row",
        ),
    ),
    Mutation(
        name="a table that only epochs before the first cut have written is taken for one without rows",
        file="multi_table/cut.py",
        before="            if self._misses(metadata, branch):\n",
        after="            if False:\n",
        tests=(_CUT + "test_table_that_no_cut_names_and_the_writer_has_written_is_refused",),
    ),
    Mutation(
        name="a stream and an application of one name share a cut",
        file="multi_table/cut_table.py",
        before="    if other is None or other.kind is writer.kind or",
        after="    if True or",
        tests=(_CUT + "test_name_of_another_kind_of_writer_is_refused",),
    ),
    Mutation(
        name="a repeated transaction whose tables have it leaves its cut out",
        file="multi_table/transaction.py",
        before="        return self.result.was_replayed or self.result.snapshot_id is not None\n",
        after="        return self.result.snapshot_id is not None\n",
        tests=(_CUT + "test_transaction_records_its_cut",),
    ),
    Mutation(
        name="a route leaves its cut out",
        file="multi_table/commit.py",
        before="        record_cut(catalog, options.of_all, landed, is_repeated",
        after="        dict(landed=landed, is_repeated",
        tests=(_CUT + "test_cut_names_the_snapshots_of_the_last_epoch", _CUTS),
    ),
    Mutation(
        name="the commit does not know the columns that rows have added",
        file="multi_table/commit.py",
        before="        later_schemas={planned.schema_id: after.schema},\n",
        after="",
        tests=(_COLUMNS + "test_column_that_rows_add_and_others_make_anew_is_a_conflict",),
    ),
    Mutation(
        name="the driver appends where tasks overwrite",
        file="writers/routed.py",
        before="            is_overwrite=plan.is_overwrite,\n",
        after="",
        tests=(
            _COLUMNS + "test_new_table_gets_no_rows_outside_the_range_that_an_overwrite_replaces",
            _COLUMNS + "test_table_without_any_column_of_the_dataframe_gets_those_of_its_rows",
        ),
    ),
)
