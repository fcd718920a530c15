"""Pure: which branch a write goes to, where that is forked from, and where its rows are published to."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.errors import OptionError
from iceberg_ds.identifiers import identifier_text
from iceberg_ds.options import SinkOptions
from iceberg_ds.plan import Route
from iceberg_ds.snapshots.branches import MAIN_BRANCH, why_not_writable

# What the name of a staging branch ends with if no option names it.
_UNCONVERTED = "__unconverted"


def plan_branches(options: SinkOptions, metadata: TableMetadata, *, is_new: bool) -> Route:
    """Return the branch to write, and where it is forked from and published to.

    Args:
        options: The options of the write.
        metadata: The table.
        is_new: Whether the commit of the write creates it.

    Raises:
        OptionError: A branch is missing, or is none, or cannot be forked or published to.
    """
    name, target, staging = identifier_text(options.table), options.branch or MAIN_BRANCH, staging_branch(options)
    if staging is not None and options.publish_converted:
        _check_branch(name, metadata, Route(branch=target))
        route = Route(branch=staging, fork_from=target, publish_to=target, converts=True)
        _check_branch(name, metadata, route)
        return route
    # PyIceberg's catalogs refuse the first snapshot of a table on any branch but main.
    if not (is_new or metadata.snapshots) and target == MAIN_BRANCH:
        return Route(branch=MAIN_BRANCH)  # readers see nothing before the commit, and all rows after it
    if not (is_new or metadata.snapshots) and options.create_branch:
        raise OptionError(
            f"Cannot write to {name}: branch '{target}' cannot be forked, because the table has no snapshot yet. Write "
            "to main first."
        )
    if staging is not None:
        _check_branch(name, metadata, Route(branch=target))
        route = Route(branch=staging, fork_from=target, publish_to=target)
    else:
        forks = options.create_branch and target != MAIN_BRANCH
        route = Route(branch=target, fork_from=MAIN_BRANCH if forks else None)
    _check_branch(name, metadata, route)
    return route


def staging_branch(options: SinkOptions) -> str | None:
    """Return the branch that rows are written to before they are published, None if they are written at once."""
    if options.publish_converted and options.staging_branch is None:
        return f"{options.branch or MAIN_BRANCH}{_UNCONVERTED}"
    return options.staging_branch


def forks_at_once(options: SinkOptions) -> bool:
    """Return whether the first commit of a table goes to a fork of `main`, which must have a snapshot before."""
    return options.publish_converted and options.branch in (None, MAIN_BRANCH)


def _check_branch(name: str, metadata: TableMetadata, route: Route) -> None:
    if (reason := why_not_writable(metadata, route)) is not None:
        known = ", ".join(sorted({MAIN_BRANCH, *metadata.refs}))
        hint = f" (known: {known}). Create it with create-branch=true, or name another"
        raise OptionError(f"Cannot write to {name}: {reason}{'' if route.branch in metadata.refs else hint}.")
