"""One request for several tables on the wire: when it is sent, what it says, and what is made of each answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import DEFAULT_ENDPOINTS
from support.catalogs.rest_fake import Fault, RestFake, serve_rest_fake
from support.catalogs.rest_sinks import QUICK, rest_sink
from support.tables.epochs import Tables

from iceberg_ds.commit import together
from iceberg_ds.errors import CatalogError, CommitConflictError

pytestmark = pytest.mark.usefixtures("waits")

TOGETHER = "/transactions/commit"
ADVERTISED = [*(str(endpoint) for endpoint in DEFAULT_ENDPOINTS), "POST /v1/{prefix}/transactions/commit"]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[RestFake]:
    """Return an empty catalog that takes requests for several tables."""
    together._told.clear()
    with serve_rest_fake(tmp_path) as server:
        server.endpoints = ADVERTISED
        yield server


def tables_of(fake: RestFake, **properties: str) -> Tables:
    """Return two tables with one row each."""
    found = Tables(of_one=rest_sink({"uri": fake.uri, **QUICK, **properties}))
    found.create()
    return found


def test_request_has_each_tables_conditions_and_changes(fake: RestFake) -> None:
    """A table would change although its branch has moved, or another table has its name."""
    fake.overrides = {"prefix": "lake"}
    tables = tables_of(fake)

    tables.commit(tables.to_all(0, 1))

    (request,) = fake.asked("POST", TOGETHER)
    changes = json.loads(request.body)["table-changes"]
    assert request.path == "/v1/lake/transactions/commit"
    assert [change["identifier"] for change in changes] == [{"namespace": ["db"], "name": name} for name in ("a", "b")]
    for change in changes:
        assert {"assert-table-uuid", "assert-ref-snapshot-id"} <= {need["type"] for need in change["requirements"]}
        assert {"set-properties", "add-snapshot", "set-snapshot-ref"} <= {part["action"] for part in change["updates"]}
    assert tables.ids() == {"a": [0, 1], "b": [0, 1]}


def test_server_that_does_not_say_that_it_can_is_not_asked(fake: RestFake) -> None:
    """Servers that do not have the request would be asked in vain for each epoch."""
    fake.endpoints = None
    tables = tables_of(fake)

    tables.commit(tables.to_all(0, 1))

    assert not fake.asked("POST", TOGETHER)
    assert not tables.catalog.takes_many_tables
    assert tables.ids() == {"a": [0, 1], "b": [0, 1]}


@pytest.mark.parametrize("lost", [("a",), ("b",), ("a", "b")], ids="+".join)
def test_change_that_is_lost_behind_an_answer_204_is_made_up_for(
    fake: RestFake, caplog: pytest.LogCaptureFixture, lost: tuple[str, ...]
) -> None:
    """The rows of a table would be lost, as the reference server loses them beside another writer."""
    tables = tables_of(fake)
    fake.loses = lost

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "b": [0, 1]}
    assert "is not atomic over tables" in caplog.text


@pytest.mark.parametrize("is_carried_out", [True, False], ids=["carried out", "not carried out"])
@pytest.mark.parametrize("status", [409, 500, 502, 503, 504, None])
def test_every_answer_is_looked_behind(fake: RestFake, status: int | None, *, is_carried_out: bool) -> None:
    """Rows would be lost or doubled."""
    tables = tables_of(fake)
    fake.faults = [Fault(method="POST", path=TOGETHER, status=status, is_carried_out=is_carried_out)]

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "b": [0, 1]}
    assert len(fake.asked("POST", TOGETHER)) == (1 if is_carried_out else 2)


def test_expired_token_is_renewed_once(fake: RestFake) -> None:
    """An epoch would fail whenever a token has just run out."""
    fake.credential = "id:secret"
    tables = tables_of(fake, credential="id:secret")
    writes = tables.to_all(0, 1)
    fake.faults = [Fault(method="POST", path=TOGETHER, status=401)]

    tables.commit(writes)

    assert tables.ids() == {"a": [0, 1], "b": [0, 1]}


@pytest.mark.parametrize("status", [404, 405, 501])
def test_server_without_the_request_that_it_advertises_gets_one_a_table(fake: RestFake, status: int) -> None:
    """Such a server could not be written to."""
    tables = tables_of(fake)
    fake.faults = [Fault(method="POST", path=TOGETHER, status=status)]

    tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0, 1], "b": [0, 1]}
    assert len(fake.asked("POST", TOGETHER)) == 1


def test_missing_right_for_one_table_keeps_the_other_from_changing(fake: RestFake) -> None:
    """Half an epoch would be there for as long as nobody grants the right."""
    tables = tables_of(fake)
    fake.faults = [Fault(method="POST", path=TOGETHER, status=403)]

    with pytest.raises(CatalogError, match="None of 2 tables"):
        tables.commit(tables.to_all(0, 1))

    assert tables.ids() == {"a": [0], "b": [0]}


def test_table_that_is_dropped_meanwhile_keeps_the_other_from_changing(fake: RestFake) -> None:
    """The other table would change alone."""
    tables = tables_of(fake)
    writes = tables.to_all(0, 1)
    fake.tables.drop_table("db.b")

    with pytest.raises(CommitConflictError, match="None of 2 tables"):
        tables.commit(writes)

    assert replace(tables, names=("a",)).ids() == {"a": [0]}
