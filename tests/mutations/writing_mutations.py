"""Mutations of all around the landing: messages, files, manifests, branches, schemas, predicates and secrets."""

from __future__ import annotations

from mutations.mutating import Mutation

_LOOP = "unit/commits/test_commit_loop.py::"
_CRASHES = "faults/test_stream_crashes.py::"

WRITING = (
    Mutation(
        name="messages of different writes are committed together",
        file="messages.py",
        before="if any(commit.write != commits[0].write for commit in commits):",
        after="if not commits:",
        tests=("unit/test_messages.py::test_messages_of_different_writes_are_refused",),
    ),
    Mutation(
        name="missing messages are passed over",
        file="messages.py",
        before="    if not messages or any(message is None for message in messages):",
        after="    messages = [message for message in messages if message is not None]\n    if not messages:",
        tests=(
            "unit/test_messages.py::test_missing_message_is_refused",
            "unit/commits/test_commit.py::test_incomplete_messages_commit_nothing",
        ),
    ),
    Mutation(
        name="a message that comes twice counts twice",
        file="messages.py",
        before="if partitions != list(range(len(commits))):",
        after="if not partitions:",
        tests=("unit/test_messages.py::test_doubled_or_missing_partition_is_refused",),
    ),
    Mutation(
        name="manifests are shared between attempts",
        file="commits/manifests.py",
        before="writer.add_manifests([_copy(manifest) for manifest in manifests])",
        after="writer.add_manifests(list(manifests))",
        tests=(_LOOP + "test_writer_that_loses_many_races_gets_the_right_sequence_number",),
    ),
    Mutation(
        name="what the manifests of tasks name is left behind",
        file="commits/added.py",
        before="                paths += [data_file.file_path for data_file in _files_in(io, manifest)]",
        after="                _files_in(io, manifest)",
        tests=(
            "unit/commits/test_task_manifests.py::test_refused_write_leaves_neither_files_nor_manifests",
            "unit/commits/test_task_manifests.py::test_with_a_message_missing_files_and_manifests_go",
        ),
    ),
    Mutation(
        name="manifests of tasks are listed in a table of another version",
        file="commits/producer.py",
        before="found.format_version == version for found in tasks.manifests",
        after="found.format_version for found in tasks.manifests",
        tests=(
            "unit/commits/test_task_manifests.py::test_table_that_was_upgraded_meanwhile_gets_manifests_of_its_version",
        ),
    ),
    Mutation(
        name="a merged manifest stands for one that is no longer listed",
        file="commits/merging.py",
        before="return self.replaces <= paths and",
        after="return bool(self.replaces & paths) and",
        tests=("unit/commits/test_merging.py::test_what_was_rewritten_in_between_is_not_replaced",),
    ),
    Mutation(
        name="the rows that were there are dropped",
        file="commits/producer.py",
        before="self._listed = [*ours, *kept]",
        after="self._listed = [*ours]",
        tests=("unit/commits/test_commit.py::test_later_writes_keep_the_rows_of_earlier_ones",),
        spark_tests=(
            "properties/test_state_machine.py",
            "acceptance/test_jvm_peer.py::test_both_write_one_table_in_turn",
        ),
    ),
    Mutation(
        name="abort deletes files that a commit may have named",
        file="commits/abort.py",
        before="if len(commits) < len(messages):",
        after="if len(commits) <= len(messages):",
        tests=("unit/commits/test_abort.py::test_with_all_messages_nothing_is_deleted",),
    ),
    Mutation(
        name="abort leaves the files of a write whose commit never began",
        file="commits/abort.py",
        before="if len(commits) < len(messages):",
        after="if not messages:",
        tests=("unit/commits/test_abort.py::test_with_a_message_missing_the_reported_files_go",),
        spark_tests=("faults/test_batch_failures.py::test_failing_query_commits_nothing",),
    ),
    Mutation(
        name="rows go into another table of the same name",
        file="commits/target.py",
        before="if str(metadata.table_uuid) != write.table_uuid:",
        after="if not metadata.table_uuid:",
        tests=(
            _LOOP + "test_recreated_table_is_refused",
            "unit/commits/test_target.py::test_another_table_of_the_same_name_is_refused",
        ),
    ),
    Mutation(
        name="files of a partition spec that the table has not are added",
        file="commits/target.py",
        before="    if missing:",
        after="    if missing and not spec_ids:",
        tests=("unit/commits/test_target.py::test_files_of_an_unknown_spec_are_refused",),
    ),
    Mutation(
        name="files that the new schema cannot read are added",
        file="commits/target.py",
        before="    if problems:",
        after="    if problems and not spec_ids:",
        tests=(_LOOP + "test_required_column_that_was_added_meanwhile_is_refused",),
    ),
    Mutation(
        name="rows that came into a replaced range are dropped",
        file="commits/replacing.py",
        before="        if self._overwrite.base_snapshot_id is not None and entry.snapshot_id not in self._since:\n"
        "            return False",
        after="        if entry is not None:\n            return False",
        tests=("unit/commits/test_replacing.py::test_rows_that_come_into_the_range_are_a_conflict_if_serializable",),
    ),
    Mutation(
        name="a branch is published over what came to the other meanwhile",
        file="commits/publishing.py",
        before="            AssertRefSnapshotId(ref=to, snapshot_id=branch_snapshot_id(metadata, to)),\n",
        after="",
        tests=("unit/commits/test_publishing.py::test_publishing_and_an_append_at_the_same_moment_lose_no_row",),
    ),
    Mutation(
        name="a failed task leaves its files",
        file="writing/writers.py",
        before="        writer.discard()\n        if isinstance",
        after="        if isinstance",
        tests=("unit/writing/test_writers.py::test_failing_task_leaves_no_file_open_or_finished",),
        spark_tests=(_CRASHES + "test_spark_repeats_task",),
    ),
    Mutation(
        name="a file that could not be finished appears in the store",
        file="storage/object_streams.py",
        before="        if kind is None:\n            self.close()",
        after="        if kind is None or kind is not None:\n            self.close()",
        tests=("unit/storage/test_object_streams.py::test_file_whose_writing_failed_does_not_appear",),
    ),
    Mutation(
        name="a refused commit is not tried again",
        file="commits/retry.py",
        before="            failed_attempts > self.num_retries\n",
        after="            failed_attempts > 0\n",
        tests=(_LOOP + "test_writer_that_loses_the_race_commits_after_the_winner",),
        spark_tests=(
            "integration/catalogs/test_races.py::test_all_commits_of_a_race_land",
            "integration/test_concurrency.py::test_processes_that_append_at_once_lose_nothing",
        ),
    ),
    Mutation(
        name="a file that only the executor sees is committed",
        file="commits/commit.py",
        before="if is_local(path) and local_size(path) != size:",
        after="if is_local(path) and size < 0:",
        tests=("unit/commits/test_commit.py::test_local_file_that_the_driver_does_not_see_is_refused",),
    ),
    Mutation(
        name="two attempts of a task write the same file",
        file="writing/writers.py",
        before='prefix = f"{attempt.partition_id:05d}-{attempt.task_attempt_id}-{plan.operation_id}"',
        after='prefix = f"{attempt.partition_id:05d}-{plan.operation_id}"',
        tests=("unit/writing/test_writers.py::test_two_attempts_of_one_task_share_no_path",),
    ),
    Mutation(
        name="rows of which a predicate cannot tell are replaced",
        file="predicates/ranges.py",
        before="return self._is_counted(data_file) and _or_else(lambda: self._must_match(data_file), False)",
        after="return _or_else(lambda: self._may_match(data_file), False)",
        tests=(
            "unit/predicates/test_overwrite.py::test_rows_with_null_and_nan_stay_unless_the_predicate_is_true_of_them",
        ),
    ),
    Mutation(
        name="buffers grow with the number of partitions",
        file="writing/writers.py",
        before="if self._files.buffered_bytes > self._buffer_bytes:",
        after="if self._files.buffered_bytes < 0:",
        tests=("unit/writing/test_writers.py::test_buffers_stay_below_the_limit_with_many_partitions",),
    ),
    Mutation(
        name="an upper bound that was cut off is left below its values",
        file="writing/metrics.py",
        before="following = ord(text[end - 1]) + 1",
        after="following = ord(text[end - 1])",
        tests=("unit/writing/test_metrics.py::test_text_bounds_are_cut_at_code_points",),
        spark_tests=("properties/test_round_trip.py",),
    ),
    Mutation(
        name="tasks get the options of the catalog",
        file="datasource.py",
        before='"_options": None if is_for_tasks else self._options}',
        after='"_options": self._options}',
        spark_tests=("integration/test_executor_secrets.py",),
    ),
    Mutation(
        name="schema changes of others are not looked for",
        file="schemas/changes.py",
        before="            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),\n"
        "            AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id),\n",
        after="",
        tests=("unit/commits/test_alter.py::test_writer_that_adds_keeps_what_another_one_widens",),
        spark_tests=(
            "integration/test_schema_evolution.py::test_processes_that_add_columns_at_once_end_with_all_of_them_once",
        ),
    ),
    Mutation(
        name="a wider DataFrame does not add its columns",
        file="schemas/evolution.py",
        before='is_wanted = is_full or (policy.mode == "add-columns" and not difference.is_nested)',
        after="is_wanted = is_full",
        tests=(
            "unit/schemas/test_evolution.py::test_new_columns_are_added_at_the_end_as_optional_with_their_comments",
        ),
        spark_tests=("integration/test_schema_evolution.py::test_stream_restarted_with_a_wider_schema_goes_on",),
    ),
    Mutation(
        name="secrets are shown",
        file="secrets.py",
        before="    text = _without(text, {form for secret in _secrets(properties) for form in _forms(secret)})\n",
        after="",
        tests=("unit/test_secrets.py::test_text_of_another_library_loses_secret_values",),
        spark_tests=("integration/catalogs/test_marked_secrets.py",),
    ),
    Mutation(
        name="errors do not say what to look at",
        file="diagnosis/diagnosing.py",
        before="return otherwise if found.cause is Cause.UNKNOWN else found.next_step",
        after="return otherwise",
        spark_tests=("integration/catalogs/test_runtime_errors.py",),
    ),
    Mutation(
        name="partition fields have names of our own",
        file="layouts/layout.py",
        before='return f"{column}_bucket"',
        after='return f"{column}_buckets"',
        tests=(
            "unit/layouts/test_layout.py::test_fields_of_a_new_table_are_called_as_icebergs_java_library_calls_them",
        ),
        spark_tests=("acceptance/test_jvm_peer_options.py::test_partition_by_makes_the_spec_that_the_jvm_makes",),
    ),
    Mutation(
        name="a query that may have taken over from another one is not warned of",
        file="commits/commit_loop.py",
        before="self._is_first_of_writer = finding.mark is None",
        after="self._is_first_of_writer = False",
        tests=("unit/commits/test_stream_names.py::test_new_query_beside_another_is_warned_of_once",),
        spark_tests=("faults/test_stream_identity.py::test_new_query_beside_another_is_warned_of_once",),
    ),
    Mutation(
        name="a branch begins without the marks of its rows",
        file="snapshots/recording.py",
        before="values, removals = _taken_over(metadata, base, write.branch)",
        after="values, removals = {}, set()",
        tests=(
            "unit/commits/test_idempotent_batches.py::test_branch_has_the_versions_of_the_one_that_it_was_forked_from",
        ),
    ),
    Mutation(
        name="rows are published without their marks",
        file="commits/publishing.py",
        before="updates=(*published_marks(metadata, branch, to).updates, move_branch",
        after="updates=(move_branch",
        tests=(
            "unit/commits/test_idempotent_batches.py::test_version_on_a_branch_that_is_published_is_recorded_on_main",
        ),
    ),
    Mutation(
        name="a metadata file that the table may yet stand at is deleted",
        file="catalogs/staged_metadata.py",
        before="return Fate.PASSED_OVER if staged.follows in log else Fate.OPEN",
        after="return Fate.PASSED_OVER",
        tests=("unit/catalogs/test_staged_metadata.py",),
    ),
    Mutation(
        name="orphans are deleted without a second look",
        file="verification/orphans.py",
        before="still = [orphan for orphan in orphans.files if file_key(orphan.path) not in referenced]",
        after="still = list(orphans.files)",
        tests=("unit/verification/test_orphans.py::test_file_that_becomes_referenced_between_look_and_deletion_stays",),
    ),
    Mutation(
        name="young files are taken for orphans unasked",
        file="verification/grace.py",
        before="if not force and parse_grace_ms(text)",
        after="if force and parse_grace_ms(text)",
        tests=("unit/verification/test_orphans.py::test_age_of_running_writes_is_refused_unless_forced",),
    ),
    Mutation(
        name="a manifest of another size is taken for whole",
        file="verification/listings.py",
        before="    if manifest.size_bytes != used.manifest_length:",
        after="    if manifest.size_bytes is None:",
        tests=("unit/verification/test_damaged_tables.py",),
    ),
)
