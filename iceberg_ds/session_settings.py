"""Settings of a session that no write may pass over: those that send writes to a branch that is audited first.

Iceberg's Spark runtime heeds `spark.wap.branch` and `spark.wap.id` for tables with `write.wap.enabled=true`. Spark
tells them to tasks, and not to the planner, so a write that does not do as they say is refused by its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from iceberg_ds.errors import OptionError
from iceberg_ds.plan import WritePlan

_ENABLED = "write.wap.enabled"
_BRANCH, _ID = "spark.wap.branch", "spark.wap.id"


def is_audited(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties let these settings count."""
    return properties.get(_ENABLED, "").lower() == "true"


def check_audit_settings(plan: WritePlan, setting: Callable[[str], str | None]) -> None:
    """Refuse a write that does not go where the session sends writes of this table.

    Args:
        plan: The write.
        setting: Returns a setting of the session, None if it is not set.

    Raises:
        OptionError: Names the setting, and the option that does as it says.
    """
    if not plan.is_audited:
        return
    cause = f"the session has {{}}, and the table has {_ENABLED}=true"
    if audit_id := setting(_ID):
        raise OptionError(
            f"Cannot write to {plan.table}: {cause.format(f'{_ID}={audit_id}')}. Snapshots that belong to no branch "
            "are not made: unset it, write with option 'branch' and create-branch=true, and publish the branch with "
            "iceberg_ds.publish."
        )
    branch, target = setting(_BRANCH), plan.route.publish_to or plan.route.branch
    if branch and branch != target:
        raise OptionError(
            f"Cannot write to {plan.table}: {cause.format(f'{_BRANCH}={branch}')}, but the write goes to branch "
            f"'{target}'. Give option branch={branch}, with create-branch=true if it is new, or unset the "
            "setting."
        )
