"""Draws horizontal bars with whiskers, and courses over time, into a PNG, without a display. Knows no benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Spread
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

_OURS = "ours"
_COLORS = ("#2f6db3", "#c8743a", "#6a8f4e", "#8a8a8a")
_MARK_COLOR = "#b03030"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: its label, the group that gives its colour (ours has the same in all charts), and its spread."""

    label: str
    group: str
    spread: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Horizontal bars with whiskers.

    Attributes:
        title: Above the chart.
        axis: Label of the values' axis.
        bars: From top to bottom.
        is_logarithmic: Values' axis in powers of ten.
        mark: A value to draw a line at, with its label.
        pattern: How a median is written beside its bar.
    """

    title: str
    axis: str
    bars: Sequence[Bar]
    is_logarithmic: bool = False
    mark: tuple[float, str] | None = None
    pattern: str = "{:,.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a figure went: its label, and where it stood, as pairs of place and value."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Courses of one figure, and what it is."""

    title: str
    courses: Sequence[Course]


def draw(path: Path, chart: Chart) -> None:
    """Draw the chart as PNG: a bar is the median, its whisker goes from the lowest to the highest."""
    figure = Figure(figsize=(9, 1.5 + 0.42 * len(chart.bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    groups = list(dict.fromkeys([_OURS, *(bar.group for bar in chart.bars)]))
    for position, bar in enumerate(chart.bars):
        _draw_bar(axes, position, bar, chart.pattern, _COLORS[groups.index(bar.group) % len(_COLORS)])
    axes.set_yticks(range(len(chart.bars)), [bar.label for bar in chart.bars])
    axes.set_ylim(len(chart.bars) - 0.4, -0.6)
    _scale(axes, chart)
    axes.set_xlabel(f"{chart.axis}; bar: median, whisker: lowest to highest")
    axes.set_title(chart.title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def _draw_bar(axes: Axes, position: int, bar: Bar, pattern: str, color: str) -> None:
    spread = bar.spread
    axes.barh(position, spread.median, height=0.62, color=color)
    reach = [[spread.median - spread.low], [spread.high - spread.median]]
    axes.errorbar([spread.median], [position], xerr=reach, color="#222222", capsize=3, linewidth=1)
    axes.annotate(
        pattern.format(spread.median), (spread.high, position), (7, 0), textcoords="offset points", va="center"
    )


def _scale(axes: Axes, chart: Chart) -> None:
    """Leave room for the numbers to the right of the bars, and draw the mark."""
    highest = max(bar.spread.high for bar in chart.bars)
    if chart.is_logarithmic:
        lowest = min(bar.spread.low for bar in chart.bars)
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())  # its labels would lie upon each other
        axes.set_xlim(lowest / 2, highest * 3)
    else:
        axes.set_xlim(0, 1.15 * max(highest, chart.mark[0] if chart.mark else 0))
    if chart.mark is not None:
        value, label = chart.mark
        axes.axvline(value, color=_MARK_COLOR, linestyle="--", linewidth=1)
        axes.annotate(
            label,
            (value, 1),
            (-4, -3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            color=_MARK_COLOR,
            ha="right",
            va="top",
            fontsize=9,
        )


def draw_courses(path: Path, title: str, axis: str, panels: Sequence[Panel]) -> None:
    """Draw panels of lines as PNG, two beside each other, all from 0 on.

    Args:
        path: The file.
        title: Above all panels.
        axis: Label of the axis of places.
        panels: In reading order.
    """
    figure = Figure(figsize=(9, 2.6 * -(-len(panels) // 2) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=11)
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(-(-len(panels) // 2), 2, number)
        for course, color in zip(panel.courses, _COLORS, strict=False):
            axes.plot(*zip(*course.points, strict=True), color=color, label=course.label)
        axes.set_ylim(bottom=0)
        axes.set_title(panel.title, loc="left", fontsize=9)
        axes.set_xlabel(axis, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        if number == 1:
            axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=130)
