"""What a write does where settings of the session send writes of its table to a branch, or are of another time zone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from support.tables.sink import Sink, arrow_batch

from iceberg_ds.errors import OptionError
from iceberg_ds.plan import Route, WritePlan
from iceberg_ds.spark.session_settings import check_audit_settings, check_zone_of_session, in_zone_of_option

BRANCH, AUDIT_ID = "spark.wap.branch", "spark.wap.id"


def plan_of(sink: Sink, route: Route, enabled: str = "true") -> WritePlan:
    """Return the plan of a write into a table with that property."""
    plan = sink.plan(table_properties={"write.wap.enabled": enabled})
    return replace(plan, write=replace(plan.write, route=route))


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


_MOMENT = spark.TimestampType()
# Columns of a DataFrame that tell the session's time zone.
_TELLING = {
    "column": _MOMENT,
    "field": spark.StructType([spark.StructField("at", _MOMENT)]),
    "list": spark.ArrayType(_MOMENT),
    "map": spark.MapType(spark.StringType(), spark.ArrayType(spark.StructType([spark.StructField("at", _MOMENT)]))),
}


def batches_of(kind: spark.DataType, zone: str) -> list[pa.RecordBatch]:
    """Return two batches with a column of that type, as Spark makes them in that zone."""
    schema = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("c", kind)])
    return [arrow_batch([{"id": number}], schema, timezone=zone) for number in range(2)]


@pytest.mark.parametrize("kind", _TELLING.values(), ids=_TELLING)
def test_rows_of_another_zone_than_the_option_names_are_refused(sink: Sink, kind: spark.DataType) -> None:
    """A range that begins at noon would be replaced from another hour on, and nobody had said so."""
    plan = replace(sink.plan(), time_zone="Asia/Tokyo")

    with pytest.raises(OptionError, match=r"'time-zone' is Asia/Tokyo, and the session's time zone is Europe/Paris"):
        list(in_zone_of_option(plan, batches_of(kind, "Europe/Paris")))


@pytest.mark.parametrize(
    ("option", "zone"),
    [
        ("Europe/Paris", "Europe/Paris"),
        ("UTC", "Etc/UTC"),
        ("Z", "GMT"),
        ("+00:00", "Etc/GMT"),
        ("+02:00", "UTC+2"),
        (None, "Asia/Tokyo"),
    ],
)
def test_rows_of_the_zone_that_the_option_names_go_on(sink: Sink, option: str | None, zone: str) -> None:
    """A write would be refused for another name of its own time zone."""
    plan, batches = replace(sink.plan(), time_zone=option), batches_of(_MOMENT, zone)

    assert list(in_zone_of_option(plan, batches)) == batches
    check_zone_of_session(plan, {"spark.sql.session.timeZone": zone}.get)


def test_rows_that_tell_no_zone_go_on_unless_the_session_does(sink: Sink) -> None:
    """A write without a timestamp could not give the option, or a wrong one would pass where Spark tells the zone."""
    plan, batches = replace(sink.plan(), time_zone="Asia/Tokyo"), batches_of(spark.TimestampNTZType(), "Europe/Paris")

    assert list(in_zone_of_option(plan, batches)) == batches
    check_zone_of_session(plan, {}.get)
    with pytest.raises(
        OptionError, match=r"Give option time-zone=Europe/Paris, set spark\.sql\.session\.timeZone=Asia"
    ):
        check_zone_of_session(plan, {"spark.sql.session.timeZone": "Europe/Paris"}.get)
