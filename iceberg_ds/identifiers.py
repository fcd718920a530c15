"""Pure: names of several levels as text, in the way that Spark writes them, and back.

Levels are separated by dots, and a level in backticks may hold dots, backticks (doubled) and anything else:
`` db.`my.table` `` has two levels. The text of an identifier is parsed to the same levels, so it may stand for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# What Iceberg's Spark runtime takes behind the name of a table, where no table has the whole name.
_SELECTOR = re.compile(r"branch_(?P<branch>.+)|tag_.+|snapshot_id_\d+|at_timestamp_\d+", re.DOTALL)
_PLAIN_LEVEL = re.compile(r"(?!\d+\Z)\w+")
_LEVEL = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.]*?))\s*(?:(\.)|\Z)")


def identifier_text(levels: Iterable[str]) -> str:
    """Return the text of an identifier, in backticks what is more than letters, digits and underscores."""
    return ".".join(level if _PLAIN_LEVEL.fullmatch(level) else f"`{level.replace('`', '``')}`" for level in levels)


def names_branch(level: str) -> str | None:
    """Return the branch that Iceberg's Spark runtime understands by the last level of a name, as in `db.t.branch_x`.

    Returns:
        The branch; empty text if the level names a tag, a snapshot or a time instead; None if it is none of these.
    """
    found = _SELECTOR.fullmatch(level)
    return None if found is None else found["branch"] or ""


def parse_identifier(text: str) -> tuple[str, ...]:
    """Return the levels of an identifier.

    Raises:
        ValueError: A level is blank, or a backtick has no counterpart.
    """
    levels = []
    position, is_open = 0, True
    while is_open:
        found = _LEVEL.match(text, position)
        if found is None:
            raise ValueError(
                "expected levels separated by dots, each as it is or whole in backticks, with a backtick within it "
                "doubled, such as db.`my.table`"
            )
        levels.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        position, is_open = found.end(), found[3] is not None
    if not all(level.strip() for level in levels):
        raise ValueError("expected namespace and table separated by a dot, such as db.events")
    return tuple(levels)
