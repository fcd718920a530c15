"""What a REST catalog answers about tables is parsed as PyIceberg parses it, without the garbage collector."""

from __future__ import annotations

import gc

import pytest
from pydantic import ValidationError
from pyiceberg.catalog import rest
from pyiceberg.catalog.rest import RestCatalog
from support.metadata import line, metadata_of

from iceberg_ds.catalogs.rest_answers import QuickCommitTableResponse, QuickTableResponse, parse_answers_quickly

METADATA = metadata_of(line(1, 2))
ANSWER = f'{{"metadata-location":"file:///x","metadata":{METADATA.model_dump_json()}}}'


@pytest.mark.parametrize("kind", [QuickTableResponse, QuickCommitTableResponse])
def test_answer_is_parsed_and_the_collector_works_on(kind: type[QuickTableResponse | QuickCommitTableResponse]) -> None:
    """Tables would be misread, or the process would grow for ever."""
    parsed = kind.model_validate_json(ANSWER)

    assert (parsed.metadata, parsed.metadata_location) == (METADATA, "file:///x")
    assert gc.isenabled()


@pytest.mark.parametrize("kind", [QuickTableResponse, QuickCommitTableResponse])
def test_answer_that_does_not_parse_leaves_the_collector_on(
    kind: type[QuickTableResponse | QuickCommitTableResponse],
) -> None:
    """A bad answer of a proxy would let the process grow for ever."""
    with pytest.raises(ValidationError):
        kind.model_validate_json("<html>")

    assert gc.isenabled()


def test_catalogs_parse_by_the_replaced_classes() -> None:
    """With a new PyIceberg, loads of tables with a long history would take twice as long, and nobody would notice."""
    parse_answers_quickly()

    assert rest.TableResponse is QuickTableResponse
    assert vars(rest)["CommitTableResponse"] is QuickCommitTableResponse
    assert "CommitTableResponse" in rest.RestCatalog.commit_table.__wrapped__.__code__.co_names
    assert "TableResponse" in RestCatalog.load_table.__wrapped__.__code__.co_names
