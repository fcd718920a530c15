"""Every rule between options: what breaks it, what keeps it, and who is told."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce
from operator import or_

import pytest

from iceberg_ds.errors import OptionError
from iceberg_ds.options.declaring import Option
from iceberg_ds.options.parse import parse_options
from iceberg_ds.options.rules import ANY_KIND, RULES, Kind, Rule, broken_rules, check_kind
from iceberg_ds.options.sink_options import OPTIONS, SinkOptions

# Texts of options that name no value in a rule. All columns are one, and both branches, so that rules which are about
# that are broken.
_COLUMN = "_epoch_id"
_TEXTS = {
    "consistent-cut": "meta.cuts",
    **dict.fromkeys(("keys", "sequence-by", "operation-column", "soft-delete-column", "metadata-columns"), _COLUMN),
    "delete-encoding": "equality",
    "delete-when": "gone = true",
    "format-version": "2",
    "isolation-level": "snapshot",
    "location": "file:/x",
    "max-bad-rows": "1%",
    "overwrite-mode": "static",
    "partition-by": "id",
    "readers": "spark",
    "replace-where": "id = 1",
    "route-table-template": "raw_{value}",
    "route-tables": "db.t",
    "sequence-scope": "batch",
    "sort-by": "id",
    "staging-branch": "main",
    "stream-name": "orders",
    "txn-app-id": "load",
    "txn-version": "0",
    "validate-from-snapshot-id": "7",
}
_DECLINED = {"schema-evolution": "strict", "drop-missing-columns": "false"}
_PARSERS = {option.name: option for option in OPTIONS}


def asking(terms: Iterable[str]) -> SinkOptions:
    """Return options that ask for all of these, whatever the rules say."""
    parsed = {}
    for term in terms:
        name, _, value = term.partition("=")
        option = _PARSERS[name]
        parsed[option.field] = option.parse(value or _TEXTS.get(name, "true"))
    return SinkOptions(table=("db", "t"), **parsed)  # type: ignore[arg-type]  # parsers give the types


def raw(rule: Rule) -> dict[str, str]:
    """Return options that break a rule as Spark hands them over, and decline what they would imply."""
    named = (term.partition("=") for term in rule.options)
    given = {name.lower(): value or _TEXTS.get(name, "true") for name, _, value in named}
    declined = {name: text for name, text in _DECLINED.items() if any(term.startswith(name) for term in rule.unless)}
    return {"table": "db.t", **declined, **given}


def kinds_without_one(kind: Kind) -> list[Kind]:
    """Return a kind of write without each of its parts."""
    parts = [part for part in Kind if part in kind]
    return [reduce(or_, [other for other in parts if other is not part], ANY_KIND) for part in parts]


def text_of(rule: Rule) -> str:
    """Return the longest part of a rule's text that does not depend on the options."""
    return max(re.split(r"\{\w+\}", rule.problem), key=len)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: " + ".join((*rule.options, str(rule.kind.name or ""))))
def test_rule_is_broken_by_what_it_names_and_by_nothing_less(rule: Rule) -> None:
    """A write would do something else than one of its options says, or be refused for options that go together."""
    broken = asking(rule.options)
    fewer = [asking(other for other in rule.options if other != option) for option in rule.options]
    saved = [asking((*rule.options, option)) for option in rule.unless]

    assert rule.is_broken_by(broken, rule.kind)
    assert text_of(rule) in "\n".join(broken_rules(broken, rule.kind))
    assert not any(rule.is_broken_by(options, rule.kind) for options in (*fewer, *saved))
    assert not any(rule.is_broken_by(broken, kind) for kind in kinds_without_one(rule.kind))


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.kind], ids=lambda rule: str(rule.kind.name))
def test_rule_of_a_kind_of_write_is_told_when_the_write_is_planned(rule: Rule) -> None:
    """An option would be passed over in a kind of write in which it means nothing."""
    with pytest.raises(OptionError) as refused:
        check_kind(asking(rule.options), rule.kind)

    assert text_of(rule) in str(refused.value)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.kind], ids=lambda rule: " + ".join(rule.options))
def test_rule_of_options_alone_is_told_as_they_are_parsed(rule: Rule) -> None:
    """`check` would pass options that a write refuses."""
    with pytest.raises(OptionError) as refused:
        parse_options(raw(rule))

    assert text_of(rule) in str(refused.value)


def test_all_that_is_wrong_with_a_kind_of_write_is_said_at_once() -> None:
    """A user would mend one option per run."""
    with pytest.raises(OptionError) as refused:
        check_kind(asking(["stream-name", "replace-where"]), Kind.APPEND | Kind.BATCH | Kind.DATA_SOURCE)

    assert str(refused.value).count("\n  - ") == 2


def test_rule_says_nothing_of_an_option_that_could_not_be_read() -> None:
    """A user would be told to give an option that stands there, misspelt."""
    with pytest.raises(OptionError) as refused:
        parse_options({"table": "db.t", "evolve-partitioning": "true", "partition-by": "no transform("})

    assert str(refused.value).count("\n  - ") == 1


_BELONGING = [option for option in OPTIONS if re.match("With `[a-z-]+[=`]", option.doc)]


@pytest.mark.parametrize("option", _BELONGING, ids=lambda option: option.name)
def test_option_that_is_documented_with_another_one_needs_it(option: Option) -> None:
    """An option would be passed over in silence where what it belongs to is missing."""
    documented = set(re.findall(r"`([^`]+)`", option.doc.partition(":")[0]))
    rules = [rule for rule in RULES if option.name in {term.partition("=")[0] for term in rule.options}]

    assert documented <= {needed for rule in rules for needed in rule.unless}
