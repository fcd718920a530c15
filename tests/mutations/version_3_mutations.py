"""Mutations of what tables of format version 3 promise: rows with ids that last, one deletion vector a data file."""

from __future__ import annotations

from mutations.mutating import Mutation

_COMMITS = "unit/commit/test_version_3.py::"
_VECTORS = "unit/deletes/test_vectors.py::"
_READ = "integration/reading/test_row_lineage.py::"
_INHERITED = "unit/table/test_lineage.py::test_row_inherits_what_its_file_does_not_say"
_PLANS = "unit/planning/test_version_3.py::"
_DAMAGED = "unit/inspect/test_damaged_version_3.py::"
_NUMBERED = _COMMITS + "test_each_snapshot_numbers_the_rows_that_it_adds"
_UPGRADED = _COMMITS + "test_table_is_upgraded_where_the_user_asks_for_it"

VERSION_3: tuple[Mutation, ...] = (
    Mutation(
        name="a snapshot gives its rows ids that other rows have",
        file="snapshots/snapshot.py",
        before="first_row_id=next_row_id(metadata) if has_row_ids else None",
        after="first_row_id=0 if has_row_ids else None",
        tests=(_NUMBERED,),
    ),
    Mutation(
        name="two manifests of a snapshot get the same row ids",
        file="snapshots/version_3.py",
        before="            self._following += rows\n",
        after="            self._following += 0\n",
        tests=(_UPGRADED,),
    ),
    Mutation(
        name="the files of a manifest all begin with one row id",
        file="snapshots/version_3.py",
        before="            following += entry.data_file.record_count\n",
        after="            following += 0\n",
        tests=(_COMMITS + "test_files_of_one_manifest_are_numbered_one_after_the_other",),
    ),
    Mutation(
        name="rows that stay get new ids when their manifest is written again",
        file="snapshots/version_3.py",
        before="            entry.data_file[_FILE_FIRST_ROW_ID] = following\n",
        after="            following += 0\n",
        tests=(_COMMITS + "test_ids_of_files_stay_when_their_manifests_are_written_again",),
    ),
    Mutation(
        name="rows that are written again lose their ids",
        file="commit/overwrite.py",
        before="(_scan_task(entry, deletes, vectors.get(path)), lineage_of(entry.data_file, entry.sequence_number))",
        after="(_scan_task(entry, deletes, vectors.get(path)), None)",
        tests=(_COMMITS + "test_rows_of_a_file_that_is_written_again_carry_their_ids",),
    ),
    Mutation(
        name="rows that are written again twice get the ids of their new places",
        file="table/lineage.py",
        before="pc.coalesce(own.cast(pa.int64()), inherited)",
        after="pc.coalesce(pa.nulls(len(own), pa.int64()), inherited)",
        tests=(_COMMITS + "test_rows_of_a_file_that_is_written_again_carry_their_ids", _INHERITED),
    ),
    Mutation(
        name="a row gets the id of the first one of its file",
        file="table/lineage.py",
        before="pc.add(positions, self.first_row_id)",
        after="pc.add(pc.multiply(positions, 0), self.first_row_id)",
        tests=(_INHERITED,),
    ),
    Mutation(
        name="Spark's reader takes rows that moved for new ones",
        file="reading/spark_scan.py",
        before="    return F.coalesce(own, inherited.cast(LongType())).alias(name)\n",
        after="    return inherited.cast(LongType()).alias(name)\n",
        spark_tests=(_READ + "test_rows_that_move_stay_the_same_rows",),
    ),
    Mutation(
        name="Python tasks give no ids to rows that inherit theirs",
        file="reading/python_scan.py",
        before="is None else lineage.column(name, own, positions)\n",
        after="is None else own.cast(pa.int64())\n",
        spark_tests=(_READ + "test_rows_inherit_from_their_files",),
    ),
    Mutation(
        name="a snapshot takes a sequence number that another branch has taken",
        file="catalog/own_storage.py",
        before="    if number <= last:\n",
        after="    if number < 0:\n",
        tests=(_COMMITS + "test_number_that_another_branch_took_is_taken_anew",),
    ),
    Mutation(
        name="a table of version 3 gets position delete files",
        file="commit/validate.py",
        before="if metadata.format_version >= VERSION_3 and any(",
        after="if metadata.format_version > VERSION_3 and any(",
        tests=(_COMMITS + "test_deletes_of_version_2_do_not_go_into_a_table_of_version_3",),
    ),
    Mutation(
        name="work that was done for version 2 goes into a table of version 3",
        file="deletes/search.py",
        before="{answer.with_vectors for answer in self.hit} <= {has_vectors(metadata)}",
        after="{answer.with_vectors for answer in self.hit} <= {True, False}",
        tests=(_VECTORS + "test_table_that_is_upgraded_meanwhile_gets_no_position_delete_file",),
    ),
    Mutation(
        name="a vector stays though its data file is overwritten",
        file="commit/overwrite.py",
        before="            (dropped if _is_vector_of(entry, gone) else kept).append(entry)\n",
        after="            (dropped if not gone else kept).append(entry)\n",
        tests=(_VECTORS + "test_overwrite_takes_the_vectors_of_its_files_along",),
    ),
    Mutation(
        name="a vector that came meanwhile stays though its data file is overwritten",
        file="commit/overwrite.py",
        before="(self._came_meanwhile(entry) and not _is_vector_of(entry, gone))",
        after="self._came_meanwhile(entry)",
        tests=(_VECTORS + "test_vector_that_comes_meanwhile_goes_with_its_data_file",),
    ),
    Mutation(
        name="an overwrite drops the vectors of data files that it keeps",
        file="commit/overwrite.py",
        before="(self._came_meanwhile(entry) and not _is_vector_of(entry, gone))",
        after="(self._came_meanwhile(entry) and deletion_vector(entry.data_file) is None)",
        tests=(_VECTORS + "test_vector_that_comes_meanwhile_goes_with_its_data_file",),
    ),
    Mutation(
        name="a table is upgraded without being asked",
        file="planning/decide.py",
        before="    if not options.upgrade_format or wanted <= metadata.format_version:\n",
        after="    if wanted <= metadata.format_version:\n",
        tests=(_UPGRADED,),
    ),
    Mutation(
        name="a table is upgraded though it cannot be written afterwards",
        file="planning/decide.py",
        before="        return None\n    check_upgrade(options, metadata)\n",
        after="        return None\n",
        tests=(_PLANS + "test_table_with_a_column_of_the_lineage_is_not_upgraded",),
    ),
    Mutation(
        name="a column of the table's own is taken for the ids of rows",
        file="planning/version_3.py",
        before="    found = why_not_with_lineage(schema)\n",
        after="    found: list[str] = []\n",
        tests=(_PLANS + "test_table_of_others_with_a_column_of_the_lineage_is_refused",),
    ),
    Mutation(
        name="a write that another writer's upgrade meets fails without a next step",
        file="table/lineage.py",
        before="    if problems := why_not_with_lineage(schema):\n",
        after="    if problems := list[str]():\n",
        tests=(_PLANS + "test_upgrade_by_others_meanwhile_is_met_with_the_same_words",),
    ),
    Mutation(
        name="verify passes two deletion vectors of one data file",
        file="inspect/vector_checks.py",
        before="            if len(names) > 1:\n",
        after="            if len(names) > 2:\n",
        tests=(_DAMAGED + "test_data_file_with_two_vectors_is_found",),
    ),
    Mutation(
        name="verify passes a vector that names no data file",
        file="inspect/vector_checks.py",
        before="            if entry.file.referenced is None:\n                yield",
        after="            if entry.file.referenced is None:\n                continue\n                yield",
        tests=(_DAMAGED + "test_entry_that_lacks_what_readers_need_is_found",),
    ),
    Mutation(
        name="verify passes a vector that is older than its data file",
        file="inspect/vector_checks.py",
        before="(data.sequence_number or 0) > number:",
        after="(data.sequence_number or 0) < number - 9:",
        tests=(_DAMAGED + "test_vector_that_is_older_than_its_data_file_is_found",),
    ),
    Mutation(
        name="verify says nothing of vectors whose data file is gone",
        file="inspect/vector_checks.py",
        before="if path is not None and path not in snapshot.data:",
        after="if path is not None and not snapshot.data:",
        tests=(_DAMAGED + "test_vector_whose_data_file_is_gone_is_pointed_out",),
    ),
    Mutation(
        name="verify passes a damaged vector",
        file="inspect/vector_checks.py",
        before='        return str(error).removesuffix(".")\n',
        after="        return str(error)[:0] or None\n",
        tests=(_DAMAGED + "test_vector_with_a_wrong_byte_is_found",),
    ),
    Mutation(
        name="verify passes a vector of rows that are not there",
        file="inspect/vector_checks.py",
        before="(last := positions[-1].as_py()) >= rows:",
        after="(last := positions[-1].as_py()) > rows * 99:",
        tests=(_DAMAGED + "test_vector_of_rows_that_its_data_file_does_not_have_is_found",),
    ),
    Mutation(
        name="verify reads vectors beyond the end of their file",
        file="inspect/vector_checks.py",
        before="    if not 0 <= vector.offset <= vector.offset + vector.length <= file.size_bytes:\n",
        after="    if not 0 <= vector.offset <= vector.offset + vector.length:\n",
        tests=(_DAMAGED + "test_vector_that_is_not_where_it_is_said_to_be_is_found",),
    ),
    Mutation(
        name="verify passes deletes that a vector makes readers leave out",
        file="inspect/vector_checks.py",
        before="if len(left := without(pa.concat_arrays(found_positions), hidden)):",
        after="if len(left := hidden) < 0:",
        tests=(_DAMAGED + "test_position_deletes_beside_a_vector_are_found",),
    ),
    Mutation(
        name="verify passes a vector of another data file",
        file="inspect/vector_checks.py",
        before="                problem = _mistaken(file, owners) or _damage(stream, file, rows)\n",
        after="                problem = _mistaken(file, {}) or _damage(stream, file, rows)\n",
        tests=(_DAMAGED + "test_vector_that_is_taken_for_that_of_another_data_file_is_found",),
    ),
    Mutation(
        name="verify passes snapshots whose row ids overlap",
        file="inspect/lineage_checks.py",
        before="if before is not None and first < end:",
        after="if before is None and first < end:",
        tests=(_DAMAGED + "test_row_ids_that_snapshots_do_not_have_are_found",),
    ),
    Mutation(
        name="verify passes row ids that are said to be free",
        file="inspect/lineage_checks.py",
        before='        if end > following:\n            yield f"{name} has',
        after='        if end < following - 99:\n            yield f"{name} has',
        tests=(_DAMAGED + "test_row_ids_that_snapshots_do_not_have_are_found",),
    ),
    Mutation(
        name="verify passes a manifest whose rows have no ids",
        file="inspect/lineage_checks.py",
        before="        if first is None:\n            yield (\n",
        after="        if first is None:\n            continue\n            yield (\n",
        tests=(_DAMAGED + "test_manifest_without_row_ids_is_found",),
    ),
    Mutation(
        name="verify passes row ids that a snapshot has not reserved",
        file="inspect/lineage_checks.py",
        before="if first >= snapshot.first_row_id and end > _end(snapshot):",
        after="if first > snapshot.first_row_id and end > _end(snapshot):",
        tests=(_DAMAGED + "test_row_ids_that_snapshots_do_not_have_are_found",),
    ),
    Mutation(
        name="verify passes files whose rows have the same ids",
        file="inspect/lineage_checks.py",
        before="if not (stored[one.file.path] or stored[other.file.path]):",
        after="if stored[one.file.path] and stored[other.file.path]:",
        tests=(_DAMAGED + "test_files_whose_rows_have_the_same_ids_are_found",),
    ),
    Mutation(
        name="verify takes the files of a manifest to have other ids than the snapshot gives them",
        file="inspect/lineage_checks.py",
        before="    following = manifest_first_row_id(used)\n    if following is None:\n        return\n",
        after="    following = 0\n    if following is None:\n        return\n",
        tests=(_DAMAGED + "test_sound_table_of_many_operations_is_whole",),
    ),
    Mutation(
        name="verify calls files broken that store the ids of their rows",
        file="inspect/lineage_checks.py",
        before="            return any(field_id(column) == ROW_ID.field_id for column in pq.read_schema(stream))\n",
        after="            return not stream\n",
        tests=(_DAMAGED + "test_files_that_store_the_ids_of_their_rows_inherit_none",),
    ),
    Mutation(
        name="vectors whose data file is gone stay when they are to be dropped",
        file="maintenance/rebase.py",
        before="            gone |= dangling_vectors(read.files)\n",
        after="",
        tests=(_DAMAGED + "test_vector_whose_data_file_is_gone_is_pointed_out",),
    ),
)
