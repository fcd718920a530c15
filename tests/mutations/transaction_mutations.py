"""Mutations of transactions: over several DataFrames, with the job that writes each of them, and of the source."""

from __future__ import annotations

from mutations.mutating import Mutation

_TRANSACTION = "unit/multi_table/test_transaction.py::"
_BLOCK = _TRANSACTION + "test_block_that_raises_leaves_nothing"
_REPEATED = _TRANSACTION + "test_epoch_that_ends_between_tables_is_finished_by_its_repetition"
_MEANWHILE = _TRANSACTION + "test_rows_that_came_after_the_search_give_way"
_OF_SOURCE = "properties/test_whole_transactions.py::"
_ONE_PARTITION = _OF_SOURCE + "test_one_partition_is_passed_on_transaction_by_transaction"
_HELD = "integration/test_whole_transactions.py::test_last_transaction_of_a_feed_without_ends_is_held"
_SEVERAL = _OF_SOURCE + "test_counts_keep_transactions_whole_over_partitions_that_lag"
_SHOP = "recipes/test_debezium_shop.py::"

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
        name="rows that no one may write are found after the line that writes them",
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
        before="giving_up(catalog, lambda: [*(line.at_stake() for line in due), *quarantines]):",
        after="giving_up(catalog, lambda: [line.at_stake() for line in due][:1]):",
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
        file="commit/epoch_part.py",
        before="                self._renew(stale)\n                prepared = stale\n",
        after="                raise stale\n",
        tests=(_MEANWHILE,),
    ),
    Mutation(
        name="a stale search fails a table that is committed alone",
        file="commit/together.py",
        before="            write = write.renewed(catalog, meter, stale)\n",
        after="            raise stale\n",
        tests=("unit/deletes/test_upsert.py::test_rows_that_came_meanwhile_give_way",),
    ),
    Mutation(
        name="a stale search fails a table that is committed in turn",
        file="commit/epoch_part.py",
        before="            except RewriteValidationError as stale:\n                self._renew(stale)\n\n",
        after="            except RewriteValidationError as stale:\n                raise\n\n",
        tests=(_MEANWHILE,),
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
    Mutation(
        name="a transaction of the source is passed on before its end has come",
        file="cdc/source_transactions.py",
        before='        return found.filter(pc.is_valid(found["end"]))\n',
        after="        return found\n",
        tests=(_ONE_PARTITION, _SEVERAL),
        spark_tests=(_SHOP + "test_every_state_is_one_of_whole_transactions_and_tables_equal_postgres",),
    ),
    Mutation(
        name="the last transaction of a feed without ends is not held",
        file="cdc/source_transactions.py",
        before='    return found.filter(pc.less(found["end"], pc.max(feed[POSITION])))\n',
        after="    return found\n",
        tests=(_ONE_PARTITION,),
    ),
    Mutation(
        name="a transaction of the source is whole without rows that its end counts",
        file="cdc/source_transactions.py",
        before='pc.less(ended["rows"], pc.fill_null(ended["expected"], 0))',
        after='pc.less(ended["rows"], 0)',
        tests=(_SEVERAL,),
    ),
    Mutation(
        name="an end that counts no rows ends its transaction",
        file="cdc/source_transactions.py",
        before="    if uncounted:\n",
        after="    if not ends:\n",
        tests=("properties/test_whole_transactions.py::test_end_that_does_not_say_what_has_ended_is_refused",),
    ),
    Mutation(
        name="a transaction of the source ends where its end came last",
        file="cdc/source_transactions.py",
        before='    end_of = "min" if has_ends else "max"\n',
        after='    end_of = "max"\n',
        tests=("properties/test_whole_transactions.py::test_end_that_comes_again_lets_no_transaction_overtake",),
    ),
    Mutation(
        name="a transaction of the source overtakes one that ended before it",
        file="cdc/source_transactions.py",
        before='        whole = whole.filter(pc.less(ended["end"], barrier))\n',
        after="        whole = whole.filter(pc.invert(is_short))\n",
        tests=(_SEVERAL,),
    ),
    Mutation(
        name="a value that was held is changed to fit a new type",
        file="cdc/source_transactions.py",
        before="    if _is_wider(values.type, field.type):\n",
        after="    if values is not None:\n",
        tests=(_OF_SOURCE + "test_held_value_is_never_changed_to_fit_a_new_type",),
    ),
    Mutation(
        name="a column cannot be removed although nothing is held",
        file="cdc/source_transactions.py",
        before="    if held is None or not len(held):\n",
        after="    if held is None:\n",
        tests=(_OF_SOURCE + "test_columns_change_freely_while_nothing_is_held",),
    ),
    Mutation(
        name="a column that cannot be null gets nulls from held rows",
        file="cdc/source_transactions.py",
        before="        if values.null_count and not field.nullable and field.name not in FACTS:\n",
        after="        if values is None:\n",
        tests=(_OF_SOURCE + "test_held_null_in_a_column_that_cannot_be_null_is_refused",),
    ),
    Mutation(
        name="rows that an earlier run held are forgotten",
        file="spark/whole_transactions.py",
        before="    held = from_bytes(state.get[0]) if state.exists else None\n",
        after="    held = None\n",
        spark_tests=(_HELD,),
    ),
)
