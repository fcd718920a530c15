"""Whatever option a secret is pasted into: no error, no log, no answer of `check` and no file of the table shows it."""

from __future__ import annotations

import itertools
import logging
import traceback
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.tables.sink import QUERY, SCHEMA, arrow_batch, rows

from iceberg_ds import datasource
from iceberg_ds.datasource import IcebergSink
from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.check import check_write
from iceberg_ds.options.sink_options import OPTIONS

SECRET = "hunter2s3cr3t"  # noqa: S105  # the thing to hide
SHAPES = (
    f"https://u:{SECRET}@h/x",
    f"Server=h;password={SECRET}",
    f"aws_access_key_id=AKIA;aws_secret_access_key={SECRET}",
    f'{{"client_secret": "{SECRET}"}}',
    f"Bearer {SECRET}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{SECRET}.c2lnbmF0dXJl",
)
# As it is, and where a value is parsed: names of columns and tables, terms, predicates.
FORMS = (
    *("{}", "`{}`", "db.`{}`", "day(`{}`)", "bucket(4, id) as `{}`", "id, `{}` desc"),
    *("`{}` = 1", "name = '{}'", "id = '{}'", "nosuch = '{}'", "raw_{{value}}`{}`"),
)
# Options of which others take no notice, or without which others are refused before they are looked at.
OTHERS: tuple[dict[str, str], ...] = (
    {},
    {"keys": "id"},
    {"keys": "id", "sequence-by": "name"},
    {"keys": "id", "publish-converted": "true"},
    {"create-branch": "true"},
    {"on-bad-row": "quarantine"},
    {"schema-evolution": "full", "evolve-partitioning": "true"},
    {"txn-app-id": "a", "txn-version": "1"},
    {"route-by": "name", "route-namespace": "db"},
)
_OF_GROUPS = {
    "table-property.": ["comment", "write.x", "write.format.default", "write.target-file-size-bytes"],
    "snapshot-property.": ["team"],
    "route-columns.": ["db.t"],
    "route-options.": [
        "db.`row 7`.keys",
        "db.`row 7`.partition-by",
        "db.`row 7`.snapshot-property.x",
        f"db.`http://u:{SECRET}@h`.keys",
    ],
}
# The catalog's own may hold secrets; a warehouse and the catalog's name are needed to get on.
NAMES = [
    *(option.name for option in OPTIONS if option.prefix is None and option.name not in ("catalog", "warehouse")),
    *(prefix + key for prefix, keys in _OF_GROUPS.items() for key in keys),
    "path",
]
PREDICATES = ("replace-where", "delete-when")
_numbers = itertools.count()


class Task:
    """What Spark tells a task about itself."""

    def partitionId(self) -> int:  # noqa: N802  # Spark's name
        """Return the number of the partition."""
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802  # Spark's name
        """Return the number of the attempt."""
        return next(_numbers)

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802  # Spark's name
        """Return what Spark sets for a job."""
        return {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "0", "spark.jobGroup.id": "run"}.get(key)


def write(options: dict[str, str], *, is_stream: bool, overwrite: bool) -> None:
    """Take the steps of Spark's processes."""
    source = IcebergSink(options)
    batches = iter([arrow_batch(rows(7), SCHEMA)])
    if is_stream:
        message = source.streamWriter(SCHEMA, overwrite=overwrite).write(batches)
        source._is_committer = True
        source.streamWriter(SCHEMA, overwrite=overwrite).commit([message], 0)
        return
    writer = source.writer(SCHEMA, overwrite=overwrite)
    writer.commit([writer.write(batches)])


def shown(options: dict[str, str], way: str) -> str:
    """Write or check with these options, and return all that a user is told by the answer or the error."""
    if way == "check":
        return check_write(options, None, schema="id bigint, name string").to_json()
    overwrite = way == "overwrite" or "replace-where" in options
    try:
        write(options, is_stream=way == "stream", overwrite=overwrite)
    except Exception as error:  # any of them may show it
        return "\n".join([str(error), *traceback.format_exception(error)])
    return ""


@given(
    name=st.sampled_from([*NAMES, *4 * PREDICATES]),
    shape=st.sampled_from(SHAPES),
    form=st.sampled_from(FORMS),
    others=st.sampled_from(OTHERS),
    way=st.sampled_from(["append", "overwrite", "stream", "check"]),
    has_table=st.booleans(),
)
@example(name="partition-by", shape=SHAPES[0], form="day(`{}`)", others={}, way="append", has_table=False)
@example(name="keys", shape=SHAPES[1], form="{}", others={}, way="append", has_table=True)
@example(name="branch", shape=SHAPES[5], form="{}", others={"create-branch": "true"}, way="stream", has_table=True)
@example(name="replace-where", shape=SHAPES[4], form="`{}` = 1", others={}, way="overwrite", has_table=True)
@example(name="delete-when", shape=SHAPES[0], form="`{}` = 1", others={"keys": "id"}, way="stream", has_table=True)
@example(name="metadata-columns", shape=SHAPES[5], form="`{}`", others={}, way="append", has_table=True)
def test_secret_pasted_into_any_option_is_not_shown(  # noqa: PLR0913, PLR0917  # one for each thing that is drawn
    warehouse: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    shape: str,
    form: str,
    others: dict[str, str],
    way: str,
    has_table: bool,  # noqa: FBT001  # Hypothesis gives it by name
) -> None:
    """A password would stand in logs, in Spark's tracebacks or in the table's metadata, for all who can read them."""
    caplog.clear()
    table = {"path": f"db.t{next(_numbers)}", "warehouse": str(warehouse)}
    given_others = {**others, **({"txn-version": "1"} if name == "txn-app-id" else {})}
    options = {**table, **given_others, name.lower(): form.format(shape)}
    if "route-by" in options:
        del options["path"]
    with mock.patch.object(datasource.TaskContext, "get", Task), caplog.at_level(logging.DEBUG, "iceberg_ds"):
        if has_table:
            write(table, is_stream=False, overwrite=False)

        told = shown(options, way)

    assert SECRET not in told.lower()
    assert SECRET not in caplog.text
    kept = [path for path in warehouse.rglob("*") if path.is_file()]
    assert [path for path in kept if SECRET in str(path) or SECRET.encode() in path.read_bytes()] == []


def test_secret_of_a_predicate_may_be_one_of_its_rows(warehouse: Path) -> None:
    """Rows with a token that leaked could not be replaced."""
    table = {"path": "db.t", "warehouse": str(warehouse)}
    where = {**table, "replace-where": f"name = '{SHAPES[5]}' OR name = 'row 7'"}
    with mock.patch.object(datasource.TaskContext, "get", Task):
        write(table, is_stream=False, overwrite=False)

        write(where, is_stream=False, overwrite=True)

    with pytest.raises(OptionError, match="options branch would write secrets"):
        IcebergSink({**table, "branch": SHAPES[5]}).writer(SCHEMA, overwrite=False)
