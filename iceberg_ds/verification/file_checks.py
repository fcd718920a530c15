"""The checks of a table's data and delete files: there, as long as recorded, with as many rows, with true metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from pyiceberg.table import Table

from iceberg_ds.checks.checklist import Checklist, NotTriedError
from iceberg_ds.verification.contents import Contents, ListedFile
from iceberg_ds.verification.deep import metric_problems
from iceberg_ds.verification.findings import counted, found
from iceberg_ds.verification.stored import Look, kind, look_at

FILES, ROWS, METRICS = "data files", "row counts", "metrics"


def check_files(checklist: Checklist, table: Table, contents: Contents, *, deep: bool, all_snapshots: bool) -> None:
    """Make the checks that look at data and delete files.

    Args:
        checklist: Takes what is found.
        table: The table.
        contents: What it lists.
        deep: Recompute metrics from the rows.
        all_snapshots: Look at the files of all snapshots, not only of those that refs name.
    """
    scope = None if all_snapshots else {ref.snapshot_id for ref in table.metadata.refs.values()}
    files = contents.live_files(scope)
    looks: list[Look] = []

    def present() -> tuple[str, None]:
        looks.extend(look_at(table.io, _once(files)))
        return found(
            (look.problem for look in looks if look.problem is not None),
            f"found {counted(len(looks), 'file')} of {_scope_text(contents, scope)}, as long as recorded",
            "Restore the file from a backup of the store, or roll back to a snapshot that does not have it.",
        )

    checklist.attempt(FILES, present)
    checklist.attempt(ROWS, lambda: _rows(looks))
    if deep:
        sound = {look.file.path: look.file for look in looks if look.rows is not None}
        checklist.attempt(METRICS, lambda: _metrics(table, contents, sound))
    else:
        checklist.skip(METRICS, "not asked for: a deep look reads all rows")


def _once(files: Iterable[ListedFile]) -> list[ListedFile]:
    return list({file.path: file for file in files}.values())


def _scope_text(contents: Contents, scope: Collection[int] | None) -> str:
    return counted(len(contents.metadata.snapshots if scope is None else scope), "snapshot")


def _rows(looks: Iterable[Look]) -> tuple[str, None]:
    read = [look for look in looks if look.problem is None]
    other = Counter(_why_not(look.file) for look in read if look.rows is None and look.rows_problem is None)
    rest = "".join(f"; {counted(count, what)} not counted" for what, count in other.items())
    counts = [look for look in read if look.rows is not None]
    wrong = [
        f"{kind(look.file)} {look.file.path} holds {look.rows:,} rows, its recorded count is {look.file.record_count:,}"
        for look in counts
        if look.is_miscounted
    ]
    unreadable = [look.rows_problem for look in read if look.rows_problem is not None]
    return found(
        [*unreadable, *wrong],
        f"as footers count them: rows of {counted(len(counts), 'file')}{rest}",
        "Do not trust totals or skipped files: find out what wrote the file, and write its rows again.",
    )


def _why_not(file: ListedFile) -> str:
    return "encrypted file" if file.is_encrypted else f"{file.file_format.value} file"


def _metrics(table: Table, contents: Contents, sound: dict[str, ListedFile]) -> tuple[str, None]:
    if not sound:
        raise NotTriedError("there is no Parquet file to read")
    return found(
        metric_problems(table.io, contents, sound),
        f"true of the rows: metrics of {counted(len(sound), 'file')}",
        "Readers skip files by these: rows may be missed. Write the file's rows again.",
    )
