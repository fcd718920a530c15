"""Mutations of rewrites of manifests and of position delete files, and of what tells which deletes apply to nothing."""

from __future__ import annotations

from mutations.mutating import Mutation

_DANGLING = "unit/maintenance/test_dangling_deletes.py::"
_MANIFESTS = "unit/maintenance/test_rewrite_manifests.py::"
_POSITIONS = "unit/maintenance/test_rewrite_position_deletes.py::"
_KILLS = "faults/test_rewrite_kills.py::"
_HISTORIES = "properties/test_rewrites.py::"

MAINTENANCE_REWRITES: tuple[Mutation, ...] = (
    Mutation(
        name="equality deletes are dropped that apply to the oldest data files",
        file="maintenance/dangling_deletes.py",
        before="return lowest is not None and lowest < number",
        after="return lowest is not None and lowest + 1 < number",
        tests=(
            _DANGLING + "test_equality_deletes_stay_while_an_older_data_file_is_live",
            _DANGLING + "test_exactly_what_applies_to_nothing_is_found",
        ),
    ),
    Mutation(
        name="position deletes are dropped that apply to rows of their own commit",
        file="maintenance/dangling_deletes.py",
        before="return lowest is not None and lowest <= number",
        after="return lowest is not None and lowest < number",
        tests=(
            _DANGLING + "test_exactly_what_applies_to_nothing_is_found",
            _DANGLING + "test_what_the_commit_drops_and_adds_counts",
        ),
    ),
    Mutation(
        name="equality deletes of the whole table count for a partition only",
        file="maintenance/dangling_deletes.py",
        before="everywhere = is_global(specs[deletes.data_file.spec_id])",
        after="everywhere = False",
        tests=(_DANGLING + "test_deletes_of_the_whole_table_stay_while_any_data_file_is_older",),
    ),
    Mutation(
        name="a rewrite brings back the files of manifests that are gone",
        file="snapshots/manifest_merge.py",
        before="return self.sources <= listed and self.format_version",
        after="return bool(listed) and self.format_version",
        tests=(_MANIFESTS + "test_manifests_that_are_gone_are_planned_again",),
    ),
    Mutation(
        name="an entry is lost as manifests are rewritten",
        file="maintenance/rewrite_manifests.py",
        before="[found.entry for found in some]",
        after="[found.entry for found in some[1:]]",
        tests=(
            _MANIFESTS + "test_each_manifest_covers_few_partitions_afterwards",
            _MANIFESTS + "test_rows_that_come_meanwhile_stay",
        ),
        spark_tests=(_HISTORIES + "test_rewrites_change_no_row",),
    ),
    Mutation(
        name="rows that new manifests do not list are not missed",
        file="commit/producer.py",
        before="        if len(known) < len(counts):\n            return\n",
        after="        return\n",
        tests=(_MANIFESTS + "test_list_that_counts_other_rows_is_refused",),
    ),
    Mutation(
        name="new position deletes are as old as the oldest that they replace",
        file="maintenance/position_delete_tasks.py",
        before="return max(found.sequence_number for found in self.replaced)",
        after="return min(found.sequence_number for found in self.replaced)",
        tests=(_POSITIONS + "test_new_files_have_the_highest_number_of_those_they_replace",),
    ),
    Mutation(
        name="positions that are lost are not missed",
        file="maintenance/rewrite_position_deletes.py",
        before="if answer.before.get(path) != answer.after.get(path)",
        after="if answer.before.get(path) is None",
        tests=(_POSITIONS + "test_lost_position_is_noticed_before_the_commit",),
    ),
    Mutation(
        name="a data file that comes back has lost its deletes",
        file="maintenance/rewrite_position_deletes.py",
        before="if part.targets.get(target.path) != target.sequence_number:",
        after="if target.path == part.group.like.file_path:",
        tests=(_POSITIONS + "test_data_file_that_comes_back_meanwhile_keeps_its_deletes",),
    ),
    Mutation(
        name="position deletes that others add are dropped with those that are rewritten",
        file="maintenance/rewrite_position_deletes.py",
        before="gone = {path for part in self._parts for path in part.replaced}",
        after="gone = {found.path for found in read.files.positions}",
        tests=(_POSITIONS + "test_deletes_that_come_meanwhile_stay",),
    ),
    Mutation(
        name="a rewrite deletes what it replaces before it has landed",
        file="maintenance/rewrite_position_deletes.py",
        before="            meter.begin(write)\n",
        after=(
            "            meter.begin(write)\n"
            "            for part in self._parts:\n"
            "                delete_files(table.io, part.replaced, Proof.REFUSED)\n"
        ),
        tests=(_KILLS + "test_rewrite_that_is_killed_changes_no_row",),
    ),
    Mutation(
        name="a failed clean-up fails the write whose rows have landed",
        file="maintenance/auto.py",
        before="        except Exception as problem:  # of any library; the rows have landed\n",
        after="        except AssertionError as problem:\n",
        tests=("unit/maintenance/test_auto.py::test_failure_fails_no_write_and_is_told",),
    ),
    Mutation(
        name="what cannot be maintained is tried with every commit",
        file="maintenance/auto.py",
        before="            if not any(done):\n",
        after="            if not done:\n",
        tests=("unit/maintenance/test_auto.py::test_what_cannot_be_done_is_not_tried_with_every_commit",),
    ),
    Mutation(
        name="a policy takes limits that maintenance cannot compare with",
        file="maintenance/policy.py",
        before='int if str(one.type).startswith("int") else int | float\n',
        after="int | float\n",
        tests=("unit/maintenance/test_maintain.py::test_policy_of_wrong_numbers_is_refused",),
    ),
    Mutation(
        name="small files that were rewritten still hold writes back",
        file="snapshots/growth.py",
        before=', "added-files-size", below) - gone)',
        after=', "added-files-size", below))',
        tests=(
            "unit/snapshots/test_small_files.py::test_number_is_never_too_high",
            "unit/snapshots/test_small_files.py::test_rewritten_files_are_not_counted_any_more",
        ),
    ),
)
