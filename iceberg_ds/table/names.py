"""Pure: names of tables and columns: how they are written, which column a name means, which names are reserved.

Levels of a table's name are separated by dots, as Spark writes them, and a level in backticks may hold dots, backticks
(doubled) and anything else: `` db.`my.table` `` has two levels. The text of an identifier is parsed to the same levels,
so it may stand for them. The DataFrame's names are looked up among the table's only here, so that the plan and the
tasks agree. Source of the reserved columns: Iceberg spec, "Reserved Field IDs".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from pyiceberg.schema import make_compatible_name
from pyiceberg.types import LongType, NestedField, StringType

# Selectors that Iceberg's Spark runtime accepts as the last level of a name, where no table has the whole name.
_SELECTOR = re.compile(r"branch_(?P<branch>.+)|tag_.+|snapshot_id_\d+|at_timestamp_\d+", re.DOTALL)
_PLAIN_LEVEL = re.compile(r"(?!\d+\Z)\w+")
_LEVEL = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.]*?))\s*(?:(\.)|\Z)")
# Of a file or a folder, as users of other writers name tables.
_PLACE = re.compile(r"\s*(?:[A-Za-z][\w+.:-]*:[/\\]|(?:\.{0,2}|~)[/\\])")
FILE_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
POS = NestedField(2147483545, "pos", LongType(), required=True)

# Iceberg's runtime offers these beside a table's own columns, and cannot read a table with a column of such a name. Of
# one whose name differs in case it cannot update the rows, because Spark does not tell the two apart. Fields of structs
# may have such names.
METADATA_COLUMNS = frozenset(
    {"_file", "_pos", "_deleted", "_partition", "_spec_id", "_row_id", "_last_updated_sequence_number"}
)


def identifier_text(levels: Iterable[str]) -> str:
    """Return the text of an identifier, with backticks around levels of more than letters, digits and underscores."""
    return ".".join(level if _PLAIN_LEVEL.fullmatch(level) else quoted(level) for level in levels)


def names_branch(level: str) -> str | None:
    """Return the branch that Iceberg's Spark runtime reads from the last level of a name, as in `db.t.branch_x`.

    Returns:
        The branch; empty text if the level names a tag, a snapshot or a time instead; None for any other level.
    """
    found = _SELECTOR.fullmatch(level)
    return None if found is None else found["branch"] or ""


def parse_identifier(text: str) -> tuple[str, ...]:
    """Return the levels of an identifier.

    Raises:
        ValueError: A level is blank, a backtick is unmatched, or the text is a place: its dots separate no levels.
    """
    if is_place(text):
        raise ValueError(
            "expected the name of a table, such as db.events, and this is a place: tables belong to a catalog, and "
            "option 'location' says where a new one goes"
        )
    levels = levels_of(text)
    if not all(level.strip() for level in levels):
        raise ValueError("expected namespace and table separated by a dot, such as db.events")
    return levels


def levels_of(text: str) -> tuple[str, ...]:
    """Return the levels of a name; any may be blank, as the name of a column or of a field of a struct may be.

    Raises:
        ValueError: A backtick is unmatched.
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
    return tuple(levels)


def is_place(text: str) -> bool:
    """Return whether text that should name a table, or its last level, is the place of a file or a folder."""
    return _PLACE.match(text) is not None


def why_reserved(name: str) -> str | None:
    """Return why a table's column cannot have that name, or None if it can."""
    if name.lower() not in METADATA_COLUMNS:
        return None
    return f"column '{name}' has the name of a column that Iceberg adds to every table as it is read: rename it"


class AmbiguousNameError(LookupError):
    """A name that could be any of several columns; the message says which."""


def quoted(name: str) -> str:
    """Return a name as Spark's SQL and functions take it, with any signs in it."""
    return f"`{name.replace('`', '``')}`"


def sql_text(text: str) -> str:
    """Return a text as a literal of Spark's SQL, with any quotes and backslashes in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def find_position(name: str, names: Sequence[str], *, case_sensitive: bool | None = None) -> int | None:
    """Return the position of `name` in `names`, or None.

    Args:
        name: The name, for example of a column of the DataFrame.
        names: The names of the table's columns, or of the fields of a struct.
        case_sensitive: True to match exactly, False to ignore case; None to match exactly, else ignoring case.

    Raises:
        AmbiguousNameError: The name could be any of several.
    """
    return find_positions([name], names, case_sensitive=case_sensitive)[0]


def find_positions(
    given: Iterable[str], names: Sequence[str], *, case_sensitive: bool | None = None
) -> list[int | None]:
    """Return the position of each of `given` in `names`, as `find_position` does.

    Raises:
        AmbiguousNameError: One of them could be any of several.
    """
    exact: dict[str, list[int]] = {}
    folded: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        exact.setdefault(name, []).append(position)
        folded.setdefault(name.lower(), []).append(position)

    def find(name: str) -> int | None:
        found = [] if case_sensitive is False else exact.get(name, [])
        if not found and not case_sensitive:
            found = folded.get(name.lower(), [])
        if len(found) > 1:
            raise AmbiguousNameError(f"'{name}' could be any of {', '.join(repr(names[other]) for other in found)}")
        return found[0] if found else None

    return [find(name) for name in given]


def find_sources(given: Sequence[str], names: Sequence[str], *, case_sensitive: bool | None = None) -> list[int | None]:
    """Return for each of `names` the position of the one of `given` that feeds it, or None.

    Each of `given` feeds at most one name, so where a table has `id` and `ID`, a column `ID` feeds only `ID`.

    Raises:
        AmbiguousNameError: One of `given` could feed several, or several could feed one.
    """
    fed: list[int | None] = [None] * len(names)
    for source, position in enumerate(find_positions(given, names, case_sensitive=case_sensitive)):
        if position is None:
            continue
        if (other := fed[position]) is not None:
            raise AmbiguousNameError(f"'{names[position]}' could be any of '{given[other]}', '{given[source]}'")
        fed[position] = source
    return fed


def safe_names(names: Sequence[str]) -> list[str]:
    """Return the names as Iceberg's writers make them safe in files (for Avro), all different.

    Readers find columns by field id, so a name that is already taken gets underscores added.
    """
    kept = {name for name in names if make_compatible_name(name) == name}
    taken, safe = set(kept), list[str]()
    for name in names:
        safe.append(name if name in kept else free_name(make_compatible_name(name), taken))
        taken.add(safe[-1])
    return safe


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with as many underscores added as it takes to be none of those that are taken."""
    while name in taken:
        name += "_"
    return name


def repeated_names(names: Iterable[str], *, case_sensitive: bool | None = None) -> list[str]:
    """Return one sentence for every name that is repeated, ignoring case unless `case_sensitive` is true."""
    seen: dict[str, str] = {}
    problems = []
    for name in names:
        key = name if case_sensitive else name.lower()
        if key in seen:
            problems.append(f"columns '{seen[key]}' and '{name}' have the same name: rename one")
        seen.setdefault(key, name)
    return problems
