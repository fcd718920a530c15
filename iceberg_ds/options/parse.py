"""`parse_options`: turns the options that Spark passes into `SinkOptions`, or says at once all that is wrong.

Option keys reach us in lower case because Spark lower-cases them; values arrive as strings.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from iceberg_ds.errors import OptionError
from iceberg_ds.options.declaring import Option
from iceberg_ds.options.other_writers import ALIASES, NOT_OURS, refusal_of_setting
from iceberg_ds.options.rules import broken_rules
from iceberg_ds.options.sink_options import CATALOG_PREFIX, OPTIONS, ROUTE_OPTIONS_PREFIX, SinkOptions
from iceberg_ds.secrets import holds_secret, is_credential, mask_name, mask_value, refused_value
from iceberg_ds.table.names import parse_identifier

# Spark itself puts these beside the user's options.
SPARK_KEYS = frozenset({"path", "checkpointlocation", "queryname"})

_RESERVED_IN_SUMMARIES = frozenset(
    {
        "operation",
        "changed-partition-count",
        "partition-summaries-included",
        "engine-name",
        "engine-version",
        "source-snapshot-id",  # whose rows a cherry-pick adds: a repeat of that write is told that it landed
        "self",  # with this key PyIceberg can no longer read the table
    }
)
_RESERVED_PREFIXES = (
    *("added-", "deleted-", "removed-", "total-", "manifests-", "partitions.", "icebergsink."),
    "spark.sql.streaming.",
)
_BY_KEY = {option.name.lower(): option for option in OPTIONS if option.prefix is None}
_GROUPS = {option.prefix: option for option in OPTIONS if option.prefix is not None}
# Predicates hold values of rows.
_PREDICATES = frozenset({"replace-where", "delete-when"})
_PROPERTIES = ("table-property.", "snapshot-property.")
# What counts in a call on a table that is there: where it is, and where reports go.
_OF_CALLS = (
    *("table", "namespace", "catalog", "catalog.*", "warehouse"),
    *("metrics-file", "metrics-reporter", "snapshot-metrics"),
)
# What counts beside that if a call commits a snapshot,
OF_COMMITS = ("branch", "snapshot-property.*", "userMetadata")
# and if it writes files of rows.
OF_REWRITES = (
    *OF_COMMITS,
    *("target-file-size-bytes", "max-open-files", "compression-codec", "compression-level", "parquet-encodings"),
    "write-format",
)


def parse_options(raw: Mapping[str, str], action: str = "write") -> SinkOptions:
    """Parse the options of one write.

    Args:
        raw: Options as Spark passes them: lower-case keys, string values.
        action: What is to be done with them, for the error.

    Raises:
        OptionError: Names every unknown, malformed, missing or contradicting option at once; or every one that shows a
            secret.
    """
    if shown := list(_showing_secrets(raw)):
        raise OptionError(
            f"Cannot {action} with these options:\n  - options {', '.join(shown)} would write secrets into the table's "
            "metadata, which all of its readers can see, or into errors and logs: a secret belongs below "
            f"'{CATALOG_PREFIX}', or better into the configuration of PyIceberg"
        )
    parsed: dict[str, Any] = {option.field: {} for option in _GROUPS.values()}
    malformed: list[str] = []
    problems: list[str] = []
    for key, text in raw.items():
        prefix = next((prefix for prefix in _GROUPS if key.startswith(prefix) and key != prefix), None)
        option = _BY_KEY.get(ALIASES.get(key, key))
        if prefix is not None:
            parsed[_GROUPS[prefix].field][key.removeprefix(prefix)] = text
        elif option is not None:
            problem = take_option(parsed, option, text)
            problems += filter(None, [problem])
            malformed += [] if problem is None else [option.name]
        elif key in NOT_OURS:
            problems += filter(None, [NOT_OURS[key].refusal(text)])
        elif key not in SPARK_KEYS:
            problems.append(refusal_of_setting(key) or _unknown(key))
    _take_table(parsed, raw.get("path"), malformed, problems)
    options = SinkOptions(**{**_implied(parsed), **parsed})
    problems += [*broken_rules(options, malformed=malformed), *_wrong_properties(options)]
    if problems:
        raise OptionError(
            f"Cannot {action} with these options:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )
    if options.user_metadata is None:
        return options
    return replace(options, snapshot_properties={**options.snapshot_properties, "userMetadata": options.user_metadata})


def parse_call(action: str, given: Mapping[str, str], also: Iterable[str] = ()) -> SinkOptions:
    """Parse the options of a call that writes no DataFrame: one that would not count in it is refused.

    Args:
        action: What is done, such as `expire snapshots`, for the error.
        given: The options with the table, as `options_of_call` returns them.
        also: Names of the options that count beside those that say where the table is and where reports go.

    Raises:
        OptionError: As `parse_options`; or an option counts in writes alone.
    """
    counting = (*_OF_CALLS, *also)
    if others := sorted({name for key in given if (name := _declared(key)) is not None and name not in counting}):
        raise OptionError(
            f"Cannot {action}: option{'s' if len(others) > 1 else ''} {', '.join(map(repr, others))} would not count "
            f"here: leave {'them' if len(others) > 1 else 'it'} out. Known are {', '.join(counting)}."
        )
    return parse_options(given, action)


def options_of_calls(given: Mapping[str, str]) -> dict[str, str]:
    """Return those options, of some by keys in lower case, that count in every call on a table that is there."""
    return {key: text for key, text in given.items() if _declared(key) in {None, *_OF_CALLS}}


def _declared(key: str) -> str | None:
    """Return the name with which an option of a write is declared, by a key in lower case; None if it is none."""
    prefix = next((prefix for prefix in _GROUPS if key.startswith(prefix) and key != prefix), None)
    found = _BY_KEY.get(ALIASES.get(key, key)) if prefix is None else _GROUPS[prefix]
    return None if found is None else found.name


def _showing_secrets(raw: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of options that surely hold a secret, and that tables, errors or logs may show."""
    for key, text in raw.items():
        name = ALIASES.get(key, key)
        if key.startswith(CATALOG_PREFIX) or not (is_known(key) or key == "path"):
            continue
        # Options of one table are parsed, and looked at, with those of all.
        is_elsewhere = name in _PREDICATES or key.startswith(ROUTE_OPTIONS_PREFIX)
        is_named = key.startswith(_PROPERTIES) and is_credential(key.partition(".")[2])
        if is_named or any(map(holds_secret, [key] if is_elsewhere else [key, text])):
            yield "table" if key == "path" else _BY_KEY[name].name if name in _BY_KEY else mask_name(key)


def is_known(key: str) -> bool:
    """Return whether a key, in lower case, names an option of a write."""
    return ALIASES.get(key, key) in _BY_KEY or any(key.startswith(prefix) and key != prefix for prefix in _GROUPS)


def given_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options given to a function of the package in the form in which Spark passes them, without nulls.

    Raises:
        OptionError: They are no mapping, one is no text nor can be one, or two differ in the case of their names alone.
    """
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"The options are a {type(options).__name__}, expected a mapping, or None.")
    found: dict[str, str] = {}
    for key, value in (options or {}).items():
        if value is None:
            continue
        name = str(key).lower()
        if isinstance(value, bytes | Mapping) or (isinstance(value, Collection) and not isinstance(value, str)):
            raise OptionError(f"Option '{mask_name(name)}' is a {type(value).__name__}, expected a text.")
        if found.setdefault(name, str(value)) != str(value):
            raise OptionError(f"Option '{mask_name(name)}' is given twice, with its name in other case: give it once.")
    return found


def options_of_call(table: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of a function that takes the table as an argument, with the table among them.

    Raises:
        OptionError: The table is no text, or option `table` names another one.
    """
    if not isinstance(table, str):
        raise OptionError(
            f"The table is a {type(table).__name__}, expected its identifier, a text such as 'db.events'."
        )
    given = given_options(options)
    named, namespace = given.get("table", table), given.get("namespace")
    if _full_identifier(named, namespace) != _full_identifier(table, namespace):
        raise OptionError(
            f"Cannot tell which table is meant: the argument is {mask_value(table)!r}, and option 'table' is "
            f"{mask_value(named)!r}. Drop the option."
        )
    return {**given, "table": table}


def _full_identifier(text: str, namespace: str | None) -> tuple[str, ...]:
    """Return the levels of an identifier, completed by option `namespace`; malformed text is one level."""
    try:
        levels = parse_identifier(text)
        return levels if namespace is None or len(levels) > 1 else (*parse_identifier(namespace), *levels)
    except ValueError:  # `parse_options` says why
        return (text,)


def take_option(parsed: dict[str, Any], option: Option, text: str) -> str | None:
    """Add the value of an option to `parsed`, by its field. Return what is wrong with the text, or None."""
    try:
        value = option.parse(text)
    except ValueError as problem:
        return f"option '{option.name}' is {refused_value(text, str(problem))}"
    if parsed.setdefault(option.field, value) == value:
        return None
    return f"option '{option.name}' is given twice, by two of its names: give one of them"


def _unknown(key: str) -> str:
    known = [option.name for option in OPTIONS if option.prefix is None]
    groups = (f"{prefix}*" for prefix in _GROUPS)
    return f"unknown option '{mask_name(key)}': {name_hint(key, [*known, *ALIASES, *NOT_OURS], [*known, *groups])}"


def name_hint(key: str, names: Iterable[str], known: Iterable[str]) -> str:
    """Return the next step for an unknown option, after a colon.

    Args:
        key: The option.
        names: What it may be a slip of.
        known: What is listed if it is a slip of none.
    """
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(known)}"


def _take_table(parsed: dict[str, Any], path: str | None, malformed: list[str], problems: list[str]) -> None:
    """Find the table's full identifier: `save("db.t")` arrives as `path`, and `namespace` completes a bare name."""
    place = "option 'table'"
    if path is not None:
        place = "the table in save(), start() or load()"
        try:
            from_path = parse_identifier(path)
        except ValueError as problem:
            problems.append(f"{place} is {refused_value(path, str(problem))}")
            return
        if parsed.setdefault("table", from_path) != from_path:
            problems.append(f"option 'table' and {place} differ ({path!r}): give one of them")
    table = parsed.get("table")
    if "route_by" in parsed:
        if table is not None:
            problems.append(f"option 'route-by' names the table of each row, and {place} names one for all: drop one")
        return
    if table is None and "table" not in malformed:
        problems.append(
            'no table is named: use save("db.t"), start("db.t"), load("db.t") or option("table", "db.t"); '
            'saveAsTable("db.t"), writeTo("db.t") and CREATE TABLE db.t USING icebergsink keep the name for '
            "Spark's own catalog"
        )
    if table is None or len(table) > 1:
        return
    if "namespace" in parsed:
        parsed["table"] = (*parsed["namespace"], *table)
    else:
        problems.append(
            f"{place} is {table[0]!r}: expected namespace and table separated by a dot, such as db.events, or option "
            "'namespace'"
        )


def _implied(parsed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that other writers' options imply for options that are not given."""
    implied: dict[str, Any] = {}
    if parsed.get("overwrite_schema"):
        implied = {"schema_evolution": "full", "drop_missing_columns": True}
    if parsed.get("merge_schema"):
        implied["schema_evolution"] = "add-columns"
    return implied


def _wrong_properties(options: SinkOptions) -> list[str]:
    """Return what is wrong with table properties and snapshot properties, no matter which table."""
    problems = []
    if reserved := sorted(filter(_is_reserved, options.snapshot_properties)):
        problems.append(
            "options 'snapshot-property.*' would replace what the commit itself records, or what readers go by: "
            + ", ".join(reserved)
        )
    if "format-version" in options.table_properties:
        problems.append("option 'table-property.format-version' has an option of its own: 'format-version'")
    return problems


def _is_reserved(key: str) -> bool:
    """Return whether a key of a snapshot's summary has a meaning to Iceberg, Spark or this sink."""
    return key in _RESERVED_IN_SUMMARIES or key.startswith(_RESERVED_PREFIXES)
