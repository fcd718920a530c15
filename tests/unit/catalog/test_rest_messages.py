"""What is sent to a REST catalog and what it answers: whole and quick for the sink, PyIceberg's own for others."""

from __future__ import annotations

import gc
import json
from contextlib import nullcontext

import pytest
from pydantic import ValidationError
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse, TableIdentifier
from pyiceberg.table.update import AddSchemaUpdate, AssertCreate, SetPropertiesUpdate
from support.tables.metadata import ID_AND_NAME, line, metadata_of

from iceberg_ds.catalog.metadata_files import MetadataFiles
from iceberg_ds.catalog.pyiceberg_patches import fit_rest_messages
from iceberg_ds.catalog.rest_messages import parsing_quickly
from iceberg_ds.table.requests import AddSchema

UPDATES = (AddSchema(schema_=ID_AND_NAME, last_column_id=7), SetPropertiesUpdate(updates={"a": "b"}))
METADATA = metadata_of(line(1, 2))
ANSWER = f'{{"metadata-location":"file:///x","metadata":{METADATA.model_dump_json()}}}'
ANSWERS = [TableResponse, CommitTableResponse]
REQUEST = CommitTableRequest(
    identifier=TableIdentifier(namespace=("db",), name="t"), requirements=(AssertCreate(),), updates=UPDATES
)


@pytest.fixture(autouse=True)
def _in_place() -> None:
    fit_rest_messages()


def test_last_column_id_is_sent() -> None:
    """Nessie refuses a schema without it: no table could be created, no column added."""
    with MetadataFiles().at_hand():
        sent = REQUEST.model_dump_json()

    assert json.loads(sent) == {
        "identifier": {"namespace": ["db"], "name": "t"},
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {
                "action": "add-schema",
                "schema": json.loads(ID_AND_NAME.model_dump_json()),
                "last-column-id": 7,
            },
            {"action": "set-properties", "updates": {"a": "b"}},
        ],
    }


def test_requests_of_others_are_pyicebergs_own() -> None:
    """A user's own `table.append()` would send what PyIceberg does not; or nobody would need the patch any more."""
    updates = json.loads(REQUEST.model_dump_json())["updates"]

    assert "last-column-id" not in updates[0]
    assert "last_column_id" not in AddSchemaUpdate.model_fields


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("is_ours", [True, False])
def test_answer_is_parsed_and_the_collector_works_on(
    kind: type[TableResponse | CommitTableResponse], *, is_ours: bool
) -> None:
    """Tables would be misread, or the process would grow for ever; others' processes would stop collecting."""
    was_enabled: list[bool] = []

    def parse(cls: type[TableResponse], text: str) -> TableResponse:
        was_enabled.append(gc.isenabled())
        return cls.model_validate(json.loads(text))

    with MetadataFiles().at_hand() if is_ours else nullcontext():
        noted = parsing_quickly(parse, tells_unparsed=True)(kind, ANSWER)
        parsed = kind.model_validate_json(ANSWER)

    assert (parsed.metadata, parsed.metadata_location) == (METADATA, "file:///x")
    assert type(parsed) is kind
    assert noted == parsed
    assert was_enabled == [not is_ours]
    assert gc.isenabled()


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_that_does_not_parse_leaves_the_collector_on(kind: type[TableResponse | CommitTableResponse]) -> None:
    """A bad answer of a proxy would let the process grow for ever."""
    with MetadataFiles().at_hand(), pytest.raises(ValidationError):
        kind.model_validate_json("<html>")

    assert gc.isenabled()


def test_pyicebergs_rest_catalog_calls_what_is_replaced() -> None:
    """A new PyIceberg would make requests and read answers otherwise, and nobody would notice."""
    commit = RestCatalog.commit_table.__wrapped__  # type: ignore[attr-defined]  # behind its retries
    load = RestCatalog.load_table.__wrapped__  # type: ignore[attr-defined]
    assert commit.__globals__["CommitTableRequest"] is CommitTableRequest
    assert commit.__globals__["CommitTableResponse"] is CommitTableResponse
    names = {"CommitTableRequest", "model_dump_json", "CommitTableResponse", "model_validate_json"}
    assert names <= set(commit.__code__.co_names)
    assert {"TableResponse", "model_validate_json"} <= set(load.__code__.co_names)
