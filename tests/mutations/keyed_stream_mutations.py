"""Mutations of streams by keys without equality deletes: of their index of keys, and of the ids that rows keep."""

from __future__ import annotations

from mutations.mutating import Mutation

_INDEX = "unit/deletes/test_key_index.py::"
_KEPT = "unit/deletes/test_kept_ids.py::"

KEYED_STREAMS: tuple[Mutation, ...] = (
    Mutation(
        name="a damaged part of the key index is believed",
        file="deletes/key_blocks.py",
        before="        if any(zlib.crc32(data) != check for data, (_, _, check) in zip(read, parts, strict=True)):\n",
        after="        if not read:\n",
        tests=(_INDEX + "test_flipped_bits_are_noticed_wherever_they_are",),
    ),
    Mutation(
        name="data files that others add are not looked at once there is a key index",
        file="deletes/key_index.py",
        before="        return [file for file in files if file not in known]\n",
        after="        return [file for file in files if not known]\n",
        tests=(_INDEX + "test_epochs_replace_rows_whoever_writes_beside",),
    ),
    Mutation(
        name="a damaged list of the key index is believed",
        file="deletes/key_index.py",
        before="            if int(check) == zlib.crc32(text.encode()):\n",
        after="            if int(check) >= 0:\n",
        tests=(_INDEX + "test_flipped_bits_are_noticed_wherever_they_are",),
    ),
    Mutation(
        name="rows of a damaged part of the key index are left out",
        file="deletes/key_index.py",
        before="                self._parts.remove(part)\n                self._save()\n                raise\n",
        after="                continue\n",
        tests=(_INDEX + "test_part_that_is_not_as_it_was_is_read_from_the_table",),
    ),
    Mutation(
        name="a part of the key index that cannot be read back counts as written",
        file="deletes/key_index.py",
        before=(
            "        entry = write_blocks(self._folder, uuid.uuid4().hex, files, parts)\n        self._open(entry)\n"
        ),
        after=(
            "        entry = write_blocks(self._folder, uuid.uuid4().hex, files, parts)\n"
            "        self._open_if_sound(entry)\n"
        ),
        tests=(_INDEX + "test_part_that_is_damaged_as_soon_as_it_is_written",),
    ),
    Mutation(
        name="the key index takes its digests for those of another seed",
        file="deletes/key_index.py",
        before='return bytes.fromhex(listed["seed"]), [',
        after="return os.urandom(_SEED_BYTES), [",
        tests=(_INDEX + "test_processes_that_take_turns_find_all_rows",),
    ),
    Mutation(
        name="the key index believes a list of another layout",
        file="deletes/key_index.py",
        before='if listed["layout"] == _LAYOUT and',
        after="if",
        tests=(_INDEX + "test_list_of_another_layout_is_not_read",),
    ),
    Mutation(
        name="a key index that was moved to the place of another one is believed",
        file="deletes/key_index.py",
        before=' and listed["folder"] == self._folder.name:',
        after=":",
        tests=(_INDEX + "test_index_of_other_keys_in_its_place_is_not_read",),
    ),
    Mutation(
        name="the key index misses rows in the block before the first one of their digest",
        file="deletes/key_blocks.py",
        before="            begin = max(bisect_left(firsts, digest) - 1, 0)\n",
        after="            begin = bisect_left(firsts, digest)\n",
        tests=(_INDEX + "test_many_rows_of_one_key_are_all_found",),
    ),
    Mutation(
        name="the key index takes rows of one digest for rows of one key",
        file="deletes/indexed.py",
        before="    hits = keys.find(keys.digests(some.keys), some.keys, sequence).places\n",
        after="    hits = pa.array(range(len(sequence)), pa.int64())\n",
        tests=(_INDEX + "test_keys_of_one_digest_are_told_apart",),
    ),
    Mutation(
        name="a data file that takes the path of another one has its keys",
        file="deletes/key_index.py",
        before=(
            "        known = {file for part in self._parts for file in part.files}\n"
            "        return [file for file in files if file not in known]\n"
        ),
        after=(
            "        known = {file.path for part in self._parts for file in part.files}\n"
            "        return [file for file in files if file.path not in known]\n"
        ),
        tests=(_INDEX + "test_file_that_is_replaced_by_another_at_its_path_is_read_again",),
    ),
    Mutation(
        name="merged parts of the key index name the wrong data files",
        file="deletes/key_index.py",
        before="            renumbered = own.take(rows.column(FILE).combine_chunks())\n",
        after="            renumbered = rows.column(FILE).combine_chunks().cast(own.type)\n",
        tests=(_INDEX + "test_keys_of_one_digest_are_told_apart",),
    ),
    Mutation(
        name="merging parts of the key index takes memory for all of their rows",
        file="deletes/key_index.py",
        before="        steps = max(1, math.ceil(sum(part.entry.rows for part in parts) / _SORTED_ROWS))\n",
        after="        steps = 1\n",
        tests=(_INDEX + "test_merge_holds_few_rows_at_once",),
    ),
    Mutation(
        name="the key index leaves its old parts on the disk",
        file="deletes/key_index.py",
        before=(
            "            if path.name not in listed and _OWN_NAME.fullmatch(path.name):\n"
            "                with suppress(OSError):\n"
            "                    path.unlink()\n"
        ),
        after="            if path.name not in listed:\n                continue\n",
        tests=(_INDEX + "test_process_that_dies_at_any_step_leaves_a_sound_index",),
    ),
    Mutation(
        name="parts of the key index that another process deleted stay in memory",
        file="deletes/key_index.py",
        before="            del _opened[path]  # another process may have deleted the file\n",
        after="            break\n",
        tests=(_INDEX + "test_processes_that_take_turns_find_all_rows",),
    ),
    Mutation(
        name="the key index is in a folder that others may write",
        file="deletes/key_index.py",
        before=" and not found.st_mode & _OTHERS_MAY_WRITE\n",
        after="\n",
        tests=(_INDEX + "test_folder_that_others_may_write_is_refused",),
    ),
    Mutation(
        name="the key index is in a folder of another user",
        file="deletes/key_index.py",
        before=" and found.st_uid == own and",
        after=" and",
        tests=(_INDEX + "test_folder_of_another_user_is_refused",),
    ),
    Mutation(
        name="the key index follows a link to its folder",
        file="deletes/key_index.py",
        before="    found, around, own = folder.lstat(), ",
        after="    found, around, own = folder.stat(), ",
        tests=(_INDEX + "test_folder_behind_a_link_is_refused",),
    ),
    Mutation(
        name="the folder around the key index may be one that others write",
        file="deletes/key_index.py",
        before="not in {own, _ROOT} or is_open:",
        after="not in {own, _ROOT}:",
        tests=(_INDEX + "test_folder_that_others_may_exchange_is_refused",),
    ),
    Mutation(
        name="the folder around the key index may be another user's",
        file="deletes/key_index.py",
        before=" or around.st_uid not in {own, _ROOT} or",
        after=" or",
        tests=(_INDEX + "test_folder_in_one_of_another_user_is_refused",),
    ),
    Mutation(
        name="the default folder of key indexes may be a link",
        file="deletes/key_index.py",
        before=", folder.parent.lstat(), os.getuid()",
        after=", folder.parent.stat(), os.getuid()",
        tests=(_INDEX + "test_link_in_the_place_of_the_default_folder_is_refused",),
    ),
    Mutation(
        name="the key index deletes whatever is in its folder",
        file="deletes/key_index.py",
        before="            if path.name not in listed and _OWN_NAME.fullmatch(path.name):\n",
        after="            if path.name not in {*listed, _MANIFEST, _LOCK}:\n",
        tests=(_INDEX + "test_files_of_others_stay_in_the_folder",),
    ),
    Mutation(
        name="every user of the machine may read the key index",
        file="deletes/key_index.py",
        before="    folder.mkdir(mode=0o700, exist_ok=True)\n",
        after="    folder.mkdir(exist_ok=True)\n",
        tests=(_INDEX + "test_new_folder_is_the_users_alone",),
    ),
    Mutation(
        name="two processes use a key index at once",
        file="deletes/key_index.py",
        before="        fcntl.flock(lock, fcntl.LOCK_EX)\n",
        after="        fcntl.flock(lock, fcntl.LOCK_UN)\n",
        tests=(_INDEX + "test_second_process_waits_for_the_first",),
    ),
    Mutation(
        name="a full disk of the driver stops a stream by keys",
        file="deletes/indexed.py",
        before="                except OSError as problem:\n",
        after="                except BlockingIOError as problem:\n",
        tests=(_INDEX + "test_full_disk_means_that_the_table_is_read",),
    ),
    Mutation(
        name="a key of a wider type looks into the index of the narrow one",
        file="deletes/key_index.py",
        before="[[number, str(of)] for number, of in types.items()]",
        after="[[number] for number in types]",
        tests=(_INDEX + "test_widened_key_has_an_index_of_its_own",),
    ),
    Mutation(
        name="branches share a key index",
        file="deletes/key_index.py",
        before="told = [table_uuid, branch, ",
        after='told = [table_uuid, "", ',
        tests=(_INDEX + "test_each_table_branch_and_key_has_an_index_of_its_own",),
    ),
    Mutation(
        name="data files of a partition are looked up apart from each other",
        file="deletes/job.py",
        before="    groups = [in_order(work)] if",
        after="    groups = [list(work)] if",
        tests=(_INDEX + "test_partitions_are_searched_once",),
    ),
    Mutation(
        name="keys are looked up in the key index for each partition again",
        file="deletes/tasks.py",
        before="        known = self._finder.find(work) if isinstance(self._finder, IndexedMatcher) else None\n",
        after="        known = None\n",
        tests=(_INDEX + "test_partitions_are_searched_once",),
    ),
    Mutation(
        name="rows that replace others get new ids",
        file="deletes/upsert.py",
        before="        plan = replace(plan, keeps_ids=plan.with_vectors)\n",
        after="        plan = replace(plan, keeps_ids=False)\n",
        tests=(_KEPT + "test_replaced_rows_stay_the_same_rows",),
    ),
    Mutation(
        name="the id that stays of several rows of a key is the lowest",
        file="deletes/kept_ids.py",
        before='(_SEQUENCE, "descending"), (ID, "descending")',
        after='(_SEQUENCE, "descending"), (ID, "ascending")',
        tests=(_KEPT + "test_of_several_old_rows_the_last_one_stays",),
    ),
    Mutation(
        name="a row that a delete by key hides passes its id on before the visible one",
        file="deletes/kept_ids.py",
        before='(_SEQUENCE, "descending"), (ID, "descending")',
        after='(ID, "descending")',
        tests=(
            _KEPT + "test_rows_keep_their_ids_where_deletes_by_key_hid_rows_before_the_upgrade",
            _KEPT + "test_row_that_got_the_key_of_one_that_a_delete_by_key_hid_keeps_its_id",
        ),
    ),
    Mutation(
        name="an id that a search does not find any more stays with the new row",
        file="deletes/kept_ids.py",
        before="    kept = {file.file_path: none for file in work if file.file_path not in plan.as_written}\n",
        after="    kept = {file.file_path: none for file in work[:0]}\n",
        tests=(_KEPT + "test_row_that_gets_another_key_meanwhile_has_its_id_alone",),
    ),
    Mutation(
        name="ids of a search that is stale count",
        file="deletes/kept_ids.py",
        before="        yield ids.filter(counts).drop_columns([_FILE])",
        after="        yield ids.drop_columns([_FILE] if counts else [_FILE])",
        tests=(_KEPT + "test_row_that_gets_another_key_meanwhile_has_its_id_alone",),
    ),
    Mutation(
        name="ids that stand in a column are forgotten when a row is replaced",
        file="deletes/kept_ids.py",
        before="    ids = lineage.column(ROW_ID.name, rows.column(ID), rows.column(POSITION))\n",
        after="    ids = lineage.column(ROW_ID.name, pa.nulls(rows.num_rows, pa.int64()), rows.column(POSITION))\n",
        tests=(_KEPT + "test_ids_in_columns_are_kept",),
    ),
    Mutation(
        name="files whose rows moved to keep their ids stay",
        file="deletes/kept_ids.py",
        before="    delete_files(io, list(again), Proof.NEVER_SENT)\n",
        after="",
        tests=(_KEPT + "test_replaced_rows_stay_the_same_rows",),
    ),
    Mutation(
        name="files that were written again stay when a task fails",
        file="deletes/kept_ids.py",
        before=(
            "        delete_files(io, [file.file_path for files in again."
            "values() for file in files], Proof.NEVER_SENT)\n"
            "        raise"
        ),
        after="        raise",
        tests=(_KEPT + "test_files_that_cannot_be_written_again_leave_nothing",),
    ),
    Mutation(
        name="files that were written again stay when their write is given up",
        file="deletes/upsert.py",
        before="        if self._commits:  # `begin` has written some of their files again\n",
        after="        if not self._commits and self._of_keys:\n",
        tests=(
            _KEPT + "test_write_that_others_give_up_takes_its_new_files_along",
            _KEPT + "test_transaction_whose_second_search_fails_leaves_nothing",
        ),
    ),
)
