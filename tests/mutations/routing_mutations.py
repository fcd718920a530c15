"""Mutations of writes whose rows name their tables."""

from __future__ import annotations

from mutations.mutating import Mutation

_ROUTE = "unit/multi_table/test_route.py::"
_CUT = "unit/multi_table/test_cut.py::"
_REQUEUE = "unit/multi_table/test_requeue.py::"
_NEW_COLUMNS = "unit/multi_table/test_new_columns.py::"
_UNROUTED = "unit/multi_table/test_unrouted.py::"
_FEEDS = "properties/test_routes.py::test_every_row_is_once_in_its_table"

ROUTING = (
    Mutation(
        name="rows of tables after the first are forgotten",
        file="writers/routed.py",
        before="        self._left = iter(self._waiting.numbers)\n\n    def loose",
        after="        self._left = iter([])\n\n    def loose",
        tests=(_ROUTE + "test_tables_that_are_there_are_written_by_tasks",),
        spark_tests=("integration/test_routes.py::test_stream_that_is_killed_between_tables_has_each_row_once",),
    ),
    Mutation(
        name="rows that wait on disk are lost",
        file="writers/routed.py",
        before="        for chunk in self._chunks.pop(number, []):",
        after="        for chunk in self._chunks.pop(number, [])[1:]:",
        tests=(_ROUTE + "test_rows_of_many_tables_wait_on_disk_and_arrive", _FEEDS),
    ),
    Mutation(
        name="a value in a column that the table lacks is dropped in silence",
        file="writers/routed.py",
        before="        if filled and not table.may_gain:",
        after="        if filled and table.may_gain is None:",
        tests=(_ROUTE + "test_values_in_a_column_that_the_table_lacks_are_refused",),
    ),
    Mutation(
        name="a column that rows of an existing table fill is not added",
        file="writers/routed.py",
        before=(
            "        if filled:\n            self._send(number, rows.select(self._picked(name)))\n            return\n"
        ),
        after="",
        tests=(_ROUTE + "test_columns_are_added_to_the_table_whose_rows_fill_them", _FEEDS),
    ),
    Mutation(
        name="a row may name any table",
        file="table/routes.py",
        before="if len(levels) > 1 and self.allows(levels) else None",
        after="if len(levels) > 1 else None",
        tests=(_ROUTE + "test_rows_that_name_no_allowed_table_are_refused_and_nothing_is_written",),
    ),
    Mutation(
        name="rows that name no table are dropped",
        file="multi_table/commit.py",
        before="        _check_refused(commits, options)\n",
        after="        pass\n",
        tests=(_ROUTE + "test_rows_that_name_no_allowed_table_are_refused_and_nothing_is_written",),
    ),
    Mutation(
        name="rows that a task does not account for are committed without them",
        file="multi_table/commit.py",
        before="            check_tables(commit)\n",
        after="            pass\n",
        tests=(_ROUTE + "test_rows_that_are_not_accounted_for_commit_nothing",),
    ),
    Mutation(
        name="a task that fails leaves the files of earlier tables behind",
        file="writers/routed.py",
        before="        for commit in commits:\n            _discard(plan.tables[commit.write.table].plan, commit)\n",
        after="",
        tests=(_ROUTE + "test_task_that_fails_at_its_second_table_leaves_no_file_of_the_first",),
    ),
    Mutation(
        name="an aborted write leaves its files in every table",
        file="multi_table/commit.py",
        before="        abort_write(catalog, found if is_complete else [*found, None])",
        after="        abort_write(catalog, found)",
        tests=(_ROUTE + "test_aborted_write_leaves_no_file_of_any_table",),
    ),
    Mutation(
        name="of two writes into one table the second is taken for a repetition",
        file="commit/together.py",
        before="        check_apart(catalog, writes, first)\n",
        after="        pass\n",
        tests=(
            "unit/multi_table/test_route_edges.py::test_new_tables_whose_names_differ_in_case_alone_are_not_made_at_once",
        ),
    ),
    Mutation(
        name="of two writes into one table without a number the second replaces the first",
        file="commit/together.py",
        before="        if catalog.takes_many_tables or by is not None or not _is_plain_append(identity):\n",
        after="        if catalog.takes_many_tables or by is not None:\n",
        tests=("unit/multi_table/test_route_edges.py::test_catalog_that_heeds_no_case_gets_no_half_batch",),
    ),
    Mutation(
        name="a quarantine table takes other rows where tables are committed one after the other",
        file="commit/together.py",
        before="landing_first.get(key, seen.get((key, by)))",
        after="seen.get((key, by))",
        tests=("unit/commit/test_together.py::test_table_that_lands_first_takes_no_other_rows",),
    ),
    Mutation(
        name="a column of a table goes when the rows that the driver writes have no values in it",
        file="multi_table/commit.py",
        before="        kept |= columns_there(options, frame, there.schema())\n",
        after="        pass\n",
        tests=(
            _NEW_COLUMNS + "test_null_lands_as_null_whoever_writes_it",
            _NEW_COLUMNS + "test_null_in_a_required_column_is_a_bad_row_whoever_writes_it",
        ),
    ),
    Mutation(
        name="the driver drops a column that came after the write was planned",
        file="multi_table/commit.py",
        before="        drop_missing_columns=none.drop_missing_columns,\n",
        after="",
        tests=(_NEW_COLUMNS + "test_column_that_others_add_meanwhile_is_not_dropped",),
    ),
    Mutation(
        name="a table gets the columns of one whose name differs in case",
        file="multi_table/plan.py",
        before="                waiting[name] = fits.sent(table)\n",
        after="                picked[name.lower()] = fits.sent(table)\n",
        tests=(_NEW_COLUMNS + "test_tables_whose_names_differ_in_case_get_their_own_columns",),
    ),
    Mutation(
        name="options of a table that no row may name are ignored",
        file="options/routes.py",
        before="    _refuse_unused(options, route)\n",
        after="",
        tests=(_ROUTE + "test_options_that_do_not_fit_are_refused_by_name",),
    ),
    Mutation(
        name="rows of a feed may name the quarantine table of another table",
        file="options/routes.py",
        before='        kept_name=named[0].lower() if in_each else "",\n',
        after="",
        tests=(
            "unit/multi_table/test_route_edges.py::test_rows_that_name_the_quarantine_table_of_another_are_not_lost",
            _UNROUTED + "test_quarantine_table_of_each_namespace_is_none_that_rows_may_name",
        ),
    ),
    Mutation(
        name="a table cannot have a mode of its own for bad rows",
        file="options/routes.py",
        before="        shared = {option: value for option, value in self._raw.items() if option not in unused}\n",
        after="        shared = self._raw\n",
        tests=(_UNROUTED + "test_table_may_treat_bad_rows_in_its_own_way",),
    ),
    Mutation(
        name="rows land under a number whose cut is recorded without them",
        file="multi_table/record_cut.py",
        before="    if lacking := [write.table for write in due if not has_number(catalog, write)]:\n",
        after="    if lacking := [*()]:\n",
        tests=(_CUT + "test_rows_that_no_cut_would_have_are_refused",),
    ),
    Mutation(
        name="the cut of a repeated epoch lacks tables that its first run has written",
        file="multi_table/record_cut.py",
        before=" - 1 and not is_repeated:\n",
        after=" - 1:\n",
        tests=(_CUT + "test_repeated_epoch_with_a_table_less_has_the_rows_of_that_table",),
    ),
    Mutation(
        name="rows of a new checkpoint land whose cut is refused",
        file="multi_table/record_cut.py",
        before="    if stream is not None and _is_displaced(",
        after="    if stream is None and _is_displaced(",
        tests=(_CUT + "test_checkpoint_whose_cut_is_refused_is_refused_before_rows_land",),
    ),
    Mutation(
        name="a snapshot that has expired is tagged until the last try",
        file="multi_table/record_cut.py",
        before="        tagged = _or_newest(metadata, _shown(write), snapshot_id) or snapshot_id\n",
        after="        tagged = snapshot_id\n",
        tests=(_CUT + "test_snapshot_that_expires_before_its_tag_gives_way_to_the_newest",),
    ),
    Mutation(
        name="a table of cuts may have columns of other types",
        file="multi_table/cut_table.py",
        before="        if name in there and there[name].field_type != kind\n",
        after="        if name not in own\n",
        tests=(_CUT + "test_table_with_unfit_columns_is_refused_before_rows_are_written",),
    ),
    Mutation(
        name="a stream and an application of one name drop each other's tags",
        file="multi_table/record_cut.py",
        before="-{'version' if writer.kind is WriterKind.APPLICATION else 'epoch'}-",
        after="-epoch-",
        tests=(_CUT + "test_names_of_tags_are_safe_and_apart",),
    ),
    Mutation(
        name="a row that another run wrote goes to the quarantine, too, in one request",
        file="commit/epoch_part.py",
        before="(overtaken := replayed.intersection(part.sources))",
        after="(overtaken := replayed.intersection(()))",
        tests=(_REQUEUE + "test_row_that_a_call_at_the_same_time_wrote_stays_out_of_the_quarantine",),
    ),
    Mutation(
        name="a row that another run wrote goes to the quarantine, too, before the tables",
        file="commit/together.py",
        before="                if other.table in write.sources and has_number(catalog, other.commits[0].write):\n",
        after="                if other.table not in write.sources:\n",
        tests=(_REQUEUE + "test_row_that_a_call_at_the_same_time_wrote_stays_out_of_the_quarantine",),
    ),
    Mutation(
        name="the table of a cut gets bad rows",
        file="multi_table/plan.py",
        before="        refuse_other_use(cut, [*options.quarantines, cut if is_quarantine else None])\n",
        after="",
        tests=(
            "unit/multi_table/test_cut.py::test_table_of_the_cut_that_is_a_quarantine_table_is_refused",
            "unit/multi_table/test_cut.py::test_table_of_the_cut_has_no_name_of_quarantine_tables",
        ),
    ),
    Mutation(
        name="an overwrite whose rows add a column replaces what came meanwhile",
        file="writers/routed.py",
        before="        commits += [report_task(table.plan, [], attempt) for table in loose]\n",
        after="",
        tests=(
            "unit/multi_table/test_route_edges.py::test_overwrite_whose_rows_add_a_column_replaces_what_it_was_planned_upon",
        ),
    ),
    Mutation(
        name="threads take each other's filters of warnings",
        file="spark/pandas_warning.py",
        before="    with _one_at_a_time, warnings.catch_warnings():\n",
        after="    with warnings.catch_warnings():\n",
        tests=("unit/spark/test_pandas_warning.py::test_threads_do_not_take_each_others_filters",),
    ),
)
