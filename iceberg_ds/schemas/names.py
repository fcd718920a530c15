"""Pure: which column a name means, and names that are safe in files.

The DataFrame's names are looked up among the table's, here alone, so that the plan and the tasks agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.schema import make_compatible_name


class AmbiguousNameError(LookupError):
    """A name that could be any of several columns; the message says which."""


def find_position(name: str, names: Sequence[str], *, case_sensitive: bool | None = None) -> int | None:
    """Return where `name` stands in `names`, None if it does not.

    Args:
        name: The name, for example of a column of the DataFrame.
        names: The names of the table's columns, or of the fields of a struct.
        case_sensitive: True to match exactly, False in whatever case; None to match exactly, else in whatever case.

    Raises:
        AmbiguousNameError: It could be any of several.
    """
    return find_positions([name], names, case_sensitive=case_sensitive)[0]


def find_positions(
    given: Iterable[str], names: Sequence[str], *, case_sensitive: bool | None = None
) -> list[int | None]:
    """Return where each of `given` stands in `names`, as `find_position` does.

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
    """Return for each of `names` which of `given` feeds it: a position, None if none does.

    Every one of `given` feeds one at most, so where a table has `id` and `ID`, a column `ID` feeds only that.

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

    Readers find columns by field id, so a name that another one takes gets underscores added.
    """
    kept = {name for name in names if make_compatible_name(name) == name}
    taken = set(kept)
    return [name if name in kept else _free_name(make_compatible_name(name), taken) for name in names]


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def repeated_names(names: Iterable[str], *, case_sensitive: bool | None = None) -> list[str]:
    """Return one sentence for every name that comes again, in whatever case unless `case_sensitive` is true."""
    seen: dict[str, str] = {}
    problems = []
    for name in names:
        key = name if case_sensitive else name.lower()
        if key in seen:
            problems.append(f"columns '{seen[key]}' and '{name}' have the same name: rename one")
        seen.setdefault(key, name)
    return problems
