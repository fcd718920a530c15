"""What does the board show of streams that are killed? Runs two, and draws the main panels as Prometheus answers.

    python benchmarks/draw_metrics.py
    python benchmarks/draw_metrics.py --spark

The runs are those of `tests/recipes/test_metrics.py`: two streams without Spark whose committers are killed at random
moments and between commit and report; or, with `--spark`, a driver with two streams that is killed, and an exporter
that is. A real Prometheus scrapes every two seconds. The expressions are those of the board in
`examples/metrics/grafana-dashboard.json`. Grafana itself is not run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.metered_committers import committer_run  # noqa: E402  # after the path is set
from support.services.prometheus import Prometheus  # noqa: E402
from support.spark.metered_streams import metered_run  # noqa: E402

BOARD = REPOSITORY / "examples" / "metrics" / "grafana-dashboard.json"
CHART = REPOSITORY / "docs" / "assets" / "metrics-board.svg"
SHOWN = (
    "Rows per second",
    "Commits by outcome",
    "Duration of commits",
    "Since the last success",
    "Waits of a commit",
    "Records",
)
# What Grafana would put in the place of its variables.
VARIABLES = {"$__rate_interval": "30s", "$table": ".*", "$branch": ".*", "$stream": ".*"}
STEP_S = 1.0
UNITS = {"s": "seconds", "rowsps": "rows per second", "short": ""}
_COLUMNS = 2
_MOST_LINES = 6


def panels() -> dict[str, dict[str, Any]]:
    """Return the panels of the board by their titles."""
    return {panel["title"]: panel for panel in json.loads(BOARD.read_text())["panels"]}


def draw(prometheus: Prometheus, start: float, end: float, path: Path) -> None:
    """Draw the main panels of the board over a time."""
    rcParams["svg.hashsalt"] = "iceberg-ds"  # the same figures make the same file
    rcParams["svg.fonttype"] = "none"
    rows = -(-len(SHOWN) // _COLUMNS)
    figure = Figure(figsize=(12, 3.2 * rows), layout="constrained")
    found = panels()
    for number, title in enumerate(SHOWN):
        axes = figure.add_subplot(rows, _COLUMNS, number + 1)
        _draw_panel(axes, found[title], prometheus, (start, end))
    FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None, "Creator": None})


def _draw_panel(axes: Axes, panel: Mapping[str, Any], prometheus: Prometheus, span: tuple[float, float]) -> None:
    drawn = 0
    for target in panel["targets"]:
        expression = target["expr"]
        for variable, value in VARIABLES.items():
            expression = expression.replace(variable, value)
        for series in prometheus.query_range(expression, *span, STEP_S):
            points = [(datetime.fromtimestamp(at, timezone.utc), float(value)) for at, value in series["values"]]
            if any(value == value for _, value in points):  # noqa: PLR0124  # NaN: no commit in that time
                axes.plot(
                    *zip(*points, strict=True), label=_legend(target["legendFormat"], series["metric"]), linewidth=1.2
                )
                drawn += 1
    axes.set_title(panel["title"], fontsize=10)
    axes.set_ylabel(UNITS[panel["fieldConfig"]["defaults"]["unit"]], fontsize=8)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.3)  # room for the legend
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M:%S", tz=timezone.utc))
    axes.tick_params(labelsize=7)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=6, ncols=1 + drawn // _MOST_LINES, loc="upper left")


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    for label, value in labels.items():
        pattern = pattern.replace(f"{{{{{label}}}}}", value)
    return pattern


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the streams and draw the chart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark", action="store_true", help="streams of Spark, whose driver is killed")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--files", type=int, default=8, help="epochs that each stream of Spark gets for each kill")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--chart", type=Path, default=CHART)
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="iceberg-ds-metrics-"))
    running = (
        metered_run(folder, options.kills, options.files, options.seed)
        if options.spark
        else committer_run(folder, options.kills, options.seed)
    )
    with running as run:
        draw(run.prometheus, run.began, time.time(), options.chart)
        found = run.prometheus.query("sum by (stream, outcome) (iceberg_sink_commits_total) > 0")
        print(*(f"{one.labels['stream']}: {one.value:.0f} {one.labels['outcome']}" for one in found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
