"""The board of Grafana and the alert rules: they are what the list of metrics says, and name nothing else."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from support.scripts import load_script

from iceberg_ds.metrics.instruments import INSTRUMENTS

REPOSITORY = Path(__file__).parents[3]
EXAMPLE = REPOSITORY / "examples" / "metrics"
SCRIPT = load_script(REPOSITORY / ".ci" / "write_board.py")
BOARD = json.loads((EXAMPLE / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
RULES = [SCRIPT.expression(alert.expression) for alert in SCRIPT.ALERT_RULES]
_NAME = re.compile(r"\biceberg_\w+")
_LABELS = re.compile(r"(\w+)\{([^}]*)\}")


def samples() -> dict[str, set[str]]:
    """Return the labels of the samples that the list of metrics makes, by their names."""
    found = {}
    for one in INSTRUMENTS:
        parts = ("bucket", "count", "sum") if one.kind == "histogram" else (None,)
        for part in parts:
            found[SCRIPT.sample_name(one, part)] = {*one.labels, *(("le",) if part == "bucket" else ())}
    return found


def test_board_and_alerts_are_those_of_the_list_of_metrics() -> None:
    """A metric could be renamed, and a user's board would stay empty."""
    assert SCRIPT.outdated() == [], "run `make reference`"


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *RULES])
def test_expression_names_metrics_and_labels_that_there_are(expression: str) -> None:
    """A panel would be empty for ever, or an alert would never fire."""
    known = samples()
    names = _NAME.findall(expression)

    assert names or "up{" in expression
    assert set(names) <= set(known)
    for name, matchers in _LABELS.findall(expression):
        if name in known:
            assert set(re.findall(r"(\w+)(?:=~|!=|=)", matchers)) <= known[name]


def test_name_that_is_not_in_the_list_ends_the_script() -> None:
    """A board with a misspelt metric would be written."""
    with pytest.raises(KeyError, match=r"iceberg\.sink\.nothing"):
        SCRIPT.expression("rate(<iceberg.sink.nothing>[5m])")
    with pytest.raises(KeyError, match="is a histogram"):
        SCRIPT.expression("<iceberg.commit.duration>")


def test_panels_do_not_lie_on_each_other_and_every_row_has_some() -> None:
    """A part of the board could not be seen."""
    places = [panel["gridPos"] for panel in BOARD["panels"]]
    titles = [panel["title"] for panel in PANELS]

    assert len(titles) == len(set(titles)) >= 20
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert [pair for pair in combinations(places, 2) if _overlap(*pair)] == []


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[edge] < other[edge] + other[size] and other[edge] < one[edge] + one[size]
        for edge, size in (("x", "w"), ("y", "h"))
    )


def test_every_series_of_a_panel_is_chosen_by_the_variables_of_the_board() -> None:
    """A user who looks at one table would see those of others."""
    names = [variable["name"] for variable in BOARD["templating"]["list"]]
    known = samples()

    assert names == ["datasource", "table", "branch", "stream"]
    for expression in EXPRESSIONS:
        for name, matchers in _LABELS.findall(expression):
            expected = {label for label in ("table", "branch", "stream") if label in known[name]}
            assert {label for label in expected if f'{label}=~"${label}"' in matchers} == expected
        assert len(_LABELS.findall(expression)) == len(_NAME.findall(expression))


@pytest.mark.parametrize("alert", SCRIPT.ALERT_RULES, ids=lambda alert: alert.name)
def test_alert_says_what_is_wrong_and_what_to_do(alert: Any) -> None:
    """Who is woken up at night would not know why, or would follow a link that leads nowhere."""
    assert alert.summary.endswith(".")
    assert "{{ $labels." in alert.summary
    assert alert.runbook.endswith(".")
    assert "://" not in alert.summary + alert.runbook
