"""Mutations of reads."""

from __future__ import annotations

from mutations.mutating import Mutation

_ANY = "properties/test_reading.py::test_read_returns_the_rows_that_the_spec_says"
_ROWS = "unit/reading/test_deleted_rows.py::"
_SCAN = "unit/reading/test_scan.py::"
_NAMES = "unit/reading/test_spark_columns.py::"
_BOTH = "integration/reading/test_read.py::"

READING = (
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
        file="reading/deleted_rows.py",
        before="    if not is_whole or _FRAME.unpack(blob[-4:])[0] != zlib.crc32(body):\n",
        after="    if not is_whole:\n",
        tests=(_ROWS + "test_damaged_deletion_vector_fails_the_read",),
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
        file="reading/spark_scan.py",
        before='        return rows.join(deletes, reduce(and_, matches), "left_anti")\n',
        after='        return rows.join(deletes, reduce(and_, matches), "left")\n',
        spark_tests=(_BOTH + "test_deleted_rows_stay_away",),
    ),
    Mutation(
        name="a key deletes rows that are newer than it",
        file="reading/spark_scan.py",
        before="        matches = [deletes[_BELOW] > self._portion.number(lambda task: task.work.sequence_number)]\n",
        after="        matches = [deletes[_BELOW] > -1]\n",
        spark_tests=(_BOTH + "test_deleted_rows_stay_away",),
    ),
    Mutation(
        name="a file that has gone is passed over",
        file="reading/spark_scan.py",
        before='    "ignoreMissingFiles": "false",  # whatever the session says: a missing file is an error\n',
        after="",
        spark_tests=(_BOTH + "test_missing_file_is_named",),
    ),
    Mutation(
        name="deleted rows come back in Python tasks",
        file="reading/python_scan.py",
        before="self._rows_of(io, work, pa.concat_arrays([hidden, pa.array(by_vector, pa.int64())]))",
        after="self._rows_of(io, work, pa.array(by_vector, pa.int64()))",
        tests=(_ANY,),
    ),
)
