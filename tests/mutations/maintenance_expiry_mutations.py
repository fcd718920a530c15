"""Mutations of the expiry of snapshots: of what goes, what is recorded in its place, and which files are deleted."""

from __future__ import annotations

from mutations.mutating import Mutation

_RULES = "unit/maintenance/test_retention.py::test_case_of_the_rules"
_FILES = "unit/maintenance/test_expire_snapshots.py::"
_MARKS = "unit/maintenance/test_expired_markers.py::"
_ORPHANS = "integration/test_orphans_on_spark.py::"
_PLACES = "unit/maintenance/test_place_tasks.py::"
_ON_SPARK = "integration/test_expiry_on_spark.py::"
_REMOVAL = "unit/maintenance/test_remove_orphan_files.py::"
_OTHERS = _FILES + "test_table_whose_files_others_may_have_is_refused"

EXPIRY = (
    Mutation(
        name="maintenance by commits guesses what a table keeps",
        file="maintenance/auto.py",
        before="    old_ms = now_ms - deciding_number(metadata.properties, MAX_SNAPSHOT_AGE, KEPT_AGE_MS)\n",
        after="    old_ms = now_ms - whole_number(metadata.properties, MAX_SNAPSHOT_AGE, KEPT_AGE_MS)\n",
        tests=(
            "unit/maintenance/test_auto.py::test_property_is_read_as_by_an_expiry_that_is_asked_for",
            "unit/maintenance/test_auto.py::test_property_that_is_no_number_lets_nothing_expire",
        ),
    ),
    Mutation(
        name="a property that decides what is deleted is guessed",
        file="parsing.py",
        before="    if number is None:\n        raise UnsupportedTableError(\n",
        after="    if number is None:\n        return otherwise\n        raise UnsupportedTableError(\n",
        tests=(
            "unit/test_parsing.py::test_property_that_decides_what_is_deleted_is_never_guessed",
            "unit/reading/test_consumers.py::test_age_that_is_no_number_ends_no_wait",
        ),
    ),
    Mutation(
        name="plans of Spark hold those of all that was found before",
        file="maintenance/places_on_spark.py",
        before="frame.localCheckpoint(eager=False)",
        after="frame.persist()",
        spark_tests=(_ON_SPARK + "test_plans_do_not_hold_those_of_what_was_found_before",),
    ),
    Mutation(
        name="snapshots of that very time expire",
        file="maintenance/retention.py",
        before="has_ended |= len(row) >= number and snapshot.timestamp_ms < since_ms",
        after="has_ended |= len(row) >= number and snapshot.timestamp_ms <= since_ms",
        tests=(_RULES,),
    ),
    Mutation(
        name="the snapshot of a branch expires if it is asked for",
        file="maintenance/retention.py",
        before="    for snapshot_id in sorted(retention.snapshot_ids & heads.keys()):",
        after="    for snapshot_id in sorted(retention.snapshot_ids & set()):",
        tests=("unit/maintenance/test_retention.py::test_snapshot_of_a_ref_is_refused",),
    ),
    Mutation(
        name="markers that only history tells expire with it",
        file="snapshots/txn_properties.py",
        before="            if markers.last is not None and _tells_more(markers.last, recorded.get(writer)):\n",
        after="            if markers.last is None and _tells_more(markers.last, recorded.get(writer)):\n",
        tests=(_MARKS + "test_marks_are_recorded_for_every_branch",),
    ),
    Mutation(
        name="history that an older marker needs expires",
        file="maintenance/resting.py",
        before="needed = {**_markers_needed(metadata, after), **_staging_needed(metadata, after)}",
        after="needed = {**_staging_needed(metadata, after)}",
        tests=(_MARKS + "test_newer_mark_that_proves_nothing_does_not_hide_an_older_one",),
    ),
    Mutation(
        name="what tells a staging branch from its target expires",
        file="maintenance/resting.py",
        before="needed = {**_markers_needed(metadata, after), **_staging_needed(metadata, after)}",
        after="needed = {**_markers_needed(metadata, after)}",
        tests=(_MARKS + "test_staged_epoch_whose_target_moved_on_is_written_anew_after_expiry",),
    ),
    Mutation(
        name="a staging branch that waits is dropped for its age",
        file="maintenance/resting.py",
        before="    expired = find_expired(metadata, retention, {*waiting, *followed})\n",
        after="    expired = find_expired(metadata, retention, followed)\n",
        tests=(_MARKS + "test_staging_branch_that_waits_is_never_too_old",),
    ),
    Mutation(
        name="picked snapshots expire with their markers",
        file="maintenance/resting.py",
        before="        held |= _picked(BranchHistory(metadata, branch))\n",
        after="        pass\n",
        tests=(_MARKS + "test_picked_write_is_skipped",),
    ),
    Mutation(
        name="the history of a quarantine table expires",
        file="maintenance/resting.py",
        before="    held |= _quarantined(metadata, added_live)\n",
        after="",
        tests=(
            _MARKS + "test_requeue_finds_its_rows_after_expiry",
            _MARKS + "test_repetition_of_an_epoch_with_bad_rows_finds_them_after_expiry",
        ),
    ),
    Mutation(
        name="overwrites that expire are forgotten",
        file="maintenance/resting.py",
        before="    values: dict[str, str] = replaced_property(metadata, gone.snapshot_ids)\n",
        after="    values: dict[str, str] = {}\n",
        tests=(_MARKS + "test_requeue_knows_after_expiry_that_rows_came_again",),
    ),
    Mutation(
        name="an expiry takes the schema by which equality deletes are read",
        file="maintenance/expire_snapshots.py",
        before="            schemas |= _schemas_of_keys(io, metadata, used.values())\n",
        after="",
        tests=(_FILES + "test_schema_that_live_equality_deletes_need_stays",),
    ),
    Mutation(
        name="a branch may move while its snapshots expire",
        file="maintenance/expire_snapshots.py",
        before="            AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in "
        "sorted(table.refs.items())\n",
        after="            AssertRefSnapshotId(ref=name, snapshot_id=ref.snapshot_id) for name, ref in []\n",
        tests=(_FILES + "test_branch_that_moves_meanwhile_keeps_its_snapshot",),
    ),
    Mutation(
        name="a tag that is set meanwhile goes with its snapshot",
        file="maintenance/expire_snapshots.py",
        before="        if knows_all_refs:\n",
        after="        if knows_all_refs and not table.refs:\n",
        tests=(_FILES + "test_tag_that_is_set_meanwhile_keeps_its_snapshot",),
    ),
    Mutation(
        name="an old answer counts as the removal",
        file="maintenance/expire_snapshots.py",
        before="            return last_sequence_number(metadata) >= snapshot.sequence_number\n",
        after="            return True\n",
        tests=(_FILES + "test_answer_from_before_a_snapshot_is_no_sign_that_it_was_removed",),
    ),
    Mutation(
        name="files are deleted without a second look",
        file="maintenance/expire_snapshots.py",
        before="            files.keep(table.metadata)\n",
        after="",
        tests=(_FILES + "test_file_that_a_later_snapshot_refers_to_stays",),
    ),
    Mutation(
        name="another table of the name counts as the removal",
        file="maintenance/expire_snapshots.py",
        before="        if self._planned is not None and metadata.table_uuid != self._planned.table.table_uuid:",
        after="        if self._planned is None:",
        tests=(_FILES + "test_table_that_takes_the_name_meanwhile_costs_the_other_one_no_file",),
    ),
    Mutation(
        name="a table expires whose files others may have",
        file="maintenance/expire_snapshots.py",
        before="        refuse_shared_files(table, map(file_key, stored))\n",
        after="",
        tests=(_OTHERS,),
    ),
    Mutation(
        name="files of another catalog's state are deleted",
        file="maintenance/expired_files.py",
        before="others.may_have(key := file_key(path)) or key.startswith(around)",
        after="(key := file_key(path)).startswith(around)",
        tests=(_FILES + "test_files_of_a_state_that_another_catalog_may_have_stay",),
    ),
    Mutation(
        name="files of another table that were brought in are deleted",
        file="maintenance/expired_files.py",
        before="others.may_have(key := file_key(path)) or key.startswith(around)",
        after="others.may_have(file_key(path))",
        tests=(_FILES + "test_files_in_the_folder_of_another_table_stay",),
    ),
    Mutation(
        name="rows that were taken out are forgotten with the history",
        file="maintenance/resting.py",
        before="        told = told_by_history(metadata, branch)\n",
        after="        told = PropertyChange()\n",
        tests=(_MARKS + "test_rows_that_were_taken_out_are_still_known_to_be_missing",),
    ),
    Mutation(
        name="files that live on in other manifests are deleted",
        file="maintenance/expired_files.py",
        before="            self._drop(path for _, path in found)\n",
        after="            pass\n",
        tests=(_FILES + "test_file_that_a_merged_manifest_has_taken_over_stays",),
    ),
    Mutation(
        name="data files of expired snapshots stay",
        file="maintenance/expire_snapshots.py",
        before="            for kind in Kind:\n                failed",
        after="            for kind in [Kind.MANIFEST]:\n                failed",
        tests=(_FILES + "test_files_that_only_removed_snapshots_have_are_deleted",),
        spark_tests=(
            "properties/test_expiry.py",
            "acceptance/test_jvm_peer_expiry.py::test_the_same_goes_as_with_the_procedure",
        ),
    ),
    Mutation(
        name="a file that the last load refers to is deleted on Spark",
        file="maintenance/orphans_on_spark.py",
        before="        if table.metadata_location == before.metadata_location:\n            return groups\n",
        after="        if table.metadata_location:\n            return groups\n",
        spark_tests=(_ORPHANS + "test_file_that_is_committed_between_the_looks_stays",),
    ),
    Mutation(
        name="what manifests list is not known on Spark",
        file="maintenance/places_on_spark.py",
        before="return self._task(manifests, read_manifests, plan).unionByName(themselves(lists, role))",
        after="return themselves(lists, role)",
        spark_tests=(
            _ORPHANS + "test_the_same_files_go_as_in_one_process",
            _ON_SPARK + "test_the_same_files_go_as_in_one_process",
        ),
    ),
    Mutation(
        name="what cannot be read on Spark refuses nothing",
        file="maintenance/places_on_spark.py",
        before="    return None if problem is None else str(problem)\n",
        after="    return None\n",
        spark_tests=(
            _ORPHANS + "test_nothing_goes_while_a_manifest_cannot_be_read",
            _ON_SPARK + "test_manifest_that_cannot_be_read_leaves_all_files",
        ),
    ),
    Mutation(
        name="a file that Spark finds by one name and knows by another one is not known",
        file="maintenance/places_on_spark.py",
        before='pairs.where("role IS NOT NULL")',
        after='pairs.where("role > 0")',
        spark_tests=(_ORPHANS + "test_path_that_differs_in_its_prefix_is_told_by_the_mode",),
    ),
    Mutation(
        name="files of hidden folders are orphans on Spark",
        file="inspect/orphan_rules.py",
        before="        return self.is_hidden or name == _VERSION_HINT or _step_hides(name)\n",
        after="        return name == _VERSION_HINT or _step_hides(name)\n",
        tests=(_PLACES + "test_rows_of_a_stored_file_are_those_of_its_path",),
    ),
    Mutation(
        name="a folder of another format tells Spark of no other table",
        file="inspect/orphan_rules.py",
        before="        return self.is_of_other_format or is_metadata_file(name)",
        after="        return is_metadata_file(name)",
        tests=(_PLACES + "test_rows_of_a_stored_file_are_those_of_its_path",),
    ),
    Mutation(
        name="what is not asked for of a manifest's entry is skipped as PyIceberg does",
        file="snapshots/avro_files.py",
        before="        return _Passed(reader) if expected_field is None else reader\n",
        after="        return reader\n",
        tests=("unit/snapshots/test_manifest_reader.py::test_paths_alone_are_those_of_the_entries",),
    ),
    Mutation(
        name="a manifest that was cut off between two blocks is taken for one that lists less",
        file="snapshots/manifests.py",
        before="    if found < recorded.entries and len(io",
        after="    if found < 0 and len(io",
        tests=(
            "unit/inspect/test_orphans.py::test_nothing_is_deleted_while_less_is_listed_than_was_written",
            "unit/snapshots/test_manifest_reader.py::test_manifest_that_is_cut_off_anywhere_is_refused",
        ),
    ),
    Mutation(
        name="a manifest list that was cut off in the frame of a block is taken for one that lists less",
        file="snapshots/avro_files.py",
        before="    except EOFError as error:\n",
        after="    except EOFError as error:\n        return\n",
        tests=(
            "unit/inspect/test_orphans.py::test_nothing_is_deleted_while_less_is_listed_than_was_written",
            _FILES + "test_damaged_table_is_refused_before_anything_is_removed",
        ),
    ),
    Mutation(
        name="a manifest list that was cut off behind its header is taken for that of an empty table",
        file="snapshots/version_3.py",
        before="has_blocks=listed.has_files)\n",
        after="has_blocks=False)\n",
        tests=(
            "unit/inspect/test_orphans.py::test_nothing_is_deleted_while_less_is_listed_than_was_written",
            "unit/snapshots/test_manifest_reader.py::test_nothing_is_added_to_a_list_that_was_cut_off",
        ),
    ),
    Mutation(
        name="tasks take a manifest that was cut off for one that lists less",
        file="maintenance/place_tasks.py",
        before="live_paths(plan.io, path, Recorded(*said))\n",
        after="live_paths(plan.io, path, _NOTHING)\n",
        spark_tests=("integration/test_expiry_on_spark.py::test_manifest_that_cannot_be_read_leaves_all_files",),
    ),
    Mutation(
        name="manifests with live files are taken for empty ones",
        file="snapshots/manifests.py",
        before="    return manifest.has_added_files() or manifest.has_existing_files()\n",
        after="    return manifest.has_added_files()\n",
        tests=(_FILES + "test_files_that_a_manifest_only_keeps_are_deleted",),
    ),
    Mutation(
        name="an old inventory deletes a file that was written anew",
        file="maintenance/orphans_on_spark.py",
        before="        if self._search.file_list is None:\n            return old\n",
        after="        if self._search is not None:\n            return old\n",
        spark_tests=(_ORPHANS + "test_rows_of_an_old_inventory_cost_nothing",),
    ),
    Mutation(
        name="an inventory without metadata deletes the files of a table below",
        file="maintenance/orphans_on_spark.py",
        before="            self._look_around(groups)\n",
        after="            pass\n",
        spark_tests=(_ORPHANS + "test_files_of_a_table_below_stay",),
    ),
    Mutation(
        name="a second name of a store deletes its files on Spark",
        file="maintenance/orphans_on_spark.py",
        before='        if self._rules.mismatch == "error":\n',
        after='        if self._rules.mismatch == "delete":\n',
        spark_tests=(_ORPHANS + "test_path_that_differs_in_its_prefix_is_told_by_the_mode",),
    ),
    Mutation(
        name="a file that a snapshot has again is deleted on Spark",
        file="maintenance/expired_on_spark.py",
        before='            known = groups.where(F.size("known") > 0)\n',
        after='            known = groups.where(F.size("known") < 0)\n',
        spark_tests=(_ON_SPARK + "test_file_that_a_later_snapshot_refers_to_stays",),
    ),
    Mutation(
        name="files of another catalog's state are deleted on Spark",
        file="maintenance/expired_on_spark.py",
        before="        self._states.append(state)\n",
        after="        pass\n",
        spark_tests=(_ON_SPARK + "test_files_of_a_state_that_another_catalog_may_have_stay",),
    ),
    Mutation(
        name="a location whose name begins with the table's is taken for one of its folders",
        file="inspect/orphan_rules.py",
        before="self.folder(self.location).startswith(tuple(folders))",
        after="self.folder(self.location).startswith(tuple(folder.rstrip('/') for folder in folders))",
        tests=(_REMOVAL + "test_location_outside_of_the_table_is_refused",),
    ),
    Mutation(
        name="the word false forces the deletion of young files",
        file="maintenance/remove_orphan_files.py",
        before="        force=(force, FLAG),\n",
        after="",
        tests=(_REMOVAL + "test_only_a_true_force_deletes_young_files",),
    ),
    Mutation(
        name="expired parents are cut off",
        file="catalog/own_storage.py",
        before="    if not expired:\n        return metadata\n",
        after="    if not expired or expired:\n        return metadata\n",
        tests=(_FILES + "test_parents_of_what_stays_are_known_as_java_keeps_them",),
    ),
)
