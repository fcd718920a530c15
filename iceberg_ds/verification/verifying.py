"""`verify`: proves a table whole, from its catalog entry down to its files, and finds what nothing refers to.

Nothing is written, and nothing deleted unless it is asked for. A check that cannot be made because another failed is
left out and says so; what was read is checked all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table

from iceberg_ds.catalogs.client import CatalogClient, connect
from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.checks.checklist import Checklist
from iceberg_ds.commits.growth import timed
from iceberg_ds.errors import IcebergSinkError
from iceberg_ds.identifiers import identifier_text
from iceberg_ds.options import SinkOptions, given_options, parse_options
from iceberg_ds.verification.contents import Contents, read_contents
from iceberg_ds.verification.file_checks import check_files
from iceberg_ds.verification.findings import counted
from iceberg_ds.verification.grace import DEFAULT_GRACE, parse_grace_ms, require_safe_grace
from iceberg_ds.verification.orphan_checks import OrphanWish, check_orphans
from iceberg_ds.verification.result import Orphan, VerifyResult
from iceberg_ds.verification.table_checks import TABLE, Durations, check_metadata
from iceberg_ds.verification.unique_keys import check_unique_keys

# A table whose snapshots expire while it is read is read again.
_LOOKS = 3


def verify(  # noqa: PLR0913  # one for each thing that a user may choose
    table: str,
    *,
    options: Mapping[str, str] | None = None,
    deep: bool = False,
    unique_keys: bool = False,
    all_snapshots: bool = False,
    orphans: bool = True,
    older_than: str = DEFAULT_GRACE,
    delete_orphans: bool = False,
    force: bool = False,
) -> VerifyResult:
    """Prove a table whole, by whomever it was written; what is found wrong is in the result, and raises nothing.

    Checked are: the history; the epochs of streaming queries and their marks; manifest lists and manifests of all
    snapshots, with their counts, sequence numbers and partitions; the summaries; statistics; and that the data and
    delete files of all branches and tags are there, as long as recorded, with as many rows as their footers say.

    Args:
        table: Identifier of the table, such as `db.events`.
        options: Catalog options, as a write has them: `catalog`, `catalog.*`, `warehouse`, `namespace`.
        deep: Read the rows, too, and recompute the metrics of each file.
        unique_keys: Read the key columns of all visible rows, too, and find keys that have several: of the snapshots
            that branches and tags stand at, by the table's identifier fields.
        all_snapshots: Look at the files of all snapshots, not only of those that branches and tags stand at.
        orphans: Look for files that nothing refers to; they do not fail the table.
        older_than: Age from which on such a file is an orphan, such as `36h` or `3d`.
        delete_orphans: Delete them, after another load of the table has shown that nothing refers to them still.
        force: Delete files younger than a day, too: only if nothing writes to the table.

    Raises:
        OptionError: The options or arguments are malformed, or ask to delete files that a running write may need.
    """
    grace_ms = parse_grace_ms(older_than)
    if delete_orphans:
        require_safe_grace(older_than, force=force)
    given = given_options(options)
    parsed = parse_options({**given, "table": table})
    scope = Scope(
        deep=deep,
        unique_keys=unique_keys,
        all_snapshots=all_snapshots,
        orphans=orphans or delete_orphans,
        grace_ms=grace_ms,
        delete_orphans=delete_orphans,
    )
    for look in range(1, _LOOKS + 1):
        checklist = Checklist.for_options(given, threading.TIMEOUT_MAX)
        catalog, contents, found = _verify(checklist, parsed, scope)
        if look == _LOOKS or not _has_expired(catalog, parsed, contents, checklist):
            break
    return VerifyResult(table=identifier_text(parsed.table), checks=tuple(checklist.checks), orphans=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What `verify` is asked for; see there."""

    deep: bool
    unique_keys: bool
    all_snapshots: bool
    orphans: bool
    grace_ms: int
    delete_orphans: bool


def _verify(
    checklist: Checklist, options: SinkOptions, scope: Scope
) -> tuple[CatalogClient | None, Contents | None, tuple[Orphan, ...]]:
    def load() -> tuple[str, tuple[CatalogClient, Table, float]]:
        catalog = connect(catalog_settings(options)).reading_anew()
        table, load_ms = timed(lambda: catalog.load_table(options.table))
        return _described(table), (catalog, table, load_ms)

    loaded = checklist.attempt(TABLE, load)
    if loaded is None:
        return None, None, ()
    catalog, table, load_ms = loaded
    checklist.secrets.update(table.io.properties)
    started = time.monotonic()
    contents = read_contents(table.io, table.metadata)
    took = Durations(load_ms=load_ms, contents_s=time.monotonic() - started)
    check_metadata(checklist, table, contents, load=lambda: catalog.load_table(options.table), took=took)
    check_files(checklist, table, contents, deep=scope.deep, all_snapshots=scope.all_snapshots)
    if scope.unique_keys:
        check_unique_keys(checklist, table)
    if not scope.orphans:
        return catalog, contents, ()
    wish = OrphanWish(grace_ms=scope.grace_ms, delete=scope.delete_orphans)
    return catalog, contents, check_orphans(checklist, catalog, options.table, contents, wish)


def _described(table: Table) -> str:
    metadata = table.metadata
    return (
        f"version {metadata.format_version}, {counted(len(metadata.snapshots), 'snapshot')}, "
        f"{counted(len(metadata.refs), 'ref')}, at {metadata.location}"
    )


def _has_expired(
    catalog: CatalogClient | None, options: SinkOptions, contents: Contents | None, checklist: Checklist
) -> bool:
    """Return whether something failed, and snapshots that were looked at have expired meanwhile."""
    if catalog is None or contents is None or all(check.outcome != "failed" for check in checklist.checks):
        return False
    try:
        table = catalog.find_table(options.table)
    except IcebergSinkError:  # what was found stands
        return False
    present = {snapshot.snapshot_id for snapshot in table.metadata.snapshots} if table is not None else set()
    return any(snapshot.snapshot_id not in present for snapshot in contents.metadata.snapshots)
