"""A table that is encrypted is never changed: PyIceberg keeps no keys, and a commit of ours would throw them away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from inspect import unwrap
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg import serializers
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import SetPropertiesUpdate
from support.catalogs.faulty_catalog import FaultyCatalog
from support.catalogs.rest_fake import RestFake, serve_rest_fake
from support.catalogs.rest_sinks import sink_of
from support.tables.changes_by_others import register_edited
from support.tables.metadata import line, metadata_of
from support.tables.rewrites import rewrite_manifests
from support.tables.sink import IDENTIFIER, NAME, Sink, epoch, local, paths_of, rows

import iceberg_ds
from iceberg_ds.catalog.metadata_files import MetadataFiles
from iceberg_ds.catalog.pyiceberg_patches import fit_rest_messages
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import UnsupportedTableError
from iceberg_ds.io.local_io import LocalFileIO
from iceberg_ds.table.encryption import evidence_of_encryption, noting_encryption
from iceberg_ds.table.requests import CommitRequest

pytestmark = pytest.mark.usefixtures("waits")

Json = dict[str, Any]
KEYS = [{"key-id": "k1", "encrypted-key-metadata": "YWJj", "encrypted-by-id": "kek"}]
BRANCH = "audit"
METADATA = metadata_of(line(1, 2)).model_dump_json()


def add_keys(document: Json) -> None:
    """Add keys, as Iceberg's Java library does in version 3."""
    document["encryption-keys"] = KEYS


def add_key_ids(document: Json) -> None:
    """Let the oldest snapshot alone name the key of its manifest list."""
    document["snapshots"][0]["key-id"] = "k1"


def add_property(document: Json) -> None:
    """Name the key that encrypts the other keys."""
    document["properties"]["encryption.key-id"] = "kek"


SIGNS = [
    pytest.param(add_keys, "'encryption-keys' in its metadata", id="keys"),
    pytest.param(add_key_ids, "'key-id' of its snapshot", id="snapshot"),
    pytest.param(add_property, "property encryption.key-id", id="property"),
]


def append(sink: Sink) -> object:
    """Append a row."""
    return sink.append(3)


def expire(sink: Sink) -> object:
    """Expire all snapshots but the newest."""
    options = {"warehouse": str(sink.options.warehouse)}
    ids = [sink.table().metadata.snapshots[0].snapshot_id]
    return iceberg_ds.expire_snapshots(NAME, options=options, snapshot_ids=ids)


def set_property(sink: Sink) -> object:
    """Send a change of nothing but a property."""
    return sink.catalog.send(sink.table(), (), (SetPropertiesUpdate(updates={"a": "b"}),))


def set_together(sink: Sink) -> object:
    """Send the same as a request for several tables."""
    update = SetPropertiesUpdate(updates={"a": "b"})
    return sink.catalog.send_together([(sink.table(), CommitRequest(requirements=(), updates=(update,)))])


COMMITS: list[Callable[[Sink], object]] = [
    append,
    expire,
    set_property,
    set_together,
    rewrite_manifests,
    lambda sink: publish_branch(sink.catalog, IDENTIFIER, BRANCH, "main"),
]


@pytest.fixture
def audited(sink: Sink) -> Sink:
    """Return a table with two snapshots on main, and one on a branch beside it."""
    sink.append(1)
    sink.append(2)
    sink.commit(sink.write(rows(9), plan=sink.plan(branch=BRANCH, create_branch=True)))
    return sink


def document_of(sink: Sink) -> Json:
    """Return the table's metadata as it stands in its file."""
    document: Json = json.loads(local(sink.table().metadata_location).read_text())
    return document


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize(("edit", "evidence"), SIGNS)
def test_no_commit_reaches_an_encrypted_table(
    audited: Sink, commit: Callable[[Sink], object], edit: Callable[[Json], None], evidence: str
) -> None:
    """The keys of all its files would be gone from its metadata, and nobody could read a row any more."""
    register_edited(audited, edit)
    before = document_of(audited)

    with pytest.raises(UnsupportedTableError, match=f"it is encrypted \\({evidence}"):
        commit(audited)

    assert document_of(audited) == before


def test_what_somebody_takes_back_is_put_in_again(audited: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own patch of PyIceberg that ends would take the sink's with it, and the keys with the next commit."""
    register_edited(audited, add_keys)
    before = document_of(audited)
    plain = unwrap(serializers.FromInputFile.table_metadata)
    monkeypatch.setattr(serializers.FromInputFile, "table_metadata", staticmethod(plain))

    with pytest.raises(UnsupportedTableError, match="it is encrypted"):
        append(audited)

    assert document_of(audited) == before


def test_error_says_what_to_do(audited: Sink) -> None:
    """A user would not know whether the table was changed, nor who can change it."""
    register_edited(audited, add_keys)

    with pytest.raises(UnsupportedTableError) as raised:
        set_property(audited)

    assert str(raised.value) == (
        "Cannot commit to db.t: it is encrypted ('encryption-keys' in its metadata), and this sink writes plain files "
        "and keeps no keys in metadata, without which encrypted files cannot be read. Nothing was committed. Change "
        "the table with an engine that encrypts, such as Iceberg's Spark runtime."
    )


def test_write_is_refused_before_any_task_runs(audited: Sink) -> None:
    """All rows would be written first, in plain text."""
    register_edited(audited, add_keys)

    with pytest.raises(UnsupportedTableError, match=r"Cannot write to db\.t: it is encrypted"):
        audited.plan()


def test_files_of_a_write_are_deleted_if_the_table_was_encrypted_meanwhile(audited: Sink) -> None:
    """Rows of an encrypted table would lie in its folder, in plain text."""
    messages = audited.write(rows(3))
    register_edited(audited, add_keys)
    before = document_of(audited)

    with pytest.raises(UnsupportedTableError, match=r"Cannot commit to db\.t, nothing was committed: it is encrypted"):
        audited.commit(messages)

    assert not any(path.exists() for path in paths_of(messages))
    assert document_of(audited) == before


def test_keys_that_come_between_look_and_commit_stay(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """The catalog loads the table once more, and would write it anew without the keys it has by then."""
    faulty_sink.append(1)
    faulty_catalog.before_commit(faulty_catalog.commits + 1, lambda: register_edited(faulty_sink, add_keys))

    with pytest.raises(UnsupportedTableError, match="it is encrypted"):
        faulty_sink.append(2)

    assert document_of(faulty_sink)["encryption-keys"] == KEYS
    assert len(document_of(faulty_sink)["snapshots"]) == 1


def test_key_of_a_known_snapshot_is_seen_in_each_file(audited: Sink, tmp_path: Path) -> None:
    """Of a file that continues a known one only what is new is parsed: keys of older snapshots would be overlooked."""
    whole, files, found = document_of(audited), MetadataFiles(), []
    add_key_ids(whole)
    for count in (2, 3):
        path = tmp_path / f"0000{count}-{uuid4()}.metadata.json"
        path.write_text(json.dumps(whole | {"snapshots": whole["snapshots"][:count], "refs": {}}))
        found.append(files.read(LocalFileIO().new_input(path.as_uri())))

    first, second = found
    assert [len(metadata.snapshots) for metadata in found] == [2, 3]
    assert second.snapshots[0] is first.snapshots[0]
    assert evidence_of_encryption(first) == evidence_of_encryption(second) is not None


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[RestFake]:
    """Return a REST server."""
    with serve_rest_fake(tmp_path) as server:
        yield server


@pytest.mark.parametrize(("edit", "evidence"), SIGNS)
def test_rest_servers_answer_tells(fake: RestFake, edit: Callable[[Json], None], evidence: str) -> None:
    """The server keeps the keys, and readers would take plain manifests and files for encrypted ones."""
    sink = sink_of(fake)
    sink.append(1)
    sink.commit(sink.write(rows(9), plan=sink.plan(branch=BRANCH, create_branch=True)))

    def shown(table: Table) -> Json:
        document: Json = json.loads(local(table.metadata_location).read_text())
        edit(document)
        return {"metadata": document}

    fake.vend = shown
    fake.recorded.clear()

    for commit in (set_property, lambda sink: publish_branch(sink.catalog, IDENTIFIER, BRANCH, "main")):
        with pytest.raises(UnsupportedTableError, match=f"it is encrypted \\({evidence}"):
            commit(sink)

    assert [request.method for request in fake.recorded] == ["GET", "GET"]


def test_rest_servers_answer_to_a_commit_tells() -> None:
    """Whoever goes on with the answer, without another load, would not know."""
    answer = f'{{"metadata-location":"file:///x","metadata":{{"encryption-keys":[{{}}],{METADATA[1:]}}}'

    fit_rest_messages()
    with MetadataFiles().at_hand():
        found = CommitTableResponse.model_validate_json(answer)

    assert evidence_of_encryption(found.metadata) == "'encryption-keys' in its metadata"
    others = CommitTableResponse.model_validate_json(answer)
    assert evidence_of_encryption(others.metadata) is None


def test_words_of_encryption_elsewhere_are_no_sign_of_it(sink: Sink) -> None:
    """A table with a property or a column of that name could not be written."""
    sink.append(1)

    def edit(document: Json) -> None:
        document["properties"] |= {"key-id": "x", "encryption-keys": "y"}
        document["encryption-keys"] = []
        document["snapshots"][0]["summary"]["key-id"] = "z"

    register_edited(sink, edit)

    sink.append(2)
    assert sink.ids() == [1, 2]


def test_note_is_not_written_and_changes_nothing_else() -> None:
    """Other engines would find a field that no spec has, or a table that nobody changed would seem another one."""
    metadata = metadata_of(line(1, 2))
    noted = noting_encryption(metadata, '{"encryption-keys":[{}]}')

    assert evidence_of_encryption(noted) == evidence_of_encryption(noted.model_copy(deep=True))
    assert evidence_of_encryption(noted) is not None
    assert evidence_of_encryption(metadata) is None
    assert noted == metadata
    assert noted.model_dump_json() == metadata.model_dump_json()


def test_epoch_that_landed_before_is_skipped(sink: Sink) -> None:
    """A stream would fail at an epoch that needs nothing but a note, which no encrypted table gets."""
    sink.append(1, of_epoch=epoch(0))
    messages = sink.write(rows(1), of_epoch=epoch(0))

    def edit(document: Json) -> None:
        add_keys(document)
        document["properties"] = {}  # where epochs are noted, too

    register_edited(sink, edit)
    before = document_of(sink)

    assert sink.commit(messages).was_replayed
    assert document_of(sink) == before
