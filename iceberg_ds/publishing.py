"""Fast-forwards one branch to another, in one step: readers see the old rows or the new ones.

The request moves the branch under the condition that both stand where they stood when we looked, so nothing
that came between is lost. An answer that was lost is found out by looking again: a branch that stands at the
other's snapshot has been published, by whomever.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from iceberg_ds.branches import MAIN_BRANCH, branch_head, snapshots_since, why_not_writable
from iceberg_ds.catalog import CatalogClient, CommitAnswerLostError, CommitRefusedError, catalog_settings, connect
from iceberg_ds.errors import CatalogError, CommitConflictError, CommitStateUnknownError
from iceberg_ds.options import parse_options
from iceberg_ds.retry import RetryPolicy
from iceberg_ds.snapshots import CommitRequest, move_branch

logger = logging.getLogger(__name__)


def publish(table: str, branch: str, *, to: str = MAIN_BRANCH, options: Mapping[str, str] | None = None) -> int:
    """Make the rows of a branch those of `to`, in one step, and return the id of the snapshot that both stand at then.

    Readers of `to` see its old rows until then and all of the new ones from then on. Publishing again what is
    published changes nothing.

    Args:
        table: Identifier of the table, such as `db.events`.
        branch: The branch to publish.
        to: The branch that readers use.
        options: Catalog options, as a write has them: `catalog`, `catalog.*`, `warehouse`, `namespace`.

    Raises:
        OptionError: The options are malformed.
        CommitConflictError: `to` has moved on since `branch` was forked, or one of them is missing; nothing was changed.
        CommitStateUnknownError: The catalog's answers were lost; publishing again finds out.
        TableNotFoundError: There is no such table.
        CatalogError: The catalog could not be reached or refuses; nothing was changed.
    """
    given = {key.lower(): value for key, value in (options or {}).items()}
    parsed = parse_options({**given, "table": table})
    return fast_forward(connect(catalog_settings(parsed)), parsed.table, branch, to)


def fast_forward(catalog: CatalogClient, identifier: Sequence[str], branch: str, to: str) -> int:
    """Move branch `to` forward to the snapshot of `branch`, and return its id.

    Nothing happens if it stands there already.

    Raises:
        CommitConflictError: `branch` or `to` is missing or a tag, or `to` has snapshots that `branch` has not.
        CommitStateUnknownError: The catalog's answers were lost, and the table cannot be reached to look.
        TableNotFoundError: There is no such table.
        CatalogError: The catalog could not be reached or refuses; nothing was changed.
    """
    name, started = ".".join(identifier), time.monotonic()
    problem: Exception | None = None
    failures = 0
    while True:
        table = _load(catalog, identifier, problem)
        metadata = table.metadata
        target = _target(metadata, name, branch, to)
        if metadata.refs.get(to) is not None and metadata.refs[to].snapshot_id == target:
            logger.info("Published %s: branch %s stands at snapshot %d of %s", name, to, target, branch)
            return target
        policy = RetryPolicy.of(metadata.properties)
        if policy.is_exhausted(failures, (time.monotonic() - started) * 1000) or _is_lasting(problem):
            raise CatalogError(f"Cannot publish branch '{branch}' of {name}, nothing was changed: {problem}.")
        request = _request(metadata, branch, to, target)
        try:
            catalog.send(table, request.requirements, request.updates)
        except (CommitRefusedError, CommitAnswerLostError) as failure:
            problem = failure
            failures += 1
            time.sleep(policy.wait_ms(failures, random.random()) / 1000)  # noqa: S311  # jitter is no secret


def _load(catalog: CatalogClient, identifier: Sequence[str], problem: Exception | None) -> Table:
    try:
        return catalog.load_table(identifier)
    except CatalogError as unreachable:
        if problem is None:
            raise
        raise CommitStateUnknownError(
            f"Whether {'.'.join(identifier)} was published is unknown: {problem}; then {unreachable} "
            "Publish again: if it was, nothing more happens."
        ) from unreachable


def _target(metadata: TableMetadata, name: str, branch: str, to: str) -> int:
    """Return the snapshot that `branch` stands at, if `to` can be moved there without losing any of its own."""
    for used in (branch, to):
        if (reason := why_not_writable(metadata, used, None)) is not None:
            raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}: {reason}. Nothing was changed.")
    ahead, behind = branch_head(metadata, branch), branch_head(metadata, to)
    if ahead is None:
        raise CommitConflictError(f"Cannot publish branch '{branch}' of {name}: it has no snapshot. Nothing changed.")
    if behind is not None and snapshots_since(metadata, ahead, behind.snapshot_id) is None:
        raise CommitConflictError(
            f"Cannot publish branch '{branch}' of {name}, nothing was changed: branch '{to}' has moved on to snapshot "
            f"{behind.snapshot_id}, which '{branch}' (snapshot {ahead.snapshot_id}) does not build on. Drop '{branch}' "
            f"and write it again from '{to}'."
        )
    return ahead.snapshot_id


def _request(metadata: TableMetadata, branch: str, to: str, target: int) -> CommitRequest:
    behind = metadata.refs.get(to)
    return CommitRequest(
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=branch, snapshot_id=target),
            AssertRefSnapshotId(ref=to, snapshot_id=behind.snapshot_id if behind else None),
        ),
        updates=(move_branch(metadata, to, target),),
    )


def _is_lasting(problem: Exception | None) -> bool:
    return isinstance(problem, CommitRefusedError) and problem.is_lasting
