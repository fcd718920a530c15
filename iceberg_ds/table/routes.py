"""Pure: which table a value of the route column names, and which tables may be written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from iceberg_ds.io.places import MOST_BYTES_OF_NAME, longest_name, why_not_a_place
from iceberg_ds.parsing import VALUE
from iceberg_ds.plan import NewTables, RouteRule
from iceberg_ds.table.names import identifier_text, is_place, parse_identifier

# Stands for any characters of a level.
ANY = "*"
# Commas outside of backticks.
_COMMAS = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*\Z)")


def parse_table_patterns(text: str) -> tuple[str, ...]:
    """Return the patterns of tables that commas separate, each with a namespace and a name.

    Raises:
        ValueError: There is none, or one is no identifier.
    """
    patterns = tuple(part.strip() for part in _COMMAS.split(text))
    for pattern in patterns:
        if len(parse_identifier(pattern)) == 1:
            raise ValueError(
                f"expected namespace and table separated by a dot in {pattern!r}, such as db.events or db.*"
            )
    return patterns


class Routes:
    """Finds the table that a value names.

    Args:
        rule: Which table a value names.
    """

    def __init__(self, rule: RouteRule) -> None:
        self._rule = rule
        self._allowed = [_pattern(text) for text in rule.patterns]
        self._kept_name = _expression(rule.kept_name, ".*")

    def table_of(self, value: str | None) -> str | None:
        """Return the identifier of the table that a value names, or None if it names none that may be written."""
        if value is None or not value.strip():
            return None
        text = self._rule.template.replace(VALUE, value)
        try:
            levels = parse_identifier(text)
        except ValueError:
            return None
        if len(levels) == 1:
            levels = (*self._rule.namespace, *levels)
        return identifier_text(levels) if len(levels) > 1 and self.allows(levels) else None

    def allows(self, levels: Sequence[str]) -> bool:
        """Return whether the table of that identifier may be written."""
        if any(is_place(level) for level in levels) or self._is_kept(levels):
            return False
        return any(
            len(pattern) == len(levels)
            and all(part.fullmatch(level) for part, level in zip(pattern, levels, strict=True))
            for pattern in self._allowed
        )

    def keeps_name(self, name: str) -> bool:
        """Return whether the write keeps tables of that name, in any namespace, for rows that cannot be written."""
        return self._kept_name.fullmatch(name.lower()) is not None

    def _is_kept(self, levels: Sequence[str]) -> bool:
        """Return whether the write keeps the table of that identifier for itself."""
        return self.keeps_name(levels[-1]) or identifier_text(levels).lower() in self._rule.kept


def allowed(rule: RouteRule) -> str:
    """Return which tables may be written, and which options say so, as text of an error."""
    own = [*filter(None, [*rule.kept, rule.kept_name])]
    kept = f", without {', '.join(own)}, which the write keeps for itself" if own else ""
    return f"{', '.join(rule.patterns)} (options 'route-tables' and 'route-namespace'){kept}"


def may_be_new(table: str, new: NewTables) -> bool:
    """Return whether rows may name a table that is not there.

    Args:
        table: Its identifier, as `identifier_text` writes it.
        new: Which such tables there may be.
    """
    named = new.named.get(table.lower())
    return new.is_allowed and has_place(parse_identifier(table)) if named is None else named


def has_place(levels: Sequence[str]) -> bool:
    """Return whether a table can lie at a location that has the levels of its name, and readers agree on its place."""
    return why_not_a_place("/".join(levels)) is None and longest_name(levels) <= MOST_BYTES_OF_NAME


def _pattern(text: str) -> list[re.Pattern[str]]:
    """Return what the levels of a table's name must be.

    `*` stands for no dot in a namespace: some catalogs take one with a dot for several levels.
    """
    *levels, name = parse_identifier(text)
    return [*(_expression(level, "[^.]*") for level in levels), _expression(name, ".*")]


def _expression(level: str, any_text: str) -> re.Pattern[str]:
    return re.compile(any_text.join(map(re.escape, level.split(ANY))), re.DOTALL)
