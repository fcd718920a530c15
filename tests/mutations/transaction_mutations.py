"""Mutations of transactions over several DataFrames, and of the job that writes each of them."""

from __future__ import annotations

from mutations.mutating import Mutation

_TRANSACTION = "unit/multi_table/test_transaction.py::"
_BLOCK = _TRANSACTION + "test_block_that_raises_leaves_nothing"
_REPEATED = _TRANSACTION + "test_epoch_that_ends_between_tables_is_finished_by_its_repetition"
_MEANWHILE = _TRANSACTION + "test_rows_that_came_after_the_search_give_way"

TRANSACTIONS = (
    Mutation(
        name="a block that raises is committed",
        file="multi_table/transaction.py",
        before="        problem = error or self._failure or self._why_unfinished()\n",
        after="        problem = self._failure\n",
        tests=(_BLOCK,),
    ),
    Mutation(
        name="files of a block that raises stay",
        file="multi_table/transaction.py",
        before="        self._give_up()\n        if error is None:",
        after="        if error is None:",
        tests=(_BLOCK,),
    ),
    Mutation(
        name="a transaction is committed without the line that failed",
        file="multi_table/transaction.py",
        before="        problem = error or self._failure or self._why_unfinished()\n",
        after="        problem = error\n",
        tests=(_TRANSACTION + "test_line_that_fails_dooms_the_block_that_handles_its_error",),
    ),
    Mutation(
        name="the tables of a transaction do not record its version",
        file="multi_table/transaction.py",
        before='        return {"txn-app-id": app_id, "txn-version": str(self._version)}',
        after="        return {}",
        tests=(_REPEATED,),
    ),
    Mutation(
        name="rows that no one may write are found when other tables have theirs",
        file="multi_table/transaction.py",
        before="            check_reports(commits)\n",
        after="            pass\n",
        tests=(_TRANSACTION + "test_rows_outside_the_replaced_range_fail_their_line",),
    ),
    Mutation(
        name="one table is written twice under two names",
        file="multi_table/transaction.py",
        before="            if plan.write.table_uuid in [other.plan.write.table_uuid for other in self._lines]:",
        after="            if plan.write.table_uuid in []:",
        tests=(_TRANSACTION + "test_table_under_another_name_is_refused",),
    ),
    Mutation(
        name="files of other tables stay when a search fails",
        file="multi_table/transaction.py",
        before="        with giving_up(catalog, given_up):",
        after="        with giving_up(catalog, given_up[:1]):",
        tests=(_TRANSACTION + "test_search_that_fails_leaves_no_file_of_any_table",),
    ),
    Mutation(
        name="files of keys stay when their transaction has landed",
        file="multi_table/transaction.py",
        before="                line.forget_keys()\n",
        after="                pass\n",
        tests=(_TRANSACTION + "test_tables_get_their_rows_at_the_end_of_the_block",),
    ),
    Mutation(
        name="a stale search fails all tables that are committed together",
        file="commit/together.py",
        before="                self._renew(stale)\n                prepared = stale\n",
        after="                raise stale\n",
        tests=(_MEANWHILE,),
    ),
    Mutation(
        name="a stale search fails a table that is committed alone",
        file="commit/together.py",
        before="            write = write.renewed(catalog, meter, stale)\n",
        after="            raise stale\n",
        tests=(
            _MEANWHILE,
            "unit/deletes/test_upsert.py::test_rows_that_came_meanwhile_give_way",
        ),
    ),
    Mutation(
        name="a line that a thread still writes is forgotten",
        file="multi_table/transaction.py",
        before="        problem = error or self._failure or self._why_unfinished()\n",
        after="        problem = error or self._failure\n",
        tests=(_TRANSACTION + "test_line_that_runs_when_the_block_ends_is_not_forgotten",),
    ),
    Mutation(
        name="a job whose task has failed is committed",
        file="spark/write_job.py",
        before="    if problem is not None:\n",
        after="    if problem is not None and not commits:\n",
        tests=(_TRANSACTION + "test_task_that_fails_leaves_no_file_of_any_line",),
    ),
)
