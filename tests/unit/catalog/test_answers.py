"""What a catalog's answers to a commit mean, and how long they ask to wait."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
import requests
from botocore.exceptions import ClientError
from psycopg2.errors import InsufficientPrivilege
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    RESTError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
)
from sqlalchemy.exc import ProgrammingError
from support.catalogs.faulty_catalog import FaultyCatalog
from support.tables.sink import Sink

from iceberg_ds.catalog.answers import (
    CommitAnswerLostError,
    CommitRefusedError,
    asked_wait_ms,
    commit_failure,
    is_lost_race,
)

STALE = "Cannot add snapshot with sequence number 7 older than last sequence number 7"


def answered(
    error: type[Exception], status: int, retry_after: str | None = None, says: str = "what the server says"
) -> Exception:
    """Return what PyIceberg raises for an HTTP answer."""
    response = requests.Response()
    response.status_code = status
    if retry_after is not None:
        response.headers["Retry-After"] = retry_after
    raised = error(says)
    raised.__cause__ = requests.HTTPError(response=response)
    return raised


@pytest.mark.parametrize(
    ("retry_after", "expected_ms"),
    [(None, 0), ("2", 2_000), ("0", 0), ("3600", 60_000), ("soon", 0), ("", 0), ("-1", 0)],
)
@pytest.mark.parametrize("error", [TooManyRequestsError, ServiceUnavailableError])
def test_catalog_is_left_alone_as_long_as_it_asks(
    error: type[Exception], retry_after: str | None, expected_ms: int
) -> None:
    """A catalog that is overloaded would be asked again at once, or a job hang for an hour."""
    assert asked_wait_ms(commit_failure(answered(error, 429, retry_after), "")) == expected_ms


def test_catalog_may_name_a_date() -> None:
    """A wait that is told as a date would be overlooked."""
    until = formatdate(time.time() + 30, usegmt=True)

    assert 25_000 < asked_wait_ms(commit_failure(answered(TooManyRequestsError, 429, until), "")) <= 30_000
    past = formatdate(time.time() - 30, usegmt=True)
    assert asked_wait_ms(commit_failure(answered(TooManyRequestsError, 429, past), "")) == 0


def test_what_is_no_answer_asks_for_nothing() -> None:
    """A broken connection would break the back-off, too."""
    assert asked_wait_ms(None) == 0
    assert asked_wait_ms(ValueError("x")) == 0
    assert asked_wait_ms(commit_failure(requests.ConnectionError("reset"), "")) == 0


def test_error_that_is_its_own_cause_ends() -> None:
    """A commit would hang for ever over the errors of a library that point to each other."""
    failure, cause = requests.ConnectionError("reset"), ValueError("again")
    failure.__cause__, cause.__context__ = cause, failure

    assert isinstance(commit_failure(failure, ""), CommitAnswerLostError)


@pytest.mark.parametrize(
    "failure",
    [ValueError(STALE), answered(BadRequestError, 400, says=STALE), answered(RESTError, 422, says=STALE)],
)
def test_number_that_another_branch_took_is_a_lost_race(failure: Exception) -> None:
    """A commit would wait ever longer, and give up early, because a stream writes to another branch."""
    assert is_lost_race(commit_failure(failure, ""))


@pytest.mark.parametrize("failure", [ValueError("no JSON"), answered(CommitStateUnknownException, 500, says=STALE)])
def test_what_may_be_carried_out_is_no_lost_race(failure: Exception) -> None:
    """Files would be deleted that may be committed."""
    assert isinstance(commit_failure(failure, ""), CommitAnswerLostError)


@pytest.mark.parametrize("status", [404, 413, 422])
def test_refusal_without_a_name_is_a_refusal(status: int) -> None:
    """A commit that the server calls wrong would be tried for minutes, and end with an unknown state."""
    failure = commit_failure(answered(RESTError, status), "")

    assert isinstance(failure, CommitRefusedError)
    assert failure.is_lasting


@pytest.mark.parametrize(("error", "status"), [(RESTError, 408), (CommitStateUnknownException, 500), (RESTError, 302)])
def test_other_answers_stay_unknown(error: type[Exception], status: int) -> None:
    """Files would be deleted that may be committed."""
    assert isinstance(commit_failure(answered(error, status), ""), CommitAnswerLostError)


def of_amazon(code: str, status: int) -> Exception:
    """Return what boto3 raises for an answer."""
    return ClientError(
        {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]  # the part that counts
        "UpdateTable",
    )


@pytest.mark.parametrize(
    ("code", "status", "is_refusal", "is_lasting"),
    [
        ("AccessDeniedException", 400, True, True),
        ("InvalidInputException", 400, True, True),
        ("ThrottlingException", 400, True, False),
        ("ConcurrentModificationException", 400, True, False),
        ("InternalServiceException", 500, False, False),
        ("OperationTimeoutException", 504, False, False),
    ],
)
def test_answers_of_amazon_are_told_apart(code: str, status: int, *, is_refusal: bool, is_lasting: bool) -> None:
    """A commit without the right to write would be tried for minutes, and end with an unknown state."""
    failure = commit_failure(of_amazon(code, status), "")

    assert isinstance(failure, CommitRefusedError) == is_refusal
    assert getattr(failure, "is_lasting", False) == is_lasting


def test_metadata_that_may_not_be_written_was_not_committed() -> None:
    """A commit without the right to write would be tried for minutes, and end with an unknown state."""
    failure = commit_failure(PermissionError("s3://b/t/metadata/1.json"), "")

    assert isinstance(failure, CommitRefusedError)
    assert failure.is_lasting


def test_right_that_the_database_of_a_catalog_misses_stays_missing() -> None:
    """A job whose user may not write the catalog's tables would try for half a minute, and blame other writers."""
    refusal = InsufficientPrivilege("permission denied for table iceberg_tables")
    failure = commit_failure(ProgrammingError("UPDATE iceberg_tables", {}, refusal), "")

    assert isinstance(failure, CommitRefusedError)
    assert failure.is_lasting


def test_commit_waits_as_long_as_the_catalog_asks(
    faulty_sink: Sink, faulty_catalog: FaultyCatalog, waits: list[float]
) -> None:
    """A catalog that is overloaded would be asked again at once."""
    faulty_catalog.fail_next(1, lambda: answered(TooManyRequestsError, 429, "7"))

    faulty_sink.append(1)

    assert [7 <= seconds < 7.2 for seconds in waits] == [True]
    assert faulty_sink.ids() == [1]


@pytest.mark.parametrize(
    ("failure", "is_race"),
    [
        (CommitFailedException("branch main has changed"), True),
        (TableAlreadyExistsError("db.t"), True),
        (CommitFailedException("Failed to acquire lock for db.t, state: 2"), False),
        (answered(CommitFailedException, 409, "2"), False),
        (TooManyRequestsError("slow down"), False),
        (ForbiddenError("no right"), False),
        (ConnectionError("reset"), False),
    ],
)
def test_lost_race_is_told_from_a_catalog_that_is_not_well(failure: Exception, *, is_race: bool) -> None:
    """A catalog in need would be asked at the pace of a race, or losers of a race wait as in an outage."""
    assert is_lost_race(commit_failure(failure, "")) == is_race
    assert not is_lost_race(None)
