"""The options of each table of a write with `route-by`: those of the write, and `route-options.<table>.*` over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iceberg_ds.errors import OptionError
from iceberg_ds.options.parse import SPARK_KEYS, is_known, parse_options
from iceberg_ds.options.rules import broken_rules, values_for
from iceberg_ds.options.sink_options import (
    CATALOG_PREFIX,
    QUARANTINE_SUFFIX,
    ROUTE_COLUMNS_PREFIX,
    ROUTE_OPTIONS_PREFIX,
    SinkOptions,
)
from iceberg_ds.plan import RouteRule
from iceberg_ds.table.names import identifier_text, parse_identifier
from iceberg_ds.table.routes import ANY, Routes, allowed
from iceberg_ds.table.spec_parser import parse_columns

_OF_ROUTE = "route-"
# Options that are one for all tables of a write: where the tables are, who numbers the write, what gets its reports.
_OF_ALL = frozenset(
    {
        *("table", "namespace", "catalog", "warehouse", "txn-app-id", "txnappid", "txn-version", "txnversion"),
        *("stream-name", "accept-new-checkpoint", "metrics-file", "metrics-reporter", "publish-converted"),
        "consistent-cut",
    }
)
_NOT_OF_A_TABLE = SPARK_KEYS | {"consistent-cut"}
# A table with an `on-bad-row` of its own has no use for the options of the write that go with other values of it.
_OF_BAD_ROWS = values_for("on-bad-row")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """The options of a write into several tables.

    Attributes:
        of_all: The options of the write; its `table` is empty.
        rule: Which table a value of the route column names.
        columns: The columns that tables get, by identifier in lower case.
    """

    of_all: SinkOptions
    rule: RouteRule
    columns: Mapping[str, tuple[str, ...]]
    _plain: SinkOptions | None  # of a table without options of its own; None if it lacks some
    _raw: Mapping[str, str]
    _own: Mapping[str, Mapping[str, str]]

    @property
    def column(self) -> str:
        """The column that names the table of each row."""
        assert self.of_all.route_by is not None  # noqa: S101  # checked by `parse_route`
        return self.of_all.route_by

    @property
    def tables(self) -> tuple[str, ...]:
        """Identifiers, in lower case, of the tables that have options of their own."""
        return tuple(self._own)

    def of(self, table: str) -> SinkOptions:
        """Return the options of one table.

        Args:
            table: Identifier of the table.

        Raises:
            OptionError: An option of this table does not go with its other options, or needs one that is not given.
        """
        own = self._own.get(table.lower())
        if own is None and self._plain is not None:
            return replace(self._plain, table=parse_identifier(table))
        own = own or {}
        mode = own.get("on-bad-row", "").lower()
        unused = {option for option, modes in _OF_BAD_ROWS.items() if mode and mode not in modes}
        shared = {option: value for option, value in self._raw.items() if option not in unused}
        try:
            return parse_options({**shared, **own, "table": table})
        except OptionError as problem:
            raise OptionError(f"Table {table}: {problem}") from problem

    @property
    def unrouted_quarantine(self) -> tuple[str, ...] | None:
        """The quarantine table of rows that name no table which may be written, None if they are not kept.

        There is no table after which it could be named.
        """
        named, namespace = self.of_all.quarantine_table, self.of_all.route_namespace
        if self.of_all.on_bad_row != "quarantine" or named is None or (len(named) == 1 and namespace is None):
            return None
        return named if len(named) > 1 else (*(namespace or ()), *named)

    @property
    def quarantines(self) -> list[tuple[str, ...]]:
        """The quarantine tables that options name, for rows of any table or of one."""
        found = [self.unrouted_quarantine, *map(self._own_quarantine, self.tables)]
        return [table for table in found if table is not None]

    def _own_quarantine(self, table: str) -> tuple[str, ...] | None:
        try:
            return self.of(table).quarantine
        except OptionError:  # which refuses its rows, if there are any
            return None


def parse_route(raw: Mapping[str, str], options: SinkOptions) -> RouteOptions:
    """Return the options of a write with `route-by`.

    Args:
        raw: Options as Spark passes them: lower-case keys, string values.
        options: The same, parsed.

    Raises:
        OptionError: An option of a table is unknown, or one for all tables; names every such option at once. Or a
            table's columns cannot be parsed.
    """
    _refuse_signs(options)
    namespace = options.route_namespace or ()
    patterns = options.route_tables or (f"{identifier_text(namespace)}.*",)
    plain = {key: value for key, value in raw.items() if not key.startswith(_OF_ROUTE) and key not in _NOT_OF_A_TABLE}
    without_own = _plain(options)
    route = RouteOptions(
        of_all=options,
        rule=RouteRule(namespace=namespace, template=options.route_table_template, patterns=patterns),
        columns=_own_columns(options.route_columns, namespace),
        _plain=None if broken_rules(without_own) else without_own,
        _raw=plain,
        _own=_own_options(options.route_options, namespace),
    )
    route = replace(route, rule=_with_kept(route))
    _refuse_unused(options, route)
    return route


def _refuse_signs(options: SinkOptions) -> None:
    """Refuse names in which the sign of patterns stands: other tables would be taken for those that they name."""
    named = {"route-namespace": options.route_namespace, "quarantine-table": options.quarantine_table}
    problems = [
        f"'{option}' is {identifier_text(levels)}: '{ANY}' stands for any characters in 'route-tables' alone. Give a "
        "name without it"
        for option, levels in named.items()
        if levels is not None and any(ANY in level for level in levels)
    ]
    if problems:
        raise _refusal(problems)


def _refuse_unused(options: SinkOptions, route: RouteOptions) -> None:
    """Refuse options of tables that no row can be written to: rows of another table would lack them unseen."""
    # Spark passes names of options in lower case.
    routes = Routes(replace(route.rule, patterns=tuple(pattern.lower() for pattern in route.rule.patterns)))
    named = {f"{ROUTE_COLUMNS_PREFIX}{table}": table for table in options.route_columns}
    named |= {f"{ROUTE_OPTIONS_PREFIX}{key}": split[0] for key in options.route_options if (split := _split(key))}
    full = {key: _full(table, route.rule.namespace) for key, table in named.items()}
    problems = [
        f"'{key}': no row may name table {table}. Tables that may be written: {allowed(route.rule)}. Name the table "
        "with its namespace, or allow it"
        for key, table in full.items()
        if not routes.allows(parse_identifier(table))
    ]
    if problems:
        raise _refusal(problems)


def _refusal(problems: Sequence[str]) -> OptionError:
    return OptionError("Cannot write with these options:\n" + "\n".join(f"  - {problem}" for problem in problems))


def _with_kept(route: RouteOptions) -> RouteRule:
    """Return the rule with the tables that the write keeps for itself."""
    options = route.of_all
    kept = [*route.quarantines, *([] if options.consistent_cut is None else [options.consistent_cut])]
    # Each table has a quarantine table of that name in its own namespace.
    named = options.quarantine_table or (f"{ANY}{QUARANTINE_SUFFIX}",)
    in_each = options.on_bad_row == "quarantine" and len(named) == 1
    return replace(
        route.rule,
        kept=tuple(identifier_text(table).lower() for table in kept),
        kept_name=named[0].lower() if in_each else "",
    )


def _plain(options: SinkOptions) -> SinkOptions:
    """Return the options without those of the route."""
    none = SinkOptions()
    return replace(
        options,
        consistent_cut=none.consistent_cut,
        route_by=none.route_by,
        route_tables=none.route_tables,
        route_namespace=none.route_namespace,
        route_table_template=none.route_table_template,
        route_columns=none.route_columns,
        route_options=none.route_options,
    )


def _own_options(given: Mapping[str, str], namespace: Sequence[str]) -> dict[str, dict[str, str]]:
    own: dict[str, dict[str, str]] = {}
    problems = []
    for key, value in given.items():
        split = _split(key)
        if split is None:
            problems.append(f"'{ROUTE_OPTIONS_PREFIX}{key}': expected a table and an option, such as shop.orders.keys")
            continue
        table, option = split
        if option in _OF_ALL or option.startswith((CATALOG_PREFIX, _OF_ROUTE)):
            hint = "; put the name of a table called catalog in backticks" if option.startswith(CATALOG_PREFIX) else ""
            problems.append(f"'{ROUTE_OPTIONS_PREFIX}{key}': '{option}' is one for all tables of a write{hint}")
        of_table = own.setdefault(_full(table, namespace), {})
        if option in of_table:
            problems.append(f"'{ROUTE_OPTIONS_PREFIX}{key}': '{option}' of this table is given twice. Drop one of them")
        of_table[option] = value
    if problems:
        raise _refusal(problems)
    return own


def _own_columns(given: Mapping[str, str], namespace: Sequence[str]) -> dict[str, tuple[str, ...]]:
    own: dict[str, tuple[str, ...]] = {}
    for table, text in given.items():
        full = _full(table, namespace)
        if full in own:
            raise _refusal([f"'{ROUTE_COLUMNS_PREFIX}{table}': columns of {full} are given twice. Drop one of them"])
        own[full] = _columns(table, text)
    return own


def _split(key: str) -> tuple[str, str] | None:
    """Return the table and the option that a key names, the shortest name of a table that leaves an option."""
    position = key.find(".")
    while position > 0:
        table, option = key[:position], key[position + 1 :]
        if is_known(option) and _is_identifier(table):
            return table, option
        position = key.find(".", position + 1)
    return None


def _is_identifier(text: str) -> bool:
    try:
        parse_identifier(text)
    except ValueError:
        return False
    return True


def _full(table: str, namespace: Sequence[str]) -> str:
    """Return the identifier of a table that an option names, in lower case, as Spark passes names of options."""
    try:
        levels = parse_identifier(table)
    except ValueError as problem:
        raise OptionError(f"Cannot write with these options: '{table}' names no table: {problem}.") from problem
    return identifier_text(levels if len(levels) > 1 else (*namespace, *levels)).lower()


def _columns(table: str, text: str) -> tuple[str, ...]:
    try:
        return parse_columns(text)
    except ValueError as problem:
        raise OptionError(
            f"Cannot write with these options: option '{ROUTE_COLUMNS_PREFIX}{table}' is {text!r}: {problem}."
        ) from problem
