"""Settings of a session that no write may ignore: where writes that are audited first go, and its time zone.

Iceberg's Spark runtime heeds `spark.wap.branch` and `spark.wap.id` for tables with `write.wap.enabled=true`. Spark
tells them to tasks, and not to the planner, so tasks refuse a write that does not do as they say. Tasks also refuse a
write whose option `time-zone` is not the session's time zone: planner and committer rely on the option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa

from iceberg_ds.errors import OptionError
from iceberg_ds.plan import WritePlan

_ENABLED = "write.wap.enabled"
_BRANCH, _ID = "spark.wap.branch", "spark.wap.id"
_TIME_ZONE = "spark.sql.session.timeZone"


def is_audited(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties let these settings count."""
    return properties.get(_ENABLED, "").lower() == "true"


def check_audit_settings(plan: WritePlan, setting: Callable[[str], str | None]) -> None:
    """Refuse a write that does not go where the session sends writes of this table.

    Args:
        plan: The write.
        setting: Returns a setting of the session, or None if it is not set.

    Raises:
        OptionError: Names the setting, and the option that does as it says.
    """
    if not plan.is_audited:
        return
    cause = f"the session has {{}}, and the table has {_ENABLED}=true"
    if audit_id := setting(_ID):
        raise OptionError(
            f"Cannot write to {plan.write.table}: {cause.format(f'{_ID}={audit_id}')}. Snapshots that belong to no "
            "branch are not made: unset it, write with option 'branch' and create-branch=true, and publish the branch "
            "with iceberg_ds.publish."
        )
    branch, target = setting(_BRANCH), plan.write.route.publish_to or plan.write.route.branch
    if branch and branch != target:
        raise OptionError(
            f"Cannot write to {plan.write.table}: {cause.format(f'{_BRANCH}={branch}')}, but the write goes to branch "
            f"'{target}'. Give option branch={branch}, with create-branch=true if it is new, or unset the "
            "setting."
        )


def check_time_zone(plan: WritePlan, zone: str | None) -> None:
    """Refuse a write whose option `time-zone` names another zone than the session's.

    Args:
        plan: The write.
        zone: The session's time zone, or None if unknown.

    Raises:
        OptionError: Names both zones.
    """
    if plan.time_zone is None or zone is None:
        return
    from iceberg_ds.expressions.literals import is_same_zone  # noqa: PLC0415  # most tasks need no predicates

    if not is_same_zone(plan.time_zone, zone):
        raise OptionError(
            f"Cannot write to {plan.write.table}: option 'time-zone' is {plan.time_zone}, and the session's time zone "
            f"is {zone}, so that times without a zone in the predicate would be other moments than in the DataFrame. "
            f"Give option time-zone={zone}, set {_TIME_ZONE}={plan.time_zone}, or write the zone into the predicate."
        )


def check_zone_of_session(plan: WritePlan, setting: Callable[[str], str | None]) -> None:
    """Refuse a write as `check_time_zone` does, by the zone that `setting` returns; raises as that function does."""
    if plan.time_zone is not None:
        check_time_zone(plan, setting(_TIME_ZONE))


def in_zone_of_option(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task, whose timestamps Spark labels with the session's time zone.

    Raises:
        OptionError: As `check_time_zone`, at the first batch.
    """
    is_checked = plan.time_zone is None
    for batch in batches:
        if not is_checked:
            check_time_zone(plan, next(_zones(batch.schema), None))
            is_checked = True
        yield batch


def _zones(columns: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the time zones of timestamps at any depth."""
    for column in columns:
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            yield column.type.tz
        yield from _zones(column.type.field(number) for number in range(column.type.num_fields))
