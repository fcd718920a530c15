"""Each check of `verify` that is for tables of version 3 finds the damage that it is there for, and the others pass."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyroaring import BitMap64
from support.keys.conversions import convert
from support.keys.messages import COLUMNS, KEYED_SCHEMA, Event, keyed_tasks, plan_by_keys
from support.keys.upserts import apart, upsert
from support.tables.changes_by_others import add_column_of_version_3
from support.tables.damage import Json, Listing, changed, edit_entries, edit_list, edit_metadata
from support.tables.data_rewrites import rewrite
from support.tables.delete_files import delete_ids, delete_positions
from support.tables.expiry import expired
from support.tables.reading import read_by_tasks
from support.tables.rewrites import rewrite_manifests
from support.tables.sink import NAME, Sink, local, rows

import iceberg_ds
from iceberg_ds.errors import DataFileError, IcebergSinkError, UnsupportedTableError
from iceberg_ds.inspect.checklist import Check
from iceberg_ds.snapshots import manifests as writing
from iceberg_ds.snapshots.manifests import live_entries
from iceberg_ds.snapshots.version_3 import (
    deletion_vector,
    manifest_first_row_id,
    referenced_data_file,
)
from iceberg_ds.table.lineage import ROW_ID
from iceberg_ds.table.requests import UpgradeFormatVersion
from iceberg_ds.writers.deletion_vectors import write_deletion_vectors
from iceberg_ds.writers.position_deletes import HiddenRows

pytestmark = pytest.mark.usefixtures("waits")

FIRST: list[Event] = [("I", number, "EU" if number % 2 else "US", number, 1) for number in range(8)]
VECTORS, DANGLING, HIDDEN = "deletion vectors", "dangling deletion vectors", "rows of deletion vectors"
ROW_IDS, UNIQUE_ROW_IDS, DEFAULTS = "row ids", "unique row ids", "default values"
# Positions of fields in an entry (spec, "Manifests").
ROW_COUNT, FILE_SIZE, FIRST_ROW_ID, REFERENCED, OFFSET, LENGTH = 4, 5, -4, -3, -2, -1


def verified(sink: Sink, **arguments: Any) -> dict[str, Check]:
    """Verify the table as a user does, and return the checks by name."""
    result = iceberg_ds.verify(NAME, options={"warehouse": str(sink.options.warehouse)}, **arguments)
    return {check.name: check for check in result.checks}


def failures(sink: Sink, **arguments: Any) -> dict[str, str]:
    """Return what fails, and why."""
    return {name: check.detail for name, check in verified(sink, **arguments).items() if check.outcome == "failed"}


def warnings(sink: Sink) -> dict[str, str]:
    """Return what is warned of, and why."""
    return {name: check.detail for name, check in verified(sink).items() if check.outcome == "warning"}


def changed_rows(*ids: int) -> list[Event]:
    """Return an event that changes each row."""
    return [("U", number, "EU", number * 100, 2) for number in ids]


@pytest.fixture
def keyed(sink: Sink) -> Sink:
    """Return the sink of a table of version 3 with three data files, two of which have a vector in one file."""
    sink.create(KEYED_SCHEMA, format_version="3")
    upsert(sink, "position", *apart(FIRST))
    upsert(sink, "position", changed_rows(0, 1))
    assert failures(sink) == warnings(sink) == {}
    return sink


@pytest.fixture
def plain(sink: Sink) -> Sink:
    """Return the sink of a table of version 3 with a snapshot each of two rows, of one and of three."""
    sink = replace(sink, options=replace(sink.options, format_version="3"))
    sink.append(1, 2)
    sink.append(3)
    sink.append(4, 5, 6)
    return sink


def vector_entries(sink: Sink) -> list[ManifestEntry]:
    """Return the live entries of deletion vectors."""
    listing = Listing.of(sink)
    live = (entry for one in listing.manifests for entry in live_entries(listing.table.io, one))
    return [entry for entry in live if deletion_vector(entry.data_file) is not None]


def edit_vectors(sink: Sink, edit: Callable[[list[ManifestEntry]], object]) -> None:
    """Change the entries of deletion vectors in place."""

    def edited(found: list[ManifestEntry]) -> list[ManifestEntry]:
        edit([entry for entry in found if deletion_vector(entry.data_file) is not None])
        return found

    edit_entries(sink, edited, ManifestContent.DELETES)


def replace_where(sink: Sink, *ids: int) -> None:
    """Replace rows, in files with others that stay."""
    rows = [{"id": number, "region": "EU", "amount": 5} for number in ids]
    sink.overwrite(rows, schema=COLUMNS, replace_where=f"id IN ({', '.join(map(str, ids))})")


def check_refused(sink: Sink, said: str) -> None:
    """Check that reads and writes that look at vectors refuse the table, which stays as it is."""
    before = sink.table().metadata.current_snapshot_id
    with pytest.raises(UnsupportedTableError, match=re.escape(said)):
        read_by_tasks(sink)
    with pytest.raises(UnsupportedTableError, match=re.escape(said)):
        replace_where(sink, 2, 3)
    with pytest.raises(IcebergSinkError, match=re.escape(said)):
        upsert(sink, "position", changed_rows(2, 3))
    with pytest.raises(IcebergSinkError, match=re.escape(said)):
        rewrite(sink, min_input_files="1", rewrite_all="true")
    assert sink.table().metadata.current_snapshot_id == before


def vector_of(sink: Sink, path: str) -> DataFile:
    """Write one more vector of a data file, and return its entry."""
    listing = Listing.of(sink)
    live = (entry for one in listing.manifests for entry in live_entries(listing.table.io, one))
    (data_file,) = (entry.data_file for entry in live if entry.data_file.file_path == path)
    new = f"{listing.table.location()}/data/more.puffin"
    (entry,) = write_deletion_vectors(listing.table.io, new, [HiddenRows(data_file=data_file, positions=[0])])
    return entry


def with_value(position: int, value: object) -> Callable[[list[ManifestEntry]], object]:
    """Return what gives a field of the first entry another value."""

    def edit(found: list[ManifestEntry]) -> None:
        data_file = found[0].data_file
        data_file[len(data_file) + position if position < 0 else position] = value

    return edit


def test_sound_table_of_many_operations_is_whole(sink: Sink) -> None:
    """A user could not tell a sound table from a broken one, and would not look any more."""
    sink.create(KEYED_SCHEMA)
    upsert(sink, "position", *apart(FIRST))
    upsert(sink, "position", changed_rows(7))  # a position delete file of version 2
    fork = {"branch": "audit", "create_branch": True}
    sink.commit(sink.write([{"id": 20, "region": "EU", "amount": 1}], schema=COLUMNS, plan=sink.plan(COLUMNS, **fork)))
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))
    assert failures(sink) == {}
    for branch in ("main", "audit"):  # the files that both have get other ids on each
        row = [{"id": 30, "region": "EU", "amount": 1}]
        sink.commit(sink.write(row, schema=COLUMNS, plan=sink.plan(COLUMNS, branch=branch)))
    upsert(sink, "position", changed_rows(0, 1))
    upsert(sink, "position", changed_rows(1, 2, 7))
    upsert(sink, "copy-on-write", changed_rows(4))
    delete_ids(sink, 3)
    convert(sink)
    sink.overwrite([{"id": 5, "region": "EU", "amount": 3}], schema=COLUMNS, replace_where="id = 5")
    rewrite_manifests(sink)
    upsert(sink, "position", changed_rows(6, 20))
    rewrite(sink, rewrite_all="true", remove_dangling_deletes="true")
    upsert(sink, "position", changed_rows(0, 30))

    for _ in range(2):
        found = verified(sink, deep=True, all_snapshots=True)
        assert {name for name, check in found.items() if check.outcome in {"failed", "warning"}} == set()
        assert {found[name].outcome for name in (DEFAULTS, VECTORS, DANGLING, HIDDEN, ROW_IDS, UNIQUE_ROW_IDS)} == {
            "ok"
        }
        expired(sink, retain_last=1)
    assert "1 vector" in found[VECTORS].detail


def test_table_of_version_2_has_no_such_checks(sink: Sink) -> None:
    """A user would read of things that the table cannot have."""
    sink.append(1)

    assert not {DEFAULTS, VECTORS, DANGLING, HIDDEN, ROW_IDS, UNIQUE_ROW_IDS} & verified(sink, deep=True).keys()


@pytest.mark.parametrize(
    ("kind", "default", "said"),
    [
        ("int", "7", "default '7' of column 'other' is no int: Could not convert '7' with type str"),
        ("int", 1 << 40, "default 1099511627776 of column 'other' is no int: "),
        ("boolean", "true", "default 'true' of column 'other' is no boolean: "),
        ("decimal(9,2)", "1.234", "default Decimal('1.234') of column 'other' is no decimal(9, 2): Rescaling"),
    ],
)
@pytest.mark.parametrize("which", ["initial", "write"])
def test_default_that_is_no_value_of_its_column_is_found(
    plain: Sink, which: str, kind: str, default: object, said: str
) -> None:
    """Writes would land, and every read of the column fail."""
    add_column_of_version_3(plain, kind, **{f"{which}_default": default})

    found = failures(plain)

    assert list(found) == [DEFAULTS]
    assert f"1 problem: the {which} {said}" in found[DEFAULTS]


def test_default_inside_a_column_is_looked_at(plain: Sink) -> None:
    """Structs would be passed, and could not be read."""
    inner = {"id": 51, "name": "a", "required": False, "type": "int", "initial-default": "7"}
    add_column_of_version_3(plain, {"type": "struct", "fields": [inner]})

    assert "the initial default '7' of column 'other.a' is no int" in failures(plain)[DEFAULTS]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        *(("int", 7), ("long", 7), ("float", 0.5), ("double", 0.5), ("boolean", True), ("string", "x")),
        *(("decimal(9,2)", "1.25"), ("date", "2020-01-01"), ("time", "10:00:00"), ("binary", "00ff")),
        *(("fixed[2]", "00ff"), ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7")),
        *(("timestamp", "2020-01-01T00:00:00"), ("timestamptz", "2020-01-01T00:00:00+00:00")),
    ],
)
def test_default_of_its_type_is_passed(plain: Sink, kind: str, default: object) -> None:
    """A sound table would look broken."""
    add_column_of_version_3(plain, kind, initial_default=default, write_default=default)

    assert failures(plain) == {}


def test_table_without_vectors_is_not_looked_through_for_them(plain: Sink) -> None:
    """A user would believe that vectors were read."""
    found = verified(plain)

    assert {name for name, check in found.items() if check.outcome == "skipped"} >= {VECTORS, DANGLING, HIDDEN}
    assert "those of 3 snapshots, below the table's next, 6" in found[ROW_IDS].detail


def test_data_file_with_two_vectors_is_found(keyed: Sink) -> None:
    """Readers refuse the table, or take one of them and show rows that the other one deletes."""
    first = vector_entries(keyed)[0]
    path = referenced_data_file(first.data_file) or ""
    second = vector_of(keyed, path)

    edit_entries(keyed, lambda found: [*found, changed(first, data_file=second)], ManifestContent.DELETES)

    found = failures(keyed)

    assert list(found) == [VECTORS]
    assert f"has 2 deletion vectors of {path}: file://" in found[VECTORS]
    check_refused(keyed, f"is the second one of {path}")


@pytest.mark.parametrize(
    ("position", "said", "refused"),
    [
        (REFERENCED, "does not name its data file", "does not name its data file"),
        (OFFSET, "does not say where in its file it is", "does not say where its deletion vector is"),
        (LENGTH, "does not say where in its file it is", "does not say where its deletion vector is"),
    ],
)
def test_entry_that_lacks_what_readers_need_is_found(keyed: Sink, position: int, said: str, refused: str) -> None:
    """Readers would fail, or take the whole file for a position delete file."""
    edit_vectors(keyed, with_value(position, None))

    found = failures(keyed)

    assert list(found) == [VECTORS]
    assert said in found[VECTORS]
    check_refused(keyed, refused)


def test_vector_that_is_older_than_its_data_file_is_found(keyed: Sink) -> None:
    """Readers refuse the data file, or apply deletes of other rows to it."""
    keyed.commit(keyed.write([{"id": 9, "region": "EU", "amount": 1}], schema=COLUMNS, plan=keyed.plan(COLUMNS)))
    expired(keyed, retain_last=1)  # no other snapshot lists the manifest that is damaged
    listing = Listing.of(keyed)
    live = [entry for one in listing.manifests for entry in live_entries(listing.table.io, one)]
    newest = max(live, key=lambda entry: entry.sequence_number or 0).data_file.file_path
    newer = vector_of(keyed, newest)
    edit_entries(keyed, lambda found: [changed(found[0], data_file=newer), *found[1:]], ManifestContent.DELETES)

    found = failures(keyed)

    assert list(found) == [VECTORS]
    assert "has sequence number 2, below that of its data file" in found[VECTORS]


def test_vector_whose_data_file_is_gone_is_pointed_out(keyed: Sink) -> None:
    """Vectors that nobody drops would be read by every reader for good; but the table is not broken."""
    edit_vectors(keyed, with_value(REFERENCED, "file:///gone.parquet"))

    assert failures(keyed) == {}
    found = warnings(keyed)
    assert list(found) == [DANGLING]
    assert "is of file:///gone.parquet, which snapshot" in found[DANGLING]

    rewrite(keyed, rewrite_all="true", remove_dangling_deletes="true")
    assert failures(keyed) == warnings(keyed) == {}


@pytest.mark.parametrize(
    ("byte", "said"),
    [(0, "its length is not that"), (4, "it begins with"), (9, "its checksum is wrong"), (-1, "its checksum is wrong")],
)
def test_vector_with_a_wrong_byte_is_found(keyed: Sink, byte: int, said: str) -> None:
    """Reads would fail, or deleted rows show again."""
    entry = vector_entries(keyed)[0].data_file
    offset, length = deletion_vector(entry) or (0, 0)
    path = local(entry.file_path)
    content = bytearray(path.read_bytes())
    content[offset + (byte if byte >= 0 else length + byte)] ^= 0x55
    path.write_bytes(content)

    found = failures(keyed)

    assert list(found) == [HIDDEN]
    assert f"the deletion vector at {offset} in {entry.file_path}: it is damaged, {said}" in found[HIDDEN]


def test_vector_of_rows_that_its_data_file_does_not_have_is_found(keyed: Sink) -> None:
    """A vector of another file would hide the wrong rows, or none."""
    entry = vector_entries(keyed)[0].data_file
    offset, length = deletion_vector(entry) or (0, 0)
    bitmap = BitMap64([7])
    bitmap.run_optimize()
    body = bytes.fromhex("D1D33964") + bitmap.serialize()
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    assert len(blob) == length
    path = local(entry.file_path)
    content = path.read_bytes()
    path.write_bytes(content[:offset] + blob + content[offset + length :])

    found = failures(keyed)

    assert list(found) == [HIDDEN]
    told = "it hides row 7, counted from 0, and its data file has 3 rows"
    assert f"{told}; it is of {referenced_data_file(entry)}" in found[HIDDEN]
    with pytest.raises(DataFileError, match=told):
        read_by_tasks(keyed)
    with pytest.raises(IcebergSinkError, match=told):
        rewrite(keyed, min_input_files="1", rewrite_all="true")
    with pytest.raises(IcebergSinkError, match=told):
        upsert(keyed, "position", changed_rows(2, 3, 4, 5))
    with pytest.raises(IcebergSinkError, match=told):
        replace_where(keyed, 2, 3, 4, 5)
    assert list(failures(keyed)) == [HIDDEN]  # what shows the damage is still there


def test_vector_that_is_taken_for_that_of_another_data_file_is_found(keyed: Sink) -> None:
    """Rows would be hidden that nobody deleted, and deleted ones show again."""

    def swap(found: list[ManifestEntry]) -> None:
        one, other = (entry.data_file for entry in found)
        place = len(one) + OFFSET
        one[place], other[place] = other[place], one[place]

    edit_vectors(keyed, swap)

    found = failures(keyed)

    assert list(found) == [HIDDEN]
    first, second = (referenced_data_file(entry.data_file) for entry in vector_entries(keyed))
    assert f"is of {second} by its file, and of {first} by its manifest" in found[HIDDEN]


def test_vector_with_another_number_of_rows_is_found(keyed: Sink) -> None:
    """Counts that are answered from metadata would be wrong, and readers refuse it."""
    edit_vectors(keyed, with_value(ROW_COUNT, 2))

    found = failures(keyed)

    assert list(found) == [HIDDEN]
    assert "it hides 1 rows, and its manifest says 2" in found[HIDDEN]


@pytest.mark.parametrize(
    ("position", "value", "said"),
    [
        (OFFSET, 10**6, "is said to be at 1,000,000 and"),
        (OFFSET, -1, "is said to be at -1 and"),
        (LENGTH, 10**12, "1,000,000,000,000 bytes long, in a file of"),
        (LENGTH, -1, "-1 bytes long, in a file of"),
        (OFFSET, 5, "it is damaged"),
    ],
)
def test_vector_that_is_not_where_it_is_said_to_be_is_found(keyed: Sink, position: int, value: int, said: str) -> None:
    """Reads would fail, or take all memory."""
    edit_vectors(keyed, with_value(position, value))

    found = failures(keyed)

    assert set(found) - {"summaries"} == {HIDDEN}
    assert said in found[HIDDEN]


def test_file_of_vectors_that_is_missing_is_said_once(keyed: Sink) -> None:
    """The user would look for two damages."""
    local(vector_entries(keyed)[0].data_file.file_path).unlink()

    assert list(failures(keyed)) == ["data files"]


@pytest.mark.parametrize("is_hidden", [True, False])
def test_position_deletes_beside_a_vector_are_found(keyed: Sink, is_hidden: bool) -> None:  # noqa: FBT001
    """Readers leave them out, so that rows would show again that only they hide."""
    entry = vector_entries(keyed)[0].data_file
    path = referenced_data_file(entry) or ""
    # The row that the vector hides is the first one of its file.
    delete_positions(keyed, path, [0 if is_hidden else 1])

    found = failures(keyed)

    assert list(found) == ([] if is_hidden else [HIDDEN])
    assert is_hidden or f"hides 1 row of {path} that its deletion vector" in found[HIDDEN]
    assert f"is of {path} alone, which has a deletion vector" in warnings(keyed)[DANGLING]
    rewrite(keyed, rewrite_all="true", remove_dangling_deletes="true")
    assert failures(keyed) == warnings(keyed) == {}


def test_vectors_of_all_snapshots_are_looked_at_if_they_are_asked_for(keyed: Sink) -> None:
    """Time travel would fail on a table that was said to be whole."""
    path = local(vector_entries(keyed)[0].data_file.file_path)
    upsert(keyed, "copy-on-write", changed_rows(*range(8)))
    content = bytearray(path.read_bytes())
    content[8] ^= 0x55
    path.write_bytes(content)

    assert failures(keyed) == {}
    assert list(failures(keyed, all_snapshots=True)) == [HIDDEN]


def lower_next(document: Json) -> None:
    """Let the next row id be one that a row has."""
    document["next-row-id"] = 5


def take_anew(document: Json) -> None:
    """Let a snapshot begin with a row id that another one has given."""
    document["snapshots"][1]["first-row-id"] = 1


def take_none(document: Json) -> None:
    """Let a snapshot have no row ids."""
    del document["snapshots"][1]["first-row-id"]


def reserve_less(document: Json) -> None:
    """Let a snapshot have fewer row ids than it gives."""
    document["snapshots"][2]["added-rows"] = 2


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lower_next, "has given the row ids below 6, and the table's next is 5"),
        (lower_next, "has the row ids below 6, and the table's next is 5"),
        (take_anew, "begins with row id 1, and snapshot"),
        (take_none, "has no first row id"),
        (reserve_less, "has the row ids below 6, and snapshot"),
    ],
)
def test_row_ids_that_snapshots_do_not_have_are_found(plain: Sink, damage: Callable[[Json], None], said: str) -> None:
    """The next rows would get ids that other rows have."""
    edit_metadata(plain, damage)

    found = failures(plain)

    assert list(found) == [ROW_IDS]
    assert said in found[ROW_IDS]


def test_manifest_without_row_ids_is_found(plain: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows would have no ids, as if a writer of version 2 had written the list."""
    with monkeypatch.context() as patched:
        older = plain.table().metadata.model_copy(update={"format_version": 2})
        write = writing.write_list
        patched.setattr("support.tables.damage.write_list", lambda io, _, *given: write(io, older, *given))
        edit_list(plain, list)

    found = failures(plain)

    assert list(found) == [ROW_IDS]
    assert "without a first row id: the rows of its files have no ids" in found[ROW_IDS]


def test_files_whose_rows_have_the_same_ids_are_found(plain: Sink) -> None:
    """Who follows a row by its id would get two."""

    def as_first(found: list[ManifestEntry]) -> list[ManifestEntry]:
        data_file = found[0].data_file
        data_file[len(data_file) + FIRST_ROW_ID] = 0
        return found

    edit_entries(plain, as_first)

    found = failures(plain)

    assert list(found) == [ROW_IDS]
    assert "has rows with ids from 0 to 1 in" in found[ROW_IDS]


def test_manifests_whose_files_inherit_the_same_ids_are_found(plain: Sink) -> None:
    """Who follows a row by its id would get two."""

    def alike(manifests: list[ManifestFile]) -> list[ManifestFile]:
        data = [one for one in manifests if one.content == ManifestContent.DATA]
        data[0][len(data[0]) - 1] = manifest_first_row_id(data[1])
        return manifests

    edit_list(plain, alike)

    found = failures(plain)

    assert list(found) == [ROW_IDS]
    assert "has rows with ids from" in found[ROW_IDS]


def test_files_that_store_the_ids_of_their_rows_inherit_none(plain: Sink) -> None:
    """A table would be called broken whose writer gives files with ids of their own no range of their own."""
    plain.overwrite(rows(5), replace_where="id = 5")
    newest = Listing.of(plain).snapshot.snapshot_id

    def as_first(manifests: list[ManifestFile]) -> list[ManifestFile]:
        (moved,) = [one for one in manifests if one.added_snapshot_id == newest and one.added_rows_count == 2]
        moved[len(moved) - 1] = 0
        return manifests

    edit_list(plain, as_first)

    assert failures(plain) == {}


def append_with_ids(sink: Sink, *row_ids: int | None) -> str:
    """Append a file of rows that store these ids, as if they had been in other files before; return its path."""
    (message,) = sink.write(rows(*range(100, 100 + len(row_ids))))
    (data_file,) = message.data_files
    path = local(data_file.file_path)
    stored = pa.field(ROW_ID.name, pa.int64(), metadata={"PARQUET:field_id": str(ROW_ID.field_id)})
    pq.write_table(pq.read_table(path, partitioning=None).append_column(stored, pa.array(row_ids, pa.int64())), path)
    data_file[FILE_SIZE] = path.stat().st_size
    sink.commit([message])
    return data_file.file_path


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ((7, 7), "shows 2 rows of 1 row id: 7 in row 0 of {path} and row 1 of {path}"),
        ((6, 2), "shows 2 rows of 1 row id: 2 in row 1 of {path} and row 0 of"),
        ((0, 1), "shows 4 rows of 2 row ids: 0 in row 0 of {path} and row 0 of"),
        ((None, 6), "shows 2 rows of 1 row id: 6 in row 0 of {path} and row 1 of {path}"),
        ((6, 8), "row 1 of {path} has row id 8, and the table's next is 8"),
        ((6, -1), "row 1 of {path} has row id -1, and the table's first is 0"),
    ],
    ids=[
        "in one file",
        "that another row inherits",
        "several",
        "that a row beside it inherits",
        "not given yet",
        "never given",
    ],
)
def test_ids_that_rows_store_are_compared(plain: Sink, stored: tuple[int, ...], said: str) -> None:
    """Who follows a row by its id would get two, though no two files inherit one range."""
    path = append_with_ids(plain, *stored)

    assert failures(plain) == {}
    found = failures(plain, deep=True)
    assert list(found) == [UNIQUE_ROW_IDS]
    assert said.format(path=path) in found[UNIQUE_ROW_IDS]


def test_rows_that_are_hidden_do_not_share_their_ids(keyed: Sink) -> None:
    """Every table would look broken in which a row has changed: the old one and the new one have one id."""
    delete_ids(keyed, 3)
    keyed.commit(keyed_tasks(plan_by_keys(keyed), *apart([("U", 5, "EU", 9, 9), ("D", 6, "EU", None, 9)])))

    found = verified(keyed, deep=True)[UNIQUE_ROW_IDS]

    assert (found.outcome, found.detail) == (
        "ok",
        "each of one row: 6 rows of 1 snapshot, stored and inherited ids",
    )


def test_row_ids_of_each_branch_are_compared(plain: Sink) -> None:
    """What is to be published would have two rows of one id, and nobody would know."""
    append_with_ids(plain, 7, 7)
    plain.commit(plain.write(rows(9), plan=plain.plan(branch="audit", create_branch=True)))

    detail = failures(plain, deep=True)[UNIQUE_ROW_IDS]

    assert "on audit, snapshot" in detail
    assert "on main, snapshot" in detail


def test_row_ids_are_not_compared_where_rows_cannot_be_read(keyed: Sink) -> None:
    """The user would look for two damages."""
    local(vector_entries(keyed)[0].data_file.file_path).unlink()

    assert list(failures(keyed, deep=True)) == ["data files"]


def test_rows_from_before_the_upgrade_have_no_ids_to_compare(sink: Sink) -> None:
    """A table that was upgraded would look broken."""
    sink.append(1, 2)
    sink.catalog.send(sink.table(), (), (UpgradeFormatVersion(format_version=3),))

    found = verified(sink, deep=True)[UNIQUE_ROW_IDS]

    assert (found.outcome, found.detail) == ("skipped", "no branch or tag is at a snapshot whose rows have ids")
    assert "not asked for" in verified(sink)[UNIQUE_ROW_IDS].detail
