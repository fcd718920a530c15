"""What can go wrong with one call of a catalog, in a process or on the wire: every kind, and when it took effect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import requests
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)

_CONFLICT, _NOT_FOUND, _THROTTLED, _UNAUTHORIZED = 409, 404, 429, 401
# PyIceberg's own tables: what it makes of an answer depends on the request.
_ERRORS_OF: Mapping[str, Mapping[int, type[Exception]]] = {
    "load_table": {_NOT_FOUND: NoSuchTableError},
    "create_table_transaction": {_CONFLICT: TableAlreadyExistsError},
    "create_table": {_CONFLICT: TableAlreadyExistsError},
    "commit_table": {
        _CONFLICT: CommitFailedException,
        500: CommitStateUnknownException,
        502: CommitStateUnknownException,
        504: CommitStateUnknownException,
    },
}


class Effect(Enum):
    """Whether and when the server carries out a call that seems to fail."""

    NEVER = "not carried out"
    AT_ONCE = "carried out"
    BEFORE_NEXT_COMMIT = "carried out late, before the next commit"
    AT_LAST = "carried out when the writer has given up"


class Way(Enum):
    """What the caller sees."""

    STATUS = auto()
    RESET = auto()
    HANG = auto()
    STALL = auto()  # what it sends is not read any more
    HALF = auto()
    STALE = auto()  # the state before the last commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way in which a call fails.

    Attributes:
        way: What the caller sees.
        status: The answer's status, None if there is no answer.
        effect: Whether the call is carried out.
        headers: Headers of the answer.
    """

    way: Way
    status: int | None = None
    effect: Effect = Effect.NEVER
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        what = str(self.status) if self.status is not None else self.way.name.lower()
        return what if self.effect is Effect.NEVER else f"{what}, {self.effect.value}"

    @property
    def is_refusal(self) -> bool:
        """Whether the caller is told that the call was not carried out."""
        return self.status in {_CONFLICT, _THROTTLED, _UNAUTHORIZED}

    @property
    def is_for_reads(self) -> bool:
        """Whether it makes sense for a call that changes nothing."""
        return self.effect is Effect.NEVER and self.way is not Way.STALL

    @property
    def is_for_commits(self) -> bool:
        """Whether it makes sense for a call that changes something."""
        return self.way not in {Way.STALE, Way.HALF} or self.effect is not Effect.NEVER

    def error(self, method: str) -> Exception:
        """Return what PyIceberg's REST catalog raises in `method`."""
        match self.way:
            case Way.RESET:
                return requests.ConnectionError("connection reset by peer")
            case Way.HANG:
                return requests.ReadTimeout("no answer in 60 s")
            case Way.STALL:
                return requests.ConnectionError("the write operation timed out")
            case Way.HALF:
                return requests.exceptions.ChunkedEncodingError("connection broken: 10 bytes read, 90 more expected")
            case _:
                return _raised(self, method)


def _raised(kind: Kind, method: str) -> Exception:
    response = requests.Response()
    response.status_code = kind.status or 0
    response.headers.update(dict(kind.headers))
    response._content = json.dumps(error_body(response.status_code)).encode()
    try:
        try:
            response.raise_for_status()
        except requests.HTTPError as answer:
            _handle_non_200_response(answer, dict(_ERRORS_OF.get(method, {})))
    except Exception as error:  # the one that it stands for
        return error
    raise AssertionError(f"{kind} is no failure")


def error_body(status: int) -> dict[str, object]:
    """Return what a REST catalog sends with a status that tells of a failure."""
    return {"error": {"message": "planned fault", "type": "Planned", "code": status}}


SERVER_ERRORS = (500, 502, 503, 504)
CONFLICT = Kind(way=Way.STATUS, status=_CONFLICT)
CONFLICT_AFTER_LANDING = Kind(way=Way.STATUS, status=_CONFLICT, effect=Effect.AT_ONCE)
STALE = Kind(way=Way.STALE)
THROTTLED = Kind(way=Way.STATUS, status=_THROTTLED)

KINDS: tuple[Kind, ...] = (
    CONFLICT,
    CONFLICT_AFTER_LANDING,
    Kind(way=Way.STATUS, status=_UNAUTHORIZED),
    Kind(way=Way.STATUS, status=_THROTTLED, headers=(("Retry-After", "1"),)),
    *(
        Kind(way=Way.STATUS, status=status, effect=effect)
        for status in SERVER_ERRORS
        for effect in (Effect.NEVER, Effect.AT_ONCE)
    ),
    Kind(way=Way.STATUS, status=504, effect=Effect.BEFORE_NEXT_COMMIT),
    Kind(way=Way.STATUS, status=504, effect=Effect.AT_LAST),
    *(Kind(way=way, effect=effect) for way in (Way.RESET, Way.HANG) for effect in Effect),
    Kind(way=Way.STALL),
    Kind(way=Way.HALF),
    Kind(way=Way.HALF, effect=Effect.AT_ONCE),
    STALE,
)
COMMIT_KINDS = tuple(kind for kind in KINDS if kind.is_for_commits)
READ_KINDS = tuple(kind for kind in KINDS if kind.is_for_reads)
