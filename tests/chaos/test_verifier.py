"""The verifier of chaos runs: a table that is not whole must not pass, and a whole one must."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chaos import keyed
from chaos.avro import AvroError, read_avro
from chaos.reader import Row, TableFiles
from chaos.verifier import Sources, Verdict, verify
from pyspark.sql import types as spark
from support.tables.sink import Sink, epoch


def _rows(*ids: int) -> frozenset[Row]:
    return frozenset((number, f"row {number}") for number in ids)


def _local(path: str) -> Path:
    return Path(urlsplit(path).path)


def _verdict(sink: Sink, open_rows: frozenset[Row] = frozenset(), **rows: frozenset[Row]) -> Verdict:
    table = TableFiles.at(sink.table().metadata_location, _local)
    return verify(table, Sources(rows=rows, open_rows=open_rows))


def test_whole_table_passes(sink: Sink) -> None:
    """Every run would be called broken."""
    sink.append(1, 2, of_epoch=epoch(0))
    sink.append(3, of_epoch=epoch(1))
    sink.append(10)

    verdict = _verdict(sink, stream=_rows(1, 2, 3), batch=_rows(10))

    assert verdict.problems == ()
    assert {name: account.found for name, account in verdict.accounts.items()} == {"stream": 3, "batch": 1}
    assert (verdict.snapshots, verdict.data_files, verdict.orphans) == (3, 3, 0)


def test_lost_row_is_found(sink: Sink) -> None:
    """A run that lost a row would pass."""
    sink.append(1, 2)

    verdict = _verdict(sink, stream=_rows(1, 2, 3))

    assert verdict.problems == ("stream: 1 rows lost, 0 doubled",)


def test_doubled_row_is_found(sink: Sink) -> None:
    """A run that doubled a row would pass."""
    sink.append(1, 2)
    sink.append(2)

    verdict = _verdict(sink, stream=_rows(1, 2))

    assert verdict.problems[0] == "stream: 0 rows lost, 1 doubled"


def test_row_of_nobody_is_found(sink: Sink) -> None:
    """Rows of unknown origin would pass."""
    sink.append(1, 7)

    verdict = _verdict(sink, stream=_rows(1))

    assert verdict.problems == ("main: 1 rows of unknown origin, such as [(7, 'row 7')]",)


def test_wrong_value_is_found(sink: Sink) -> None:
    """A row that has its id and another content would pass."""
    sink.append(1)

    verdict = _verdict(sink, stream=frozenset({(1, "another row")}))

    assert verdict.problems[0] == "stream: 1 rows lost, 0 doubled"


@pytest.mark.parametrize("landed", [(), (8, 9)])
def test_batch_that_nobody_knows_of_may_be_there_or_not(sink: Sink, landed: tuple[int, ...]) -> None:
    """A run whose last batch died would be called broken."""
    sink.append(1)
    if landed:
        sink.append(*landed)

    assert _verdict(sink, _rows(8, 9), batch=_rows(1)).problems == ()


def test_row_of_branch_is_strange_in_main(sink: Sink) -> None:
    """Rows of a branch that are in the main branch, too, would pass."""
    sink.append(1, 2)

    verdict = _verdict(sink, stream=_rows(1), audit=_rows(2))

    assert "audit: 1 rows lost, 0 doubled" in verdict.problems
    assert any(problem.startswith("main: 1 rows of unknown origin") for problem in verdict.problems)


def test_missing_file_is_found(sink: Sink) -> None:
    """A table that lost a manifest of an older snapshot would pass."""
    sink.append(1)
    sink.append(2)
    first, _ = sink.table().metadata.snapshots
    _local(first.manifest_list).rename(_local(first.manifest_list).with_suffix(".away"))

    with pytest.raises(FileNotFoundError):
        _verdict(sink, stream=_rows(1, 2))


def test_file_that_nothing_refers_to_is_counted(sink: Sink) -> None:
    """What kills leave behind would not be reported."""
    sink.append(1)
    sink.write([{"id": 2, "name": "row 2"}])

    verdict = _verdict(sink, stream=_rows(1))

    assert (verdict.problems, verdict.orphans) == ((), 1)


KEYED = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("name", spark.StringType()),
        spark.StructField("lsn", spark.LongType()),
        spark.StructField("op", spark.StringType()),
    ]
)
BY_KEY = {"keys": ("id",), "sequence_by": ("lsn",), "operation_column": "op"}


def _change(sink: Sink, first: int, last: int) -> None:
    """Write the changes of these numbers of a source by key, in two tasks."""
    rows = []
    for number in range(first, last):
        key, is_delete = keyed.change_of(number)
        rows.append({"id": key, "name": f"row {number}", "lsn": number, "op": "d" if is_delete else "u"})
    middle = len(rows) // 2
    sink.commit(sink.write(rows[:middle], rows[middle:], schema=KEYED, plan=sink.plan(KEYED, **BY_KEY)))


def _problems(sink: Sink, count: int) -> list[str]:
    table = TableFiles.at(sink.table().metadata_location, _local)
    return list(keyed.problems_of(table, range(1000, count)))


def test_whole_table_by_key_passes(sink: Sink) -> None:
    """Every run would be called broken, or the table be compared with nothing."""
    for first in range(1000, 1600, 200):
        _change(sink, first, first + 200)

    assert _problems(sink, 1600) == []
    assert len(keyed.rows_after(range(1000, 1600))) > 100
    assert any(found.startswith("db.k:") for found in _problems(sink, 1590))


def test_keys_that_are_wrong_are_found(sink: Sink) -> None:
    """A run in which a deleted row came back, a key had two rows or an epoch was lost would pass."""
    _change(sink, 1000, 1400)
    columns = spark.StructType(KEYED.fields[:3])
    strange = {"id": 99, "name": "row 1", "lsn": 1}
    again = {"id": 1004 // 3, "name": "row 1004", "lsn": 1004}
    sink.commit(sink.write([strange, again], schema=columns, plan=sink.plan(columns)))

    assert _problems(sink, 1400) == [
        "db.k: 1 keys are doubled, such as [334]",
        "db.k: 1 keys are back after their delete, such as [99]",
    ]
    assert _problems(sink, 1410)[0].startswith("db.k: 3 keys are lost")


def test_other_files_are_no_avro(tmp_path: Path) -> None:
    """A broken manifest would be read as an empty one."""
    (tmp_path / "broken.avro").write_bytes(b"PAR1")

    with pytest.raises(AvroError, match="is no Avro file"):
        read_avro(tmp_path / "broken.avro")
