"""Tables whose metadata PyIceberg cannot parse: what is wrong is said, and not that the catalog is out of reach."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError
from pyiceberg.catalog.rest import TableResponse
from support.tables.damage import Json, edit_metadata
from support.tables.metadata import line, metadata_of
from support.tables.sink import IDENTIFIER, Sink, local

import iceberg_ds
from iceberg_ds.catalog.metadata_files import MetadataFiles
from iceberg_ds.catalog.pyiceberg_patches import fit_rest_messages
from iceberg_ds.catalog.unparsed import UnparsedMetadataError
from iceberg_ds.errors import CatalogError

UNKNOWN = "do not know, or its metadata is wrong: use an engine that knows it, such as Iceberg's Spark runtime"
BLOB = {"type": "z", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}
STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "file:///x.puffin",
    "file-size-in-bytes": 1,
    "file-footer-size-in-bytes": 1,
    "blob-metadata": [BLOB],
}


@pytest.fixture(autouse=True)
def _rest_messages_fitted() -> None:
    fit_rest_messages()


def with_column(kind: str, **more: str) -> Callable[[Json], None]:
    """Return what adds a column to the newest schema."""

    def edit(document: Json) -> None:
        added = {key.replace("_", "-"): value for key, value in more.items()}
        document["schemas"][-1]["fields"].append({"id": 50, "name": "at", "required": False, "type": kind, **added})
        document.update({"format-version": 3, "next-row-id": 0, "last-column-id": 50})

    return edit


def with_spec(document: Json) -> None:
    """Add an old spec with a transform of two columns."""
    parts = {"name": "p", "field-id": 1000, "source-ids": [1, 2], "transform": "zz"}
    document["partition-specs"].append({"spec-id": 7, "fields": [parts]})


def with_statistics(document: Json) -> None:
    """Add statistics with a blob of an unknown type."""
    document["statistics"] = [STATISTICS]


CASES = [
    (with_column("geometry(srid:4326)"), "Could not parse geometry(srid:4326) into a GeometryType"),
    (with_column("geography(srid:4326, spherical)"), "Could not parse geography(srid:4326, spherical) into"),
    (with_column("timestamp_ns", initial_default="2020-01-01T00:00:00.000000001"), "type timestamp_ns not supported"),
    (with_column("date", initial_default="10000-01-01"), "fields.2.initial-default: Invalid isoformat string"),
    (with_spec, "partition-specs.1.fields.0: Multi argument transforms are not yet supported; it is {'"),
    (with_statistics, "statistics.0.blob-metadata.0.type: Input should be 'apache-datasketches-theta-v1' or 'deletion"),
    (with_statistics, "; it is 'z'. The table has something that the installed versions of iceberg-ds and PyIceberg"),
]


@pytest.mark.parametrize(("edit", "said"), CASES)
def test_what_cannot_be_parsed_is_said_with_what_to_do(sink: Sink, edit: Callable[[Json], None], said: str) -> None:
    """The user would look after a database that runs."""
    sink.append(1)
    edit_metadata(sink, edit)

    with pytest.raises(CatalogError) as refused:
        sink.catalog.reading_anew().find_table(IDENTIFIER)

    text = str(refused.value)
    assert text.startswith("Cannot load table db.t in catalog 'default' ")
    assert "the table's metadata cannot be parsed: " in text
    assert said in text
    assert UNKNOWN in text
    assert "database of the SQL catalog runs" not in text
    assert "errors.pydantic.dev" not in text


def test_verify_says_it_too(sink: Sink) -> None:
    """The check of the table would send the user to the catalog."""
    sink.append(1)
    edit_metadata(sink, with_statistics)

    result = iceberg_ds.verify("db.t", options={"warehouse": str(sink.options.warehouse)})

    (check,) = (one for one in result.checks if one.outcome == "failed")
    assert "the table's metadata cannot be parsed: statistics.0.blob-metadata.0.type" in check.detail


def test_file_that_is_cut_off_is_damaged(sink: Sink) -> None:
    """The user would look for an engine that knows half a file."""
    sink.append(1)
    path = local(sink.table().metadata_location)
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(CatalogError, match=r"cannot be parsed: Invalid JSON.* The file is damaged: restore it from"):
        sink.catalog.reading_anew().find_table(IDENTIFIER)


def test_long_values_are_left_out(sink: Sink) -> None:
    """An error would show the whole metadata, with properties that are nobody's business."""
    sink.append(1)
    edit_metadata(sink, lambda document: document.pop("location"))

    with pytest.raises(CatalogError, match=r"cannot be parsed: location: Field required\. The table has") as refused:
        sink.catalog.reading_anew().find_table(IDENTIFIER)

    assert "table-uuid" not in str(refused.value)


def answer(edit: Callable[[Json], None]) -> str:
    """Return the answer of a REST server with such metadata."""
    metadata = json.loads(metadata_of(line(1, 2)).model_dump_json())
    edit(metadata)
    return json.dumps({"metadata-location": "file:///x", "metadata": metadata})


@pytest.mark.parametrize(("edit", "said"), CASES[:-1])
def test_answer_of_a_rest_server_is_told_alike(edit: Callable[[Json], None], said: str) -> None:
    """Tables in REST catalogs would be refused with a page of another library's text."""
    with MetadataFiles().at_hand(), pytest.raises(UnparsedMetadataError) as refused:
        TableResponse.model_validate_json(answer(edit))

    assert said in str(refused.value)
    assert UNKNOWN in refused.value.next_step


def test_table_of_a_version_that_nobody_knows_yet_is_told_as_such(sink: Sink) -> None:
    """The next version of the format would be taken for a server that does not run."""

    def of_version_4(document: Json) -> None:
        document["format-version"] = 4

    sink.append(1)
    edit_metadata(sink, of_version_4)

    with MetadataFiles().at_hand(), pytest.raises(UnparsedMetadataError, match="Input tag '4'"):
        TableResponse.model_validate_json(answer(of_version_4))
    with pytest.raises(CatalogError, match=f"the table's metadata cannot be parsed: Input tag '4'.*{UNKNOWN}"):
        sink.catalog.reading_anew().find_table(IDENTIFIER)


@pytest.mark.parametrize("text", ["<html>", "{}", '{"metadata-location": 5}'])
def test_other_answers_stay_what_they_are(text: str) -> None:
    """A wrong address would be taken for a table that is too new."""
    with MetadataFiles().at_hand(), pytest.raises(ValidationError):
        TableResponse.model_validate_json(text)


def test_users_own_loads_raise_what_pyiceberg_raises() -> None:
    """Programs that handle PyIceberg's errors would break."""
    with pytest.raises(ValidationError):
        TableResponse.model_validate_json(answer(with_statistics))
