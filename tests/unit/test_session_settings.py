"""What a write does where settings of the session send writes of its table to a branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.tables import Sink

from iceberg_ds.errors import OptionError
from iceberg_ds.plan import Route, WritePlan
from iceberg_ds.session_settings import check_audit_settings

BRANCH, AUDIT_ID = "spark.wap.branch", "spark.wap.id"


def plan_of(sink: Sink, route: Route, enabled: str = "true") -> WritePlan:
    """Return the plan of a write into a table with that property."""
    plan = sink.plan(table_properties={"write.wap.enabled": enabled})
    return replace(plan, route=route)


@pytest.mark.parametrize(
    ("route", "settings", "fragment"),
    [
        (Route(branch="main"), {BRANCH: "audit"}, "goes to branch 'main'. Give option branch=audit"),
        (Route(branch="other"), {BRANCH: "audit"}, "goes to branch 'other'"),
        (Route(branch="audit", publish_to="main"), {BRANCH: "audit"}, "goes to branch 'main'"),
        (Route(branch="audit"), {AUDIT_ID: "17"}, "spark.wap.id=17"),
        (Route(branch="audit"), {BRANCH: "audit", AUDIT_ID: "17"}, "spark.wap.id=17"),
    ],
)
def test_write_that_goes_elsewhere_is_refused(
    sink: Sink, route: Route, settings: Mapping[str, str], fragment: str
) -> None:
    """Rows that were to be audited first would be shown to every reader."""
    with pytest.raises(OptionError) as refused:
        check_audit_settings(plan_of(sink, route), settings.get)

    assert fragment in str(refused.value)
    assert "the table has write.wap.enabled=true" in str(refused.value)


@pytest.mark.parametrize(
    ("route", "enabled", "settings"),
    [
        (Route(branch="audit"), "true", {BRANCH: "audit"}),
        (Route(branch="staging", publish_to="audit"), "true", {BRANCH: "audit"}),
        (Route(branch="main"), "true", {}),
        (Route(branch="main"), "false", {BRANCH: "audit", AUDIT_ID: "17"}),
    ],
)
def test_write_that_does_as_they_say_goes_on(
    sink: Sink, route: Route, enabled: str, settings: Mapping[str, str]
) -> None:
    """A job could not be written for both sinks, or a session with a setting could write nothing."""
    check_audit_settings(plan_of(sink, route, enabled), settings.get)
