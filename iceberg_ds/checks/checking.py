"""`check`: tries all that a write needs, on the driver and on every executor, before any job runs.

What is tried leaves nothing behind. A check that rests on one that failed is not made; the others are.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from iceberg_ds.catalogs.settings import catalog_settings
from iceberg_ds.checks.catalog_checks import OPTIONS, REACHED, Target, checked_catalog, checked_table, warehouse_target
from iceberg_ds.checks.checklist import Checklist
from iceberg_ds.checks.executors import EXECUTORS, ask_executors, versions_check
from iceberg_ds.checks.given_columns import given_columns
from iceberg_ds.checks.result import DRIVER, Check, CheckResult
from iceberg_ds.checks.storage_probe import (
    PUT,
    Place,
    clean_up,
    machine,
    missing_folders,
    probe_storage,
    quick_properties,
    remove_folders,
    write_marker,
)
from iceberg_ds.checks.versions import installed_versions
from iceberg_ds.identifiers import identifier_text
from iceberg_ds.options import SinkOptions, given_options, parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_LIMIT_S = 60.0
_JOB_LIMITS = 4  # a job of many steps may take so many times as long as one step
_COLUMNS, LEFT = "given columns", "removal of test files"
MARKER = "storage: write a file for the executors"


def check(
    spark: SparkSession | None,
    options: Mapping[str, str],
    *,
    schema: StructType | str | None = None,
    sample: str | os.PathLike[str] | None = None,
    limit_s: float = _LIMIT_S,
) -> CheckResult:
    """Try all that a write with `options` needs, and return what was found; raises nothing of what it finds.

    Tried are: the options; the catalog, its credentials, the namespace and the table, or the right to create it; the
    columns, if they are given; on the driver and on every executor the versions, the clock, and the storage, where
    files are written, read, listed and deleted. What is missing is not made for good: a table and a namespace that
    do not exist are tried with a scratch table, `iceberg_ds_check_...`, which is removed again.

    Args:
        spark: The session whose executors are asked; None to check from this machine alone.
        options: The options that the write gets, with `table`.
        schema: The columns that the write has: a DataFrame's schema, or text such as `id BIGINT, name STRING`.
        sample: A file with such columns instead: Parquet, CSV (with a header) or JSON (a line each).
        limit_s: Seconds that each step may take; the job on the executors may take four times as long.
    """
    run = secrets.token_hex(6)
    given = given_options(options)
    checklist = Checklist.for_options(given, limit_s)
    versions = installed_versions()
    checklist.note(versions_check(versions, versions, "driver"))
    parsed = checklist.attempt(OPTIONS, lambda: _parsed(given))
    columns = None
    if schema is not None or sample is not None:
        columns = checklist.attempt(_COLUMNS, lambda: given_columns(schema, sample, spark))
    if parsed is None:
        checklist.skip(REACHED, f"not tried, because '{OPTIONS}' was not passed")
        _check_machines(checklist, None, spark, run)
    else:
        _check_all(checklist, parsed, columns, spark, run)
    return CheckResult(checks=tuple(checklist.checks))


def _parsed(given: Mapping[str, str]) -> tuple[str, SinkOptions]:
    options = parse_options(given)
    catalog_settings(options)
    return f"{len(given)} options, table {identifier_text(options.table)}", options


def _check_all(
    checklist: Checklist, options: SinkOptions, columns: StructType | None, spark: SparkSession | None, run: str
) -> None:
    with checked_catalog(checklist, options) as client:
        if client is None:
            _check_machines(checklist, warehouse_target(options), spark, run)
            return
        with checked_table(checklist, client, options, columns) as target:
            _check_machines(checklist, target or warehouse_target(options), spark, run)


def _check_machines(checklist: Checklist, target: Target | None, spark: SparkSession | None, run: str) -> None:
    """Try the storage on the driver, and all that executors can try."""
    if target is None:
        checklist.skip(PUT, "not tried, because it is not known where the table's files go")
        _check_executors(checklist, None, spark, run)
        return
    checklist.secrets.update(target.properties)
    properties = quick_properties(target.properties, target.folder)
    place = Place(folder=target.folder, properties=properties, limit_s=checklist.limit_s)
    # Executors on this machine would leave their folders to each other.
    made = missing_folders(f"{place.folder}/x")
    try:
        for found in probe_storage(place, f"driver-{machine()}-{os.getpid()}", DRIVER):
            checklist.note(found)
        if spark is not None and checklist.passed(PUT):
            place = replace(place, marker=checklist.attempt(MARKER, lambda: write_marker(place)))
        _check_executors(checklist, place, spark, run)
    finally:
        if left := clean_up(place):
            checklist.note(Check(name=LEFT, outcome="failed", detail=", ".join(left), next_step="Delete them by hand."))
        remove_folders(made)


def _check_executors(checklist: Checklist, place: Place | None, spark: SparkSession | None, run: str) -> None:
    if spark is None:
        checklist.skip(EXECUTORS, "not asked: there is no Spark session")
        return
    limit_s = _JOB_LIMITS * checklist.limit_s
    started = time.monotonic()
    try:
        checks = ask_executors(spark, place, run, installed_versions(), limit_s)
    except Exception as error:  # Spark's, and those of what the job runs
        checklist.fail(EXECUTORS, error, seconds=time.monotonic() - started)
        return
    for found in checks:
        checklist.note(found)
