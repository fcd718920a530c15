"""Any DataFrame, split in any way, into any table: read back through two readers, it is what went in."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import uuid
from dataclasses import dataclass, replace
from typing import Any

import chdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FloatType, StringType
from pyspark.sql import types as spark
from support.checks.invariants import check_sound, unreferenced_files
from support.checks.plain_metrics import PlainColumn, physical, plain_columns
from support.tables.sink import Row, Sink, arrow_batch, embedded_options, local
from support.tables.strategies import (
    ALL_TYPES,
    CLICKHOUSE_TYPES,
    FIXED_LENGTH,
    ROW,
    FixedBytes,
    Frame,
    Ranges,
    UuidBytes,
    UuidText,
    frames,
    specs,
)

from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.commit.commit import commit_write
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.table.spark_types import iceberg_schema
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

UTC = dt.timezone.utc
_BOUND_LENGTH = 16
pytestmark = pytest.mark.usefixtures("waits")
_numbers = itertools.count()


@dataclass(frozen=True)
class Job:
    """One write: what, into which table, and how it is split.

    Attributes:
        frame: The DataFrame.
        spec: The table's partition spec, None for none; then the write creates the table if it can.
        format_version: The table's.
        tasks: For each task, the sizes of its batches; what is left goes into the last batch.
        target_file_size_bytes: Of the files.
        zone: The session's time zone.
    """

    frame: Frame
    spec: PartitionSpec | None
    format_version: int
    tasks: tuple[tuple[int, ...], ...]
    target_file_size_bytes: int
    zone: str


@st.composite
def jobs(draw: st.DrawFn, ranges: Ranges = ALL_TYPES, min_rows: int = 0) -> Job:
    """Return any write."""
    frame = draw(frames(ranges, min_rows))
    sizes = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
    return Job(
        frame=frame,
        spec=draw(st.none() | specs(table_schema(frame), ranges)),
        format_version=draw(st.sampled_from([1, 2, 2])),
        tasks=draw(st.lists(sizes, min_size=1, max_size=3).map(tuple)),
        target_file_size_bytes=draw(st.sampled_from([1, 600, 2**29])),
        zone=draw(st.sampled_from(["UTC", "America/St_Johns", "Asia/Kathmandu"])),
    )


def table_schema(frame: Frame) -> Schema:
    """Return the schema of the table that a DataFrame is written into."""
    return frame.table or iceberg_schema(frame.schema)


def creates_table(job: Job) -> bool:
    """Return whether the write makes the table, in which all columns are optional then."""
    return job.spec is None and job.frame.table is None


def stored_types(job: Job) -> spark.StructType:
    """Return the drawn types of the columns, nullable where the table's columns are optional."""
    drawn = job.frame.drawn or job.frame.schema
    return all_nullable(drawn) if creates_table(job) else drawn


def all_nullable(data_type: Any) -> Any:
    """Return the type with all that it holds nullable."""
    match data_type:
        case spark.StructType():
            return spark.StructType([spark.StructField(each.name, all_nullable(each.dataType)) for each in data_type])
        case spark.ArrayType():
            return spark.ArrayType(all_nullable(data_type.elementType))
        case spark.MapType():
            return spark.MapType(data_type.keyType, all_nullable(data_type.valueType))
    return data_type


def stored_rows(job: Job) -> list[Row]:
    """Return the rows as the table has them."""
    return job.frame.rows if job.frame.stored is None else job.frame.stored


def batches_of(job: Job) -> list[list[pa.RecordBatch]]:
    """Return the batches of each task: slices of one batch, as a reader may hand them over."""
    whole = arrow_batch(job.frame.rows, job.frame.schema, job.zone)
    sizes = [size for task in job.tasks for size in task]
    starts = [min(start, whole.num_rows) for start in itertools.accumulate(sizes, initial=0)]
    ends = [*starts[1:-1], whole.num_rows]
    slices = iter([whole.slice(start, end - start) for start, end in zip(starts, ends, strict=False)])
    return [list(itertools.islice(slices, len(task))) for task in job.tasks]


def run(sink: Sink, job: Job) -> tuple[Sink, list[DataFile]]:
    """Run the job into a new table; return what reads it, and the files."""
    identifier = ("db", f"t{next(_numbers)}")
    if not creates_table(job):
        inner = sink.catalog._catalog
        inner.create_namespace_if_not_exists("db")
        version = {"format-version": str(job.format_version)}
        spec = job.spec or PartitionSpec()
        inner.create_table(identifier, table_schema(job.frame), partition_spec=spec, properties=version)
    own = Sink(catalog=sink.catalog, options=replace(sink.options, table=identifier))
    plan = own.plan(job.frame.schema, target_file_size_bytes=job.target_file_size_bytes)
    messages = [
        TaskCommit(
            write=plan.write,
            partition_id=number,
            data_files=write_task(plan, batches, TaskAttempt(partition_id=number, task_attempt_id=number)),
            counts=RowCounts(received=sum(batch.num_rows for batch in batches)),
        )
        for number, batches in enumerate(batches_of(job))
    ]
    commit_write(sink.catalog, messages)
    return own, [data_file for message in messages for data_file in message.data_files]


@pytest.fixture(scope="module")
def any_sink(tmp_path_factory: pytest.TempPathFactory) -> Sink:
    """Return a sink into one catalog for all examples; each makes its own table."""
    options = embedded_options(tmp_path_factory.mktemp("properties") / "warehouse")
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def plain(value: Any) -> Any:
    """Return a flat value in a form that compares: NaN equals itself, and ClickHouse tells no local times."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case dt.datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
        case uuid.UUID():
            return value.bytes
    return value


def ordered(value: Any, data_type: spark.DataType) -> Any:
    """Return the value in a form that compares: structs by the position of their fields, as files may rename them."""
    match data_type:
        case _ if value is None:
            return None
        case spark.StructType():
            found = list(value.values())
            return tuple(
                ordered(value.get(field.name, found[position]), field.dataType)
                for position, field in enumerate(data_type)
            )
        case spark.ArrayType():
            return tuple(ordered(item, data_type.elementType) for item in value)
        case spark.MapType():
            return tuple((plain(key), ordered(item, data_type.valueType)) for key, item in value)
    return plain(value)


def numbered(rows: list[dict[str, Any]], schema: spark.StructType) -> list[Any]:
    """Return the rows in the order of their numbers, in a form that compares."""
    return sorted((ordered(row, schema) for row in rows), key=lambda row: row[0])


@given(job=jobs())
def test_files_hold_what_was_written(any_sink: Sink, job: Job) -> None:
    """Rows would be lost, doubled or changed, for some type, split or partitioning."""
    own, files = run(any_sink, job)

    stored = [row for file in files for row in pq.read_table(local(file.file_path), partitioning=None).to_pylist()]
    assert numbered(stored, job.frame.schema) == numbered(stored_rows(job), job.frame.schema)
    assert unreferenced_files(own.table()) == set()


@given(job=jobs())
def test_rows_come_back_through_pyiceberg(any_sink: Sink, job: Job) -> None:
    """Rows would be lost, doubled or changed between the files and the table."""
    assume(all(pyiceberg_can_read(row, job.frame.schema) for row in stored_rows(job)))
    own, _ = run(any_sink, job)

    table = own.table()
    # PyIceberg 0.12 cannot read no rows at all of a struct with a uuid in it.
    read = table.scan().to_arrow().to_pylist() if any(table.scan().plan_files()) else []
    expected = [as_pyiceberg(row, job.frame.schema) for row in stored_rows(job)]
    seen = [as_pyiceberg(row, job.frame.schema) for row in read]
    assert numbered(seen, job.frame.schema) == numbered(expected, job.frame.schema)
    check_sound(table)


def pyiceberg_can_read(value: Any, data_type: spark.DataType, *, is_repeated: bool = False) -> bool:
    """Return whether there is no null struct with required fields in a list or map: PyIceberg 0.12 fails on some."""
    match data_type:
        case spark.StructType() if value is None:
            return not is_repeated or all(field.nullable for field in data_type)
        case _ if value is None:
            return True
        case spark.StructType():
            return all(
                pyiceberg_can_read(value[field.name], field.dataType, is_repeated=is_repeated) for field in data_type
            )
        case spark.ArrayType():
            return all(pyiceberg_can_read(item, data_type.elementType, is_repeated=True) for item in value)
        case spark.MapType():
            return all(pyiceberg_can_read(item, data_type.valueType, is_repeated=True) for _, item in value)
    return True


def as_pyiceberg(value: Any, data_type: spark.DataType) -> Any:
    """Return the value with empty lists and maps for null ones: PyIceberg 0.12 reads some of them so."""
    match data_type:
        case spark.StructType():
            return value and {field.name: as_pyiceberg(value[field.name], field.dataType) for field in data_type}
        case spark.ArrayType():
            return [as_pyiceberg(item, data_type.elementType) for item in value or []]
        case spark.MapType():
            return [(key, as_pyiceberg(item, data_type.valueType)) for key, item in value or []]
    return value


@pytest.fixture
def _below_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ClickHouse read anywhere: it refuses files outside of its working directory."""
    monkeypatch.chdir("/")


def read_with_clickhouse(own: Sink, columns: list[str]) -> list[dict[str, Any]]:
    """Return the rows that ClickHouse finds in the table, by their number."""
    names = ", ".join(f"`{name}`" for name in columns)
    result = chdb.query(
        f"SELECT {names} FROM icebergLocal('{local(own.table().metadata.location)}') ORDER BY `{ROW}` "  # noqa: S608  # our own names
        "SETTINGS output_format_arrow_string_as_string = 0",
        "Arrow",
    )
    found: list[dict[str, Any]] = pa.ipc.open_file(pa.BufferReader(result.bytes())).read_all().to_pylist()
    return found


_EMPTY: dict[type[spark.DataType], Any] = {
    spark.BooleanType: False,
    spark.StringType: b"",
    spark.BinaryType: b"",
    spark.FloatType: 0.0,
    spark.DoubleType: 0.0,
    spark.DateType: dt.date(1970, 1, 1),
    spark.TimestampType: dt.datetime(1970, 1, 1, tzinfo=UTC),
    spark.TimestampNTZType: dt.datetime(1970, 1, 1, tzinfo=UTC),
    UuidText: bytes(16),
    UuidBytes: bytes(16),
    FixedBytes: bytes(FIXED_LENGTH),
}


def as_clickhouse(value: Any, data_type: spark.DataType, *, nullable: bool) -> Any:
    """Return what ClickHouse makes of a value: it has no null structs, lists and maps, but empty ones."""
    match data_type:
        case spark.StructType():
            return {
                field.name: as_clickhouse(
                    None if value is None else value[field.name], field.dataType, nullable=field.nullable
                )
                for field in data_type
            }
        case spark.ArrayType():
            return [as_clickhouse(item, data_type.elementType, nullable=data_type.containsNull) for item in value or []]
        case spark.MapType():
            return [
                (
                    as_clickhouse(key, data_type.keyType, nullable=False),
                    as_clickhouse(item, data_type.valueType, nullable=data_type.valueContainsNull),
                )
                for key, item in value or []
            ]
    if value is None:
        return None if nullable else _EMPTY.get(type(data_type), 0)
    return value.encode() if isinstance(value, str) else value


def clickhouse_can_read(job: Job) -> bool:
    """Return whether nothing that is required is null in a way that ClickHouse 26 does not read.

    No partition is null of a required field, as it is where the struct around it is null; and no null struct has
    required fixed bytes, of which it makes the bytes of another row.
    """
    schema = table_schema(job.frame)
    top_level = {field.field_id for field in schema.fields}
    sources = [field.source_id for field in job.spec.fields] if job.spec else []
    return all(source in top_level or schema.find_field(source).optional for source in sources) and not any(
        _has_null_fixed(row, stored_types(job), nullable=False) for row in stored_rows(job)
    )


def _has_null_fixed(value: Any, data_type: spark.DataType, *, nullable: bool) -> bool:
    """Return whether required fixed bytes are null, as they are where the struct around them is null."""
    match data_type:
        case FixedBytes():
            return value is None and not nullable
        case spark.StructType():
            return any(
                _has_null_fixed(None if value is None else value[field.name], field.dataType, nullable=field.nullable)
                for field in data_type
            )
        case spark.ArrayType():
            return any(
                _has_null_fixed(item, data_type.elementType, nullable=data_type.containsNull) for item in value or []
            )
        case spark.MapType():
            return any(
                _has_null_fixed(item, data_type.valueType, nullable=data_type.valueContainsNull)
                for _, item in value or []
            )
    return False


@pytest.mark.usefixtures("_below_root")
@given(job=jobs(CLICKHOUSE_TYPES, min_rows=1))
def test_rows_come_back_through_clickhouse(any_sink: Sink, job: Job) -> None:
    """Other engines would read other rows than PyIceberg does."""
    assume(clickhouse_can_read(job))
    own, _ = run(any_sink, job)

    read = read_with_clickhouse(own, job.frame.schema.names)

    types = stored_types(job)
    expected = [as_clickhouse(row, types, nullable=False) for row in stored_rows(job)]
    assert numbered(read, job.frame.schema) == numbered(expected, job.frame.schema)


@given(job=jobs())
def test_metrics_of_every_file_are_those_of_its_rows(any_sink: Sink, job: Job) -> None:
    """A query would skip a file that holds its rows."""
    own, files = run(any_sink, job)

    schema = own.table().schema()
    for file in files:
        check_metrics(file, schema, job)


def physical_row(value: Any) -> Any:
    """Return a row with uuids as bytes and times as microseconds, as manifests hold them."""
    match value:
        case dict():
            return {key: physical_row(item) for key, item in value.items()}
        case list():
            return [physical_row(item) for item in value]
        case tuple():
            return tuple(physical_row(item) for item in value)
        case uuid.UUID():
            return value.bytes
        case dt.time():
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return seconds * 1_000_000 + value.microsecond
    return value


def check_metrics(file: DataFile, schema: Schema, job: Job) -> None:
    """Assert that counts are exact, and that bounds hold every value and no more characters than they may."""
    numbers = pq.read_table(local(file.file_path), columns=[ROW])[ROW].to_pylist()
    columns = plain_columns(schema, [physical_row(stored_rows(job)[number]) for number in numbers])

    assert file.record_count == len(numbers)
    assert file.file_size_in_bytes == local(file.file_path).stat().st_size
    single = {field_id: known for field_id, known in columns.items() if not known.is_repeated}
    assert file.value_counts == {field_id: known.value_count for field_id, known in single.items()}
    assert file.null_value_counts == {field_id: known.null_count for field_id, known in single.items()}
    assert file.nan_value_counts == {
        field_id: known.nan_count
        for field_id, known in single.items()
        if isinstance(known.field_type, FloatType | DoubleType)
    }
    for field_id, known in columns.items():
        check_bounds(file, field_id, known)


def check_bounds(file: DataFile, field_id: int, known: PlainColumn) -> None:
    """Assert that one column's bounds are right and tight."""
    low, high = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    if known.is_repeated or not known.comparable:
        assert (low, high) == (None, None)
        return
    assert low is not None
    least, greatest = min(known.comparable), max(known.comparable)
    lower = from_bytes(known.field_type, low)
    if not isinstance(known.field_type, StringType | BinaryType):
        assert lower == least
        assert from_bytes(known.field_type, high or b"") == greatest
        return
    assert lower == least[:_BOUND_LENGTH]
    if high is None:
        highest: Any = b"\xff" if isinstance(greatest, bytes) else "\U0010ffff"
        assert greatest[:_BOUND_LENGTH] == highest * _BOUND_LENGTH
        return
    upper = from_bytes(known.field_type, high)
    assert upper >= greatest
    assert len(upper) <= _BOUND_LENGTH
    assert upper == greatest or upper[:-1] == greatest[: len(upper) - 1]


@given(job=jobs())
def test_every_file_holds_one_partition(any_sink: Sink, job: Job) -> None:
    """A query for a partition would miss rows."""
    own, files = run(any_sink, job)

    schema, spec = own.table().schema(), own.table().spec()
    for file in files:
        numbers = pq.read_table(local(file.file_path), columns=[ROW])[ROW].to_pylist()
        for number in numbers:
            for field, value in zip(spec.fields, file.partition, strict=True):
                source: Any = stored_rows(job)[number]
                for name in (schema.find_column_name(field.source_id) or "").split("."):
                    source = None if source is None else source[name]
                expected = field.transform.transform(schema.find_type(field.source_id))(physical(physical_row(source)))
                assert plain(value) == plain(expected)
