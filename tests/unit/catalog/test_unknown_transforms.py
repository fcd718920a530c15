"""Transforms of other engines, which nobody else knows, stay in a table's metadata."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.tables.damage import Json, edit_metadata
from support.tables.sink import Sink, local

ODD = ["zorder[3]", "it's", 'of "a"', "\\d", "hilbert[2, 16]"]


@pytest.mark.parametrize("transform", ODD)
def test_commits_keep_the_name_of_a_transform_that_is_not_known(sink: Sink, transform: str) -> None:
    """The engine that knows it would find `unknown`, and could write the table no more."""

    def of_others(document: Json) -> None:
        field = {"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}
        document["partition-specs"].append({"spec-id": 7, "fields": [field]})
        order = {"transform": transform, "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
        document["sort-orders"].append({"order-id": 7, "fields": [order]})

    sink.append(1)
    edit_metadata(sink, of_others)
    sink = replace(sink, catalog=sink.catalog.reading_anew())

    for number in (2, 3):
        sink.append(number)

    document = json.loads(local(sink.table().metadata_location).read_text())
    for name in ("partition-specs", "sort-orders"):
        assert [field["transform"] for one in document[name] for field in one["fields"]] == [transform]
    assert len(document["snapshots"]) == 3
