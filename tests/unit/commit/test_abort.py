"""What is cleaned up after a write that Spark gives up."""

from __future__ import annotations

import logging

import pytest
from support.catalogs.faulty_catalog import FaultyCatalog, connection_lost
from support.checks.invariants import check_sound
from support.keys.messages import with_deletes
from support.tables.sink import IDENTIFIER, Sink, epoch, paths_of, rows

from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import CatalogError


@pytest.mark.parametrize("exists", [False, True], ids=["new table", "existing table"])
def test_with_a_message_missing_the_reported_files_go(sink: Sink, exists: bool) -> None:  # noqa: FBT001  # one of two cases
    """Every failed job would leave the files of its successful tasks behind."""
    if exists:
        sink.append(1)
    messages = sink.write(rows(2), rows(3))

    abort_write(sink.catalog, [messages[0], None, messages[1]])

    assert not any(path.exists() for path in paths_of(messages))
    assert not exists or sink.ids() == [1]


def test_with_a_message_missing_the_deletes_go_too(sink: Sink) -> None:
    """Every failed write by keys would leave the deletes of its successful tasks behind."""
    messages = [with_deletes(message) for message in sink.write(rows(2), rows(3))]

    abort_write(sink.catalog, [messages[0], None, messages[1]])

    assert not any(path.exists() for path in paths_of(messages))


def test_with_all_messages_nothing_is_deleted(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """A commit that is still under way would bring deleted files into the table: a broken table."""
    sink.append(1)
    messages = sink.write(rows(2), rows(3))

    with caplog.at_level(logging.WARNING):
        abort_write(sink.catalog, messages)

    assert all(path.exists() for path in paths_of(messages))
    assert "may be left behind" in caplog.text
    assert messages[0].write.operation_id in caplog.text


def test_after_landing_nothing_is_deleted_and_the_log_says_so(sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    """Files of the table would be deleted: a broken table."""
    messages = sink.write(rows(1), of_epoch=epoch(0))
    sink.commit(messages)

    with caplog.at_level(logging.WARNING):
        abort_write(sink.catalog, messages)

    assert sink.ids() == [1]
    assert "after it had landed" in caplog.text
    check_sound(sink.table())


@pytest.mark.parametrize("messages", [[], [None], [None, None]])
def test_without_any_message_nothing_is_done(sink: Sink, messages: list[None]) -> None:
    """An abort without files would fail, and hide the error that caused it."""
    abort_write(sink.catalog, messages)

    assert sink.catalog.find_table(IDENTIFIER) is None


def test_files_that_are_gone_already_do_not_matter(sink: Sink) -> None:
    """An abort would fail, and hide the error that caused it."""
    messages = sink.write(rows(1))
    paths_of(messages)[0].unlink()

    abort_write(sink.catalog, [*messages, None])

    assert not paths_of(messages)[0].exists()


def test_unreachable_catalog_is_our_error(faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A user would get another library's error."""
    messages = faulty_sink.write(rows(1))
    faulty_catalog.fail_next_loads(1, connection_lost)

    with pytest.raises(CatalogError, match="Cannot load table"):
        abort_write(faulty_sink.catalog, messages)

    assert paths_of(messages)[0].exists()
