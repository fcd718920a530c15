"""Mutations of reads."""

from __future__ import annotations

from mutations.mutating import Mutation

_ANY = "properties/test_reading.py::test_read_returns_the_rows_that_the_spec_says"
_VECTORS = "unit/writers/test_deletion_vectors.py::"
_ROWS = "unit/reading/test_deleted_rows.py::"
_FILE_TABLES = "unit/reading/test_file_tables.py::"
_SCAN = "unit/reading/test_scan.py::"
_NAMES = "unit/reading/test_spark_columns.py::"
_BOTH = "integration/reading/test_read.py::"

_CHANGES = "properties/test_changes.py::test_changes_are_the_differences_between_snapshots"
_PLANNED = "unit/reading/test_change_scan.py::"
_HISTORY = "unit/reading/test_change_history.py::"
_LIVES = "unit/reading/test_lives.py::"
_HIDDEN = "unit/reading/test_spark_changes.py::"
_SNAPSHOTS = "unit/reading/test_change_history.py::"
_SOURCE = "unit/reading/test_source.py::"
_PUSHED = "unit/reading/test_pushed_filters.py::"
_CHANGED = "integration/reading/test_changes.py::"

READING = (
    Mutation(
        name="a DataFrame by format has the columns of the table, and not its own",
        file="reading/request.py",
        before="        found = replace(self, columns=names)\n",
        after="        found = self\n",
        tests=(_SOURCE + "test_columns_are_those_that_spark_has",),
    ),
    Mutation(
        name="a DataFrame by format shows the bytes of one type as another",
        file="reading/request.py",
        before="            if asked.dataType.simpleString() != now:\n",
        after="            if not asked.dataType.simpleString():\n",
        tests=(_SOURCE + "test_columns_that_the_table_has_not_are_refused",),
    ),
    Mutation(
        name="files are passed over by texts that are uuids or times in the table",
        file="reading/pushed_filters.py",
        before="    return None if isinstance(field.field_type, TimeType | UUIDType) else Name(parts)\n",
        after="    return Name(parts)\n",
        tests=(_PUSHED + "test_what_is_not_understood_is_passed_over",),
    ),
    Mutation(
        name="files are passed over by a part of a list of values",
        file="reading/pushed_filters.py",
        before="if each is not None) if None not in found else ()\n",
        after="if each is not None)\n",
        tests=(_PUSHED + "test_what_is_not_understood_is_passed_over",),
    ),
    Mutation(
        name="rows of the driver are lost around an empty chunk",
        file="spark/arrow_frame.py",
        before="(rows.combine_chunks(), schema)\n",
        after="(rows, schema)\n",
        spark_tests=(_BOTH + "test_rows_of_the_driver_come_whole",),
    ),
    Mutation(
        name="changes are read from a time at which main stood elsewhere",
        file="reading/change_history.py",
        before="    if stood_at and stood_at[0] not in whole:\n",
        after="    if stood_at and not whole:\n",
        tests=(_HISTORY + "test_time_before_main_was_set_back_is_refused",),
    ),
    Mutation(
        name="rows are lost by dates in structs that Spark shifts in filters",
        file="reading/scan.py",
        before="                yield from _times_in(one)\n",
        after="                yield from ()\n",
        tests=("integration/reading/test_read.py::test_filters_find_days_that_julius_caesar_had",),
    ),
    Mutation(
        name="rows are lost by times from before a zone had its offset",
        file="reading/scan.py",
        before="_FIRST_TIME = -2_208_988_800_000_000",
        after="_FIRST_TIME = _FIRST_DAY * 86_400_000_000",
        tests=("integration/reading/test_read.py::test_filters_find_times_before_a_zone_had_its_offset",),
    ),
    Mutation(
        name="a file is passed over that has rows of the predicate",
        file="reading/scan.py",
        before="if coverage is not Coverage.OUTSIDE], inside, total\n",
        after="if coverage is Coverage.INSIDE], inside, total\n",
        tests=(_SCAN + "test_files_of_other_partitions_are_passed_over", _ANY),
    ),
    Mutation(
        name="rows of a file that is listed twice are read twice",
        file="reading/scan.py",
        before="    twice = [path for path, count in listed.items() if count > 1]\n",
        after="    twice = [path for path, count in listed.items() if count > 2]\n",
        tests=(_SCAN + "test_file_that_is_listed_twice_is_refused",),
    ),
    Mutation(
        name="a damaged deletion vector is read",
        file="writers/deletion_vectors.py",
        before="    if _FRAME.unpack(content[-size:])[0] != zlib.crc32(body):\n",
        after="    if len(body) == 0:\n",
        tests=(_VECTORS + "test_damaged_deletion_vector_fails_the_read_and_says_why",),
    ),
    Mutation(
        name="a deletion vector has positions of another data file",
        file="writers/deletion_vectors.py",
        before='.cast("q")[first : first + len(positions)]\n',
        after='.cast("q")[: len(positions)]\n',
        tests=(_VECTORS + "test_part_of_an_array_is_written_alone",),
    ),
    Mutation(
        name="the vectors of a file all lie at its beginning",
        file="writers/deletion_vectors.py",
        before="        offset += len(content)\n",
        after="        offset += 0\n",
        tests=(_VECTORS + "test_each_data_file_has_an_entry_of_its_own",),
    ),
    Mutation(
        name="the bits of a row are those of another row",
        file="reading/deleted_rows.py",
        before="            bits[position >> 3] |= 1 << (position & 7)\n",
        after="            bits[position >> 3] |= 1 << (7 - position & 7)\n",
        tests=(_ROWS + "test_each_row_has_the_bit_that_says_whether_it_is_deleted",),
        spark_tests=(_BOTH + "test_deleted_rows_stay_away",),
    ),
    Mutation(
        name="filters are pushed down in the type that a column had before",
        file="reading/spark_columns.py",
        before=" and len(types[number]) <= 1 for number",
        after=" for number",
        tests=(_NAMES + "test_column_that_a_filter_could_mistake_is_read_by_another_name",),
        spark_tests=(_BOTH + "test_widened_columns_are_compared_in_their_new_type",),
    ),
    Mutation(
        name="rows that are deleted by key come back in Spark's reader",
        file="reading/spark_keys.py",
        before='deletes, "left_anti", *matches)\n',
        after='deletes, "left", *matches)\n',
        spark_tests=(_BOTH + "test_deleted_rows_stay_away",),
    ),
    Mutation(
        name="a key deletes rows that are newer than it",
        file="reading/spark_keys.py",
        before="        matches = [deletes[BELOW] > portion.number(lambda task: task.work.sequence_number)]\n",
        after="        matches = [deletes[BELOW] > -1]\n",
        spark_tests=(_BOTH + "test_deleted_rows_stay_away",),
    ),
    Mutation(
        name="a file that has gone is passed over",
        file="reading/spark_files.py",
        before='    "ignoreMissingFiles": "false",  # even if the session says otherwise: a missing file is an error\n',
        after="",
        spark_tests=(_BOTH + "test_missing_file_is_named",),
    ),
    Mutation(
        name="deleted rows come back in Python tasks",
        file="reading/python_scan.py",
        before="            yield hidden\n",
        after="            yield hidden[:0]\n",
        tests=(_ANY,),
    ),
    Mutation(
        name="the first snapshot after the start is no change",
        file="reading/change_history.py",
        before="for number in reversed(range(place))]\n",
        after="for number in reversed(range(place - 1))]\n",
        tests=(_SNAPSHOTS + "test_snapshots_after_the_start_up_to_the_end_are_read",),
    ),
    Mutation(
        name="a replacement that adds rows is passed over by changes",
        file="reading/change_history.py",
        before="    return keeps_rows(snapshot) and change_of(snapshot) is None\n",
        after="    return keeps_rows(snapshot)\n",
        tests=(_SNAPSHOTS + "test_replacement_that_adds_rows_is_a_change",),
    ),
    Mutation(
        name="changes before an expired time are passed over",
        file="reading/change_history.py",
        before="    if history and not found and not begins_a_table(history[-1]):\n",
        after="    if False:\n",
        tests=(_SNAPSHOTS + "test_history_that_is_gone_is_an_error",),
    ),
    Mutation(
        name="deleted rows are inserts in net changes",
        file="reading/change_rows.py",
        before="    sign = F.when(F.col(CHANGE_TYPE) == INSERT, 1).otherwise(-1)\n",
        after="    sign = F.lit(1)\n",
        spark_tests=(
            _CHANGED + "test_rows_are_the_same_bit_by_bit",
            _CHANGED + "test_table_is_copied_by_its_changes",
        ),
    ),
    Mutation(
        name="deleted rows of a file that stays are no changes",
        file="reading/change_scan.py",
        before="        if hiding.has_deletes:\n",
        after="        if hiding.work.keys:\n",
        tests=(
            _PLANNED + "test_deleted_rows_alone_are_read_of_a_file_that_stays",
            _PLANNED + "test_snapshots_are_compared_file_by_file",
        ),
    ),
    Mutation(
        name="rows that are visible again are no changes",
        file="reading/change_scan.py",
        before="        if hiding.has_deletes:\n            yield",
        after="        if hiding.has_deletes and change.kind == DELETE:\n            yield",
        tests=(_PLANNED + "test_rows_that_are_visible_again_are_inserts",),
    ),
    Mutation(
        name="rows that came back are left out with those of merged deletes",
        file="reading/change_scan.py",
        before="if set(were_hidden.get(path, ())) <= set(hidden.get(path, ()))}\n",
        after="}\n",
        tests=(_PLANNED + "test_file_is_not_read_for_deletes_that_were_merged",),
    ),
    Mutation(
        name="a file that stays is not looked at although deletes differ",
        file="reading/change_scan.py",
        before="        is_whole = _deletes(old) != _deletes(new)\n",
        after="        is_whole = False\n",
        tests=(_PLANNED + "test_deleted_rows_alone_are_read_of_a_file_that_stays",),
    ),
    Mutation(
        name="a file that comes back with another sequence number is taken for the same one",
        file="reading/scan_task.py",
        before="        return self.work.path, self.work.sequence_number\n",
        after="        return self.work.path, 0\n",
        tests=(_PLANNED + "test_snapshots_are_compared_file_by_file",),
    ),
    Mutation(
        name="a key column that is required by now is taken for one that never had nulls",
        file="reading/spark_columns.py",
        before="            is_never_null=field.field_id in never_null,\n",
        after="            is_never_null=field.required,\n",
        tests=("unit/reading/test_spark_columns.py::test_column_is_never_null_if_it_was_required_in_every_schema",),
    ),
    Mutation(
        name="a start is not looked at where there is nothing to end with",
        file="reading/change_history.py",
        before="        if not history:\n            raise",
        after="        if not history:\n            return None\n        if not history:\n            raise",
        tests=(_HISTORY + "test_start_is_refused_where_nothing_is_left_to_end_with",),
    ),
    Mutation(
        name="a time before a replacement of the table begins with the new rows",
        file="reading/change_history.py",
        before="        if not before:\n            _require_never_replaced",
        after="        if not history:\n            _require_never_replaced",
        tests=(_HISTORY + "test_time_before_a_replacement_is_refused",),
    ),
    Mutation(
        name="keys of a later snapshot delete rows of an earlier one in Python tasks",
        file="reading/python_scan.py",
        before='        for _, group in groupby(tasks, key=attrgetter("state")):\n',
        after='        for _, group in [("", tasks)]:\n',
        tests=(_CHANGES, _PLANNED + "test_deletes_of_one_snapshot_are_looked_for_together"),
    ),
    Mutation(
        name="all visible rows of a file are changes, and not those that deletes hide",
        file="reading/python_scan.py",
        before="                yield task, hidden, None if task.hidden_by is None else next(meant)\n",
        after="                yield task, hidden, None\n",
        tests=(_PLANNED + "test_deleted_rows_alone_are_read_of_a_file_that_stays",),
    ),
    Mutation(
        name="a file that a compaction removed lives on",
        file="reading/lives.py",
        before="        for file in looked_at - there:\n",
        after="        for path in ():\n",
        tests=(_LIVES + "test_a_file_lives_in_the_moments_in_which_it_is_there",),
        spark_tests=(_CHANGED + "test_changes_of_any_history_are_the_differences_between_snapshots",),
    ),
    Mutation(
        name="files that two snapshots share are gone",
        file="reading/lives.py",
        before="self._since.keys() & set(among)\n",
        after="self._since.keys()\n",
        tests=(_LIVES + "test_files_that_are_not_looked_at_stay_as_they_are",),
    ),
    Mutation(
        name="the deletes of the snapshot before are no longer known after it",
        file="reading/spark_changes.py",
        before="= sources | task.hidden_by.work.hidden_by.sources\n",
        after="= task.hidden_by.work.hidden_by.sources\n",
        tests=(_HIDDEN + "test_what_a_snapshot_hides_is_known_from_the_one_before",),
    ),
    Mutation(
        name="a delete by position hides a row for ever",
        file="reading/spark_changes.py",
        before="        ended.append(_until(now.filter(pc.invert(stays)), moment))\n",
        after="        ended.append(now.filter(pc.invert(stays)))\n",
        tests=(_HIDDEN + "test_rows_are_hidden_when_a_delete_of_the_snapshot_names_them",),
    ),
    Mutation(
        name="a key deletes in all partitions, and what is newer than it",
        file="reading/spark_changes.py",
        before='f"h.below > {_SEQUENCE} AND (h.place = {EVERYWHERE} OR h.place = {_PLACE})"',
        after='"true"',
        spark_tests=(_CHANGED + "test_changes_of_any_history_are_the_differences_between_snapshots",),
    ),
    Mutation(
        name="what compactions do to rows is a change of them",
        file="reading/spark_changes.py",
        before="m -> m % 2 = 1 AND {_is_visible",
        after="m -> {_is_visible",
        spark_tests=(_CHANGED + "test_changes_of_any_history_are_the_differences_between_snapshots",),
    ),
    Mutation(
        name="changes of other snapshots come twice",
        file="reading/spark_changes.py",
        before="        return told.where(F.col(COMMIT_SNAPSHOT_ID).isNotNull())\n",
        after="        return told\n",
        spark_tests=(_CHANGED + "test_changes_of_any_history_are_the_differences_between_snapshots",),
    ),
    Mutation(
        name="0.0 and -0.0 are one value to changes",
        file="reading/change_rows.py",
        before="        case FloatType() | DoubleType() | MapType() | VariantType():\n            return False\n",
        after="        case MapType() | VariantType():\n            return False\n",
        spark_tests=(_CHANGED + "test_rows_are_the_same_bit_by_bit",),
    ),
    Mutation(
        name="copies of a row that are left over are one change",
        file="reading/change_rows.py",
        before='F.abs(copies).cast("int"))',
        after='F.abs(F.signum(copies)).cast("int"))',
        spark_tests=(_CHANGED + "test_rows_are_the_same_bit_by_bit",),
    ),
    Mutation(
        name="the partition of a row is one of the newest spec",
        file="reading/extras.py",
        before="for field in specs[file.spec_id].fields",
        after="for field in specs[max(specs)].fields",
        spark_tests=("acceptance/test_jvm_peer_reading.py::test_partitions_of_rows_are_those_of_the_runtime",),
    ),
    Mutation(
        name="the table of files has those that were removed",
        file="reading/file_tables.py",
        before="_entries(live_entries, io, wanted)",
        after="_entries(all_entries, io, wanted)",
        tests=(_FILE_TABLES + "test_entries_tell_of_the_files_that_a_snapshot_removed",),
    ),
    Mutation(
        name="the bound of a decimal is shown without its scale",
        file="reading/file_tables.py",
        before="    return unscaled_to_decimal(value, kind.scale) if isinstance(kind, DecimalType) else value\n",
        after="    return value\n",
        tests=(_FILE_TABLES + "test_bounds_are_shown_as_reads_show_values",),
    ),
    Mutation(
        name="a partition is of the spec that its oldest file has",
        file="reading/file_tables.py",
        before="added_us > self.updated_us",
        after="added_us < self.updated_us",
        tests=(_FILE_TABLES + "test_files_from_before_a_partition_field_was_renamed_keep_their_partitions",),
    ),
    Mutation(
        name="an unknown option of a read is ignored",
        file="options/read_options.py",
        before="            problems.append(f\"option '{mask_name(key)}' is none of a read: {hint}\")\n",
        after="            mask_name(hint)\n",
        tests=("unit/options/test_read_options.py::test_all_that_is_wrong_is_said_at_once",),
    ),
    Mutation(
        name="options of a read that contradict each other are taken",
        file="options/read_options.py",
        before="    problems += _contradictions(options)\n",
        after="",
        tests=("unit/options/test_read_options.py::test_all_that_is_wrong_is_said_at_once",),
    ),
    Mutation(
        name="an error shows a secret in an option of a read",
        file="options/parse.py",
        before="        return f\"option '{option.name}' is {refused_value(text, str(problem))}\"\n",
        after="        return f\"option '{option.name}' is {text}: {problem}\"\n",
        tests=("unit/options/test_read_options.py::test_a_secret_in_an_option_is_not_shown",),
    ),
)
