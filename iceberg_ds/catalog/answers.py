"""What a catalog's answer to a commit means: refused, for how long, or lost. Reads nothing but the clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

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

from iceberg_ds.error_hints import Cause, causes_of, hint_for

if TYPE_CHECKING:
    from requests import Response

# Errors by which a catalog says that it did not carry out the request.
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
_NOT_FOUND = 404
# Refusals without a class of PyIceberg; 408 is left out, because a gateway says it of a request that it passed on.
_REFUSING_STATUSES = (_NOT_FOUND, 405, 406, 411, 413, 414, 415, 422)
_CLIENT_ERRORS = range(400, 500)
_LOGIN = "Authorization"
# What Iceberg's Java library and PyIceberg say if a commit to another branch took the snapshot's sequence number.
_NUMBER_TAKEN = "older than last sequence number"
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
_OF_HIVE = ("hive_metastore.", "thrift.")
_HIVE_LOCK = "Failed to acquire lock"
_HIVE_LOCK_HINT = (
    "Another writer holds Hive's lock of the table, or was killed while it did: Hive drops such a lock after "
    "hive.txn.timeout (300 s unless set), and SHOW LOCKS names it"
)
# A server may ask for an hour; a job would seem to hang.
_MAX_RETRY_AFTER_MS = 60_000


class CommitRefusedError(Exception):
    """The catalog says that it did not commit; only the table tells whether that is true.

    Attributes:
        is_lasting: Whether the same request is refused again, unless the table changes.
        is_lost_race: Whether another commit was faster.
        is_gone: Whether the catalog says that it has no such table.
        is_certain: Whether this process itself saw that nothing was carried out.
        retry_after_ms: Milliseconds that the catalog asks to wait, 0 if it does not ask.
    """

    def __init__(  # noqa: PLR0913  # one for each attribute
        self,
        reason: str,
        *,
        is_lasting: bool,
        is_lost_race: bool = False,
        is_gone: bool = False,
        is_certain: bool = False,
        retry_after_ms: float = 0,
    ) -> None:
        super().__init__(reason)
        self.is_lasting = is_lasting
        self.is_lost_race = is_lost_race
        self.is_gone = is_gone
        self.is_certain = is_certain
        self.retry_after_ms = retry_after_ms


class CommitAnswerLostError(Exception):
    """The request was sent, and its outcome is unknown.

    Attributes:
        retry_after_ms: Milliseconds that the catalog asks to wait, 0 if it does not ask.
    """

    def __init__(self, reason: str, *, retry_after_ms: float = 0) -> None:
        super().__init__(reason)
        self.retry_after_ms = retry_after_ms


class RolledBackError(CommitFailedException):
    """Another commit was faster, and this process itself saw it, or rolled back what it had begun."""


class TogetherRefusedError(Exception):
    """The server takes no request for several tables, although it says that it does."""


class ManyTablesRefusedError(CommitRefusedError):
    """The same in words, without secrets: the tables have to be committed one after the other."""


class StagingRefusedError(Exception):
    """A table cannot be staged here: it has to be created before its first rows are written."""


def commit_failure(failure: Exception, reason: str) -> CommitRefusedError | CommitAnswerLostError:
    """Return what a failure of PyIceberg's `commit_table` means.

    Args:
        failure: The exception that PyIceberg raised.
        reason: The failure in words, without secrets.
    """
    is_locked = _HIVE_LOCK in str(failure)
    if is_locked:
        reason = f"{reason}. {_HIVE_LOCK_HINT}"
    answer = _answer(failure)
    wait_ms = _retry_after_ms(answer)
    if _NUMBER_TAKEN in str(failure) and _is_refusal(failure, answer):
        return CommitRefusedError(reason, is_lasting=False, is_lost_race=True, retry_after_ms=wait_ms)
    if isinstance(failure, _REFUSALS):
        is_lasting = isinstance(failure, _LASTING_REFUSALS)
        is_lost_race = isinstance(failure, _LOST_RACES) and not is_locked
        is_gone = isinstance(failure, NoSuchTableError)
        return CommitRefusedError(
            reason,
            is_lasting=is_lasting,
            is_lost_race=is_lost_race,
            is_gone=is_gone,
            is_certain=isinstance(failure, RolledBackError),
            retry_after_ms=wait_ms,
        )
    if answer is not None and answer.status_code in _REFUSING_STATUSES:
        is_gone = answer.status_code == _NOT_FOUND
        return CommitRefusedError(reason, is_lasting=True, is_gone=is_gone, retry_after_ms=wait_ms)
    if (code := _amazon_refusal(failure)) is not None:
        return CommitRefusedError(reason, is_lasting=code not in _PASSING_AMAZON_REFUSALS)
    if hint_for(failure).cause is Cause.FORBIDDEN:  # Glue's, a database's or a store's word for it
        return CommitRefusedError(reason, is_lasting=True, retry_after_ms=wait_ms)
    # Connection, time-out, 5xx, an answer that does not parse: each leaves the outcome unknown.
    return CommitAnswerLostError(reason, retry_after_ms=wait_ms)


def _is_refusal(failure: Exception, answer: Response | None) -> bool:
    """Return whether a request was refused by the server, or by PyIceberg before anything was sent."""
    return type(failure) is ValueError if answer is None else answer.status_code in _CLIENT_ERRORS


def _amazon_refusal(failure: Exception) -> str | None:
    """Return Amazon's own name of a refusal, or None if the failure is no 4xx answer of Amazon's."""
    response = getattr(failure, "response", None)  # of botocore's ClientError, whose library may be missing
    if not isinstance(response, Mapping):
        return None
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", "")) if status in _CLIENT_ERRORS else None


def sent_login(failure: BaseException) -> dict[str, str]:
    """Return the login of the HTTP request that failed, as a property: a token may be in no property of the catalog.

    PyIceberg fetches it with the credential, and servers quote it in their answers.
    """
    from requests import RequestException  # noqa: PLC0415  # commits that land need none of it

    requests = (link.request for link in causes_of(failure) if isinstance(link, RequestException) and link.request)
    found = next((request.headers.get(_LOGIN) for request in requests if request.headers), None)
    return {} if found is None else {f"header.{_LOGIN}": str(found)}


def behind_immutable(failure: BaseException) -> BaseException:
    """Return a Hive metastore's answer behind the TypeError that `contextlib` raises because it cannot be changed."""
    behind = failure.__context__
    is_hidden = isinstance(failure, TypeError) and behind is not None and type(behind).__module__.startswith(_OF_HIVE)
    return behind if behind is not None and is_hidden else failure


def _answer(failure: BaseException) -> Response | None:
    """Return the HTTP answer behind a failure, or None."""
    from requests import HTTPError  # noqa: PLC0415  # commits that land need none of it

    return next((link.response for link in causes_of(failure) if isinstance(link, HTTPError)), None)


def _retry_after_ms(answer: Response | None) -> float:
    """Return the milliseconds that the server asks to wait, bounded; RFC 9110 allows a number of seconds or a date."""
    text = answer.headers.get("Retry-After", "").strip() if answer is not None else ""
    if text.isascii() and text.isdigit():
        return min(int(text) * 1000, _MAX_RETRY_AFTER_MS)
    with suppress(ValueError, TypeError):
        left_ms = (parsedate_to_datetime(text).timestamp() - time.time()) * 1000
        return min(max(left_ms, 0), _MAX_RETRY_AFTER_MS)
    return 0


def asked_wait_ms(problem: Exception | None) -> float:
    """Return the milliseconds that the catalog asks to wait before another attempt, 0 if it does not ask."""
    return problem.retry_after_ms if isinstance(problem, CommitRefusedError | CommitAnswerLostError) else 0


def is_lost_race(problem: Exception | None) -> bool:
    """Return whether an attempt failed because another commit was faster, and the catalog does not ask to wait."""
    return isinstance(problem, CommitRefusedError) and problem.is_lost_race and not problem.retry_after_ms


def stays_refused(problem: Exception | None, before: Table | None, now: Table) -> bool:
    """Return whether the catalog refused for a reason that lasts as long as the table stays as it was.

    Each change of a table has its own metadata file, which tells; times do not tell, if a clock was ahead.
    """
    is_lasting = isinstance(problem, CommitRefusedError) and problem.is_lasting
    return is_lasting and before is not None and before.metadata_location == now.metadata_location
