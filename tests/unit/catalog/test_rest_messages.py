"""What is sent to a REST catalog and what it answers: whole and quick for the sink, PyIceberg's own for others."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError
from pyiceberg.catalog import rest
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.table import CommitTableRequest, CommitTableResponse, TableIdentifier
from pyiceberg.table.update import AddSchemaUpdate, AssertCreate, SetPropertiesUpdate
from support.tables.metadata import ID_AND_NAME, line, metadata_of

from iceberg_ds.catalog.metadata_files import MetadataFiles
from iceberg_ds.catalog.pyiceberg_patches import fit_rest_messages
from iceberg_ds.catalog.rest_messages import (
    QuickCommitTableResponse,
    QuickTableResponse,
    WholeCommitTableRequest,
)
from iceberg_ds.table.requests import AddSchema

UPDATES = (AddSchema(schema_=ID_AND_NAME, last_column_id=7), SetPropertiesUpdate(updates={"a": "b"}))
METADATA = metadata_of(line(1, 2))
ANSWER = f'{{"metadata-location":"file:///x","metadata":{METADATA.model_dump_json()}}}'
ANSWERS = [(QuickTableResponse, TableResponse), (QuickCommitTableResponse, CommitTableResponse)]


def made_by(request: Callable[..., CommitTableRequest]) -> CommitTableRequest:
    """Return a request of the two updates."""
    identifier = TableIdentifier(namespace=("db",), name="t")
    return request(identifier=identifier, requirements=(AssertCreate(),), updates=UPDATES)


def test_last_column_id_is_sent() -> None:
    """Nessie refuses a schema without it: no table could be created, no column added."""
    with MetadataFiles().at_hand():
        sent = made_by(WholeCommitTableRequest).model_dump_json()

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


def test_pyicebergs_own_request_still_drops_it() -> None:
    """A module would stay that nobody needs any more."""
    updates = json.loads(made_by(CommitTableRequest).model_dump_json())["updates"]

    assert "last-column-id" not in updates[0]
    assert "last_column_id" not in AddSchemaUpdate.model_fields


def test_requests_of_others_are_pyicebergs_own() -> None:
    """A user's own `table.append()` in the same process would send what PyIceberg does not."""
    assert made_by(WholeCommitTableRequest).model_dump_json() == made_by(CommitTableRequest).model_dump_json()


@pytest.mark.parametrize(("quick", "own"), ANSWERS)
@pytest.mark.parametrize("is_ours", [True, False])
def test_answer_is_parsed_and_the_collector_works_on(
    quick: type[TableResponse | CommitTableResponse],
    own: type[TableResponse | CommitTableResponse],
    *,
    is_ours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tables would be misread, or the process would grow for ever; others' processes would stop collecting."""
    was_enabled: list[bool] = []
    parse = own.model_validate_json

    def noted(*args: object, **kwargs: object) -> TableResponse | CommitTableResponse:
        was_enabled.append(gc.isenabled())
        return parse(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(own, "model_validate_json", noted)
    if is_ours:
        with MetadataFiles().at_hand():
            parsed = quick.model_validate_json(ANSWER)
    else:
        parsed = quick.model_validate_json(ANSWER)

    assert (parsed.metadata, parsed.metadata_location) == (METADATA, "file:///x")
    assert type(parsed) is own
    assert was_enabled == [not is_ours]
    assert gc.isenabled()


@pytest.mark.parametrize("kind", [QuickTableResponse, QuickCommitTableResponse])
def test_answer_that_does_not_parse_leaves_the_collector_on(kind: type[TableResponse | CommitTableResponse]) -> None:
    """A bad answer of a proxy would let the process grow for ever."""
    with MetadataFiles().at_hand(), pytest.raises(ValidationError):
        kind.model_validate_json("<html>")

    assert gc.isenabled()


def test_pyicebergs_rest_catalog_uses_the_names_that_are_replaced() -> None:
    """A new PyIceberg would make requests and read answers otherwise, and nobody would notice."""
    fit_rest_messages()

    commit = RestCatalog.commit_table.__wrapped__  # type: ignore[attr-defined]  # behind its retries
    assert commit.__globals__["CommitTableRequest"] is WholeCommitTableRequest
    assert commit.__globals__["CommitTableResponse"] is QuickCommitTableResponse
    assert rest.TableResponse is QuickTableResponse
    assert {"CommitTableRequest", "CommitTableResponse"} <= set(commit.__code__.co_names)
    assert "TableResponse" in RestCatalog.load_table.__wrapped__.__code__.co_names
    assert issubclass(WholeCommitTableRequest, CommitTableRequest)
