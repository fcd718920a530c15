"""What a catalog's answer to a commit means: refused, for how long, or lost. Asks nobody but the clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from requests import HTTPError, Response

from iceberg_ds.error_hints import Cause, causes_of, diagnose

# The catalog's own word that it did not do what it was asked.
_REFUSALS = (
    CommitFailedException,
    TableAlreadyExistsError,
    NoSuchTableError,
    NoSuchNamespaceError,
    BadRequestError,
    UnauthorizedError,
    ForbiddenError,
    TooManyRequestsError,
    PermissionError,  # of storage: catalogs that keep no metadata themselves write it there before they commit
)
# Refusals because another commit was faster.
_LOST_RACES = (CommitFailedException, TableAlreadyExistsError)
# Refusals that the same request meets again, unless the table has changed.
_LASTING_REFUSALS = (BadRequestError, UnauthorizedError, ForbiddenError, NoSuchNamespaceError, PermissionError)
# What no class of PyIceberg stands for; 408 is left out, because a gateway says it of a request that it passed on.
_REFUSING_STATUSES = (404, 405, 406, 411, 413, 414, 415, 422)
_CLIENT_ERRORS = range(400, 500)
_PASSING_AMAZON_REFUSALS = (
    "ThrottlingException",
    "Throttling",
    "TooManyRequestsException",
    "RequestLimitExceeded",
    "ConcurrentModificationException",
    "ConcurrentRunsExceededException",
    "RequestTimeout",
    "ExpiredTokenException",
)
_HIVE_LOCK = "Failed to acquire lock"
_HIVE_LOCK_HINT = (
    "Another writer holds Hive's lock of the table, or was killed while it did: Hive drops such a lock after "
    "hive.txn.timeout (300 s unless set), and SHOW LOCKS names it"
)
# A server may ask for an hour; a job would seem to hang.
_MAX_RETRY_AFTER_MS = 60_000


class CommitRefusedError(Exception):
    """The catalog says that it did not commit; whether to believe it, the table tells.

    Attributes:
        is_lasting: The same request meets it again, unless the table changes.
        is_lost_race: Another commit was faster.
        retry_after_ms: How long the catalog asks to wait, 0 if it does not.
    """

    def __init__(self, reason: str, *, is_lasting: bool, is_lost_race: bool = False, retry_after_ms: float = 0) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting
        self.is_lost_race = is_lost_race
        self.retry_after_ms = retry_after_ms


class CommitAnswerLostError(Exception):
    """The request was sent, and what became of it is unknown.

    Attributes:
        retry_after_ms: How long the catalog asks to wait, 0 if it does not.
    """

    def __init__(self, reason: str, *, retry_after_ms: float = 0) -> None:
        super().__init__(reason)
        self.retry_after_ms = retry_after_ms


class StagingRefusedError(Exception):
    """A table cannot be staged here: it has to be created before its first rows are written."""


def commit_failure(failure: Exception, reason: str) -> CommitRefusedError | CommitAnswerLostError:
    """Return what a failure of PyIceberg's `commit_table` means.

    Args:
        failure: What it raised.
        reason: The failure in words, without secrets.
    """
    is_locked = _HIVE_LOCK in str(failure)
    if is_locked:
        reason = f"{reason}. {_HIVE_LOCK_HINT}"
    answer = _answer(failure)
    wait_ms = _retry_after_ms(answer)
    if isinstance(failure, _REFUSALS):
        is_lasting = isinstance(failure, _LASTING_REFUSALS)
        is_lost_race = isinstance(failure, _LOST_RACES) and not is_locked
        return CommitRefusedError(reason, is_lasting=is_lasting, is_lost_race=is_lost_race, retry_after_ms=wait_ms)
    if answer is not None and answer.status_code in _REFUSING_STATUSES:
        return CommitRefusedError(reason, is_lasting=True, retry_after_ms=wait_ms)
    if (code := _amazon_refusal(failure)) is not None:
        return CommitRefusedError(reason, is_lasting=code not in _PASSING_AMAZON_REFUSALS)
    if diagnose(failure).cause is Cause.FORBIDDEN:  # Glue's, a database's or a store's word for it
        return CommitRefusedError(reason, is_lasting=True, retry_after_ms=wait_ms)
    # Connection, time-out, 5xx, an answer that does not parse: all the same.
    return CommitAnswerLostError(reason, retry_after_ms=wait_ms)


def _amazon_refusal(failure: Exception) -> str | None:
    """Return Amazon's own name of a refusal, None if it is not one of its answers 4xx."""
    response = getattr(failure, "response", None)  # of botocore's ClientError, whose library may be missing
    if not isinstance(response, Mapping):
        return None
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", "")) if status in _CLIENT_ERRORS else None


def _answer(failure: BaseException) -> Response | None:
    """Return the HTTP answer behind a failure, None if there is none."""
    return next((link.response for link in causes_of(failure) if isinstance(link, HTTPError)), None)


def _retry_after_ms(answer: Response | None) -> float:
    """Return how long the server asks to wait, bounded; by RFC 9110 that is a number of seconds or a date."""
    text = answer.headers.get("Retry-After", "").strip() if answer is not None else ""
    if text.isascii() and text.isdigit():
        return min(int(text) * 1000, _MAX_RETRY_AFTER_MS)
    with suppress(ValueError, TypeError):
        left_ms = (parsedate_to_datetime(text).timestamp() - time.time()) * 1000
        return min(max(left_ms, 0), _MAX_RETRY_AFTER_MS)
    return 0


def asked_wait_ms(problem: Exception | None) -> float:
    """Return how long the catalog asks to wait before another attempt, 0 if it does not."""
    return problem.retry_after_ms if isinstance(problem, CommitRefusedError | CommitAnswerLostError) else 0


def is_lost_race(problem: Exception | None) -> bool:
    """Return whether an attempt failed because another commit was faster, and the catalog does not ask to wait."""
    return isinstance(problem, CommitRefusedError) and problem.is_lost_race and not problem.retry_after_ms


def stays_refused(problem: Exception | None, before: Table | None, now: Table) -> bool:
    """Return whether the catalog refused for a reason that does not go away, as long as the table is as it was.

    Each change of a table has a metadata file of its own; times do not tell, if a clock was ahead.
    """
    is_lasting = isinstance(problem, CommitRefusedError) and problem.is_lasting
    return is_lasting and before is not None and before.metadata_location == now.metadata_location
