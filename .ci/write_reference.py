"""Write the parts of the docs that follow from code: options, properties, types, errors, commands and metrics.

Each stands in a page between two markers; the text around it is written by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from pyspark.sql import types as spark

import iceberg_ds
from iceberg_ds import cli, errors
from iceberg_ds.metrics.instruments import INSTRUMENTS
from iceberg_ds.options.declaring import options_table
from iceberg_ds.options.other_writers import foreign_table
from iceberg_ds.options.read_options import READ_OPTIONS
from iceberg_ds.options.sink_options import OPTIONS
from iceberg_ds.options.table_properties import COLUMN_TYPES, RESERVED, TYPES, Check
from iceberg_ds.table.spark_types import UnsupportedTypeError, column_type

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- made from code by `make reference` -->\n", "<!-- end of what is made from code -->"
NO_VALUE = "\0"  # that no property takes

# What the page shows of each type of Spark: the type, its name if its own is no good, and what is kept of its values.
SHOWN_TYPES: tuple[tuple[spark.DataType, str, str], ...] = (
    (spark.BooleanType(), "", "exact"),
    (spark.ByteType(), "", "exact"),
    (spark.ShortType(), "", "exact"),
    (spark.IntegerType(), "", "exact"),
    (spark.LongType(), "", "exact"),
    (spark.FloatType(), "", "exact: NaN, infinities, -0.0"),
    (spark.DoubleType(), "", "exact: NaN, infinities, -0.0"),
    (spark.DecimalType(38, 9), "", "exact: any precision and scale up to 38"),
    (spark.StringType(), "", "exact, bytes that are no UTF-8 too"),
    (spark.CharType(10), "", "exact; Iceberg knows no length"),
    (spark.VarcharType(10), "", "exact; Iceberg knows no length"),
    (spark.BinaryType(), "", "exact"),
    (spark.DateType(), "", "exact, any year"),
    (spark.TimestampType(), "", "exact, in UTC, any year, in any time zone of the session"),
    (spark.TimestampNTZType(), "", "exact, any year"),
    (spark.TimeType(6), "time(0) to time(6)", "exact; Spark 4.1 and newer"),
    (spark.StructType([spark.StructField("x", spark.LongType())]), "", "exact, to any depth"),
    (spark.ArrayType(spark.StringType()), "", "exact, to any depth"),
    (spark.MapType(spark.StringType(), spark.LongType()), "", "exact, to any depth"),
    (spark.VariantType(), "", "exact, to any depth; from format version 3 on"),
    (
        spark.NullType(),
        "void (`NULL` without a type)",
        "nulls, in whole columns; from format version 3 on, else refused",
    ),
    (spark.TimeType(9), "time(7) and finer", ""),
    (spark.DayTimeIntervalType(), "", ""),
    (spark.YearMonthIntervalType(), "", ""),
    (spark.CalendarIntervalType(), "", ""),
    (spark.GeometryType(4326), "geometry", ""),
    (spark.GeographyType(4326), "geography", ""),
    (spark.StringType("UNICODE"), "", ""),
    (spark.StructType([]), "a struct without fields", ""),
)


def types_table() -> str:
    """Return what becomes of each type of Spark."""
    rows = ["| Spark | Iceberg | values |", "|---|---|---|"]
    for data_type, name, kept in SHOWN_TYPES:
        shown = name or f"`{data_type.simpleString()}`"
        try:
            rows.append(f"| {shown} | `{column_type(data_type, itertools.repeat(0))}` | {kept} |")
        except UnsupportedTypeError as unsupported:
            rows.append(f"| {shown} | refused | {str(unsupported).rpartition(': ')[2]} |")
    return "\n".join(rows).replace("0: ", "")


def properties_table() -> str:
    """Return which values each table property takes."""
    names = {**TYPES, **{f"{prefix}*": check for prefix, check in COLUMN_TYPES.items()}}
    rows = [f"| `{name}` | {_expected(names[name])} |" for name in sorted(names)]
    reserved = f"Never taken: {', '.join(f'`{name}`' for name in sorted(RESERVED))}."
    return "\n".join(["| property | value |", "|---|---|", *rows, "", reserved])


def _expected(check: Check) -> str:
    try:
        check(NO_VALUE)
    except ValueError as problem:
        text = str(problem)
        return text.removeprefix("expected ") if text.startswith("expected ") else f"refused: {text}"
    return "any text"


def errors_table() -> str:
    """Return all public errors, what they mean and what to do."""
    rows = ["| error | also a | what it means | what to do |", "|---|---|---|---|"]
    for error in _all_errors(errors.IcebergSinkError):
        if error.__name__ in iceberg_ds.__all__:
            meaning, _, then = " ".join((error.__doc__ or "").split()).partition(" Next: ")
            others = [base.__name__ for base in error.__bases__ if not issubclass(base, errors.IcebergSinkError)]
            rows.append(f"| `{error.__name__}` | {''.join(f'`{name}`' for name in others)} | {meaning} | {then} |")
    return "\n".join(rows)


def _all_errors(error: type[Exception]) -> Iterator[type[Exception]]:
    yield error
    for child in error.__subclasses__():
        yield from _all_errors(child)


def commands() -> str:
    """Return how each subcommand of `iceberg-ds` is called."""
    parts = []
    group = cli.main.make_context("iceberg-ds", [], resilient_parsing=True)  # which says how help is asked for
    for name, command in cli.main.commands.items():
        context = click.Context(command, group, info_name=name, terminal_width=80)
        usage = command.get_usage(context).removeprefix("Usage: ")
        rows = [_option_row(context, one) for one in command.get_params(context) if isinstance(one, click.Option)]
        text = " ".join((command.help or "").split())
        table = ["| option | default | meaning |", "|---|---|---|", *rows]
        parts.append("\n".join([f"## iceberg-ds {name}", "", text, "", f"```sh\n{usage}\n```", "", *table]))
    return "\n\n".join(parts)


def _option_row(context: click.Context, option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(context)}".replace("|", "\\|")
    names = ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts))
    is_shown = not option.is_flag and isinstance(option.default, str | int | float)
    return f"| {names} | {f'`{option.default}`' if is_shown else ''} | {option.help} |"


# What values of a unit are counted in by Prometheus.
_PROMETHEUS_UNITS = {"": "", "By": "bytes", "ms": "seconds", "s": "seconds"}


def metrics_table() -> str:
    """Return all metrics by their names in OpenTelemetry and in Prometheus."""
    rows = [
        "| OpenTelemetry | unit | Prometheus | unit | kind | labels | what it tells |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in INSTRUMENTS:
        prometheus = f"{one.prometheus}_total" if one.kind == "counter" else one.prometheus
        unit, labels = _PROMETHEUS_UNITS[one.unit], ", ".join(one.labels)
        rows.append(f"| `{one.name}` | {one.unit} | `{prometheus}` | {unit} | {one.kind} | {labels} | {one.doc} |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "options.md": lambda: options_table(OPTIONS),
    "reading.md": lambda: options_table(READ_OPTIONS),
    "properties.md": properties_table,
    "types.md": types_table,
    "errors.md": errors_table,
    "command-line.md": commands,
    "coming-from/iceberg-runtime.md": foreign_table,
    "metrics/names.md": metrics_table,
}


def with_table(text: str, table: str) -> str:
    """Return a page's text with the current table between the markers."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


def outdated() -> list[str]:
    """Return the pages that do not say what the code says."""
    texts = {name: (DOCS / name).read_text() for name in TABLES}
    return [name for name, table in TABLES.items() if texts[name] != with_table(texts[name], table())]


if __name__ == "__main__":
    for name, table in TABLES.items():
        (DOCS / name).write_text(with_table((DOCS / name).read_text(), table()))
