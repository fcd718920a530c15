"""What Amazon S3 Tables is not known to compact is told, once, and nothing else is."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from support.tables.sink import Sink, rows

from iceberg_ds.catalog.client import CatalogClient
from iceberg_ds.planning import s3_tables

COMPACTED = {"compression_codec": "zstd"}


@pytest.fixture(autouse=True)
def _first_write_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_tables, "_warned", set())


@pytest.fixture
def s3_tables_sink(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> Sink:
    """Return a sink whose catalog says that it is S3 Tables."""
    monkeypatch.setattr(CatalogClient, "is_s3_tables", property(lambda _: True))
    return sink


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"compression_codec": "brotli"}, "files compressed by brotli: use zstd, snappy or gzip"),
        ({"keys": ("id",), **COMPACTED}, "equality deletes (option 'keys'): use iceberg_ds.upsert"),
    ],
    ids=["codec", "deletes"],
)
def test_what_is_not_compacted_is_told_once(
    s3_tables_sink: Sink, caplog: pytest.LogCaptureFixture, options: Mapping[str, Any], told: str
) -> None:
    """A table would get slower with each commit, and nobody would know why."""
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            s3_tables_sink.plan(**options)

    (message,) = [record.getMessage() for record in caplog.records if record.name == s3_tables.__name__]
    assert message.startswith("Amazon S3 Tables is not known to compact all that is written to db.t: ")
    assert told in message


def test_a_second_thing_that_is_not_compacted_is_told_too(
    s3_tables_sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """The first warning of a table would hide all others."""
    with caplog.at_level(logging.WARNING):
        s3_tables_sink.commit(s3_tables_sink.write(rows(1), plan=s3_tables_sink.plan(compression_codec="brotli")))
        s3_tables_sink.plan(compression_codec="lz4")

    told = [record.getMessage().rpartition("files compressed by ")[2] for record in caplog.records]
    assert [text[:6] for text in told if "zstd" in text] == ["brotli", "lz4: u"]


def test_other_writes_and_other_catalogs_are_told_nothing(
    sink: Sink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning that comes always is read by nobody."""
    with caplog.at_level(logging.WARNING):
        sink.plan(compression_codec="lz4")
        monkeypatch.setattr(CatalogClient, "is_s3_tables", property(lambda _: True))
        sink.commit(sink.write(rows(1), plan=sink.plan(**COMPACTED)))

    assert [record for record in caplog.records if record.name == s3_tables.__name__] == []


def test_columns_of_type_fixed_are_named_at_any_depth(sink: Sink) -> None:
    """A user could not tell which column keeps the table from being compacted."""
    inside = ice.StructType(NestedField(3, "digest", ice.FixedType(16)))
    schema = Schema(NestedField(1, "id", ice.LongType()), NestedField(2, "s", inside))

    found = s3_tables.hindrances(sink.plan(**COMPACTED).write, schema)

    assert found == ["columns of type fixed (s.digest): use binary"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"warehouse": "arn:aws:s3tables:us-east-1:111122223333:bucket/b"}, True),
        ({"warehouse": "111122223333:s3tablescatalog/b", "rest.signing-name": "glue"}, True),
        ({"rest.signing-name": "S3Tables"}, True),
        ({"warehouse": "s3://bucket/s3tables"}, False),
        ({}, False),
    ],
)
def test_s3_tables_is_known_by_its_properties(
    catalog: CatalogClient,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    expected: bool,  # noqa: FBT001
) -> None:
    """Its users would be told nothing, or others would be told of a service that they do not use."""
    monkeypatch.setattr(catalog._catalog, "properties", properties)

    assert catalog.is_s3_tables is expected
