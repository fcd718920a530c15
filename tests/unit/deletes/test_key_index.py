"""The index of keys on the driver's disk: whatever becomes of its files, the rows of a key are found, and no others."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, IntegerType, LongType, NestedField, StringType
from pyspark.sql.types import StructType
from support.checks.invariants import check_clean, unreferenced_files
from support.checks.reader import listed, rows_of
from support.exhaustive import few
from support.keys.conversions import meanwhile as at_step
from support.keys.indexed_files import LIST, LOCK, IndexedFiles, another_process, flip
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks
from support.keys.upserts import apart, commit_upsert_epoch, upsert, upsert_epoch, upsert_plan
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_ids
from support.tables.sink import Sink, epoch, local

from iceberg_ds.cdc.keys import same_rows
from iceberg_ds.deletes import indexed, key_blocks, key_index
from iceberg_ds.deletes.indexed import IndexedMatcher
from iceberg_ds.deletes.key_blocks import Blocks
from iceberg_ds.deletes.key_index import KeyIndex, index_place, open_index
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.errors import CommitConflictError, OptionError, UnsupportedTableError
from iceberg_ds.fault_points import FaultPoint
from iceberg_ds.planning.plan_write import WriteMode
from iceberg_ds.table.lineage import ROW_ID


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexedFiles:
    """Return a folder for data files, and for an index with blocks of few rows."""
    monkeypatch.setattr(key_blocks, "_BLOCK_ROWS", 4)
    return IndexedFiles(folder=tmp_path)


def three(files: IndexedFiles) -> list[FileWork]:
    """Write three data files with the numbers from 0 to 89, and let the index know them in three parts."""
    work = [files.data({1: list(range(first, 90, 3))}) for first in range(3)]
    for count in range(1, 4):
        files.search(work[:count], files.keys({1: [0]}))
    assert len(files.parts) == 3
    return work


def test_known_files_are_not_read_again(files: IndexedFiles) -> None:
    """Each micro-batch would read the key columns of the whole table."""
    work = three(files)

    assert files.reads(work, files.keys({1: [5, 7, 1_000]})) == set()
    new = files.data({1: [5, 6]})
    assert files.reads([*work, new], files.keys({1: [5]})) == {new.path}
    with another_process():
        assert files.reads([*work, new], files.keys({1: [5]})) == set()


def test_only_the_files_that_are_asked_for_are_found(files: IndexedFiles) -> None:
    """Rows of files that the branch does not list any more would be hidden, and the commit would fail."""
    work = three(files)

    assert files.search(work[:1], files.keys({1: [0, 1, 2, 3]})) == {work[0].path: [(0, None), (1, None)]}


def test_keys_apply_to_older_files_only(files: IndexedFiles) -> None:
    """A row that was written after its key was deleted would be lost."""
    work = three(files)

    assert files.search(work, files.keys({1: [0, 1]}, number=1)) == {}
    assert files.search(work, files.keys({1: [0, 1]}, number=2), files.keys({1: [5]}, number=1)).keys() == {
        work[0].path,
        work[1].path,
    }


def test_files_of_keys_for_some_files_alone(files: IndexedFiles) -> None:
    """Rows of one partition would be hidden by keys of another one."""
    work = three(files)
    with_keys = []
    for number, key in enumerate([files.keys({1: [0, 1]}), files.keys({1: [4]}), files.keys({1: [0]})]):
        work[number].data_file.spec_id = number
        with_keys.append(FileWork(data_file=work[number].data_file, sequence_number=1, keys=(key,)))

    found = IndexedMatcher(files.io, files.place).find(with_keys)

    assert {path: rows.positions.to_pylist() for path, rows in found.items()} == {work[0].path: [0], work[1].path: [1]}


def test_stored_ids_are_told(files: IndexedFiles) -> None:
    """Rows that replace others would get new ids where the old ones stand in a column."""
    number = ROW_ID.field_id
    work = [files.data({1: [1, 2, 3], number: [70, None, 50]}), files.data({1: [1, 2]})]
    keys = files.keys({1: [1, 2]})

    found = files.search(work, keys)

    assert found == {work[0].path: [(0, 70), (1, None)], work[1].path: [(0, None), (1, None)]}
    files.tidy(work)
    assert files.search(work, keys) == found


def places_to_flip(files: IndexedFiles) -> Iterator[tuple[str, int]]:
    """Yield places all over the list, its seed among them, and in the blocks and the directory of a part."""
    for path in (files.parts[0], files.parts[-1], files.index / LIST):
        size = path.stat().st_size
        step = 4 if path.name == LIST else 1 + size // 12
        yield from ((path.name, place) for place in {*range(0, size, step), size - 1})


@pytest.mark.parametrize("was_open", [True, False], ids=["opened before", "another process"])
def test_flipped_bits_are_noticed_wherever_they_are(files: IndexedFiles, *, was_open: bool) -> None:
    """A damaged disk would hide other rows than those that are replaced, or leave old rows beside new ones."""
    work, keys = three(files), files.keys({1: [0, 17, 43, 89, 500]})
    saved = files.save()
    files.search(work, keys)
    opened = dict(key_index._opened)

    for name, place in places_to_flip(files):
        flip(files.index / name, place)
        with another_process(dict(opened) if was_open else None):
            assert len(files.search(work, keys)) == 3
            assert files.reads(work, keys) == set(), "what was damaged is not made again"
        files.put_back(saved)


def _cut(part: Path, others: list[Path]) -> None:
    assert others
    part.write_bytes(part.read_bytes()[:-9])


def _emptied(part: Path, others: list[Path]) -> None:
    assert others
    part.write_bytes(b"")


def _gone(part: Path, others: list[Path]) -> None:
    assert others
    part.unlink()


def _folder(part: Path, others: list[Path]) -> None:
    assert others
    part.unlink()
    part.mkdir()


def _swapped(part: Path, others: list[Path]) -> None:
    content = part.read_bytes()
    part.write_bytes(others[0].read_bytes())
    others[0].write_bytes(content)


def _longer(part: Path, others: list[Path]) -> None:
    part.write_bytes(others[0].read_bytes() + part.read_bytes())


@pytest.mark.parametrize("was_open", [True, False], ids=["opened before", "another process"])
@pytest.mark.parametrize("harm", [_cut, _emptied, _gone, _folder, _swapped, _longer])
def test_part_that_is_not_as_it_was_is_read_from_the_table(
    files: IndexedFiles, harm: Callable[[Path, list[Path]], None], *, was_open: bool
) -> None:
    """Rows would be missed that the lost part knew, or those of another file be hidden."""
    work, keys = three(files), files.keys({1: [0, 17, 43, 89, 500]})
    part, *others = files.parts

    harm(part, others)

    with another_process(dict(key_index._opened) if was_open else None):
        assert len(files.search(work, keys)) == 3
        assert files.reads(work, keys) == set()


@pytest.mark.parametrize("lost", [LIST, "everything"])
def test_lost_list_is_made_again(files: IndexedFiles, lost: str) -> None:
    """The digests of a new seed would be looked up among those of the old one: no old row would be found."""
    work, keys = three(files), files.keys({1: [0, 17, 43]})
    before = {path.name for path in files.parts}

    if lost == LIST:
        (files.index / LIST).unlink()
    else:
        shutil.rmtree(files.index)

    assert len(files.search(work, keys)) == 3
    assert before.isdisjoint(path.name for path in files.parts)
    assert files.reads(work, keys) == set()


def test_list_of_another_layout_is_not_read(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the package, blocks would be taken for what they are not."""
    work, keys = three(files), files.keys({1: [0, 17, 43]})

    with another_process():
        monkeypatch.setattr(key_index, "_LAYOUT", key_index._LAYOUT + 1)

        assert files.reads(work, keys) == {item.path for item in work}


@pytest.mark.parametrize("was_open", [True, False], ids=["opened before", "another process"])
@pytest.mark.parametrize("kept", ["old list", "new list", "old parts"])
def test_list_and_parts_of_different_times_are_no_index(files: IndexedFiles, kept: str, *, was_open: bool) -> None:
    """After half of a backup was put back, old rows would stay beside the new ones."""
    work, keys = three(files), files.keys({1: [0, 17, 43, 89]})
    old = files.save()
    (files.index / LIST).unlink()  # so that the new one has another seed
    work += [files.data({1: [0, 17, 18]})]
    files.search(work, keys)
    new = files.save()

    files.put_back(old if kept == "new list" else new)
    if kept == "old parts":
        for path in old.iterdir():
            shutil.copy(path, files.index / (LIST if path.name == LIST else path.name))
    else:
        shutil.copy((old if kept == "old list" else new) / LIST, files.index / LIST)

    with another_process(dict(key_index._opened) if was_open else None):
        assert len(files.search(work, keys)) == 4
        assert files.reads(work, keys) == set()


class Died(BaseException):
    """The process ends here."""


@contextmanager
def dying(at: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """End the process before or after each of the steps that change files; what comes then does nothing any more."""
    steps: list[str] = []

    def step(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            steps.append(f"before {name}")
            if len(steps) > at:
                raise Died
            result = change(*arguments, **named)
            steps.append(f"after {name}")
            if len(steps) > at:
                raise Died
            return result

        return act

    def unlink(path: Path, change: Callable[[Path], None] = Path.unlink) -> None:
        if len(steps) > at:
            raise OSError(errno.EIO, "the process is dead", str(path))
        change(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", step("replace", Path.replace))
        patch.setattr(Path, "write_text", step("write_text", Path.write_text))
        patch.setattr(key_blocks, "_write", step("write", key_blocks._write))
        patch.setattr(Path, "unlink", step("unlink", unlink))
        yield steps


@pytest.mark.parametrize("work_of", ["add", "merge"])
def test_process_that_dies_at_any_step_leaves_a_sound_index(
    files: IndexedFiles, work_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process would miss rows, or files would pile up on the driver's disk."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    monkeypatch.setattr(key_blocks, "_BLOCK_ROWS", 40)
    work, keys = three(files), files.keys({1: [0, 17, 43, 7_000]})
    new = files.data({1: [17, 7_000]})
    saved = files.save()
    at, has_died = 0, True

    while has_died:
        files.put_back(saved)
        with another_process(), suppress(Died), dying(at, monkeypatch) as told:
            if work_of == "merge":
                files.tidy(work[1:])
            else:
                with open_index(files.place) as index:
                    IndexedMatcher(files.io, files.place)._find(
                        index, [FileWork(data_file=new.data_file, sequence_number=1, keys=(keys,))]
                    )
        at, has_died = at + 1, len(told) > at
        with another_process():
            assert len(files.search([*work, new], keys)) == 4
            assert files.reads([*work, new], keys) == set()
            with open_index(files.place) as index:
                listed = {part.entry.name for part in index._parts}
            assert {path.name for path in files.parts} == listed, "what a dead process left is still there"
    assert at > 8


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_folder_that_others_may_write_is_refused(files: IndexedFiles, bits: int) -> None:
    """Another user of the machine could choose which rows a stream hides."""
    work = three(files)
    files.index.chmod(bits)

    with pytest.raises(OptionError, match=r"Cannot keep keys in .*: .* is not one that this user alone may write"):
        files.search(work, files.keys({1: [0]}))


def test_folder_behind_a_link_is_refused(files: IndexedFiles) -> None:
    """In a folder of temporary files, another user could lead the index elsewhere."""
    work = three(files)
    moved = files.index.rename(files.folder / "elsewhere")
    files.index.symlink_to(moved)

    with pytest.raises(OptionError, match="is not one that this user alone may write"):
        files.search(work, files.keys({1: [0]}))


def test_folder_of_another_user_is_refused(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of the machine could make the folder first, and choose which rows a stream hides."""
    work = three(files)
    monkeypatch.setattr(os, "getuid", lambda: files.index.stat().st_uid + 1)

    with pytest.raises(OptionError, match="is not one that this user alone may write"):
        files.search(work, files.keys({1: [0]}))


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_folder_that_others_may_exchange_is_refused(files: IndexedFiles, bits: int) -> None:
    """Another user of the machine could put a link in its place, and the files behind it would be deleted."""
    work = three(files)
    files.index.parent.chmod(bits)

    with pytest.raises(OptionError, match=r"Cannot keep keys in .*: it, or the folder that it stands in"):
        files.search(work, files.keys({1: [0]}))

    files.index.parent.chmod(bits | stat.S_ISVTX)  # only owners may exchange what is in it
    assert len(files.search(work, files.keys({1: [0]}))) == 1


def test_folder_in_one_of_another_user_is_refused(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made the folder of the default name first could exchange what is in it."""
    work = three(files)
    lstat, around = Path.lstat, files.index.parent

    def of_another(path: Path) -> Any:
        found = lstat(path)
        return SimpleNamespace(st_mode=found.st_mode, st_uid=found.st_uid + (4711 if path == around else 0))

    monkeypatch.setattr(Path, "lstat", of_another)

    with pytest.raises(OptionError, match=r"Cannot keep keys in .*: it, or the folder that it stands in"):
        files.search(work, files.keys({1: [0]}))


def test_link_in_the_place_of_the_default_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of the machine could lead the index into any folder of this user."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "own").mkdir()
    place = index_place(None, "uuid", "main", {1: LongType()})
    Path(place.folder).parent.symlink_to(tmp_path / "own")

    with pytest.raises(OptionError, match="is not one that this user alone may write"), open_index(place):
        pass


def test_folder_that_the_user_names_may_be_behind_a_link(tmp_path: Path) -> None:
    """A disk that is mounted elsewhere could not be used."""
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "named").symlink_to(tmp_path / "disk")

    with open_index(index_place(str(tmp_path / "named"), "uuid", "main", {1: LongType()})):
        assert len(list((tmp_path / "disk").iterdir())) == 1


def test_files_of_others_stay_in_the_folder(files: IndexedFiles) -> None:
    """Whoever names a folder that is in use would lose what is in it."""
    work = three(files)
    own = files.index / "diary.txt"
    own.write_text("dear diary")
    (files.index / f"{'0' * 32}.new").write_text("of a process that died")

    files.search(work, files.keys({1: [0]}))

    assert own.read_text() == "dear diary"
    assert not (files.index / f"{'0' * 32}.new").exists()


def test_index_of_other_keys_in_its_place_is_not_read(files: IndexedFiles) -> None:
    """Who may move folders, but not write into them, could have rows found by the values of another column."""
    work = [files.data({1: [1, 2], 2: [2, 1]})]
    others = IndexedFiles(folder=files.folder, types={2: LongType()})
    others.search(work, others.keys({2: [1]}))
    files.index.rename(files.index.parent / "others")
    place = replace(files.place, folder=str(files.index.parent / "own"))
    (files.index.parent / "others").rename(files.index.parent / "own")
    key = files.keys({1: [1]})

    found = IndexedMatcher(files.io, place).find(
        [FileWork(data_file=work[0].data_file, sequence_number=1, keys=(key,))]
    )

    assert found[work[0].path].positions.to_pylist() == [0]


def test_new_folder_is_the_users_alone(files: IndexedFiles) -> None:
    """Keys of the table could be read by every user of the machine."""
    before = os.umask(0)
    try:
        three(files)
    finally:
        os.umask(before)

    assert files.index.stat().st_mode & 0o777 == 0o700


def fail_to_write(*_: Any, **__: Any) -> None:
    """Fail, as on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("full", ["blocks", "list"])
def test_full_disk_means_that_the_table_is_read(
    files: IndexedFiles, full: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream would stop, or rows be missed, because the driver's disk is full."""
    work, keys = three(files), files.keys({1: [0, 17, 43, 500]})
    work += [files.data({1: [500, 17]})]
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(*((key_blocks, "_write") if full == "blocks" else (Path, "write_text")), fail_to_write)

        assert len(files.search(work, keys)) == 4

    assert "No space left on device" in caplog.text
    assert files.reads(work, keys) == {work[-1].path}
    assert len(files.parts) == 4


def test_full_disk_does_not_matter_where_nothing_is_new(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole table would be read for each micro-batch, although all keys are known."""
    work = three(files)
    monkeypatch.setattr(Path, "write_text", fail_to_write)

    assert files.reads(work, files.keys({1: [0, 17, 43]})) == set()


@pytest.mark.parametrize("full", ["blocks", "list"])
def test_merge_on_a_full_disk_leaves_the_parts(files: IndexedFiles, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys would be lost that no disk space was needed for."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work, keys = three(files), files.keys({1: [0, 17, 43, 500]})
    with monkeypatch.context() as patch:
        patch.setattr(*((key_blocks, "_write") if full == "blocks" else (Path, "write_text")), fail_to_write)
        with pytest.raises(OSError, match="No space left"):
            files.tidy(work)

    with another_process():
        assert files.reads(work, keys) == set()
        assert len(files.parts) == 3


def test_file_in_the_place_of_the_folder_means_that_the_table_is_read(
    files: IndexedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream would stop because a name is taken on the driver's disk."""
    work = [files.data({1: [1, 2]})]
    files.index.parent.write_text("taken")

    with caplog.at_level(logging.WARNING):
        assert files.search(work, files.keys({1: [2]})) == {work[0].path: [(1, None)]}

    assert "is of no use" in caplog.text


def test_second_process_waits_for_the_first(files: IndexedFiles) -> None:
    """Two drivers would write the same list, and one would miss the other's keys, or its files."""
    work, keys = three(files), files.keys({1: [0, 17, 43]})
    held = "import fcntl,sys; f=open(sys.argv[1],'ab'); fcntl.flock(f,2); print('held',flush=True); sys.stdin.read()"
    found: list[Any] = []
    searching = threading.Thread(target=lambda: found.append(files.search(work, keys)))

    with subprocess.Popen(
        [sys.executable, "-S", "-c", held, str(files.index / LOCK)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        searching.start()
        searching.join(0.3)
        assert not found, "the index is used while another process has it"
        holder.communicate()
    searching.join(30)

    assert len(found[0]) == 3


def test_processes_that_take_turns_find_all_rows(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process has opened before another one merged it would be read, and newer keys be missed."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work, ours, theirs = three(files), dict[Path, Blocks](), dict[Path, Blocks]()
    for turn in range(6):
        keys = files.keys({1: [turn, turn + 40, 1_000 + turn // 2]})
        for opened in (ours, theirs):
            work.append(files.data({1: [1_000 + turn, turn]}))
            with another_process(opened):
                files.search(work, keys)
                files.tidy(work[turn % 3 :])
                files.search(work, keys)
                known = {path for path in key_index._opened if path.parent == files.index}
                assert known == set(files.parts), "memory is used for parts that are gone"


def test_folder_that_goes_while_it_is_used_is_made_again(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream would stop when somebody tidies the folder of temporary files."""
    work, keys = three(files), files.keys({1: [0, 17, 43]})
    look, tries = KeyIndex.find, []

    def find(index: KeyIndex, *arguments: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            shutil.rmtree(files.index)
        return look(index, *arguments)

    monkeypatch.setattr(KeyIndex, "find", find)

    assert len(files.search(work, keys)) == 3
    assert len(files.search(work, keys)) == 3
    assert files.reads(work, keys) == set()


@pytest.mark.parametrize("listed", [2, 4])
def test_file_with_other_rows_than_its_entry_says_is_read_from_the_table(
    files: IndexedFiles, listed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is still being copied would be taken for whole, and its other rows never be found."""
    work = [*three(files), files.data({1: [0, 17, 500]}, count=listed)]

    with caplog.at_level(logging.WARNING):
        found = files.search(work, files.keys({1: [17, 500]}))

    assert found[work[-1].path] == [(1, None), (2, None)]
    assert f"has 3 rows, and is listed with {listed}" in caplog.text
    assert files.reads(work[:3], files.keys({1: [17]})) == set()


def test_file_that_cannot_be_read_stops_the_search(files: IndexedFiles) -> None:
    """Rows of the file would stay beside those that replace them."""
    work = three(files)
    other = files.data({2: ["a"]})
    nameless = files.data({1: [1]})
    pa.parquet.write_table(pa.table({"id": [1]}), nameless.path)

    with pytest.raises(UnsupportedTableError, match="does not say which column has field id 1"):
        files.search([*work, other, nameless], files.keys({1: [1]}))
    assert files.search([*work, other], files.keys({1: [1]})) == {work[1].path: [(0, None)]}


def test_file_that_is_replaced_by_another_at_its_path_is_read_again(
    files: IndexedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows would be hidden at the places where the rows of a key stood before."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work, keys = three(files), files.keys({1: [0, 17, 43, 500]})

    again = files.data({1: [501, 500, 0]}, path=Path(work[0].path))

    for _ in range(2):
        found = files.search([again, *work[1:]], keys)
        assert found[again.path] == [(1, None), (2, None)]
        files.tidy([again, *work[1:]])
    assert len(files.search([again, *work[1:]], keys)) == 3


def test_many_rows_of_one_key_are_all_found(files: IndexedFiles) -> None:
    """Rows beyond the first block of a key would stay beside the new one."""
    work = [
        files.data({1: [7] * 50}),
        files.data({1: [*range(30), *[7] * 3, *range(100, 140)]}),
        files.data({1: []}),
        files.data({1: [7]}),
    ]

    found = files.search(work, files.keys({1: [7, 7, 29]}))

    assert [len(found.get(item.path, [])) for item in work] == [50, 5, 0, 1]
    files.tidy(work)
    assert files.search(work, files.keys({1: [7, 29]})) == found


@pytest.mark.parametrize("low_bits", [0, 1, 3])
def test_keys_of_one_digest_are_told_apart(files: IndexedFiles, low_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of other keys would be hidden that happen to have the same digest."""
    digests = KeyIndex.digests

    def few(index: KeyIndex, columns: Any) -> pa.Array:
        mask = pa.scalar((1 << low_bits) - 1, pa.uint64())
        return pa.compute.bit_wise_and(digests(index, columns), mask)

    monkeypatch.setattr(KeyIndex, "digests", few)
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work = three(files)

    assert len(files.search(work, files.keys({1: [0, 17, 43]}))) == 3
    files.tidy(work)
    assert len(files.search(work, files.keys({1: [0, 17, 43]}))) == 3


def test_rows_at_both_ends_of_the_digests_survive_a_merge(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row with the highest digest, or the first one of a step, would be lost in the merge."""
    ends = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1, *range(1 << 62, (1 << 62) + 9)]

    def chosen(_: KeyIndex, columns: Any) -> pa.Array:
        return pa.array([ends[key.as_py() % len(ends)] for key in columns[0]], pa.uint64())

    monkeypatch.setattr(KeyIndex, "digests", chosen)
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    monkeypatch.setattr(key_index, "_SORTED_ROWS", 7)
    work = [files.data({1: list(range(first, 40, 4))}) for first in range(4)]
    for count in range(1, 5):
        files.search(work[:count], files.keys({1: [0]}))

    files.tidy(work)

    assert len(files.parts) == 1
    assert files.reads(work, files.keys({1: list(range(40))})) == set()


@pytest.mark.parametrize("live", [4, 3, 1])
def test_merge_holds_few_rows_at_once(
    files: IndexedFiles, live: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's memory would have to hold the keys of the whole table."""
    monkeypatch.setattr(key_index, "_LEAST_ROWS", 1)
    work = [files.data({1: list(range(first, 4_000, 4))}) for first in range(4)]
    for count in range(1, 5):
        files.search(work[:count], files.keys({1: [0]}))
    between, taken = Blocks.between, []

    def measured(part: Blocks, low: int, high: int) -> pa.Table:
        found = between(part, low, high)
        taken.append(found.num_rows)
        return found

    monkeypatch.setattr(Blocks, "between", measured)
    monkeypatch.setattr(key_index, "_SORTED_ROWS", 500)
    monkeypatch.setattr(key_index, "_FAN_IN", 4)

    files.tidy(work)  # all of one size become one
    files.tidy(work[:live])

    assert len(files.parts) == 1
    assert max(taken) <= 500 * 1.3
    assert files.reads(work[:live], files.keys({1: list(range(0, 4_000, 7))})) == set()
    assert not caplog.records


def test_many_rows_become_parts_of_bounded_size(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first micro-batch would sort the keys of the whole table in memory."""
    monkeypatch.setattr(key_index, "_SORTED_ROWS", 100)
    work = [files.data({1: list(range(first, first + 60))}) for first in range(0, 420, 60)]

    found = files.search(work, files.keys({1: [0, 59, 60, 419]}))

    assert [len(found.get(item.path, [])) for item in work] == [2, 1, 0, 0, 0, 0, 1]
    assert len(files.parts) == 4


def test_parts_stay_few(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each micro-batch would look its keys up in as many files as there were micro-batches before."""
    monkeypatch.setattr(key_index, "_LEAST_ROWS", 4)
    work: list[FileWork] = []
    for number in range(24):
        work.append(files.data({1: list(range(3 * number, 3 * number + 4))}))
        files.search(work, files.keys({1: [number]}))
        files.tidy(work)
        assert len(files.parts) <= 3 * 3

    assert files.reads(work, files.keys({1: [0, 50]})) == set()


def test_files_that_are_gone_are_forgotten_and_come_back(files: IndexedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of gone files would fill the disk; after a rollback, rows of files that are back would be missed."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work, keys = three(files), files.keys({1: [0, 17, 43]})

    files.tidy(work[:1])

    assert files.reads(work[:1], keys) == set()
    assert sum(path.stat().st_size for path in files.parts) < files.save().stat().st_size + 10_000
    assert files.reads(work, keys) == {work[1].path, work[2].path}
    assert len(files.search(work, keys)) == 3


def test_files_that_come_back_before_they_are_forgotten_are_there_once(files: IndexedFiles) -> None:
    """Rows would be told twice, or be missed."""
    work, keys = [files.data({1: list(range(first, 90, 3))}) for first in range(3)], files.keys({1: [0, 17, 43]})
    files.search(work, keys)

    files.tidy(work[:2])  # most of the part is still live

    assert files.search(work[:2], keys).keys() == {work[0].path, work[1].path}
    assert files.reads(work, keys) == set()


def test_table_that_lists_nothing_has_no_parts(files: IndexedFiles) -> None:
    """Keys of a table whose rows were all deleted would stay on the driver's disk."""
    work = three(files)

    files.tidy([])

    assert files.parts == []
    assert len(files.search(work, files.keys({1: [0, 17, 43]}))) == 3


@pytest.mark.parametrize("harmed", [0, 1, 2])
def test_merge_of_a_damaged_part_loses_no_row(
    files: IndexedFiles, harmed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys of the damaged part would be missing in the new one, which would be taken for whole."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work, keys = three(files), files.keys({1: list(range(90))})
    flip(files.parts[harmed], 700)

    with caplog.at_level(logging.WARNING):
        files.tidy(work)

    assert "is damaged" in caplog.text
    assert len(files.search(work, keys)) == 3
    assert files.reads(work, keys) == set()


def test_widened_key_has_an_index_of_its_own(tmp_path: Path) -> None:
    """Keys of the narrow type would be compared with those of the wide one."""
    narrow = index_place(str(tmp_path / "keys"), "uuid", "main", {1: IntegerType()})
    wide = index_place(str(tmp_path / "keys"), "uuid", "main", {1: LongType()})
    assert narrow.folder != wide.folder
    files = IndexedFiles(folder=tmp_path)
    work = [files.data({1: pa.array([1, 2, 3], pa.int32())}), files.data({1: [2, 2**40]})]
    key = files.keys({1: pa.array([2], pa.int32())})
    found = {}

    for place, some in ((narrow, work[:1]), (wide, work)):
        with_keys = [FileWork(data_file=item.data_file, sequence_number=1, keys=(key,)) for item in some]
        found = IndexedMatcher(files.io, place).find(with_keys)

    assert {path: rows.positions.to_pylist() for path, rows in found.items()} == {work[0].path: [1], work[1].path: [0]}


@pytest.mark.parametrize(
    "other",
    [("other", "main", {1: LongType()}), ("uuid", "dev", {1: LongType()}), ("uuid", "main", {2: LongType()})],
    ids=["table", "branch", "column"],
)
def test_each_table_branch_and_key_has_an_index_of_its_own(tmp_path: Path, other: Any) -> None:
    """Rows would be looked for among those of another table, or by other columns."""
    own = index_place(str(tmp_path), "uuid", "main", {1: LongType()})

    assert index_place(str(tmp_path), *other).folder != own.folder
    assert index_place(str(tmp_path), "uuid", "main", {1: LongType()}) == own


def test_order_of_the_keys_does_not_matter(tmp_path: Path) -> None:
    """The same keys would be kept twice, or be looked for in the wrong columns."""
    one, other = LongType(), StringType()

    assert index_place(str(tmp_path), "u", "b", {2: other, 1: one}) == index_place(
        str(tmp_path), "u", "b", {1: one, 2: other}
    )


def test_folder_of_temporary_files_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the option, two users of one machine would need the same folder."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))

    place = index_place(None, "uuid", "main", {1: LongType()})

    assert Path(place.folder).parent == tmp_path / f"iceberg_ds-keys-{os.getuid()}"


def test_keys_that_files_have_in_their_partition(files: IndexedFiles) -> None:
    """Rows would be found by null, and not by the value that the partition gives them."""
    files = IndexedFiles(folder=files.folder, types={1: LongType(), 2: StringType()})
    work = [
        files.data({1: [1, 2]}, partition_values={2: "a"}),
        files.data({1: [1, 2]}, partition_values={2: "b"}),
        files.data({1: [1, 2], 2: ["b", "a"]}),
        files.data({1: [1, 2]}),
    ]

    found = files.search(work, files.keys({1: [1], 2: ["b"]}))

    assert found == {work[1].path: [(0, None)], work[2].path: [(0, None)]}
    files.tidy(work)
    assert files.search(work, files.keys({1: [1], 2: ["b"]})) == found
    assert files.search(work, files.keys({1: [2], 2: pa.array([None], pa.string())})) == {work[3].path: [(1, None)]}


def test_null_is_a_key_like_any_other(files: IndexedFiles) -> None:
    """Rows without a value would stay, or be taken for those with an empty one."""
    files = IndexedFiles(folder=files.folder, types={1: LongType(), 2: BinaryType()})
    nothing = pa.array([None, b"", None, b"x"], pa.binary())
    work = [files.data({1: [None, None, 0, 0], 2: nothing}), files.data({1: [0x6E756C6C, 0], 2: [b"", b""]})]

    for one in (None, 0, 0x6E756C6C):
        for other in (None, b"", b"x"):
            files.search(work, files.keys({1: pa.array([one], pa.int64()), 2: pa.array([other], pa.binary())}))

    keys = files.keys({1: pa.array([None], pa.int64()), 2: pa.array([None], pa.binary())})
    assert files.search(work, keys) == {work[0].path: [(0, None)]}


def test_keys_by_other_columns_are_looked_for_in_the_table(files: IndexedFiles) -> None:
    """Deletes by other columns would be looked up among keys that are none of theirs."""
    work = [files.data({1: [1, 2], 2: [2, 1]})]
    key = files.keys({2: [2]})
    place = files.place
    with_keys = [FileWork(data_file=work[0].data_file, sequence_number=1, keys=(key,))]
    matcher = IndexedMatcher(files.io, place.__class__(folder=place.folder, key_types={1: LongType(), 2: LongType()}))

    assert matcher.find(with_keys)[work[0].path].positions.to_pylist() == [0]
    assert not files.index.exists()


def test_search_gives_up_an_index_that_is_damaged_again_and_again(
    files: IndexedFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit would never end on a disk that does not keep what is written."""
    work = three(files)

    def damaged(*_: Any) -> Any:
        raise indexed.DamagedBlocksError("the disk does not keep what is written")

    monkeypatch.setattr(Blocks, "find", damaged)

    with caplog.at_level(logging.WARNING):
        assert len(files.search(work, files.keys({1: [0, 17, 43]}))) == 3
    assert caplog.text.count("the disk does not keep what is written") == indexed._TRIES


@pytest.mark.parametrize("work_of", ["add", "merge"])
def test_part_that_is_damaged_as_soon_as_it_is_written(
    files: IndexedFiles, work_of: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys of a data file would be taken for known that no part has, and none of its rows be found."""
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    work, keys = three(files), files.keys({1: [0, 17, 43, 500]})
    written, writes = key_index.write_blocks, []

    def damaging(folder: Path, name: str, *arguments: Any) -> Any:
        entry = written(folder, name, *arguments)
        writes.append(name)
        if len(writes) == 1:
            flip(folder / name, entry.size_bytes - 9)
        return entry

    monkeypatch.setattr(key_index, "write_blocks", damaging)
    with caplog.at_level(logging.WARNING):
        if work_of == "merge":
            files.tidy(work)
        else:
            work.append(files.data({1: [500, 17]}))

        assert len(files.search(work, keys)) == len(work)
    assert "is damaged" in caplog.text
    assert files.reads(work, keys) == set()


def test_same_rows_compare_what_blocks_keep(files: IndexedFiles) -> None:
    """Long keys would be found by their digests alone."""
    files = IndexedFiles(folder=files.folder, types={1: BinaryType()})
    texts = [bytes([number]) * 500 for number in range(20)]
    work = [files.data({1: texts})]

    found = files.search(work, files.keys({1: [texts[3], texts[3][:-1], b""]}))

    assert found == {work[0].path: [(3, None)]}
    assert same_rows([pa.array(texts[:1])], [pa.array(texts[:1])]).to_pylist() == [True]


# Micro-batches that look their keys up in an index.

FIRST: list[Event] = [("I", number, "EU" if number % 2 else "US", number, 1) for number in range(12)]
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def amounts(sink: Sink) -> dict[int, Any]:
    """Return the amounts of all rows by id, each of which is there once; no file lies around."""
    found = [(row["id"], row["amount"]) for row in rows_of(sink.table())]
    assert len(dict(found)) == len(found)
    check_clean(sink.table())
    return dict(sorted(found))


def changed(*ids: int, amount: int, region: str = "EU") -> list[Event]:
    """Return an event for each of these rows."""
    return [("U", number, region, amount, 5) for number in ids]


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("version", few(1, ["3", "2"]))
def test_epochs_replace_rows_whoever_writes_beside(sink: Sink, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that others wrote, moved or brought back would stay beside the new ones of their keys."""
    monkeypatch.setattr(key_index, "_LEAST_ROWS", 2)
    monkeypatch.setattr(key_index, "_FAN_IN", 2)
    sink.create(KEYED_SCHEMA, BY_REGION, format_version=version)
    upsert_epoch(sink, 0, *apart(FIRST))
    expected = {number: number for number in range(12)}
    head = sink.table().metadata.current_snapshot_id
    assert head is not None
    back = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=head)

    for number, others in enumerate(
        [
            lambda: upsert(sink, "position", changed(1, 20, amount=-1)),
            lambda: upsert(sink, "copy-on-write", changed(2, 3, 21, amount=-2)),
            lambda: rewrite(sink, min_input_files="1", rewrite_all="true"),
            lambda: delete_ids(sink, 20, 4),
            lambda: sink.catalog.send(sink.table(), (), (back,)),
            lambda: sink.commit(
                sink.write([{"id": key, "region": "US", "amount": -3} for key in (6, 30)], schema=COLUMNS)
            ),
            lambda: shutil.rmtree(local(sink.table().location()).parent / "keys"),
        ],
        start=1,
    ):
        others()
        expected = {row["id"]: row["amount"] for row in rows_of(sink.table())}
        events = [*changed(*{number, 20, 30, 6}, amount=number), ("D", number + 4, "EU", None, 9)]

        with at_step(FaultPoint.COMMIT_BEGUN, lambda: upsert(sink, "position", changed(20, 40, amount=-9))):
            upsert_epoch(sink, number, *apart([event for event in events if event[1] != number + 4 or event[0] == "D"]))

        expected.update({number: number, 20: number, 30: number, 6: number, 40: -9})
        expected.pop(number + 4, None)
        assert amounts(sink) == dict(sorted(expected.items()))


@pytest.mark.usefixtures("waits")
def test_partitions_are_searched_once(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each data file would get a file of position deletes of its own, or keys be looked up for each partition."""
    look, looks = KeyIndex.find, []

    def find(index: KeyIndex, *arguments: Any) -> Any:
        looks.append(1)
        return look(index, *arguments)

    monkeypatch.setattr(KeyIndex, "find", find)
    sink.create(KEYED_SCHEMA, BY_REGION)
    for number in range(3):
        upsert(sink, "position", [("I", 10 * number + key, region, 0, 1) for key, region in enumerate(("EU", "US"))])

    upsert_epoch(sink, 0, changed(*range(0, 30, 10), *range(1, 30, 10), amount=1))

    assert len(listed(sink.table())[DataFileContent.POSITION_DELETES]) == 2
    assert looks == [1]
    assert set(amounts(sink).values()) == {1}


@pytest.mark.usefixtures("waits")
def test_folder_of_others_stops_an_epoch_that_leaves_nothing(sink: Sink, tmp_path: Path) -> None:
    """The stream would hide rows that another user of the machine chose, or leave files in the table's folder."""
    sink.create(KEYED_SCHEMA)
    upsert_epoch(sink, 0, *apart(FIRST))
    keys = local(sink.table().location()).parent / "keys"
    theirs = Path(shutil.copytree(keys, tmp_path / "theirs"))
    for folder in theirs.iterdir():
        folder.chmod(0o777)

    with pytest.raises(OptionError, match="option 'key-index-folder'"):
        upsert_epoch(sink, 1, changed(1, amount=5), keys_in=theirs)

    assert amounts(sink) == {number: number for number in range(12)}
    upsert_epoch(sink, 1, changed(1, amount=5))
    assert amounts(sink)[1] == 5


@pytest.mark.usefixtures("waits")
def test_key_that_is_dropped_before_the_commit_is_a_conflict(sink: Sink) -> None:
    """A user would be told of a field by its number, and the files of the epoch would stay."""
    sink.create(KEYED_SCHEMA)
    upsert_epoch(sink, 0, *apart(FIRST))
    messages = keyed_tasks(upsert_plan(sink), changed(1, amount=5), of_epoch=epoch(1))
    with sink.table().update_schema(allow_incompatible_changes=True) as change:
        change.set_identifier_fields()
        change.delete_column("id")

    with pytest.raises(CommitConflictError, match=r"upsert into db\.t, nothing was committed: its key columns were"):
        commit_upsert_epoch(sink, messages)

    assert unreferenced_files(sink.table()) == set()


@pytest.mark.usefixtures("waits")
def test_damage_between_epochs_changes_no_row(sink: Sink) -> None:
    """Old rows would stay beside the new ones, or rows of other keys be hidden."""
    sink.create(KEYED_SCHEMA)
    upsert_epoch(sink, 0, *apart(FIRST))
    upsert_epoch(sink, 1, changed(1, amount=1))
    (index,) = (local(sink.table().location()).parent / "keys").iterdir()

    for number, path in enumerate(sorted(path for path in index.iterdir() if path.name != LOCK), start=2):
        flip(path, path.stat().st_size // 2)
        with another_process():
            upsert_epoch(sink, number, changed(number, 1, amount=number))

        assert amounts(sink)[1] == amounts(sink)[number] == number
        assert len(amounts(sink)) == 12


@pytest.mark.usefixtures("waits")
def test_key_is_widened_between_epochs(sink: Sink) -> None:
    """Rows of files with the narrow type would not be found by keys of the wide one."""
    narrow = Schema(NestedField(1, "id", IntegerType(), required=True), identifier_field_ids=[1])
    narrow = Schema(*narrow.fields, NestedField(2, "v", LongType()), identifier_field_ids=[1])
    sink.create(narrow)

    def put(number: int, kind: str, *ids: int) -> None:
        columns = StructType().add("id", kind, nullable=False).add("v", "long")
        plan = sink.plan(columns, WriteMode.UPSERT, keys=("id",))
        rows = [{"id": one, "v": number} for one in ids]
        commit_upsert_epoch(sink, sink.write(rows, schema=columns, plan=plan, of_epoch=epoch(number)))

    put(0, "integer", 1, 2, 3)
    put(1, "integer", 2)
    with sink.table().update_schema() as update:
        update.update_column("id", field_type=LongType())
    put(2, "long", 1, 2**40)
    put(3, "long", 2, 2**40)

    assert {row["id"]: row["v"] for row in sink.rows()} == {1: 2, 2: 3, 3: 0, 2**40: 3}
    assert len(sink.rows()) == 4
