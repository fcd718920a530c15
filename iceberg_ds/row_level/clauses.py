"""The clauses of a `merge`: what becomes of the rows of a table and of a source, and under which condition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from iceberg_ds.errors import OptionError


@dataclass(frozen=True, slots=True)
class Update:
    """Rows of the table get other values.

    Attributes:
        assignments: Expressions in Spark's SQL, by the name of the column, or of the field of a struct as `a.b`; other
            columns keep their values. None to set each column of the table to the source's column of its name.
        condition: A predicate in Spark's SQL that must be true; None for all rows.
    """

    assignments: Mapping[str, str] | None = None
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Rows of the table are deleted.

    Attributes:
        condition: A predicate in Spark's SQL that must be true; None for all rows.
    """

    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows of the source are added to the table.

    Attributes:
        values: Expressions in Spark's SQL, by the name of the column; other columns get their write default,
            or null. None to set each column of the table to the source's column of its name.
        condition: A predicate in Spark's SQL that must be true; None for all rows.
    """

    values: Mapping[str, str] | None = None
    condition: str | None = None


Clause: TypeAlias = Update | Delete | Insert
OfTarget: TypeAlias = Update | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Clauses:
    """All clauses of a `merge`, in their order.

    Attributes:
        matched: For rows of the table that have a row of the source.
        not_matched: For rows of the source that have no row of the table.
        not_matched_by_source: For rows of the table that have no row of the source.
    """

    matched: tuple[OfTarget, ...]
    not_matched: tuple[Insert, ...]
    not_matched_by_source: tuple[OfTarget, ...]

    @classmethod
    def of(
        cls,
        action: str,
        matched: OfTarget | Sequence[OfTarget],
        not_matched: Insert | Sequence[Insert],
        not_matched_by_source: OfTarget | Sequence[OfTarget],
    ) -> Clauses:
        """Return the clauses that the arguments of a call give, one or several each; `action` is for errors.

        Raises:
            OptionError: A clause is of a wrong kind, can never apply, or there is none.
        """
        found = cls(
            matched=_checked(action, "when_matched", matched, (Update, Delete)),
            not_matched=_checked(action, "when_not_matched", not_matched, (Insert,)),
            not_matched_by_source=_checked(
                action, "when_not_matched_by_source", not_matched_by_source, (Update, Delete)
            ),
        )
        if not (found.matched or found.not_matched or found.not_matched_by_source):
            raise OptionError(f"Cannot {action}: no clause is given, so that nothing would be done.")
        for clause in found.not_matched_by_source:
            if isinstance(clause, Update) and clause.assignments is None:
                raise OptionError(
                    f"Cannot {action}: when_not_matched_by_source has an Update without assignments, and its rows have "
                    "no row of the source to take values from. Name the columns to set."
                )
        return found

    @property
    def update_rows(self) -> bool:
        """Whether a row of the table may be changed, so that its new row has values of the old one."""
        return any(isinstance(clause, Update) for clause in (*self.matched, *self.not_matched_by_source))


def _checked(action: str, name: str, given: object, kinds: tuple[type[Clause], ...]) -> tuple[Any, ...]:
    clauses: tuple[Any, ...] = tuple(given) if isinstance(given, list | tuple) else (given,)
    for number, clause in enumerate(clauses, start=1):
        if not isinstance(clause, kinds):
            expected = " or ".join(f"iceberg_ds.{kind.__name__}" for kind in kinds)
            raise OptionError(f"Cannot {action}: {name} has {clause!r}, expected {expected}, one or a list of them.")
        if clause.condition is None and number < len(clauses):
            raise OptionError(
                f"Cannot {action}: clause {number} of {name} has no condition, so that those after it never apply. "
                "Put it last, or give it a condition."
            )
    return clauses
