"""Write the board of Grafana and the alert rules of Prometheus, in `examples/metrics`, from the list of metrics.

An expression names a metric by its name in OpenTelemetry: a name that `INSTRUMENTS` does not have ends the script. What
is written is checked in, and a test holds it equal to what this script says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from iceberg_ds.metrics.instruments import INSTRUMENTS, Instrument

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "metrics"
BOARD, ALERTS = "grafana-dashboard.json", "alerts.yml"
# The alerts stand in a page, too, between these lines.
PAGE = FOLDER.parents[1] / "docs" / "metrics" / "prometheus.md"
BEGIN, END = "<!-- made from code by `make reference` -->\n", "<!-- end of what is made from code -->"
JOB = "iceberg-ds"
# Grafana's board is 24 columns wide.
_WIDTH, _HEIGHT, _COLUMNS = 24, 8, 3
_NAMED = {one.name: one for one in INSTRUMENTS}
_VARIABLES = ("table", "branch", "stream")
_WINDOW = "[$__rate_interval]"
_BY_STREAM = "table, branch, stream"
_BY_TABLE = "table, branch"
# A metric in an expression: `<iceberg.sink.commits outcome="failed">`, with matchers of labels or without, and the
# part of a histogram: `<iceberg.commit.duration:count>`.
_METRIC = re.compile(r"<(?P<name>[a-z_.]+)(?::(?P<part>bucket|count|sum))?(?: (?P<matchers>[^>]+))?>")


class Panel(NamedTuple):
    """A panel of the board.

    Attributes:
        title: Its title.
        doc: What it tells, and what to think of it.
        lines: Each expression with its legend; metrics stand in angle brackets.
        unit: Grafana's name of the unit.
        is_stacked: Whether the lines add up.
    """

    title: str
    doc: str
    lines: Sequence[tuple[str, str]]
    unit: str = "short"
    is_stacked: bool = False


class Alert(NamedTuple):
    """A rule that alerts.

    Attributes:
        name: Its name.
        when: What it means, for the page.
        expression: When it alerts; metrics stand in angle brackets.
        lasting: How long that has to be so.
        severity: `critical` if rows do not arrive or may be lost from sight, else `warning`.
        summary: One line for who is woken up.
        runbook: What to do.
    """

    name: str
    when: str
    expression: str
    lasting: str
    severity: str
    summary: str
    runbook: str


def _quantiles(name: str, by: str) -> list[tuple[str, str]]:
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return [
        (f"histogram_quantile({q}, sum by (le, {by}) (rate(<{name}:bucket>{_WINDOW})))", f"p{q * 100:.0f} {legend}")
        for q in (0.5, 0.95, 0.99)
    ]


def _rate(name: str, by: str = _BY_STREAM) -> str:
    return f"sum by ({by}) (rate(<{name}>{_WINDOW}))"


def _increase(name: str, by: str = _BY_STREAM) -> str:
    return f"sum by ({by}) (increase(<{name}>{_WINDOW}))"


def _latest(name: str, by: str = _BY_STREAM) -> str:
    return f"max by ({by}) (<{name}>)"


_SNAPSHOTS = _rate('iceberg.sink.commits outcome="committed"')  # each counts once, replays apart
# An append says nothing of delete files.
_NEW_FILES = (
    f"{_rate('iceberg.commit.data_files.added')} + "
    f"({_rate('iceberg.commit.delete_files.added')} or 0 * {_rate('iceberg.commit.data_files.added')})"
)
_DELETES_PER_FILE = (
    f"{_latest('iceberg.commit.delete_files.total', _BY_TABLE)} / "
    f"{_latest('iceberg.commit.data_files.total', _BY_TABLE)}"
)
_STREAM_LEGEND = "{{table}} {{branch}} {{stream}}"
_TABLE_LEGEND = "{{table}} {{branch}}"

ROWS: Mapping[str, Sequence[Panel]] = {
    "Is it well?": (
        Panel(
            title="Freshness",
            doc="How old the newest row is that was committed, by its event time. A writer has it with "
            "`event-time-column`, or a watermark.",
            lines=[(f"time() - {_latest('iceberg.sink.newest_event.time')}", _STREAM_LEGEND)],
            unit="s",
        ),
        Panel(
            title="Since the last success",
            doc="How long ago the last commit ended that found or brought its rows in the table.",
            lines=[(f"time() - {_latest('iceberg.sink.last_success.time')}", _STREAM_LEGEND)],
            unit="s",
        ),
        Panel(
            title="Commits by outcome",
            doc="`replayed`: the table had the rows already, which is what a restart looks like. `empty`: there was "
            "nothing to add. `conflict`, `failed`: nothing was committed, and Spark has the error. `unknown`: it may "
            "be committed; the next attempt finds out.",
            lines=[(_increase("iceberg.sink.commits", "outcome"), "{{outcome}}")],
            is_stacked=True,
        ),
    ),
    "How much?": (
        Panel(
            title="Rows per second",
            doc="Rows that commits added to the table.",
            lines=[(_rate("iceberg.commit.records.added"), _STREAM_LEGEND)],
            unit="rowsps",
        ),
        Panel(
            title="Bytes per second",
            doc="Bytes of the files that commits added, and bytes in memory of the rows that Spark sent.",
            lines=[
                (_rate("iceberg.commit.file_size.added_bytes"), f"files {_STREAM_LEGEND}"),
                (_rate("iceberg.sink.received"), f"in memory {_STREAM_LEGEND}"),
            ],
            unit="Bps",
        ),
        Panel(
            title="Rows per batch",
            doc="Rows that Spark sent for one commit.",
            lines=_quantiles("iceberg.sink.records_per_batch", _BY_STREAM),
        ),
    ),
    "What do commits take?": (
        Panel(
            title="Duration of commits",
            doc="From the tasks' messages to the end; Spark's micro-batch waits for it.",
            lines=_quantiles("iceberg.commit.duration", _BY_STREAM),
            unit="s",
        ),
        Panel(
            title="Waits of a commit",
            doc="Seconds for the catalog (loads and requests) and for the store (manifests), per commit.",
            lines=[
                (
                    f"{_rate('iceberg.sink.catalog.wait')} / {_rate('iceberg.sink.commits')}",
                    f"catalog {_STREAM_LEGEND}",
                ),
                (f"{_rate('iceberg.sink.store.wait')} / {_rate('iceberg.sink.commits')}", f"store {_STREAM_LEGEND}"),
            ],
            unit="s",
        ),
        Panel(
            title="Tasks of the last commit",
            doc="Seconds of the shortest, the median and the longest task. A longest one far above the median is skew.",
            lines=[
                (_latest(f"iceberg.sink.task.duration.{which}"), f"{which} {_STREAM_LEGEND}")
                for which in ("min", "median", "max")
            ],
            unit="s",
        ),
        Panel(
            title="Conflicts",
            doc="Requests that were lost to faster commits of others, beside those that were made.",
            lines=[
                (_increase("iceberg.sink.conflicts"), f"lost {_STREAM_LEGEND}"),
                (_increase("iceberg.commit.attempts"), f"made {_STREAM_LEGEND}"),
            ],
        ),
        Panel(
            title="Lost answers",
            doc="Requests whose answer was lost or told nothing, and those of them that the table showed to have been "
            "carried out.",
            lines=[
                (_increase("iceberg.sink.answers.lost"), f"lost {_STREAM_LEGEND}"),
                (_increase("iceberg.sink.answers.resolved"), f"carried out {_STREAM_LEGEND}"),
            ],
        ),
        Panel(
            title="Manifests",
            doc="Manifests that commits created, kept, and replaced by merging them.",
            lines=[
                (_increase(f"iceberg.commit.manifests.{which}", _BY_TABLE), f"{which} {_TABLE_LEGEND}")
                for which in ("created", "kept", "replaced")
            ],
        ),
    ),
    "Which files?": (
        Panel(
            title="Data files per commit",
            doc="How many data files one commit adds, on average.",
            lines=[(f"{_rate('iceberg.commit.data_files.added')} / {_SNAPSHOTS}", _STREAM_LEGEND)],
        ),
        Panel(
            title="Bytes of a new file",
            doc="Small files are what makes reading slow: fewer and larger micro-batches, or compaction, help. Delete "
            "files count, too.",
            lines=[(f"{_rate('iceberg.commit.file_size.added_bytes')} / ({_NEW_FILES})", _STREAM_LEGEND)],
            unit="bytes",
        ),
        Panel(
            title="Small tasks",
            doc="Part of the tasks whose rows the commit wrote into shared files, since they were few.",
            lines=[(f"{_rate('iceberg.sink.tasks.small')} / {_rate('iceberg.sink.tasks')}", _STREAM_LEGEND)],
            unit="percentunit",
        ),
        Panel(
            title="Deletes added",
            doc="Position deletes, equality deletes and deletion vectors that commits added.",
            lines=[
                (_increase("iceberg.commit.positional_deletes.added"), f"position {_STREAM_LEGEND}"),
                (_increase("iceberg.commit.equality_deletes.added"), f"equality {_STREAM_LEGEND}"),
                (_increase("iceberg.commit.dvs.added"), f"vectors {_STREAM_LEGEND}"),
            ],
        ),
        Panel(
            title="Delete files per data file",
            doc="What readers have to apply; conversion and compaction bring it down.",
            lines=[(_DELETES_PER_FILE, _TABLE_LEGEND)],
        ),
        Panel(
            title="Files left behind",
            doc="Files that no table refers to and that could not be deleted; the log names them, and "
            "`iceberg-ds verify` finds them.",
            lines=[(_latest("iceberg.sink.files.left"), _STREAM_LEGEND)],
        ),
    ),
    "What does maintenance do?": (
        Panel(
            title="Runs of maintenance",
            doc="Runs that changed a table, and those that failed: the log says why, and the next run tries again.",
            lines=[
                (_increase("iceberg.sink.maintenance.runs", "operation"), "{{operation}}"),
                (_increase("iceberg.sink.maintenance.failures", "operation"), "{{operation}}, failed"),
            ],
        ),
        Panel(
            title="Time of maintenance",
            doc="Seconds of maintenance in a second: 1 is one run at all times.",
            lines=[(_rate("iceberg.sink.maintenance.duration", _BY_TABLE), _TABLE_LEGEND)],
        ),
        Panel(
            title="Files and snapshots that went",
            doc="Files that were written anew, and those that took their place; expired snapshots, and the files that "
            "only these had.",
            lines=[
                (_increase("iceberg.sink.maintenance.files.rewritten", _BY_TABLE), f"rewritten {_TABLE_LEGEND}"),
                (_increase("iceberg.sink.maintenance.files.added", _BY_TABLE), f"in their place {_TABLE_LEGEND}"),
                (_increase("iceberg.sink.maintenance.snapshots.expired", _BY_TABLE), f"snapshots {_TABLE_LEGEND}"),
                (_increase("iceberg.sink.maintenance.files.deleted", _BY_TABLE), f"deleted {_TABLE_LEGEND}"),
            ],
        ),
    ),
    "The table": (
        Panel(
            title="Records",
            doc="Records in the table after the last commit; rows that deletes hide are counted.",
            lines=[(_latest("iceberg.commit.records.total", _BY_TABLE), _TABLE_LEGEND)],
        ),
        Panel(
            title="Files",
            doc="Data files and delete files in the table after the last commit.",
            lines=[
                (_latest("iceberg.commit.data_files.total", _BY_TABLE), f"data {_TABLE_LEGEND}"),
                (_latest("iceberg.commit.delete_files.total", _BY_TABLE), f"delete {_TABLE_LEGEND}"),
            ],
        ),
        Panel(
            title="Bytes",
            doc="Bytes of the files in the table after the last commit.",
            lines=[(_latest("iceberg.commit.file_size.total_bytes", _BY_TABLE), _TABLE_LEGEND)],
            unit="bytes",
        ),
    ),
}

MINUTES = 15
_AGO = f"[{MINUTES}m]"


def _happened(metric: str) -> str:
    """Return an expression that is true if a counter rose lately, or began lately above 0.

    `increase` does not see the first failure of a series that begins with it.
    """
    began = f"({metric} unless {metric} offset {MINUTES}m)"
    return f"sum by ({_BY_STREAM}) (increase({metric}{_AGO}) > 0 or {began}) > 0"


_STREAMS = 'stream!=""'  # one that writes into several tables need not have rows for each
ALERT_RULES: tuple[Alert, ...] = (
    Alert(
        name="IcebergExporterDown",
        when="the exporter does not answer",
        expression=f'up{{job="{JOB}"}} == 0',
        lasting="5m",
        severity="warning",
        summary="Nothing is known of the Iceberg writers at {{ $labels.instance }}.",
        runbook="Start `iceberg-ds metrics --serve` again on the driver's machine. The streams go on without it; the "
        "exporter reads what they reported meanwhile, and its counters go on where they were.",
    ),
    Alert(
        name="IcebergNoCommit",
        when="a named stream has had no successful commit to any table for 15 minutes",
        expression=f"time() - max by (stream) (<iceberg.sink.last_micro_batch.time {_STREAMS}>) > {MINUTES * 60}",
        lasting="1m",
        severity="critical",
        summary="Stream {{ $labels.stream }} has brought no rows to any table for {{ $value | humanizeDuration }}.",
        runbook="See whether the query runs and whether its source has rows. If it fails, its error says what to do; "
        "started again from its checkpoint it loses nothing.",
    ),
    Alert(
        name="IcebergRowsAreOld",
        when="the newest row of a named stream is older than 15 minutes",
        expression=f"time() - max by (stream) (<iceberg.sink.newest_event.time {_STREAMS}>) > {MINUTES * 60} "
        "and on (stream) <iceberg.sink.last_micro_batch.time>",
        lasting="5m",
        severity="warning",
        summary="The newest row that stream {{ $labels.stream }} brought is {{ $value | humanizeDuration }} old.",
        runbook="If commits land, the source is behind or silent, or a micro-batch takes longer than its rows took to "
        "come: compare rows per second and the duration of commits with those of yesterday.",
    ),
    Alert(
        name="IcebergCommitsFail",
        when="a commit failed, or lost to other writers for good, in the last 15 minutes",
        expression=_happened('<iceberg.sink.commits outcome=~"failed|conflict">'),
        lasting="0m",
        severity="critical",
        summary="Commits to {{ $labels.table }} fail.",
        runbook="Nothing of them is in the table, or it waits on a staging branch. Read the error in the log of the "
        "driver, and do what it says. A stream, and a batch with a number, can always be started again. A batch "
        "without one can, unless its rows wait on a staging branch, or other tables have theirs: the error says so.",
    ),
    Alert(
        name="IcebergOutcomeUnknown",
        when="a commit ended in the last 15 minutes without an answer that tells whether it landed",
        expression=_happened('<iceberg.sink.commits outcome="unknown">'),
        lasting="0m",
        severity="critical",
        summary="Whether a commit to {{ $labels.table }} landed is not known.",
        runbook="Nothing was deleted. Start the stream again, or repeat the batch under the same number: it finds out "
        "and adds the rows only if they are not there. A batch without a number must be looked for in the table first.",
    ),
    Alert(
        name="IcebergManyConflicts",
        when="more than half of the requests are lost to other writers",
        expression=f"sum by ({_BY_STREAM}) (rate(<iceberg.sink.conflicts>{_AGO})) / "
        f"sum by ({_BY_STREAM}) (rate(<iceberg.commit.attempts>{_AGO})) > 0.5",
        lasting=f"{MINUTES}m",
        severity="warning",
        summary="{{ $value | humanizePercentage }} of the requests to {{ $labels.table }} are lost to other writers.",
        runbook="Too many writers commit to one table. Let them commit less often, or one after the other; move "
        "maintenance to hours without streams.",
    ),
    Alert(
        name="IcebergFilesLeft",
        when="files were left behind in the last 15 minutes",
        expression=_happened("<iceberg.sink.files.left>"),
        lasting="0m",
        severity="warning",
        summary="Files of {{ $labels.table }} were left behind.",
        runbook="They cost space and nothing else; after an unknown outcome the table may have them. "
        "`iceberg-ds verify` lists those that no table refers to, and deletes them when told to.",
    ),
    Alert(
        name="IcebergManyDeletes",
        when="a table has more delete files than data files",
        expression=f"{_DELETES_PER_FILE} > 1",
        lasting="30m",
        severity="warning",
        summary="{{ $labels.table }} has {{ $value | humanize }} delete files for each data file.",
        runbook="Readers apply all of them. Convert equality deletes with `iceberg-ds convert-deletes`, and compact "
        "the table.",
    ),
)


def expression(text: str, matchers: Sequence[str] = ()) -> str:
    """Return an expression of Prometheus, its metrics by their names there.

    Args:
        text: The expression, metrics in angle brackets.
        matchers: Labels that each metric is matched by, as far as it has them.

    Raises:
        KeyError: There is no such metric.
    """

    def series(match: re.Match[str]) -> str:
        one = _NAMED[match["name"]]
        all_matchers = [f'{label}=~"${label}"' for label in matchers if label in one.labels]
        all_matchers += [match["matchers"]] if match["matchers"] else []
        inside = f"{{{', '.join(all_matchers)}}}" if all_matchers else ""
        return f"{sample_name(one, match['part'])}{inside}"

    return _METRIC.sub(series, text)


def sample_name(one: Instrument, part: str | None = None) -> str:
    """Return the name of a metric's samples; of a histogram's, those of a part."""
    if (one.kind == "histogram") != (part is not None):
        raise KeyError(f"{one.name} is a {one.kind}")
    return f"{one.prometheus}_total" if one.kind == "counter" else f"{one.prometheus}{f'_{part}' if part else ''}"


def board() -> dict[str, Any]:
    """Return the board as Grafana's JSON has it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        top += 1
        width = _WIDTH // _COLUMNS
        for number, panel in enumerate(row):
            place = {"h": _HEIGHT, "w": width, "x": number % _COLUMNS * width, "y": top + number // _COLUMNS * _HEIGHT}
            panels.append(_panel(len(panels) + 1, panel, place))
        top += -(-len(row) // _COLUMNS) * _HEIGHT
    return {
        "uid": "iceberg-ds",
        "title": "Iceberg writers",
        "description": "Commits of iceberg-ds. Made by `make reference` from the list of metrics.",
        "tags": ["iceberg", "spark"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_SOURCE, *map(_variable, _VARIABLES)]},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


_SOURCE = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0}
_FROM = {"type": "prometheus", "uid": "${datasource}"}


def _variable(label: str) -> dict[str, Any]:
    before = ", ".join(f'{one}=~"${one}"' for one in _VARIABLES[: _VARIABLES.index(label)])
    name = sample_name(_NAMED["iceberg.sink.commits"])
    query = f"label_values({name}{{{before}}}, {label})" if before else f"label_values({name}, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _FROM,
        "query": {"query": query, "refId": label},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "includeAll": True,
        "allValue": ".*",  # batches without a number have no stream
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    drawn = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 20 if panel.is_stacked else 5,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if panel.is_stacked else "none"},
    }
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.doc,
        "datasource": _FROM,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _FROM,
                "expr": expression(text, _VARIABLES),
                "legendFormat": legend,
                "range": True,
                "instant": False,
                "editorMode": "code",
            }
            for position, (text, legend) in enumerate(panel.lines)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": drawn}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def alerts() -> str:
    """Return the alert rules as Prometheus' YAML has them."""
    lines = [
        "# Alert rules of Prometheus for writers of iceberg-ds, made by `make reference` from the list of metrics.",
        "# Copy the file and change the limits to yours.",
        "groups:",
        f"  - name: {JOB}",
        "    rules:",
    ]
    for alert in ALERT_RULES:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(expression(alert.expression))}",
            f"        for: {alert.lasting}",
            f"        labels: {{severity: {alert.severity}}}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook: {json.dumps(alert.runbook)}",
        ]
    return "\n".join(lines) + "\n"


def alerts_table() -> str:
    """Return the alerts as the page shows them."""
    rows = [
        f"| `{alert.name}` | {alert.severity} | {alert.when} | {alert.lasting} | {alert.runbook} |"
        for alert in ALERT_RULES
    ]
    return "\n".join(["| alert | severity | when | for | what to do |", "|---|---|---|---|---|", *rows])


def files() -> dict[Path, str]:
    """Return the text of each file that follows from the list of metrics."""
    before, rest = PAGE.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page = f"{before}{BEGIN}\n{alerts_table()}\n\n{END}{after}"
    return {FOLDER / BOARD: json.dumps(board(), indent=1) + "\n", FOLDER / ALERTS: alerts(), PAGE: page}


def outdated() -> list[str]:
    """Return the files that do not say what the code says."""
    return [path.name for path, text in files().items() if path.read_text() != text]


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
