"""Publishing: readers of main see the old rows or the new ones, and no row of main is ever lost by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner
from support.catalogs.faulty_catalog import (
    FaultyCatalog,
    When,
    connection_lost,
    forbidden,
    refusal,
    server_error,
    state_unknown,
    throttled,
    timed_out,
)
from support.checks.invariants import check_clean
from support.tables.changes_by_others import drop_branch, head_of, set_branch
from support.tables.regions import ids_by_region, in_region, partitioned, run, write
from support.tables.sink import IDENTIFIER, NAME, Sink, rows

from iceberg_ds import fast_forward, publish
from iceberg_ds.cli import main
from iceberg_ds.commit.commit import CommitResult
from iceberg_ds.commit.fast_forward import publish_branch
from iceberg_ds.errors import (
    CatalogError,
    CommitConflictError,
    CommitStateUnknownError,
    OptionError,
    TableNotFoundError,
)

pytestmark = pytest.mark.usefixtures("waits")


@pytest.fixture
def audited(sink: Sink) -> Sink:
    """Return a table with row 1 on main, and row 2 on branch `audit` beside it."""
    sink.append(1)
    append(sink, 2, branch="audit", create_branch=True)
    return sink


def append(sink: Sink, *numbers: int, **options: object) -> CommitResult:
    """Append rows with these options."""
    return sink.commit(sink.write(rows(*numbers), plan=sink.plan(**options)))


def head(sink: Sink, branch: str) -> int:
    """Return the snapshot that a branch stands at."""
    return sink.table().metadata.refs[branch].snapshot_id


def move(sink: Sink, branch: str = "audit", to: str = "main") -> int:
    """Publish a branch."""
    return publish_branch(sink.catalog, IDENTIFIER, branch, to)


def test_published_rows_are_those_of_main_and_the_branch_stays(audited: Sink) -> None:
    """Checked rows would not reach their readers, or the next load have no branch."""
    snapshot_id = move(audited)

    assert audited.ids() == [1, 2]
    assert head(audited, "main") == head(audited, "audit") == snapshot_id
    assert len(audited.table().metadata.snapshots) == 2
    check_clean(audited.table())


def test_publish_takes_the_options_of_a_write(audited: Sink) -> None:
    """The function of the docs would not find the table."""
    options = {"WAREHOUSE": str(audited.options.warehouse)}

    assert publish(NAME, "audit", options=options) == head(audited, "main")
    assert publish("t", "audit", to="main", options={**options, "namespace": "db"}) == head(audited, "main")
    with pytest.raises(OptionError, match="unknown option 'warehous'"):
        publish(NAME, "audit", options={"warehous": "x"})
    with pytest.raises(TableNotFoundError, match=r"db\.other"):
        publish("db.other", "audit", options=options)


def test_fast_forward_moves_the_branch_that_icebergs_procedure_moves(audited: Sink) -> None:
    """A call copied from SQL would move nothing, and say that it did."""
    options = {"warehouse": str(audited.options.warehouse)}
    before = head(audited, "main")

    moved_to = fast_forward(NAME, "main", "audit", options=options)

    assert moved_to == head(audited, "main") == head(audited, "audit") != before
    assert audited.ids() == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["publish", NAME, "audit"], "Branch 'main' of db.t has snapshot {} of branch 'audit'."),
        (["fast-forward", NAME, "main", "audit", "--json"], '"snapshot_id": {}'),
    ],
)
def test_commands_publish_in_the_words_of_the_functions(audited: Sink, arguments: list[str], told: str) -> None:
    """A script would need Python to publish what it audited."""
    place = ["--option", f"warehouse={audited.options.warehouse}"]

    done = CliRunner().invoke(main, [*arguments, *place])
    refused = CliRunner().invoke(main, ["publish", NAME, "nope", *place])
    wrong = CliRunner().invoke(main, ["publish", NAME, "audit", "--option", "table=db.other"])

    assert done.exit_code == 0, done.output
    assert told.format(head(audited, "audit")) in done.output
    assert audited.ids() == [1, 2]
    assert (refused.exit_code, wrong.exit_code) == (1, 2)
    assert "Cannot publish branch 'nope' of db.t" in refused.output
    assert "option 'table' is 'db.other'" in wrong.output


def test_publishing_again_changes_nothing(audited: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog) -> None:
    """A job that is run again would fail, or move main back."""
    first = move(audited)

    assert move(faulty_sink) == first
    assert faulty_catalog.commits == 0


def test_publishing_again_after_main_has_gone_on_changes_nothing(audited: Sink) -> None:
    """A job that is run again would fail, or lose the rows that came to main since."""
    first = move(audited)
    audited.append(3)

    assert move(audited) == first
    assert audited.ids() == [1, 2, 3]


def test_branch_may_be_published_again_and_again(audited: Sink) -> None:
    """A pipeline of load, check, publish would work once."""
    for number in range(3, 6):
        move(audited)
        append(audited, number, branch="audit")
    move(audited)

    assert audited.ids() == [1, 2, 3, 4, 5]


def test_main_that_has_moved_on_is_a_conflict(audited: Sink) -> None:
    """Rows that came to main since the fork would be lost."""
    audited.append(3)
    before = head(audited, "main")

    with pytest.raises(
        CommitConflictError, match=f"nothing was changed: branch 'main' has moved on to snapshot {before}.*Drop 'audit'"
    ):
        move(audited)

    assert audited.ids() == [1, 3]
    assert head(audited, "main") == before


def test_what_was_taken_back_from_main_does_not_come_back_with_a_branch(sink: Sink) -> None:
    """Rows that somebody rolled back would be readers' again, because a branch was forked before that."""
    sink.append(1)
    good = head(sink, "main")
    sink.append(2)
    bad = head(sink, "main")
    append(sink, 3, branch="audit", create_branch=True)
    set_branch(sink, "main", good)

    with pytest.raises(
        CommitConflictError, match=f"'main' was set back behind snapshot {bad}, on which 'audit' .* builds"
    ):
        move(sink)
    assert sink.ids() == [1]
    set_branch(sink, "main", bad)
    move(sink)
    assert sink.ids() == [1, 2, 3]


def test_branch_that_was_taken_back_itself_is_published_again(audited: Sink) -> None:
    """Who rolled a publication back could never repeat it."""
    before = head(audited, "main")
    move(audited)
    set_branch(audited, "main", before)

    move(audited)

    assert audited.ids() == [1, 2]


def test_branch_that_was_forked_from_main_is_published_to_one_that_main_is_ahead_of(sink: Sink) -> None:
    """A release branch that lags behind main could not get what was checked on top of main."""
    sink.append(1)
    set_branch(sink, "release", head(sink, "main"))
    sink.append(2)
    append(sink, 3, branch="audit", create_branch=True)

    move(sink, "audit", "release")

    assert [row["id"] for row in sink.rows_of("release")] == [1, 2, 3]


def test_first_rows_of_main_may_come_from_a_branch(sink: Sink) -> None:
    """A table whose first rows were checked on a branch could never be published."""
    append(sink, 1, branch="audit", create_branch=True)

    move(sink)

    assert sink.ids() == [1]


def test_other_branches_are_published_to_as_well(audited: Sink) -> None:
    """Only main could be published to."""
    with audited.table().manage_snapshots() as change:
        change.create_branch(head(audited, "main"), "release", max_ref_age_ms=7)

    move(audited, to="release")

    assert [row["id"] for row in audited.rows_of("release")] == [1, 2]
    assert audited.table().metadata.refs["release"].max_ref_age_ms == 7
    assert audited.ids() == [1]


@pytest.mark.parametrize(
    ("branch", "to", "reason"),
    [
        ("missing", "main", "no branch 'missing'"),
        ("audit", "missing", "no branch 'missing'"),
        ("release", "main", "'release' is a tag"),
        ("audit", "release", "'release' is a tag"),
    ],
)
def test_missing_branch_or_tag_is_refused(audited: Sink, branch: str, to: str, reason: str) -> None:
    """A branch would be made, or a tag moved, by a typing error."""
    with audited.table().manage_snapshots() as change:
        change.create_tag(head(audited, "audit"), "release")
    before = audited.table().metadata.refs

    with pytest.raises(CommitConflictError, match=f"Cannot publish branch '{branch}' of db.t: .*{reason}"):
        move(audited, branch, to)

    assert audited.table().metadata.refs == before


def test_branch_that_a_write_without_rows_was_to_create_is_missed_by_that_reason(sink: Sink) -> None:
    """A user would look for a typing error in the name."""
    sink.append(1)
    sink.commit(sink.write([], plan=sink.plan(branch="audit", create_branch=True)))

    with pytest.raises(CommitConflictError, match=r"no branch 'audit', perhaps because .* had no rows"):
        move(sink)


def test_main_without_a_snapshot_cannot_be_published(sink: Sink) -> None:
    """A table without rows would fail with an error that tells nothing."""
    sink.commit(sink.write([]))

    with pytest.raises(CommitConflictError, match="it has no snapshot"):
        move(sink, "main", "main")


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("error", [refusal, throttled, state_unknown, server_error, connection_lost, timed_out])
def test_lost_or_refused_answer_is_found_out(
    audited: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, when: When, error: Callable[[], Exception]
) -> None:
    """A publishing that took place would be reported as failed, or one that did not as done."""
    faulty_catalog.fail_next(1, error, when=when)

    assert move(faulty_sink) == head(audited, "audit")

    assert audited.ids() == [1, 2]
    assert faulty_catalog.commits == (1 if when is When.AFTER else 2)


def test_lost_answer_is_found_out_even_if_main_has_gone_on_since(
    audited: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A publishing that took place would be reported as a conflict, and the rows be written again."""
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)
    faulty_catalog.after_commit(1, lambda: audited.append(3) and None)

    assert move(faulty_sink) == head(audited, "audit")
    assert audited.ids() == [1, 2, 3]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(refusal, CommitConflictError), (forbidden, CatalogError), (connection_lost, CommitStateUnknownError)],
)
def test_publishing_that_keeps_failing_says_what_is_known(
    audited: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, error: Callable[[], Exception], kind: type
) -> None:
    """A user would think that nothing was published although a request is still under way."""
    faulty_catalog.fail_next(999, error)

    with pytest.raises(kind):
        move(faulty_sink)

    assert audited.ids() == [1]


@pytest.mark.parametrize("order", ["append first", "publish first"])
def test_publishing_and_an_append_at_the_same_moment_lose_no_row(
    audited: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, order: str
) -> None:
    """Of two writers of main, the one that came second would undo the first."""
    if order == "append first":
        faulty_catalog.before_commit(1, lambda: audited.append(3) and None)
        with pytest.raises(CommitConflictError, match="has moved on"):
            move(faulty_sink)
        assert audited.ids() == [1, 3]
    else:
        messages = faulty_sink.write(rows(3))
        faulty_catalog.before_commit(1, lambda: move(audited) and None)
        faulty_sink.commit(messages)
        assert audited.ids() == [1, 2, 3]
    check_clean(audited.table())


def test_rows_that_come_to_the_branch_in_between_are_published_or_not_but_never_lost(
    audited: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A branch that is still written would be published in a state that nobody checked."""
    faulty_catalog.before_commit(1, lambda: append(audited, 3, branch="audit") and None)

    assert move(faulty_sink) == head(audited, "audit")
    assert audited.ids() == [1, 2, 3]


def test_overwrite_of_main_that_began_before_a_publishing_conflicts_with_it(sink: Sink) -> None:
    """Rows that were published meanwhile would be dropped unseen."""
    table = partitioned(sink)
    run(table, "append", in_region("EU", 1))
    run(table, "append", in_region("EU", 2), branch="audit", create_branch=True)
    messages = write(table, "static", in_region("EU", 9))
    move(table)

    with pytest.raises(CommitConflictError, match=r"snapshot \d+ brought"):
        table.commit(messages)

    assert ids_by_region(table) == {"EU": [1, 2]}


@pytest.mark.parametrize("kind", ["append", "static", "dynamic", "where region = 'EU'"])
def test_staged_write_is_published_in_one_step(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, kind: str
) -> None:
    """Readers would see half of a write, or nothing of it."""
    table = partitioned(sink)
    run(table, "append", [*in_region("EU", 1), *in_region("US", 2)])
    before = ids_by_region(table)
    seen = []
    faulty_catalog.before_commit(2, lambda: seen.append(ids_by_region(table)))

    run(faulty_sink, kind, in_region("EU", 9), staging_branch="staging")

    expected = {"append": {"EU": [1, 9], "US": [2]}, "static": {"EU": [9]}}.get(kind, {"EU": [9], "US": [2]})
    assert seen == [before]
    assert ids_by_region(table) == expected
    assert head(table, "main") == head(table, "staging")
    check_clean(table.table())


@pytest.mark.parametrize("kind", ["append", "static"])
def test_staged_write_may_create_its_table(sink: Sink, kind: str) -> None:
    """The first run of a job that stages its rows would fail."""
    run(partitioned(sink), kind, in_region("EU", 9), staging_branch="staging")

    assert ids_by_region(sink) == {"EU": [9]}
    assert head(sink, "main") == head(sink, "staging")


def test_staged_write_may_be_the_first_of_a_table_that_is_there(sink: Sink) -> None:
    """The first load of a table that was created beforehand would be tried for minutes, and fail."""
    sink.commit(sink.write([]))

    append(sink, 1, staging_branch="staging")
    append(sink, 2, staging_branch="staging")

    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_staged_write_builds_on_what_main_has_by_then(sink: Sink) -> None:
    """Every staged write after the first would be refused as soon as somebody else writes to main."""
    for number in range(3):
        append(sink, number, staging_branch="staging")
        sink.append(10 + number)

    assert sink.ids() == [0, 1, 2, 10, 11, 12]
    check_clean(sink.table())


def test_staged_write_may_be_published_to_another_branch(audited: Sink) -> None:
    """Only main could be staged for."""
    append(audited, 3, branch="audit", staging_branch="staging")

    assert [row["id"] for row in audited.rows_of("audit")] == [1, 2, 3]
    assert audited.ids() == [1]


def test_staged_overwrite_without_anything_to_change_publishes_nothing(sink: Sink) -> None:
    """A run without rows would fail for want of a staging branch."""
    sink.append(1)

    result = sink.overwrite([], staging_branch="staging", replace_where="id = 7")

    assert result.snapshot_id is None
    assert set(sink.table().metadata.refs) == {"main"}


def test_main_that_moves_on_before_the_publishing_is_a_conflict(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows that came to main in between would be lost."""
    sink.append(1)
    faulty_catalog.before_commit(2, lambda: sink.append(3) and None)

    with pytest.raises(
        CommitConflictError,
        match=r"were committed to branch 'staging'.*has moved on.*Drop 'staging' and write it again",
    ):
        append(faulty_sink, 2, staging_branch="staging")

    assert sink.ids() == [1, 3]


@pytest.mark.parametrize("holds_rows_of_others", [False, True])
def test_staging_branch_that_others_made_anew_is_not_published_as_the_write(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog, *, holds_rows_of_others: bool
) -> None:
    """Success would be reported, and the rows be nowhere a reader looks; rows of others would be published instead."""
    sink.append(1)

    def anew() -> None:
        drop_branch(sink, "staging")
        set_branch(sink, "staging", head_of(sink))
        if holds_rows_of_others:
            append(sink, 7, branch="staging")

    faulty_catalog.after_commit(1, anew)

    with pytest.raises(CommitConflictError, match=r"are not on 'main': .*made it anew.*Nothing was changed"):
        append(faulty_sink, 2, staging_branch="staging")

    assert sink.ids() == [1]


def test_staged_rows_that_others_have_published_are_done(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A write whose rows readers see would be reported as failed."""
    sink.append(1)

    def published() -> None:
        move(sink, "staging")
        drop_branch(sink, "staging")

    faulty_catalog.after_commit(1, published)

    append(faulty_sink, 2, staging_branch="staging")

    assert sink.ids() == [1, 2]


def test_staged_rows_that_were_not_published_are_not_written_again_beside_them(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A job that failed between commit and publishing, and is run again, would publish its rows twice."""
    sink.append(1)
    faulty_catalog.pass_next(1)
    faulty_catalog.fail_next(1, forbidden)
    with pytest.raises(
        CatalogError,
        match=r"rows of db\.t .* were committed to branch 'staging' as snapshot \d+, and are not on 'main'",
    ):
        append(faulty_sink, 2, staging_branch="staging")

    with pytest.raises(OptionError, match=r"'staging' holds snapshot .*, which 'main' has not.*iceberg_ds\.publish"):
        append(sink, 2, staging_branch="staging")
    move(sink, "staging")
    append(sink, 3, staging_branch="staging")

    assert sink.ids() == [1, 2, 3]


def test_two_staged_writes_at_the_same_moment_lose_no_row(sink: Sink) -> None:
    """The second one would publish the first one's rows unchecked, or build on a state without them."""
    sink.append(1)
    first, second = (sink.write(rows(number), plan=sink.plan(staging_branch="staging")) for number in (2, 3))

    sink.commit(first)
    sink.commit(second)

    assert sink.ids() == [1, 2, 3]


def test_staged_write_that_meets_another_one_unpublished_is_a_conflict(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """Rows would be published that another job is about to check."""
    sink.append(1)
    mine = sink.write(rows(3), plan=sink.plan(staging_branch="staging"))
    refused: list[Exception] = []

    def commit_mine() -> None:
        try:
            sink.commit(mine)
        except CommitConflictError as conflict:
            refused.append(conflict)

    faulty_catalog.before_commit(2, commit_mine)

    append(faulty_sink, 2, staging_branch="staging")

    assert "staging branch 'staging' holds snapshot" in str(refused[0])
    assert sink.ids() == [1, 2]
    check_clean(sink.table())


def test_answer_of_the_publishing_that_was_lost_is_found_out_by_the_write(
    sink: Sink, faulty_sink: Sink, faulty_catalog: FaultyCatalog
) -> None:
    """A job whose rows are there would fail, and be run again."""
    sink.append(1)
    faulty_catalog.pass_next(1)
    faulty_catalog.fail_next(1, connection_lost, when=When.AFTER)

    append(faulty_sink, 2, staging_branch="staging")

    assert sink.ids() == [1, 2]
