"""Glue's optimistic lock, which moto does not keep: enforced here as Glue documents it."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog.glue import GlueCatalog
from support.services.servers import CatalogService
from support.tables.sink import Sink

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import CatalogError
from iceberg_ds.options.parse import parse_options


def sink(service: CatalogService, table: str) -> Sink:
    """Return what writes to that table, over a connection of its own."""
    options = parse_options({**service.options, "table": table})
    return Sink(catalog=connect(catalog_settings(options)).another(), options=options)


def glue_client(writer: Sink) -> Any:
    """Return the client that the writer's catalog uses."""
    assert isinstance(writer.catalog.raw, GlueCatalog)
    return writer.catalog.raw.glue


def unique(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}{secrets.token_hex(4)}"


def test_writer_whose_version_is_out_of_date_tries_again(glue: CatalogService, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of one of two writers would be lost, or its write fail."""
    table = f"conflicts.{unique('t')}"
    writer, other = sink(glue, table), sink(glue, table)
    writer.append(1)
    client = glue_client(writer)
    update = client.update_table
    sent: list[dict[str, Any]] = []

    def enforce_version(**request: Any) -> Any:
        sent.append(request)
        if len(sent) == 1:
            other.append(3)
        found = client.get_table(DatabaseName="conflicts", Name=table.split(".")[1])["Table"]
        if found["VersionId"] != request["VersionId"]:
            raise client.exceptions.ConcurrentModificationException(
                {"Error": {"Code": "ConcurrentModificationException", "Message": "m"}}, "UpdateTable"
            )
        return update(**request)

    monkeypatch.setattr(client, "update_table", enforce_version)

    writer.append(2)

    assert len(sent) == 2
    assert sent[0]["SkipArchive"] is True
    assert writer.ids() == [1, 2, 3]


def test_missing_right_is_named_at_once(glue: CatalogService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without the right to update tables would wait for minutes, and be told that the state is unknown."""
    writer = sink(glue, f"conflicts.{unique('t')}")
    writer.append(1)
    client = glue_client(writer)

    def refuse(**_: Any) -> Any:
        raise ClientError(
            {
                "Error": {"Code": "AccessDeniedException", "Message": "not authorized to perform: glue:UpdateTable"},
                "ResponseMetadata": {"HTTPStatusCode": 400},  # type: ignore[typeddict-item]  # the part that counts
            },
            "UpdateTable",
        )

    monkeypatch.setattr(client, "update_table", refuse)

    with pytest.raises(CatalogError, match=r"after 1 attempts: .*AccessDeniedException.*glue:UpdateTable"):
        writer.append(2)

    assert writer.ids() == [1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("table", ["with-dash.t-1", "Upper.Case", "digits1.t_1"])
def test_names_that_glue_takes_are_written(glue: CatalogService, table: str) -> None:
    """A table with an unusual name could not be written."""
    namespace, name = table.split(".")
    writer = sink(glue, f"{namespace}.{unique(name)}")

    writer.append(1)
    writer.append(2)

    assert writer.ids() == [1, 2]
