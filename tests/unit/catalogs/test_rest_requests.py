"""What is sent to a REST catalog: every field of an update, and what that rests on in PyIceberg."""

from __future__ import annotations

import json

import pytest
from pyiceberg.catalog import rest
from pyiceberg.table import CommitTableRequest, TableIdentifier
from pyiceberg.table.update import AddSchemaUpdate, AssertCreate, SetPropertiesUpdate
from support.metadata import ID_AND_NAME

from iceberg_ds.catalogs.rest_requests import WholeCommitTableRequest, send_updates_whole
from iceberg_ds.table_requests import AddSchema

UPDATES = (AddSchema(schema_=ID_AND_NAME, last_column_id=7), SetPropertiesUpdate(updates={"a": "b"}))


def sent(request: type[CommitTableRequest]) -> dict[str, object]:
    """Return a request as the server reads it."""
    identifier = TableIdentifier(namespace=("db",), name="t")
    made = request(identifier=identifier, requirements=(AssertCreate(),), updates=UPDATES)
    read: dict[str, object] = json.loads(made.model_dump_json())
    return read


def test_last_column_id_is_sent() -> None:
    """Nessie refuses a schema without it: no table could be created, no column added."""
    assert sent(WholeCommitTableRequest) == {
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
    updates = sent(CommitTableRequest)["updates"]

    assert isinstance(updates, list)
    assert "last-column-id" not in updates[0]
    assert "last_column_id" not in AddSchemaUpdate.model_fields


def test_pyicebergs_rest_catalog_uses_the_name_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new PyIceberg would make its requests otherwise, and the field be missing again."""
    monkeypatch.setattr(rest, "CommitTableRequest", CommitTableRequest)

    send_updates_whole()

    commit = rest.RestCatalog.commit_table.__wrapped__  # type: ignore[attr-defined]  # behind its retries
    assert "CommitTableRequest" in commit.__code__.co_names
    assert commit.__globals__["CommitTableRequest"] is WholeCommitTableRequest
