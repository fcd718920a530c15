"""Mutations of the search for keys, and of conversions of deletes."""

from __future__ import annotations

from mutations.mutating import Mutation

_SCAN = "unit/deletes/test_index.py::"
_NO_IDS = "unit/deletes/test_files_without_field_ids.py::"
_COLLIDING = "unit/deletes/test_colliding_keys.py::"
_KEYS = "unit/deletes/test_match.py::"
_CONVERTING = "unit/deletes/test_convert.py::"
_LATE = "unit/deletes/test_late_rows.py::"
_PUBLICATION = "unit/deletes/test_publish.py::"
_BRANCHES = "unit/snapshots/test_refs.py::"
_RACES = "acceptance/test_jvm_peer_races.py::"
_COMMITTING = "unit/deletes/test_upsert.py::"
_VECTORS = "unit/deletes/test_vectors.py::"

_PARTITIONS = "unit/deletes/test_every_partition.py::"

RESOLVING: tuple[Mutation, ...] = (
    Mutation(
        name="times of 96 bits wrap",
        file="io/parquet_files.py",
        before='    return pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")',
        after="    return pq.ParquetFile(stream)",
        tests=("unit/deletes/test_old_timestamps.py::test_conversion_hides_all_rows_that_were_hidden",),
    ),
    Mutation(
        name="keys of a file without field ids are read as nulls",
        file="deletes/key_reader.py",
        before="if missing and None in known:",
        after="if missing and not known:",
        tests=(
            _NO_IDS + "test_what_would_have_to_read_such_a_file_refuses_it_by_name",
            _NO_IDS + "test_late_rows_are_not_held_against_such_a_file",
            _NO_IDS + "test_keys_of_such_a_file_are_not_called_unique",
        ),
    ),
    Mutation(
        name="values of a file without field ids are lost as it is written again",
        file="writers/rewriting.py",
        before="if not has_field_ids(known):",
        after="if not known:",
        tests=(_NO_IDS + "test_what_would_have_to_read_such_a_file_refuses_it_by_name",),
    ),
    Mutation(
        name="a uuid is one partition in a manifest and another in a task",
        file="table/partitioning.py",
        before="return value.bytes if isinstance(value, UUID) else value",
        after="return value",
        tests=(
            _PARTITIONS + "test_upsert_finds_old_rows_in_every_partition",
            _PARTITIONS + "test_late_rows_are_seen_in_every_partition",
            _PARTITIONS + "test_dynamic_overwrite_replaces_every_partition",
        ),
    ),
    Mutation(
        name="rows that are hidden in the partition of NaN come back where a range is replaced",
        file="commit/overwrite.py",
        before="return Record(PartitionKey.of(data_file.partition).text)",
        after="return data_file.partition",
        tests=(_PARTITIONS + "test_replaced_range_leaves_hidden_rows_hidden_in_every_partition",),
    ),
    Mutation(
        name="manifests of the runtime with several partition fields of one type cannot be read",
        file="snapshots/avro_files.py",
        before="return known.get(schema, schema)",
        after="return schema",
        spark_tests=(
            "acceptance/test_jvm_peer_partitions.py::test_rows_are_found_in_every_partition_whoever_wrote_them",
        ),
    ),
    Mutation(
        name="a column that stands in the partition alone is null",
        file="table/projection.py",
        before="    return repeated(partition_values.get(number), kind, count)\n",
        after="    return repeated(None, kind, count)\n",
        tests=(
            _PARTITIONS + "test_upsert_finds_rows_by_columns_that_stand_in_their_partition_alone",
            _PARTITIONS + "test_conversion_finds_rows_by_columns_that_stand_in_their_partition_alone",
            _PARTITIONS + "test_rows_that_are_written_again_get_the_columns_of_their_partition",
        ),
    ),
    Mutation(
        name="partitions that Python takes for equal are one",
        file="table/partitioning.py",
        before="self.text = repr(self.values)",
        after="self.text = repr([value or 0 for value in self.values])",
        tests=(
            "unit/expressions/test_metrics_evaluator.py::test_partition_is_recognised_however_its_value_was_read",
            "unit/writers/test_writers.py::test_zeros_of_either_sign_are_two_partitions",
        ),
    ),
    Mutation(
        name="a delete by key applies to rows of its own commit",
        file="deletes/index.py",
        before="self.files[bisect_right(self.numbers, number) :]",
        after="self.files[bisect_right(self.numbers, number - 1) :]",
        tests=(_SCAN + "test_delete_by_key_applies_to_older_data_only",),
    ),
    Mutation(
        name="a delete without partitions applies to files without partitions only",
        file="deletes/index.py",
        before="is_everywhere = spec is not None and is_global(spec)",
        after="is_everywhere = spec is None",
        tests=(_SCAN + "test_delete_without_partitions_applies_to_the_whole_table",),
    ),
    Mutation(
        name="a key hides rows that are newer than it",
        file="deletes/match.py",
        before="        places, keys = places.filter(is_meant), keys.filter(is_meant)\n",
        after="",
        tests=(_KEYS + "test_key_is_meant_for_older_files_only",),
    ),
    Mutation(
        name="a digest decides which rows of the table are hidden",
        file="deletes/match.py",
        before="return places.filter(is_same), keys.filter(is_same)",
        after="return places, keys",
        tests=(
            _KEYS + "test_keys_whose_digests_meet_are_told_apart",
            _COLLIDING + "test_keys_of_one_digest_stay_apart",
            _COLLIDING + "test_files_are_rewritten_without_rows_of_their_keys_alone",
        ),
    ),
    Mutation(
        name="of keys that have one digest only the first is looked for",
        file="deletes/match.py",
        before="        if is_first.true_count == len(digests):\n            return parts",
        after="        return parts",
        tests=(_KEYS + "test_keys_whose_digests_meet_are_told_apart",),
    ),
    Mutation(
        name="a digest decides between the rows of several tasks",
        file="cdc/cross_task.py",
        before="numbers = numbered([column.combine_chunks() for column in keys.columns])",
        after="numbers = pa.repeat(pa.scalar(0, pa.uint64()), keys.num_rows)",
        tests=(
            _COLLIDING + "test_keys_of_one_digest_stay_apart",
            _COLLIDING + "test_deletes_in_another_task_hide_rows_of_their_keys_alone",
            _COLLIDING + "test_rows_of_late_keys_alone_are_late",
            _COLLIDING + "test_ties_are_those_of_one_key",
        ),
        spark_tests=("properties/test_change_feeds.py::test_digests_that_all_meet_change_nothing",),
    ),
    Mutation(
        name="a digest decides between the rows of one task",
        file="cdc/dedup.py",
        before="ends = _ends([events.column(name) for name in (DIGEST, *keys)])",
        after="ends = _ends([events.column(DIGEST)])",
        tests=(_COLLIDING + "test_keys_of_one_digest_stay_apart",),
    ),
    Mutation(
        name="keys of other rows are compared than those in doubt",
        file="commit/cross_task.py",
        before="places = pc.subtract(wanted.filter(is_here), pa.scalar(start, pa.int64()))",
        after="places = pc.subtract(wanted.filter(is_here), wanted.filter(is_here)[0])",
        tests=("unit/commit/test_written_keys.py::test_keys_are_those_of_the_rows_in_every_row_group",),
    ),
    Mutation(
        name="ties of one task are refused though another one overtakes them",
        file="cdc/cross_task.py",
        before="left = places.filter(pc.invert(pc.is_in(places, value_set=outcome.lost.column(NUMBER))))",
        after="left = places",
        tests=(
            "unit/cdc/test_cross_task.py::test_ties_that_another_task_overtakes_do_no_harm_however_many",
            "unit/cdc/test_cross_task.py::test_ties_of_late_keys_are_none",
        ),
    ),
    Mutation(
        name="keys are said to be unique of which the last row of one batch is the first of the next",
        file="inspect/visible_rows.py",
        before="rows = batch if last is None else _joined(last, batch)",
        after="rows = batch",
        tests=("unit/inspect/test_unique_keys.py::test_keys_that_do_not_fit_in_memory_are_all_compared",),
    ),
    Mutation(
        name="the tie of one task is settled by chance",
        file="cdc/task_changes.py",
        before="marked = _with_column(rows, _among(numbers, tied.below(start)), self.row_schema)",
        after="marked = _with_column(rows, _among(numbers, None), self.row_schema)",
        tests=(_COLLIDING + "test_ties_are_those_of_one_key",),
    ),
    Mutation(
        name="files whose nulls may meet are passed over by their bounds",
        file="expressions/metrics_evaluator.py",
        before="if (one.may_be_null and other.may_be_null) or",
        after="if (one.may_be_null and other.is_all_null) or",
        tests=("unit/expressions/test_key_metrics.py::test_null_meets_null_whatever_the_bounds",),
    ),
    Mutation(
        name="data files that came meanwhile are not searched",
        file="deletes/search.py",
        before="        if missing:\n            raise StaleWorkError(",
        after="        if missing is None:\n            raise StaleWorkError(",
        tests=(_CONVERTING + "test_compaction_that_lands_meanwhile_brings_no_row_back",),
        spark_tests=(_RACES + "test_sink_that_began_before_lands_rightly",),
    ),
    Mutation(
        name="a file is written again without a column that rows are deleted by",
        file="deletes/search.py",
        before="        check_columns(table.metadata, replace(read.files, equalities=staying), rewritten)\n",
        after="",
        tests=(
            _CONVERTING + "test_files_are_not_written_without_a_column_that_others_delete_by",
            "unit/deletes/test_upsert.py::test_upsert_leaves_rows_deleted_that_others_deleted_by_a_dropped_column",
        ),
    ),
    Mutation(
        name="one rewritten file takes the place of all entries that list its rows",
        file="deletes/search.py",
        before="        if count > 1:\n",
        after="        if count < 0:\n",
        tests=(_CONVERTING + "test_file_that_is_listed_twice_loses_no_row",),
    ),
    Mutation(
        name="one rewritten file takes the place of an entry that came meanwhile",
        file="deletes/search.py",
        before="for found in read.files.data if found.path in at_stake)",
        after="for found in () if found.path in at_stake)",
        tests=(_CONVERTING + "test_file_that_is_listed_again_meanwhile_loses_no_row",),
    ),
    Mutation(
        name="a rewritten file takes the place of one that is gone",
        file="deletes/search.py",
        before="        if changed:\n",
        after="        if changed is None:\n",
        tests=(_CONVERTING + "test_compaction_with_new_numbers_that_lands_meanwhile_doubles_no_row",),
    ),
    Mutation(
        name="a conversion lands though another one has dropped all deletes",
        file="deletes/search.py",
        before="if not self._to_delete.is_whole(read.files):",
        after="if self._goal is None:",
        tests=(
            _CONVERTING + "test_two_conversions_at_once_leave_each_row_once",
            _CONVERTING + "test_deletes_that_are_taken_back_meanwhile_hide_nothing",
        ),
    ),
    Mutation(
        name="marks that take the place of deletes by keys are not seen by compactions of other engines",
        file="snapshots/snapshot.py",
        before="return Operation.OVERWRITE if hides_anew else Operation.REPLACE",
        after="return Operation.REPLACE",
        tests=(
            "unit/snapshots/test_snapshot.py::test_deletes_that_take_the_place_of_others_are_seen_by_compactions",
            _CONVERTING + "test_compaction_that_began_before_the_deletes_is_refused_after_their_conversion",
        ),
        spark_tests=(_RACES + "test_runtime_that_began_before_lands_rightly_or_is_refused",),
    ),
    Mutation(
        name="a deletion vector that others have replaced meanwhile is taken for the one that was merged",
        file="deletes/work.py",
        before=" or self.late_keys is not None or self.has_vector\n",
        after=" or self.late_keys is not None\n",
        tests=(_VECTORS + "test_vector_that_others_replace_meanwhile_is_merged_anew",),
    ),
    Mutation(
        name="a data file has two deletion vectors",
        file="deletes/search.py",
        before="left_alone(read.files, rewritten | vectors)",
        after="left_alone(read.files, rewritten)",
        tests=(_VECTORS + "test_new_vector_takes_over_the_old_one_and_leaves_those_beside_it",),
    ),
    Mutation(
        name="a deletion vector goes with the others in its file",
        file="deletes/search.py",
        before="(self.dropped if name_of(entry.data_file) in gone else self.kept)",
        after="(self.dropped if any(name.startswith(entry.data_file.file_path) for name in gone) else self.kept)",
        tests=(_VECTORS + "test_new_vector_takes_over_the_old_one_and_leaves_those_beside_it",),
    ),
    Mutation(
        name="a new deletion vector lacks what position deletes hid before",
        file="deletes/tasks.py",
        before="found.all_hidden if self._plan.with_vectors else found.positions",
        after="found.positions",
        tests=(_VECTORS + "test_position_deletes_of_version_2_become_part_of_the_vector",),
    ),
    Mutation(
        name="a file of deletion vectors goes although one of them is of use",
        file="deletes/search.py",
        before="if file.file_path not in used]",
        after="if file.file_path]",
        tests=(_VECTORS + "test_vector_that_others_replace_meanwhile_is_merged_anew",),
    ),
    Mutation(
        name="rows that position deletes hid are not looked for again though these are gone",
        file="deletes/search.py",
        before="if not answer.positions <= positions]",
        after="if answer is None]",
        tests=(
            _CONVERTING + "test_position_deletes_that_are_taken_back_meanwhile_hide_what_deletes_by_keys_hid",
            _COMMITTING + "test_row_whose_position_delete_is_taken_back_meanwhile_is_not_doubled",
        ),
    ),
    Mutation(
        name="what was found by deletes that were taken back is committed with the others",
        file="deletes/convert.py",
        before="if to_delete is None or not to_delete.is_whole(self._search.read(table).files):",
        after="if to_delete is None:",
        tests=(_CONVERTING + "test_deletes_that_are_taken_back_meanwhile_hide_nothing",),
    ),
    Mutation(
        name="an epoch that was converted and cannot be published is never written anew",
        file="snapshots/snapshot.py",
        before='({KEEPS_ROWS_KEY: "true"} if change.keeps_rows else {})',
        after="{}",
        tests=(_PUBLICATION + "test_main_that_moves_on_while_an_epoch_waits_fails_it_and_the_replay_writes_it_anew",),
    ),
    Mutation(
        name="a branch without deletes is converted",
        file="deletes/search.py",
        before="        if not sources:\n            return None",
        after="        if sources is None:\n            return None",
        tests=("unit/deletes/test_publish.py::test_epoch_without_deletes_is_published_as_it_is",),
    ),
    Mutation(
        name="a conversion drops the deletes and hides no rows",
        file="deletes/search.py",
        before="delete_files=tuple(deletes.file for deletes in self._written_deletes))",
        after="delete_files=())",
        tests=("faults/test_conversion_kills.py::test_conversion_that_is_killed_changes_no_row",),
    ),
    Mutation(
        name="a rewritten file is as new as its snapshot",
        file="snapshots/manifests.py",
        before="added_entry(data_file, write.snapshot_id, numbers.get(data_file.file_path))",
        after="added_entry(data_file, write.snapshot_id)",
        tests=(
            _CONVERTING + "test_epoch_that_lands_meanwhile_loses_nothing",
            _CONVERTING + "test_rewritten_file_keeps_order_partition_and_number",
        ),
    ),
    Mutation(
        name="deletes that came meanwhile are dropped, too",
        file="deletes/search.py",
        before="return [found for found in live.equalities if found.path in self.paths]",
        after="return list(live.equalities)",
        tests=(_CONVERTING + "test_epoch_that_lands_meanwhile_loses_nothing",),
    ),
    Mutation(
        name="a row of the same sequence as the table's is late",
        file="deletes/key_reader.py",
        before="        is_open = pc.and_(is_open, is_same)\n    return higher",
        after="        is_open = pc.and_(is_open, is_same)\n    return pc.or_(higher, is_open)",
        tests=(
            "unit/deletes/test_sequences.py::test_equal_sequences_do_not_make_a_row_late",
            _LATE + "test_late_rows_lose_and_others_win",
        ),
    ),
    Mutation(
        name="a later column of the sequence counts as much as the first",
        file="deletes/key_reader.py",
        before="higher = pc.or_(higher, pc.and_(is_open, is_above))",
        after="higher = pc.or_(higher, is_above)",
        tests=("unit/deletes/test_sequences.py::test_several_columns_are_ordered_as_the_rows_of_one_write",),
    ),
    Mutation(
        name="a newer row that is hidden hides late ones",
        file="deletes/tasks.py",
        before="matches.newer.but(hidden)",
        after="matches.newer",
        tests=(_LATE + "test_hidden_rows_have_no_say",),
    ),
    Mutation(
        name="a row gives way and makes the incoming one late",
        file="deletes/match.py",
        before="newer=both.but(positions)",
        after="newer=both",
        tests=(_LATE + "test_incoming_rows_of_one_key_in_several_sets_are_one",),
    ),
    Mutation(
        name="a newer row that was deleted meanwhile hides late ones",
        file="deletes/work.py",
        before="return self.rewritten is not None or self.late_keys is not None",
        after="return self.rewritten is not None",
        tests=(_LATE + "test_row_that_was_newer_and_is_gone_has_no_say",),
    ),
    Mutation(
        name="a newer row that is deleted by key hides late ones",
        file="deletes/search.py",
        before="if to_delete.counts_stored and live.equalities:",
        after="if to_delete.counts_stored and live.equalities is None:",
        tests=(_LATE + "test_branch_with_deletes_by_keys_is_refused",),
    ),
    Mutation(
        name="late rows of tasks that report no keys win",
        file="cdc/cross_task.py",
        before="if late is not None and silent:",
        after="if late is not None and not silent and not tasks:",
        tests=(_LATE + "test_task_with_too_many_keys_is_refused_if_some_are_late",),
    ),
    Mutation(
        name="files of late rows alone are added",
        file="commit/cross_task.py",
        before="return self._late is not None and len(rows.positions) == rows.data_file.record_count",
        after="return False",
        tests=(_LATE + "test_files_of_late_rows_alone_are_left_out",),
    ),
    Mutation(
        name="files of late rows alone stay beside the table",
        file="commit/snapshot_update.py",
        before="superseded = [*self._files.lost_paths, *self._producer.superseded_paths(snapshot, tidy_metadata())]",
        after="superseded = self._producer.superseded_paths(snapshot, tidy_metadata())",
        tests=(_LATE + "test_files_of_late_rows_alone_are_left_out",),
    ),
    Mutation(
        name="an epoch that was staged and is not published yet is not seen",
        file="snapshots/refs.py",
        before="return route.branch if keeps else route.publish_to",
        after="return route.publish_to",
        tests=(
            _BRANCHES + "test_staging_branch_that_is_converted_keeps_what_waits",
            _PUBLICATION + "test_failed_conversion_says_that_the_epoch_is_staged_and_the_replay_publishes_it",
            "faults/test_publication_kills.py::test_killed_epoch_is_published_once_by_its_replay",
        ),
    ),
    Mutation(
        name="deletes that came while others were converted are published",
        file="deletes/search.py",
        before="self.leaves_deletes = any(",
        after="self.leaves_deletes = [] == any(",
        tests=(_PUBLICATION + "test_what_another_query_stages_meanwhile_is_never_published_unconverted",),
    ),
    Mutation(
        name="what was staged behind the converted snapshot is published with it",
        file="commit/fast_forward.py",
        before="if branch_snapshot_id(metadata, branch) != snapshot_id:",
        after="if branch_snapshot_id(metadata, branch) is None:",
        tests=(_PUBLICATION + "test_what_is_staged_behind_the_converted_snapshot_is_not_published",),
    ),
    Mutation(
        name="a write is called done though its staging branch was begun anew",
        file="deletes/publish.py",
        before="if not self._is_published(metadata):",
        after="if metadata is None:",
        tests=(_PUBLICATION + "test_epoch_whose_staging_branch_was_begun_anew_is_not_called_done",),
    ),
    Mutation(
        name="rows that nobody repeats are given up with their staging branch",
        file="snapshots/refs.py",
        before="if not keeps_rows(snapshot) and _summary_entry(snapshot, STAGED_FOR_KEY) != publish_to:",
        after="if snapshot is None:",
        tests=(
            _BRANCHES + "test_staging_branch_that_is_converted_keeps_what_waits",
            _PUBLICATION + "test_batch_without_a_number_that_cannot_be_published_is_left_to_the_user",
        ),
    ),
    Mutation(
        name="an epoch is staged beside a branch that has moved on",
        file="snapshots/snapshot.py",
        before="if not write.route.converts or to is None:",
        after="if to is None or to:",
        tests=(_PUBLICATION + "test_main_that_is_rolled_back_before_the_epoch_is_staged_stays_rolled_back",),
    ),
    Mutation(
        name="marks and rewritten files that the driver does not see are committed",
        file="commit/commit.py",
        before="_unseen(Added.of(commits), *([] if rewrite is None else [rewrite.added]))",
        after="_unseen(Added.of(commits))",
        tests=(_COMMITTING + "test_marks_and_rewritten_files_that_the_driver_does_not_see_are_not_committed",),
    ),
    Mutation(
        name="a problem of the catalog hides that of a task",
        file="commit/commit.py",
        before="    except Exception as problem:  # of any storage library; the caller already has a problem to report",
        after="    except KeyError as problem:",
        tests=(_COMMITTING + "test_failure_of_a_task_is_told_where_the_catalog_fails_then",),
    ),
    Mutation(
        name="rows of which Spark runs no task are an error",
        file="spark/write_job.py",
        before="commits or [of_no_rows(plan)]",
        after="commits and [of_no_rows(plan)]",
        tests=("unit/multi_table/test_transaction.py::test_dataframe_without_tasks_makes_its_table",),
        spark_tests=("integration/test_upsert_function.py::test_empty_dataframe_makes_the_table_and_nothing_else",),
    ),
)
