"""Mutations of how a write lands: what the table is asked, what is recorded in it, and what is made of an answer."""

from __future__ import annotations

from mutations.mutating import Mutation

_MODEL = "properties/test_commit_model.py::test_no_file_is_deleted_that_any_later_state_refers_to"
_STRAY = "unit/commit/test_stray_markers.py::"
_FIRST = "unit/commit/test_create_table.py::"
_RENAMED = "unit/commit/test_renamed_tables.py::"
_LOOP = "unit/commit/test_snapshot_update.py::"
_BATCHES = "unit/commit/test_idempotent_batches.py::"
_PROMISE = "unit/commit/test_promise.py::"
_SNAPSHOTS = "unit/snapshots/test_snapshot.py::"
_BRANCHES = "unit/snapshots/test_refs.py::"
_BRANCHED = "integration/test_branches.py::"
_REPLAYS = "faults/test_stream_replays.py::"
_CRASHES = "faults/test_stream_crashes.py::"

_TOGETHER = "unit/commit/test_together.py::"
_UNSEEN = "unit/commit/test_landed_unseen.py::"
_ENCRYPTED = "unit/catalog/test_encrypted_tables.py::"

COMMIT_STATUS = (
    Mutation(
        name="a batch that landed is given up once its snapshot has expired",
        file="snapshots/commit_status.py",
        before="return attempt.reply is Reply.OVERTAKEN and metadata.last_sequence_number <= attempt.sequence_number",
        after="return attempt.reply is Reply.OVERTAKEN",
        tests=(
            _UNSEEN + "test_batch_that_landed_unseen_is_neither_deleted_nor_written_again",
            "properties/test_commit_model.py::test_no_file_is_deleted_that_any_later_state_refers_to",
        ),
    ),
    Mutation(
        name="a batch that its child names as its parent is in doubt",
        file="snapshots/commit_status.py",
        before="if any(snapshot.parent_snapshot_id == write.snapshot_id for snapshot in history):",
        after="if not history and not attempts and write.txn:",
        tests=(_UNSEEN + "test_child_that_names_the_batch_as_its_parent_proves_it",),
    ),
    Mutation(
        name="files of a batch that landed are taken for those of a faster commit",
        file="commit/snapshot_update.py",
        before="entry.file_sequence_number == sequence_number and entry.snapshot_id != ours",
        after="entry.file_sequence_number == sequence_number",
        tests=(_UNSEEN + "test_batch_that_landed_unseen_is_neither_deleted_nor_written_again",),
    ),
    Mutation(
        name="a list that others delete while it is read ends the commit with a raw error",
        file="commit/snapshot_update.py",
        before="except Exception as failure:  # of any storage library; others may have expired the snapshot meanwhile",
        after="except ValueError as failure:",
        tests=(_UNSEEN + "test_list_that_is_deleted_while_it_is_read_leaves_the_outcome_open",),
    ),
    Mutation(
        name="tables are put into a folder that Spark deletes",
        file="io/local_paths.py",
        before='    return os.environ.get(_SESSION_FOLDER, "default") != "default"',
        after="    return False",
        tests=("unit/catalog/test_settings.py::test_tables_are_not_put_into_the_folder_of_a_connect_session",),
    ),
    Mutation(
        name="an epoch is not looked up before it is committed",
        file="snapshots/commit_status.py",
        before="if marker is None or marker.number < numbered.number:",
        after="if marker is None or marker.number >= 0:",
        tests=(_LOOP + "test_replayed_epoch_is_skipped_and_its_files_deleted",),
        spark_tests=(
            "acceptance/test_jvm_peer_streams.py::test_epoch_that_the_other_has_landed_is_recognised",
            _CRASHES + "test_driver_dies_after_commit_before_checkpoint",
            _REPLAYS + "test_replay_after_another_writer_commits_once",
            _REPLAYS + "test_two_live_drivers_never_double_a_row",
        ),
    ),
    Mutation(
        name="a write that has landed is not found by its snapshot",
        file="snapshots/commit_status.py",
        before="if metadata.snapshot_by_id(write.snapshot_id) is not None:",
        after="if metadata is None:",
        tests=(_LOOP + "test_failure_of_the_last_attempt_that_landed_is_a_success",),
    ),
    Mutation(
        name="a picked version is looked for after the last mark alone",
        file="snapshots/txn.py",
        before="if kind is EPOCHS and last is not None",
        after="if last is not None",
        tests=(_STRAY + "test_version_that_was_picked_is_not_added_after_a_lower_one",),
    ),
    Mutation(
        name="what was taken back from a branch comes back with one that builds on it",
        file="snapshots/refs.py",
        before="if stood_at is not None and place_in(metadata, to, stood_at) is Place.OUTSIDE:",
        after="if stood_at is not None and stood_at < 0:",
        tests=(
            "unit/commit/test_fast_forward.py::test_what_was_taken_back_from_main_does_not_come_back_with_a_branch",
            "unit/deletes/test_publish.py::test_main_that_is_rolled_back_while_an_epoch_waits_stays_rolled_back",
        ),
    ),
    Mutation(
        name="another table of the name proves that a request for the first one did not land",
        file="snapshots/commit_status.py",
        before="if any(_may_be_elsewhere(metadata, attempt) for attempt in attempts):",
        after="if metadata is None:",
        tests=(
            _RENAMED + "test_rows_that_landed_before_the_table_was_renamed_stay",
            _RENAMED + "test_created_table_that_was_renamed_keeps_its_rows_to_itself",
        ),
    ),
    Mutation(
        name="a table that the catalog does not find is taken for one that never got the request",
        file="commit/requests.py",
        before="return Reply.GONE if failure.is_gone else Reply.REFUSED",
        after="return Reply.REFUSED",
        tests=(_RENAMED + "test_rows_that_landed_before_the_table_was_renamed_stay",),
    ),
    Mutation(
        name="the first snapshot of a table goes into another one of its name",
        file="commit/create_table.py",
        before="if str(metadata.table_uuid) != self._write.table_uuid:",
        after="if metadata is None:",
        tests=(_RENAMED + "test_first_snapshot_goes_into_its_own_table_alone",),
    ),
    Mutation(
        name="the epoch before this one is taken for this one",
        file="snapshots/commit_status.py",
        before="marker.number < numbered.number:",
        after="marker.number < numbered.number - 1:",
        tests=(
            _LOOP + "test_epochs_of_many_queries_do_not_mix",
            "unit/snapshots/test_commit_status.py::test_landing_of_an_epoch",
        ),
        spark_tests=(
            "acceptance/test_jvm_peer_streams.py::test_checkpoint_goes_there_and_back_again",
            "integration/test_streaming.py::test_available_now_appends_one_snapshot_for_each_epoch",
        ),
    ),
    Mutation(
        name="the first epoch after a restart is taken for a repeated one",
        file="snapshots/commit_status.py",
        before="    if marker is None or marker.number < numbered.number:\n",
        after="    run_id = getattr(numbered, 'run_id', None)\n"
        "    if marker is not None and marker.number < numbered.number and marker.run_id != run_id:\n"
        "        return CommitStatus.REPLAYED\n"
        "    if marker is None or marker.number < numbered.number:\n",
        spark_tests=(_CRASHES + "test_driver_dies_in_task",),
    ),
    Mutation(
        name="this epoch is taken for an earlier one",
        file="snapshots/commit_status.py",
        before="marker.number < numbered.number:",
        after="marker.number <= numbered.number:",
        tests=(_LOOP + "test_restarted_run_skips_the_epoch_of_the_run_before",),
        spark_tests=("faults/test_upsert_kills.py::test_upsert_that_is_killed_lands_once",),
    ),
    Mutation(
        name="a second driver is taken for an earlier run",
        file="snapshots/commit_status.py",
        before="is_fenced = bool(attempts) or _is_second_driver(metadata, _base(metadata, write), numbered, marker)",
        after="is_fenced = False",
        tests=(
            _LOOP + "test_second_driver_that_lands_the_epoch_first_fences_ours",
            _LOOP + "test_second_driver_that_is_ahead_is_told_from_a_restart",
            _TOGETHER + "test_second_driver_of_the_same_epoch_is_fenced_in_every_table",
        ),
        spark_tests=(_REPLAYS + "test_driver_that_was_overtaken_in_its_commit_is_refused",),
    ),
    Mutation(
        name="a rolled-back checkpoint is skipped in silence",
        file="snapshots/commit_status.py",
        before="return CommitStatus.STALE_EPOCH",
        after="return CommitStatus.REPLAYED",
        tests=(_LOOP + "test_lower_epoch_is_an_error_that_names_the_last_one",),
        spark_tests=(_REPLAYS + "test_rolled_back_checkpoint_is_refused",),
    ),
    Mutation(
        name="a request under way counts as done for",
        file="snapshots/commit_status.py",
        before="return all(attempt.was_refused or _must_fail(metadata, branch, attempt) for attempt in",
        after="return all(True for attempt in",
        tests=(
            _MODEL,
            _LOOP + "test_lost_answers_up_to_the_limit_delete_nothing",
            _LOOP + "test_request_that_arrives_after_giving_up_finds_its_files",
        ),
        spark_tests=("faults/test_fault_matrix_upserts.py::test_upsert_lands_once_whatever_the_catalog_does",),
    ),
    Mutation(
        name="a race is believed to be lost although nobody is seen to have won it",
        file="snapshots/commit_status.py",
        before="return all(attempt.was_refused or _must_fail(metadata, branch, attempt) for attempt in",
        after="return all(attempt.reply is not Reply.LOST or _must_fail(metadata, branch, attempt) for attempt in",
        tests=(
            _MODEL,
            _LOOP + "test_race_for_a_new_table_that_nobody_is_seen_to_have_won_deletes_nothing",
            _LOOP + "test_stale_table_to_the_end_does_not_make_a_write_that_landed_lose_its_files",
        ),
    ),
    Mutation(
        name="a first snapshot whose answer was lost is given up, although the table may be replaced",
        file="snapshots/commit_status.py",
        before="    return attempt.reply is not Reply.LOST and _has_moved_past(metadata, branch, attempt)",
        after="    return _has_moved_past(metadata, branch, attempt)",
        tests=(_MODEL,),
    ),
    Mutation(
        name="a later epoch that history shows makes a request that may still come forgotten",
        file="snapshots/commit_status.py",
        before="        is_final = is_final and all(",
        after="        is_final = all(",
        tests=("unit/snapshots/test_commit_status.py::test_landing_of_an_epoch",),
    ),
    Mutation(
        name="a branch that has moved on is taken for one that cannot come back",
        file="snapshots/commit_status.py",
        before="        return last_sequence_number(metadata) > attempt.sequence_number",
        after=(
            "        head = branch_head(metadata, branch)\n"
            "        return head is not None and head.snapshot_id != attempt.parent_id"
        ),
        tests=(_MODEL,),
    ),
    Mutation(
        name="an older state of the branch is taken for a later one",
        file="snapshots/commit_status.py",
        before="    return _was_passed_over(metadata, branch, attempt)",
        after="    return head.snapshot_id != attempt.parent_id",
        tests=(
            _LOOP + "test_stale_table_to_the_end_does_not_make_a_write_that_landed_lose_its_files",
            "unit/snapshots/test_commit_status.py::test_landing_in_format_version_1",
        ),
    ),
    Mutation(
        name="a state from before a replacement is taken for a later one",
        file="snapshots/commit_status.py",
        before="        return (head.sequence_number or 0) > attempt.sequence_number\n",
        after="        return head.snapshot_id != attempt.parent_id\n",
        tests=(_MODEL, "unit/snapshots/test_commit_status.py::test_landing_of_a_batch"),
    ),
    Mutation(
        name="a state from before a replacement is taken for a later one in format version 1",
        file="snapshots/commit_status.py",
        before="(attempt.is_first and since[-1].parent_snapshot_id is None)",
        after="since[-1].parent_snapshot_id is None",
        tests=("unit/snapshots/test_commit_status.py::test_landing_in_format_version_1",),
    ),
    Mutation(
        name="an epoch that may have landed before a later one, and expired, loses its files",
        file="snapshots/commit_status.py",
        before="attempt.was_refused or _was_passed_over(metadata, write.branch, attempt) for",
        after="attempt.reply is not Reply.LOST for",
        tests=("unit/snapshots/test_commit_status.py::test_landing_of_an_epoch",),
    ),
    Mutation(
        name="the marks of main are taken for those of the branch",
        file="snapshots/commit_status.py",
        before="history = BranchHistory(metadata, _base(metadata, write))",
        after='history = BranchHistory(metadata, "main")',
        tests=(
            _BRANCHES + "test_epochs_of_one_query_on_two_branches_are_told_apart",
            _BRANCHES + "test_epoch_on_a_branch_is_recognised_when_it_comes_again",
        ),
        spark_tests=(_BRANCHED + "test_stream_to_a_branch_whose_driver_is_killed_lands_once_and_leaves_main_alone",),
    ),
    Mutation(
        name="a mark whose snapshot the branch does not have counts",
        file="snapshots/txn.py",
        before="        return place is not Place.WITHIN",
        after="        return False",
        tests=(
            _STRAY + "test_version_of_a_dropped_branch_is_not_skipped_on_its_successor",
            _STRAY + "test_epoch_that_was_rolled_back_is_neither_skipped_nor_added_unasked",
            _STRAY + "test_version_before_a_replacement_of_the_table_is_not_skipped",
        ),
    ),
    Mutation(
        name="a mark that was rolled back counts once history has expired",
        file="snapshots/txn_properties.py",
        before="        if is_disproved != marker.is_disproved:",
        after="        if is_disproved is None:",
        tests=(_STRAY + "test_version_that_was_rolled_back_is_not_skipped_after_expiry",),
    ),
    Mutation(
        name="what was published and rolled back counts as published once history has expired",
        file="snapshots/txn_properties.py",
        before="        if snapshot_id in unseen and behind(metadata, history.oldest, snapshot_id) is Place.OUTSIDE",
        after="        if snapshot_id is None",
        tests=(_STRAY + "test_what_was_published_and_rolled_back_is_not_called_published_after_expiry",),
    ),
    Mutation(
        name="a mark of an earlier branch of that name counts once history has expired",
        file="snapshots/txn.py",
        before="    if not _reaches(of_main, marker):\n        return True\n",
        after="",
        tests=(_STRAY + "test_version_of_a_dropped_branch_is_not_skipped_after_expiry",),
    ),
    Mutation(
        name="an error advises to set main's marker back",
        file="snapshots/txn.py",
        before="    lacks_proof = is_untold and not (history.ends_within_main and _reaches(of_main, marker))\n",
        after="    lacks_proof = is_untold\n",
        tests=(_STRAY + "test_mark_of_an_earlier_branch_is_not_proven_by_a_later_write_to_main",),
    ),
    Mutation(
        name="a later write to main proves what an earlier branch had",
        file="snapshots/txn.py",
        before="writer_in(snapshot, kind) == writer and marker_in(snapshot, kind).number <= marker.number",
        after="writer_in(snapshot, kind) == writer and marker_in(snapshot, kind).number < 0",
        tests=(_STRAY + "test_mark_of_an_earlier_branch_is_not_proven_by_a_later_write_to_main",),
    ),
    Mutation(
        name="what was published to an earlier branch counts for a branch that begins anew",
        file="snapshots/txn_properties.py",
        before="        for prefix in _PREFIXES\n        for name, _ in named_properties(metadata, prefix, branch)",
        after="        for prefix in _PREFIXES[:-1]\n        for name, _ in named_properties(metadata, prefix, branch)",
        tests=(_STRAY + "test_what_was_published_to_an_earlier_branch_of_that_name_is_not_called_published",),
    ),
    Mutation(
        name="a stray mark hides another write with its number",
        file="snapshots/txn_properties.py",
        before="    return known.number == marker.number and known.snapshot_id != marker.snapshot_id",
        after="    return False",
        tests=(_STRAY + "test_stray_mark_hides_no_other_write_with_its_number",),
    ),
    Mutation(
        name="stray marks are published",
        file="snapshots/txn_properties.py",
        before="            recorded = known.last if known.is_recorded else None\n            if markers.last",
        after=(
            "            recorded = None\n            markers = TxnMarkers(last=markers.stray.marker) if markers.stray "
            "else markers\n"
            "            if markers.last"
        ),
        tests=(_STRAY + "test_stray_mark_is_not_published",),
    ),
    Mutation(
        name="marks that only history holds are not written down",
        file="snapshots/txn_properties.py",
        before="        values |= met_in_history(history)",
        after="        values |= {}",
        tests=(_STRAY + "test_mark_that_only_history_holds_is_written_down",),
    ),
    Mutation(
        name="a batch without a number writes down no marks of others",
        file="snapshots/txn_properties.py",
        before="    if base == write.branch:\n        values |= met_in_history(history)",
        after="    if base == write.branch:\n        values |= met_in_history(history) if write.numbered else {}",
        tests=(
            _STRAY + "test_plain_batch_writes_down_the_marks_of_a_fast_forward",
            _STRAY + "test_plain_batch_writes_down_the_marks_of_a_branch_that_is_gone",
        ),
    ),
    Mutation(
        name="a second request to create a table has a manifest list of its own",
        file="commit/snapshot_update.py",
        before="        if self._is_new and self._first is not None:",
        after="        if self._is_new and self._first is None and self._first is not None:",
        tests=(_RENAMED + "test_created_table_whose_name_is_free_again_stays_whole",),
    ),
    Mutation(
        name="marks of main behind a fork are not written down",
        file="snapshots/txn_properties.py",
        before="    for kind, writer, marker in _behind_a_fork(history, recorded):",
        after="    for kind, writer, marker in ():",
        tests=(_STRAY + "test_version_of_main_stays_known_on_a_branch_forked_after_expiry",),
    ),
    Mutation(
        name="a skipped write records no mark but its own",
        file="commit/requests.py",
        before="    values = met_in_history(BranchHistory(metadata, base))",
        after="    values: dict[str, str] = {}",
        tests=(_STRAY + "test_skip_writes_down_the_marks_of_every_writer",),
    ),
    Mutation(
        name="a version that was cherry-picked is added again",
        file="snapshots/txn.py",
        before="        if (marker := marker_in(source, kind)).number == numbered.number:",
        after="        if (marker := marker_in(source, kind)).number == -1:",
        tests=(_STRAY + "test_version_that_somebody_cherry_picked_is_not_added_twice",),
    ),
    Mutation(
        name="marks of gone branches are removed although the branch has come back",
        file="snapshots/txn_properties.py",
        before="    heads |= dict.fromkeys(sorted(set(gone.values())))\n",
        after="",
        tests=(_STRAY + "test_marks_of_a_branch_that_appears_meanwhile_stay",),
    ),
    Mutation(
        name="a fork writes into main's marker although main has moved on",
        file="snapshots/txn_properties.py",
        before="            heads[base] = None if (head :=",
        after="            _ = None if (head :=",
        tests=(
            "unit/snapshots/test_txn_properties.py::test_fork_that_disproves_a_mark_of_main_is_refused_if_main_moves_on",
        ),
    ),
    Mutation(
        name="a fork does not write down that main's mark is stray",
        file="snapshots/txn_properties.py",
        before="values, removals = {**values, **taken_over}, removals | stale",
        after="values, removals = taken_over, stale",
        tests=(_STRAY + "test_stray_mark_does_not_go_to_a_fork_after_expiry",),
    ),
    Mutation(
        name="expired history is taken for divergence",
        file="snapshots/refs.py",
        before="    return Place.OUTSIDE if sequence_number >= oldest.sequence_number else Place.UNKNOWN",
        after="    return Place.OUTSIDE",
        tests=(
            _STRAY + "test_staging_goes_on_after_the_published_history_expired",
            _STRAY + "test_branch_that_others_wrote_is_not_called_diverged_when_history_expired",
        ),
    ),
    Mutation(
        name="the mark is not written as a table property",
        file="snapshots/txn.py",
        before="    return {branch_property(kind.property_prefix, branch, writer): json.dumps(value)}",
        after="    return {}",
        tests=(
            _BATCHES + "test_version_survives_the_expiry_of_its_snapshot",
            _LOOP + "test_epoch_is_skipped_after_its_snapshot_expired",
        ),
        spark_tests=(_REPLAYS + "test_replay_after_expiry_commits_once",),
    ),
    Mutation(
        name="the mark is not written into the snapshot's summary",
        file="snapshots/snapshot.py",
        before="markers = marker_summary(write.numbered) if write.numbered else {}",
        after="markers: dict[str, str] = {}",
        tests=(_LOOP + "test_epoch_is_skipped_when_its_property_was_lost",),
        spark_tests=(_REPLAYS + "test_replay_without_property_commits_once",),
    ),
    Mutation(
        name="a commit does not ask for the branch to be where it was (AssertRefSnapshotId)",
        file="snapshots/snapshot.py",
        before="AssertRefSnapshotId(ref=write.branch, snapshot_id=branch_snapshot_id(metadata, write.branch)),",
        after="",
        tests=(
            _PROMISE + "test_rows_that_come_into_an_empty_table_meanwhile_stay",
            _PROMISE + "test_rows_that_come_into_a_table_of_version_1_meanwhile_stay",
            _SNAPSHOTS + "test_request_is_refused_if_the_branch_has_moved_or_the_table_is_another",
        ),
    ),
    Mutation(
        name="a commit does not ask for the table to be the same (AssertTableUUID)",
        file="snapshots/snapshot.py",
        before="            AssertTableUUID(uuid=metadata.table_uuid),\n",
        after="",
        tests=(_SNAPSHOTS + "test_request_is_refused_if_the_branch_has_moved_or_the_table_is_another",),
    ),
    Mutation(
        name="each attempt takes a snapshot id of its own",
        file="snapshots/snapshot.py",
        before="        snapshot_id=write.snapshot_id,\n        parent_snapshot_id",
        after="        snapshot_id=metadata.new_snapshot_id(),\n        parent_snapshot_id",
        tests=(_LOOP + "test_first_request_that_arrives_during_the_second_commits_once",),
    ),
    Mutation(
        name="a clock that was set back goes into the table",
        file="snapshots/snapshot.py",
        before="max(int(time.time() * 1000), latest_ms(metadata))",
        after="int(time.time() * 1000)",
        tests=(_SNAPSHOTS + "test_time_never_goes_back",),
    ),
    Mutation(
        name="the logs of a table go back in time",
        file="snapshots/history.py",
        before="if entry.timestamp_ms < latest - CLOCKS_APART_MS:",
        after="if entry is None:",
        tests=("unit/snapshots/test_history.py::test_times_that_go_back_too_far_are_put_in_order",),
        spark_tests=("acceptance/test_clocks.py::test_java_reads_a_table_after_a_clock_was_a_day_ahead",),
    ),
    Mutation(
        name="a lost answer is taken for a refusal",
        file="commit/requests.py",
        before="        return Reply.LOST\n",
        after="        return Reply.REFUSED\n",
        tests=(
            _LOOP + "test_lost_answers_up_to_the_limit_delete_nothing",
            _TOGETHER + "test_answers_that_stay_away_leave_files_and_the_next_run_lands_them",
        ),
    ),
    Mutation(
        name="a lost answer is taken for a success",
        file="commit/snapshot_update.py",
        before="            return failure\n        fault_point(FaultPoint.REQUEST_ANSWERED)",
        after="""            if reply_of(failure).name == "LOST":
                return CommitResult(snapshot_id=self._write.snapshot_id)
            return failure
        fault_point(FaultPoint.REQUEST_ANSWERED)""",
        tests=(_LOOP + "test_lost_answers_up_to_the_limit_delete_nothing",),
    ),
    Mutation(
        name="files are deleted without proof",
        file="commit/snapshot_update.py",
        before="        if finding.is_final:\n            proof",
        after="        if True:\n            proof",
        tests=(_BATCHES + "test_files_that_the_table_has_stay_when_a_later_version_hides_that_they_landed",),
    ),
    Mutation(
        name="a write that may have landed is said to be refused",
        file="commit/snapshot_update.py",
        before="""        if not finding.is_final:
            self._raise_unknown(f"the last request may still be carried out, and""",
        after="""        if finding is None:
            self._raise_unknown(f"the last request may still be carried out, and""",
        tests=(_PROMISE + "test_files_of_an_epoch_that_may_have_landed_stay_where_they_are",),
    ),
    Mutation(
        name="an unknown outcome is reported as a failure",
        file="commit/snapshot_update.py",
        before="        if not finding.is_final:\n            self._raise_unknown(\n",
        after="        if finding is None:\n            self._raise_unknown(\n",
        tests=(_LOOP + "test_lost_answers_up_to_the_limit_delete_nothing",),
    ),
    Mutation(
        name="a certain failure leaves its files",
        file="commit/snapshot_update.py",
        before="        self._delete_if(finding, table)\n        if isinstance(problem, DataFileError)",
        after="        if isinstance(problem, DataFileError)",
        tests=(_LOOP + "test_refusals_up_to_the_limit_leave_nothing_behind",),
    ),
    Mutation(
        name="a skipped epoch leaves its files",
        file="commit/snapshot_update.py",
        before="        self._delete_if(finding, table)\n        self._record(table, finding)",
        after="        self._record(table, finding)",
        tests=(_LOOP + "test_replayed_epoch_is_skipped_and_its_files_deleted",),
    ),
    Mutation(
        name="lost attempts leave their manifest lists",
        file="commit/snapshot_update.py",
        before="superseded = [*self._files.lost_paths, *self._producer.superseded_paths(snapshot, tidy_metadata())]",
        after="superseded = self._files.lost_paths",
        tests=(_LOOP + "test_writer_that_loses_the_race_commits_after_the_winner",),
    ),
    Mutation(
        name="lost attempts whose metadata files stand lose their manifest lists",
        file="commit/snapshot_update.py",
        before="self._producer.superseded_paths(snapshot, tidy_metadata())]",
        after="self._producer.superseded_paths(snapshot)]",
        tests=("unit/catalog/test_staged_metadata.py::test_metadata_file_that_stays_keeps_its_manifest_list",),
    ),
    Mutation(
        name="a write that is given up leaves a metadata file without what it names",
        file="commit/snapshot_update.py",
        before="        if proof is Proof.REFUSED and not standing",
        after="        if False and not standing",
        tests=("unit/catalog/test_staged_metadata.py::test_metadata_file_that_stays_keeps_what_was_given_up",),
    ),
    Mutation(
        name="a batch whose traces have expired is written again",
        file="snapshots/commit_status.py",
        before="for attempt in in_doubt):\n        return CommitStatus.ABSENT\n    return CommitStatus.UNKNOWN",
        after="for attempt in in_doubt):\n        return CommitStatus.ABSENT\n    return CommitStatus.ABSENT",
        tests=(_LOOP + "test_batch_that_was_lost_before_landing_is_unknown_once_history_expired",),
    ),
    Mutation(
        name="a write to a branch moves main",
        file="snapshots/snapshot.py",
        before="        move_branch(metadata, write.branch, snapshot.snapshot_id),",
        after='        move_branch(metadata, "main", snapshot.snapshot_id),',
        tests=(_SNAPSHOTS + "test_only_the_branch_of_the_write_moves",),
        spark_tests=(_BRANCHED + "test_stream_to_a_branch_whose_driver_is_killed_lands_once_and_leaves_main_alone",),
    ),
    Mutation(
        name="a table that exists is created again",
        file="snapshots/snapshot.py",
        before="requirements=(AssertCreate(),), updates=(*_creation(metadata, record.values)",
        after="requirements=(), updates=(*_creation(metadata, record.values)",
        tests=(_SNAPSHOTS + "test_request_for_a_new_table_is_refused_if_it_exists",),
    ),
    Mutation(
        name="a table that another writer has made meanwhile is not taken",
        file="commit/snapshot_update.py",
        before="        if table is not None:\n            return table, False\n",
        after="",
        tests=(_LOOP + "test_two_first_writers_both_succeed",),
        spark_tests=(
            "integration/test_concurrent_writers.py::test_spark_drivers_that_create_one_table_at_once_both_succeed",
        ),
    ),
    Mutation(
        name="rows land without their new schema",
        file="commit/requests.py",
        before="updates=(*before.updates, *request.updates)",
        after="updates=request.updates",
        tests=("unit/commit/test_schema_change.py::test_schema_and_rows_land_in_one_commit",),
    ),
    Mutation(
        name="a new checkpoint takes over a stream in silence",
        file="snapshots/commit_status.py",
        before="CommitStatus.OTHER_QUERY if holder is not None else _by_markers(",
        after="CommitStatus.OTHER_QUERY if holder is not None and not metadata else _by_markers(",
        tests=("unit/commit/test_stream_names.py::test_wiped_checkpoint_is_refused_with_what_is_needed_to_go_on",),
        spark_tests=("faults/test_stream_identity.py::test_wiped_checkpoint_is_refused_and_accepted_once",),
    ),
    Mutation(
        name="a version of an application lands twice",
        file="snapshots/commit_status.py",
        before="the application says that they are one\n        return CommitStatus.REPLAYED",
        after="the application says that they are one\n        return CommitStatus.ABSENT",
        tests=(
            _BATCHES + "test_of_two_runs_at_once_one_lands_and_the_other_is_skipped",
            _BATCHES + "test_repeated_version_is_skipped_and_leaves_no_file",
        ),
        spark_tests=(
            "properties/test_versions.py",
            "faults/test_numbered_batches.py::test_run_whose_driver_was_killed_can_be_repeated",
            "faults/test_numbered_batches.py::test_micro_batch_that_is_repeated_lands_once_in_each_table",
        ),
    ),
    Mutation(
        name="a server that hides history is believed",
        file="catalog/loading.py",
        before="    check_history_is_shown(settings.name, catalog.properties)",
        after="    check_history_is_shown(settings.name, {})",
        tests=("unit/catalog/test_settings.py::test_server_that_leaves_out_history_is_refused",),
    ),
    Mutation(
        name="the list of a first snapshot goes although a request that names it may still come",
        file="commit/create_table.py",
        before="if finding.is_final and finding.status is not CommitStatus.SUCCESS:",
        after="if finding.status is not CommitStatus.SUCCESS:",
        tests=(_FIRST + "test_request_that_comes_late_finds_its_list_whatever_others_did",),
    ),
    Mutation(
        name="rows that history does not tell of are called gone",
        file="snapshots/txn.py",
        before="    is_untold = place is Place.UNKNOWN\n",
        after="    is_untold = place is None\n",
        tests=("unit/commit/test_stray_markers.py::test_version_of_a_branch_that_followed_main_is_not_called_gone",),
    ),
    Mutation(
        name="a branch forked after expiry does not know main's mark",
        file="snapshots/txn.py",
        before="    newest = newest or behind_both(history, of_main)\n",
        after="",
        tests=("unit/commit/test_stray_markers.py::test_version_of_main_is_skipped_on_a_branch_forked_after_expiry",),
    ),
    Mutation(
        name="a branch takes over a mark that main got after the fork",
        file="snapshots/txn.py",
        before="return None if of_main is None or history.main.shows(of_main.snapshot_id) else of_main",
        after="return of_main",
        tests=("unit/commit/test_stray_markers.py::test_version_that_main_got_after_the_fork_lands_on_the_branch",),
    ),
    Mutation(
        name="a first snapshot that the catalog has confirmed is taken for overtaken",
        file="commit/create_table.py",
        before="reply = Reply.LOST if failure is None else reply_of(failure)",
        after="reply = Reply.OVERTAKEN if failure is None else reply_of(failure)",
        tests=(_FIRST + "test_confirmed_snapshot_keeps_its_list_though_a_cache_shows_another",),
    ),
    Mutation(
        name="a commit throws the keys of an encrypted table away",
        file="catalog/client.py",
        before="if (evidence := evidence_of_encryption(table.metadata)) is not None:",
        after="if (evidence := None) is not None:",
        tests=(_ENCRYPTED + "test_error_says_what_to_do", _ENCRYPTED + "test_rest_servers_answer_tells"),
    ),
    Mutation(
        name="keys that a table gets between look and commit are thrown away",
        file="catalog/own_storage.py",
        before="if (evidence := evidence_of_encryption(base)) is not None:",
        after="if (evidence := None) is not None:",
        tests=(_ENCRYPTED + "test_keys_that_come_between_look_and_commit_stay",),
    ),
    Mutation(
        name="keys in metadata files are overlooked",
        file="catalog/metadata_files.py",
        before="replace(known, metadata=noting_encryption(known.metadata, content))",
        after="known",
        tests=(
            _ENCRYPTED + "test_error_says_what_to_do",
            _ENCRYPTED + "test_key_of_a_known_snapshot_is_seen_in_each_file",
            _ENCRYPTED + "test_keys_that_come_between_look_and_commit_stay",
        ),
    ),
    Mutation(
        name="keys in a REST server's answer are overlooked",
        file="catalog/rest_messages.py",
        before='noted = noting_encryption(answer.metadata, text, "metadata")',
        after="noted = answer.metadata",
        tests=(_ENCRYPTED + "test_rest_servers_answer_to_a_commit_tells",),
    ),
    Mutation(
        name="rows for a table that was encrypted meanwhile stay in its folder",
        file="commit/validate.py",
        before="if (evidence := evidence_of_encryption(metadata)) is not None:",
        after="if (evidence := None) is not None:",
        tests=(_ENCRYPTED + "test_files_of_a_write_are_deleted_if_the_table_was_encrypted_meanwhile",),
    ),
    Mutation(
        name="all rows are written before an encrypted table is refused",
        file="planning/decide.py",
        before="if (evidence := evidence_of_encryption(metadata)) is not None:",
        after="if (evidence := None) is not None:",
        tests=(_ENCRYPTED + "test_write_is_refused_before_any_task_runs",),
    ),
)
