"""Mutations of row-level operations."""

from __future__ import annotations

from mutations.mutating import Mutation

_CHANGES = "integration/row_level/test_delete_and_update.py::"
_MERGES = "integration/row_level/test_merge.py::"
_MEANWHILE = "integration/row_level/test_conflicts.py::"

ROW_LEVEL = (
    Mutation(
        name="a file of which some rows stay is removed",
        file="deletes/tasks.py",
        before="        if not self._plan.key_types and found.is_whole:\n",
        after="        if not self._plan.key_types:\n",
        spark_tests=(_CHANGES + "test_rows_of_a_predicate_are_deleted",),
    ),
    Mutation(
        name="files are removed that have rows outside the predicate",
        file="row_level/operation.py",
        before="if task.work.path in planned.plan.inside and not task.has_deletes",
        after="if not task.has_deletes",
        spark_tests=(_CHANGES + "test_rows_of_a_predicate_are_deleted",),
    ),
    Mutation(
        name="rows that are written anew stay where they were, too",
        file="row_level/change_tasks.py",
        before="            goes = pc.and_(files.is_valid(), is_row.is_valid())\n",
        after="            goes = pc.and_(files.is_valid(), pc.invert(is_row))\n",
        spark_tests=(_CHANGES + "test_rows_get_new_values", _MERGES + "test_merge_does_what_its_clauses_say"),
    ),
    Mutation(
        name="a row goes for which no clause is left",
        file="row_level/change_tasks.py",
        before="            goes = pc.and_(files.is_valid(), is_row.is_valid())\n",
        after="            goes = files.is_valid()\n",
        spark_tests=(_MERGES + "test_function_that_answers_otherwise_each_time_loses_no_row",),
    ),
    Mutation(
        name="a row is changed by two rows of the source",
        file="row_level/operation.py",
        before="    if found < count and not operation.allows_twice and found:\n",
        after="    if False:\n",
        spark_tests=(_MERGES + "test_only_rows_that_are_changed_twice_are_refused",),
    ),
    Mutation(
        name="the last word of a predicate that was cut off is taken for a name",
        file="spark/sql_text.py",
        before='    return F.expr(f"({text}\\n)")\n',
        after="    return F.expr(text)\n",
        spark_tests=(_CHANGES + "test_predicate_that_was_cut_off_changes_nothing",),
    ),
    Mutation(
        name="a clause of a merge takes values of the side that has no row",
        file="row_level/merge.py",
        before="        self._check_side(self._source.alias(_SOURCE), self._clauses.not_matched)\n",
        after="",
        spark_tests=(_MERGES + "test_wrong_merges_are_named",),
    ),
    Mutation(
        name="a clause applies although one before it does",
        file="row_level/merge.py",
        before="    pairs = list(zip(conditions, values, strict=True))\n",
        after="    pairs = list(zip(conditions, values, strict=True))[::-1]\n",
        spark_tests=(_MERGES + "test_first_clause_whose_condition_is_true_counts",),
    ),
    Mutation(
        name="rows that came meanwhile are no conflict under serializable",
        file="row_level/replaced_rows.py",
        before="        if self._rows.is_serializable:\n",
        after="        if not self._rows.is_serializable:\n",
        spark_tests=(
            _MEANWHILE + "test_rows_that_come_meanwhile_are_changed_too",
            _MEANWHILE + "test_inserts_of_two_merges_do_not_double",
        ),
    ),
    Mutation(
        name="new rows that a rewrite has taken over are no conflict",
        file="row_level/replaced_rows.py",
        before="for one in dropwhile(keeps_rows, reversed(since))}",
        after="for one in since if not keeps_rows(one)}",
        spark_tests=(_MEANWHILE + "test_rows_that_a_compaction_has_taken_over_are_new_rows",),
    ),
    Mutation(
        name="an update brings back a row that was deleted meanwhile",
        file="row_level/replaced_rows.py",
        before="        if self._rows.takes_values:\n",
        after="        if not self._rows.takes_values:\n",
        spark_tests=(_MEANWHILE + "test_row_that_is_deleted_meanwhile_does_not_come_back",),
    ),
    Mutation(
        name="a delete names rows of a file that is gone",
        file="row_level/replaced_rows.py",
        before="        if listed != sorted(touched) or (changed",
        after="        if (changed",
        spark_tests=(_MEANWHILE + "test_delete_of_rows_that_are_rewritten_meanwhile",),
    ),
    Mutation(
        name="a value that does not fit becomes null",
        file="row_level/assignments.py",
        before="            return F.when(one.isNull() | narrow.isNotNull(), narrow).otherwise(failing.cast(wanted))\n",
        after="            return narrow\n",
        spark_tests=(_CHANGES + "test_value_that_does_not_fit_is_no_null",),
    ),
)
