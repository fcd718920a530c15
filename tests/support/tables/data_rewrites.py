"""Rewrites of data files without Spark, and what others do to a table while one is under way."""

from __future__ import annotations

from pyiceberg.manifest import DataFileContent
from support.checks.reader import listed
from support.tables.sink import Sink

from iceberg_ds.maintenance.rewrite_data_files import Rewrite, RewriteResult, Strategy, Wish


def rewrite(
    sink: Sink,
    *,
    strategy: Strategy = "binpack",
    sort_order: str | None = None,
    where: str | None = None,
    **options: str,
) -> RewriteResult:
    """Rewrite the data files of the table in this process; options are written with underscores."""
    given = {name.replace("_", "-").replace("progress-", "progress."): text for name, text in options.items()}
    wish = Wish(strategy=strategy, sort_order=sort_order, where=where)
    return Rewrite(sink.catalog, sink.options, given, wish, None).run()


def data_paths(sink: Sink, branch: str = "main") -> list[str]:
    """Return the paths of the live data files, in the order of their ages."""
    return [
        found.path for found in sorted(listed(sink.table(), branch)[DataFileContent.DATA], key=lambda one: one.number)
    ]


def delete_paths(sink: Sink, branch: str = "main") -> list[str]:
    """Return the paths of the live delete files."""
    files = listed(sink.table(), branch)
    return [
        found.path
        for content in (DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES)
        for found in files[content]
    ]
