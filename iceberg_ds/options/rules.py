"""Which options contradict each other, which count only with others, and which only in some kinds of write.

`RULES` is the one table of these rules. Rules on the options alone are checked when options are parsed, all others when
a write is planned, by any planner. A condition on the table or the catalog is no rule: the planner checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Flag, auto

from iceberg_ds.errors import OptionError
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.plan import DIFF, OPERATION
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.names import identifier_text


class Kind(Flag):
    """What is true of a write apart from its options; nothing of this is known when the options are parsed."""

    BATCH = auto()
    STREAM = auto()  # `writeStream.format("icebergsink")`; what `foreachBatch` writes are batches
    APPEND = auto()
    OVERWRITE = auto()
    DATA_SOURCE = auto()  # `format("icebergsink")`
    UPSERT = auto()  # `iceberg_ds.upsert`, which appends
    ROW_LEVEL = auto()  # `iceberg_ds.delete_from`, `update` and `merge`, which append what is new
    TRANSACTION = auto()  # a line of `iceberg_ds.transaction`


ANY_KIND = Kind(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A combination of options that is refused, in every write or in a kind of write.

    Attributes:
        options: A write that breaks the rule asks for all of these, written as `SinkOptions.asks` takes them.
        unless: A write that breaks the rule asks for none of these.
        kind: A write that breaks the rule is of all these kinds; empty for every write.
        both: Returns what two options both name; an empty result keeps the rule. None if that does not matter.
        problem: What is wrong, why, and what to do. `{options}` and `{names}` are the options of all broken rules with
            this text, with and without quotes; `{both}` is what two of them both name.
    """

    problem: str
    options: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    kind: Kind = ANY_KIND
    both: Callable[[SinkOptions], str] | None = None

    @property
    def names(self) -> set[str]:
        """Names of all options that the rule is about."""
        return {term.partition("=")[0] for term in (*self.options, *self.unless)}

    def is_broken_by(self, options: SinkOptions, kind: Kind) -> bool:
        """Return whether a write with these options, of this kind, breaks the rule."""
        return (
            self.kind in kind
            and all(map(options.asks, self.options))
            and not any(map(options.asks, self.unless))
            and (self.both is None or self.both(options) != "")
        )


def _one_column(first: str, second: str) -> Callable[[SinkOptions], str]:
    """Return a function that returns the columns that both options name; column names may differ in case."""

    def both(options: SinkOptions) -> str:
        named = [{name.lower(): name for name in options.words_of(option)} for option in (first, second)]
        return ", ".join(repr(named[0][name]) for name in sorted(named[0].keys() & named[1].keys()))

    return both


def _one_branch(options: SinkOptions) -> str:
    staging = options.staging_branch
    return staging if staging is not None and staging == (options.branch or MAIN_BRANCH) else ""


def _contradict(first: str, second: str, why: str) -> Rule:
    return Rule(options=(first, second), problem=f"options {{options}} contradict each other: {why}")


def _needs(option: str, other: str) -> Rule:
    return Rule(options=(option,), unless=(other,), problem=f"option {{options}} needs '{other}'")


_ONLY_WITH_KEYS = (
    "sequence-by",
    "sequence-scope",
    "keys-not-enforced",
    "inserts-are-new",
    "evolve-keys",
    "soft-delete-column",
    "delete-encoding",
    "key-index-folder",
    "readers",
    "publish-converted",
)
# The options of each table are looked at, too, without those of the route: a table may have what the write lacks.
_EACH_TABLE = "route-by"
_ONLY_WITH_ROUTE = ("route-tables", "route-namespace", "route-table-template", "route-columns.*", "route-options.*")
_SAY_DELETE = ("operation-column", "delete-when")
_TOLD_BY_FEED = (f"metadata-columns={OPERATION}", f"metadata-columns={DIFF}")
_ONLY_OVERWRITING = (
    "overwrite-mode",
    "replace-where",
    # Level `none` means what an append does anyway.
    "isolation-level=snapshot",
    "isolation-level=serializable",
    "validate-from-snapshot-id",
    "overwriteSchema",
)
_PAIR = "options 'txn-app-id' and 'txn-version' need each other: name the application, and number its writes"
_SOME_ROWS = (
    "option 'overwriteSchema' is for overwrites of all rows, and this one replaces some of them: drop it, and say what "
    "may change with 'schema-evolution'"
)
_FEEDS = (
    "options 'operation-column' and 'delete-when' are for change feeds, which are appended, and this write replaces "
    "rows. Append, or drop them"
)
_UPSERT = (
    "Write with iceberg_ds.upsert(df, table, ...), or a stream with foreachBatch(iceberg_ds.upsert_into(table, ...))"
)
RULES: tuple[Rule, ...] = (
    Rule(
        options=("replace-where", "overwrite-mode=dynamic"),
        problem="options {options} name the rows to replace in two ways: drop one of them",
    ),
    _needs("drop-missing-columns", "schema-evolution=full"),
    # Each of these options implies a value of another one, and is refused beside a value that contradicts it.
    Rule(
        options=("merge-schema",),
        unless=("schema-evolution=add-columns", "schema-evolution=full"),
        problem="options 'merge-schema' and 'schema-evolution' contradict each other: drop one of them",
    ),
    Rule(
        options=("overwriteSchema",),
        unless=("schema-evolution=full",),
        problem="options 'overwriteSchema' and 'schema-evolution' contradict each other: drop one of them",
    ),
    Rule(
        options=("overwriteSchema",),
        unless=("drop-missing-columns",),
        problem="options 'overwriteSchema' and 'drop-missing-columns' contradict each other: drop one of them",
    ),
    Rule(options=("overwriteSchema", "replace-where"), problem=_SOME_ROWS),
    Rule(options=("overwriteSchema", "overwrite-mode=dynamic"), problem=_SOME_ROWS),
    _needs("evolve-partitioning", "partition-by"),
    _needs("upgrade-format", "format-version"),
    _contradict("sort-by", "use-table-distribution-and-ordering=false", "drop one of them"),
    _contradict("nested-as-json", "nested-as-variant", "a column is written in one of the two ways: drop one of them"),
    Rule(
        options=("staging-branch",),
        both=_one_branch,
        problem="options 'staging-branch' and 'branch' are the same: readers would see the rows at once",
    ),
    Rule(options=("txn-app-id",), unless=("txn-version",), problem=_PAIR),
    Rule(options=("txn-version",), unless=("txn-app-id",), problem=_PAIR),
    _needs("accept-new-checkpoint", "stream-name"),
    # Many tables.
    *(_needs(option, "route-by") for option in _ONLY_WITH_ROUTE),
    Rule(
        options=("route-by",),
        unless=("route-tables", "route-namespace"),
        problem="option 'route-by' needs 'route-tables' or 'route-namespace': rows name their tables, and these say "
        "which tables they may name",
    ),
    _contradict("route-by", "location", "one place cannot hold several tables: give 'route-options.<table>.location'"),
    _contradict(
        "route-by",
        "drop-missing-columns",
        "the DataFrame has columns of other tables and may lack those of any: give "
        "'route-options.<table>.drop-missing-columns'",
    ),
    _contradict(
        "route-by", "publish-converted", "the tables of one epoch are committed together, and conversion takes one each"
    ),
    *(
        _contradict("route-by", f"delete-encoding={encoding}", "old rows are looked for in one table")
        for encoding in ("position", "deletion-vector", "copy-on-write")
    ),
    _contradict(
        "consistent-cut", "staging-branch", "a cut is what readers see, and staged rows are published by a later step"
    ),
    # Rows that cannot be written.
    Rule(
        options=("on-bad-row=drop",),
        unless=("accept-lost-rows",),
        problem="option 'on-bad-row' is drop, and rows that cannot be written would be lost: give "
        "accept-lost-rows=true, or keep them with on-bad-row=quarantine",
    ),
    Rule(
        options=("accept-lost-rows",),
        unless=("on-bad-row=drop",),
        problem="option 'accept-lost-rows' needs 'on-bad-row=drop'",
    ),
    Rule(
        options=("quarantine-table",),
        unless=("on-bad-row=quarantine",),
        problem="option 'quarantine-table' needs 'on-bad-row=quarantine'",
    ),
    Rule(
        options=("max-bad-rows",),
        unless=("on-bad-row=null", "on-bad-row=quarantine", "on-bad-row=drop"),
        problem="option 'max-bad-rows' needs 'on-bad-row' as null, quarantine or drop: with fail, there may be none",
    ),
    # Rows with keys.
    *(
        Rule(
            options=(option,),
            unless=("keys", _EACH_TABLE),
            problem="only a write with option 'keys' takes {options}: name the key columns",
        )
        for option in _ONLY_WITH_KEYS
    ),
    *(
        Rule(
            options=(option,),
            unless=("keys", *_TOLD_BY_FEED, _EACH_TABLE),
            problem="only a write with option 'keys' takes {options}: name the key columns, or ask for _operation or "
            "_diff in 'metadata-columns'",
        )
        for option in _SAY_DELETE
    ),
    Rule(
        options=(f"metadata-columns={DIFF}",),
        unless=("keys", *_SAY_DELETE),
        problem="option {options} needs 'operation-column' or 'delete-when', which tell deletes from rows",
    ),
    _contradict(f"metadata-columns={DIFF}", "keys", f"'{DIFF}' is for change feeds that are appended event by event"),
    Rule(
        options=("keys", "inserts-are-new"),
        unless=("operation-column",),
        problem="option 'inserts-are-new' needs 'operation-column', which tells inserts from updates",
    ),
    _contradict("keys", "format-version=1", "deletes need version 2"),
    Rule(
        options=("keys", "soft-delete-column"),
        unless=_SAY_DELETE,
        problem="option 'soft-delete-column' needs 'operation-column' or 'delete-when', which tell deletes",
    ),
    _contradict(
        "soft-delete-column", "inserts-are-new", "a key that was deleted has a row, which its next insert replaces"
    ),
    *(
        Rule(
            options=("soft-delete-column", option),
            both=_one_column("soft-delete-column", option),
            problem=f"options 'soft-delete-column' and '{option}' name one column: {{both}}",
        )
        for option in ("keys", "operation-column", "metadata-columns")
    ),
    Rule(
        options=("keys", "sequence-scope=table"),
        unless=("sequence-by",),
        problem="option 'sequence-scope=table' needs 'sequence-by', which says which row is newer",
    ),
    _contradict("sequence-scope=table", "inserts-are-new", "what is late is only known of keys that are looked for"),
    _contradict("sequence-scope=table", "delete-encoding=copy-on-write", "late rows are hidden by position deletes"),
    *(
        Rule(
            options=("sequence-scope=table", "sequence-by", option),
            both=_one_column("sequence-by", option),
            problem=f"options 'sequence-by' and '{option}' name one column, {{both}}, which cannot say which row is "
            "newer where 'sequence-scope' is table",
        )
        for option in ("keys", "operation-column", "soft-delete-column")
    ),
    # Kinds of write.
    *(
        Rule(
            options=(option,),
            kind=Kind.APPEND | kind,
            problem=f"this write appends, and only {overwrite} takes {{names}}. Drop them, or overwrite",
        )
        for kind, overwrite in ((Kind.BATCH, 'mode("overwrite")'), (Kind.STREAM, 'outputMode("complete")'))
        for option in _ONLY_OVERWRITING
    ),
    Rule(
        options=("keys",),
        kind=Kind.OVERWRITE,
        problem="option 'keys' is for appending, where rows replace those of their keys alone, and this write replaces "
        "all rows of a range. Append, or drop 'keys' and the options that belong to it",
    ),
    *(Rule(options=(option,), unless=("keys",), kind=Kind.OVERWRITE, problem=_FEEDS) for option in _SAY_DELETE),
    Rule(unless=("keys",), kind=Kind.UPSERT, problem="name the key columns, by argument 'keys' or the option"),
    Rule(
        options=("delete-encoding=equality",),
        kind=Kind.UPSERT,
        problem="option 'delete-encoding' is equality, which format(\"icebergsink\") writes. Expected auto, "
        "position, deletion-vector or copy-on-write",
    ),
    Rule(
        options=("publish-converted",),
        kind=Kind.UPSERT,
        problem="option 'publish-converted' is for writes that make equality deletes, and an upsert makes none: its "
        "readers meet none without it. Drop the option",
    ),
    *(
        Rule(
            options=(f"delete-encoding={encoding}",),
            kind=Kind.DATA_SOURCE | kind,
            problem=f"option 'delete-encoding' is {encoding}, for which old rows must be looked for by a job of Spark. "
            f"{_UPSERT}",
        )
        for encoding, kind in (
            ("position", Kind.BATCH),
            ("deletion-vector", Kind.BATCH),
            ("copy-on-write", Kind.DATA_SOURCE),
        )
    ),
    *(
        Rule(
            options=(f"delete-encoding={encoding}", "publish-converted"),
            kind=Kind.STREAM,
            problem="option 'publish-converted' is for writes that make equality deletes, and with 'delete-encoding' "
            f"{encoding} a stream makes none: its readers meet none without it. Drop one of the options",
        )
        for encoding in ("position", "deletion-vector")
    ),
    Rule(
        options=("sequence-scope=table",),
        kind=Kind.DATA_SOURCE,
        problem="option 'sequence-scope' is table, and this write does not compare with the table's rows. " + _UPSERT,
    ),
    Rule(
        options=("staging-branch",),
        unless=("publish-converted",),
        kind=Kind.STREAM,
        problem="option 'staging-branch' is for batches, and for streams with 'publish-converted'. Stream to a branch "
        "with option 'branch', and publish it with iceberg_ds.publish",
    ),
    *(
        Rule(
            options=(option,),
            kind=Kind.TRANSACTION,
            problem="{options} would show the rows of this table by a further step of its own, and the tables of a "
            "transaction are shown together. Write to a branch with option 'branch', and publish it with "
            "iceberg_ds.publish, or drop the option",
        )
        for option in ("staging-branch", "publish-converted")
    ),
    *(
        Rule(
            options=("consistent-cut",),
            kind=kind,
            problem="option 'consistent-cut' is for writes into several tables, by 'route-by' or "
            "iceberg_ds.transaction, and this write has one table. Drop it",
        )
        for kind in (Kind.DATA_SOURCE, Kind.UPSERT)
    ),
    *(
        Rule(
            options=("maintenance=auto",),
            kind=kind,
            problem="option 'maintenance' is auto, which is for format(\"icebergsink\"). Run iceberg_ds.maintaining "
            "beside it, or iceberg-ds maintain from time to time",
        )
        for kind in (Kind.UPSERT, Kind.TRANSACTION)
    ),
    Rule(
        options=("txn-app-id",),
        kind=Kind.STREAM,
        problem="options 'txn-app-id' and 'txn-version' are for batches. A stream numbers its epochs itself, and none "
        "lands twice. Drop them, or write batches in foreachBatch, with the number of the micro-batch as txn-version",
    ),
    Rule(
        options=("stream-name",),
        kind=Kind.BATCH,
        problem="option 'stream-name' is for writeStream.format(\"icebergsink\"), and this is a batch. In "
        "foreachBatch, 'txn-app-id' and 'txn-version' take its place",
    ),
)

_OF_EVERY_WRITE = [rule for rule in RULES if not rule.kind]
_OF_KINDS = [rule for rule in RULES if rule.kind]


def values_for(option: str) -> dict[str, frozenset[str]]:
    """Return the options that go with some values of another option alone, each with these values."""
    return {
        rule.options[0]: frozenset(term.partition("=")[2] for term in rule.unless)
        for rule in RULES
        if len(rule.options) == 1 and rule.unless and all(term.startswith(f"{option}=") for term in rule.unless)
    }


def broken_rules(options: SinkOptions, kind: Kind = ANY_KIND, *, malformed: Iterable[str] = ()) -> list[str]:
    """Return what is wrong with options taken together, a text for each problem, in the order of the rules.

    Args:
        options: The options.
        kind: The kind of the write, for rules on kinds; `ANY_KIND` for the rules of every write.
        malformed: Names of options whose texts could not be parsed; rules about these options are skipped.
    """
    unread = set(malformed)
    broken: dict[str, list[Rule]] = {}
    for rule in _OF_KINDS if kind else _OF_EVERY_WRITE:
        if rule.is_broken_by(options, kind) and not rule.names & unread:
            broken.setdefault(rule.problem, []).append(rule)
    return [_sentence(rules, options) for rules in broken.values()]


def _sentence(rules: list[Rule], options: SinkOptions) -> str:
    """Return the one text of rules that share it."""
    terms, both = [rule.options for rule in rules], rules[0].both
    return rules[0].problem.format(
        options=", ".join(" and ".join(map(repr, names)) for names in terms),
        names=", ".join(" and ".join(names) for names in terms),
        both="" if both is None else both(options),
    )


def check_kind(options: SinkOptions, kind: Kind) -> None:
    """Refuse options that do not go together in a write of this kind.

    Raises:
        OptionError: Lists all that is wrong.
    """
    if problems := broken_rules(options, kind):
        action = f"Cannot {'upsert into' if Kind.UPSERT in kind else 'write to'} {identifier_text(options.table)}:"
        one = f"{action} {problems[0]}."
        raise OptionError(one if len(problems) == 1 else "\n  - ".join([action, *(f"{text}." for text in problems)]))
