"""The file of reports: each report is read once, whatever happens to the file and to those who write it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.metrics.reports import failed, report, write

from iceberg_ds.metrics import report_file
from iceberg_ds.metrics.follow import ReportFiles
from iceberg_ds.metrics.report import CommitReport
from iceberg_ds.metrics.report_file import ReportReader, ReportWriter, last_report, older


def numbers(reader: ReportReader) -> list[int | None]:
    """Return the snapshots of the new reports."""
    return [one.snapshot_id for one in reader.new()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file that does not exist yet, in a folder that does not, either."""
    return tmp_path / "logs" / "commits.jsonl"


def test_reader_of_a_file_that_comes_later_reads_it(path: Path) -> None:
    """Whoever starts the exporter before the stream would see nothing."""
    reader = ReportReader(path)
    before = numbers(reader)
    write(path, [report(1)])

    assert (before, numbers(reader), numbers(reader)) == ([], [1], [])


def test_report_comes_back_as_it_was_written(path: Path) -> None:
    """A number would change on its way to the metrics."""
    given = [report(1, tasks=report(1).tasks), failed(), report(2, stream='\u2028 "é\n')]
    write(path, given)

    assert list(ReportReader(path).new()) == given


def test_part_of_a_line_is_read_when_it_is_whole(path: Path) -> None:
    """A scrape during a write would lose the report."""
    write(path, [report(1)])
    reader = ReportReader(path)
    line = report(2).to_json() + "\n"
    assert numbers(reader) == [1]
    with path.open("a") as file:
        file.write(line[:50])
        file.flush()
        during = numbers(reader)
        file.write(line[50:])

    assert (during, numbers(reader), reader.malformed) == ([], [2], 0)


def test_line_of_a_killed_writer_costs_no_other_report(path: Path) -> None:
    """The next commit's report would be glued to the torn one and lost with it."""
    reader = ReportReader(path)
    write(path, [report(1)])
    with path.open("a") as file:
        file.write(report(2).to_json()[:70])
    torn = numbers(reader)
    write(path, [report(3)])

    assert (torn, numbers(reader), reader.malformed) == ([1], [3], 1)


@pytest.mark.parametrize("fails", ["error", "short"])
def test_full_disk_leaves_no_part_and_readers_read_nothing_twice(
    path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a full disk the metrics would have counted everything twice."""
    reader, real = ReportReader(path), os.write
    write(path, [report(1)])
    seen = numbers(reader)

    def full(descriptor: int, content: bytes) -> int:
        written = real(descriptor, content[:40])
        seen.extend(one for one in numbers(reader) if one is not None)
        if fails == "error":
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match=r"space|only 40 of"):
            write(path, [report(2)])
    seen += numbers(reader)
    write(path, [report(3)])

    assert (seen, numbers(reader), reader.malformed) == ([1], [3], 0)


@pytest.mark.parametrize(
    "line",
    [
        b"junk",
        b"{}",
        b"[1]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b"9" * 5000,
        b'{"table":"a"}',
        json.dumps({**json.loads(report(1).to_json()), "outcome": "else"}).encode(),
        json.dumps({**json.loads(report(1).to_json()), "counts": {"added-records": "x"}}).encode(),
        json.dumps({**json.loads(report(1).to_json()), "counts": {"added-records": -1}}).encode(),
        json.dumps({**json.loads(report(1).to_json()), "duration_ms": float("nan")}).encode(),
        json.dumps({**json.loads(report(1).to_json()), "at_ms": 10**400}).encode(),
        json.dumps({**json.loads(report(1).to_json()), "tasks": None}).encode(),
        json.dumps({**json.loads(report(1).to_json()), "table": ["x"]}).encode(),
        b"x" * (report_file._READ_BYTES * 2 + 5),
    ],
    ids=lambda line: line[:30].decode(errors="replace"),
)
def test_line_that_is_no_report_is_counted_and_left_out(path: Path, line: bytes) -> None:
    """One bad line would end the metrics of all streams, or show numbers that no commit had."""
    write(path, [report(1)])
    with path.open("ab") as file:
        file.write(line + b"\n")
    write(path, [report(2)])
    reader = ReportReader(path)

    assert (numbers(reader), reader.malformed) == ([1, 2], 1)


def test_what_a_newer_version_adds_is_left_out(path: Path) -> None:
    """An exporter of an older version would count nothing after the streams are updated."""
    path.parent.mkdir()
    newer = {**json.loads(report(1).to_json()), "later": {"x": 1}}
    path.write_text(json.dumps(newer) + "\n")

    assert numbers(ReportReader(path)) == [1]


def test_emptied_file_is_read_from_its_start(path: Path) -> None:
    """Log rotation that copies and truncates would stop the metrics."""
    reader = ReportReader(path)
    write(path, [report(1), report(2)])
    first = numbers(reader)
    os.truncate(path, 0)
    write(path, [report(3)])

    assert (first, numbers(reader)) == ([1, 2], [3])


def test_reports_before_and_after_the_renaming_are_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each renaming, reports would be lost or counted twice."""
    monkeypatch.setattr(report_file, "LARGEST_BYTES", 3 * len(report(1).to_json()))
    reader, found = ReportReader(path), []
    for number in range(1, 30):
        write(path, [report(number)])
        if number % 4 == 0:
            found += numbers(reader)
    found += numbers(reader)

    assert found == list(range(1, 30))
    assert older(path).exists()
    assert path.stat().st_size + older(path).stat().st_size <= 2 * report_file.LARGEST_BYTES + 1000


def test_first_read_begins_with_the_older_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted exporter would forget half of what is kept."""
    monkeypatch.setattr(report_file, "LARGEST_BYTES", 5 * len(report(1).to_json()))
    write(path, map(report, range(1, 7)))

    assert older(path).exists()
    assert numbers(ReportReader(path)) == list(range(1, 7))


@pytest.mark.parametrize("remove", [Path.unlink, lambda path: path.rename(path.with_suffix(".away"))])
def test_file_that_a_user_removes_brings_no_older_report_back(
    path: Path, remove: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tidies up would have the reports of the older file counted twice."""
    monkeypatch.setattr(report_file, "LARGEST_BYTES", 3 * len(report(1).to_json()))
    reader = ReportReader(path)
    write(path, map(report, range(1, 5)))
    found = numbers(reader)
    remove(path)
    found += numbers(reader)
    write(path, [report(5)])

    assert found + numbers(reader) == [1, 2, 3, 4, 5]


def test_two_renamings_between_reads_lose_nothing_that_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter that is scraped seldom would lose whole files."""
    monkeypatch.setattr(report_file, "LARGEST_BYTES", 4 * len(report(1).to_json()))
    reader = ReportReader(path)
    write(path, [report(1), report(2)])
    found = numbers(reader)
    write(path, map(report, range(3, 10)))

    assert found + numbers(reader) == list(range(1, 10))


WRITER = """
import sys
from pathlib import Path
from support.metrics.reports import report
from iceberg_ds.metrics import report_file
path, first, report_file.LARGEST_BYTES = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for line in sys.stdin:
    for number in range(first, first + int(line)):
        report_file.ReportWriter(path)(report(number))
    first += int(line)
    print("written", flush=True)
"""


def test_many_processes_write_and_each_report_is_read_once(path: Path) -> None:
    """Streams that share a file would lose reports, or have them counted twice, while it is renamed."""
    processes, rounds, each = 2, 15, 6
    largest = (processes * each + 2) * len(report(1_000_000).to_json())  # a reader may be one round behind
    found_in = os.pathsep.join([*filter(None, sys.path), str(Path(__file__).parents[2])])
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, path, str(number * 100_000 + 1), str(largest)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": found_in},
        )
        for number in range(processes)
    ]
    reader, found = ReportReader(path), []
    try:
        for _ in range(rounds):
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write(f"{each}\n")
                writer.stdin.flush()
            found += numbers(reader)  # while they write
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline() == "written\n"
                found += numbers(reader)
    finally:
        for writer in writers:
            writer.communicate()

    assert sorted(found) == sorted(n * 100_000 + 1 + k for n in range(processes) for k in range(rounds * each))
    assert reader.malformed == 0
    assert older(path).exists()


def test_writer_follows_a_file_that_another_process_renamed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report would go to the older file, after readers have left it."""
    real, renamed = report_file.fcntl.flock, []

    def rename_before(descriptor: int, operation: int) -> None:
        if not renamed:
            renamed.append(path.replace(older(path)))
        real(descriptor, operation)

    write(path, [report(1)])
    monkeypatch.setattr(report_file.fcntl, "flock", rename_before)
    write(path, [report(2)])

    assert [one.snapshot_id for one in map(CommitReport.from_json, path.read_text().splitlines())] == [2]


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A wrong path would be silent for ever: delivery warns of what a writer raises."""
    with pytest.raises(OSError, match="directory"):
        ReportWriter(tmp_path)(report(1))


def test_last_report_of_a_query_is_found_by_query_and_by_application(path: Path) -> None:
    """`progress` would show another query's commit, or none."""
    write(path, [report(1, query_id="q"), report(2, query_id="r"), report(3, stream="q"), report(4, query_id="qq")])

    assert last_report(path, "q") == report(3, stream="q")
    assert last_report(path, "none") is None
    assert last_report(path.with_name("none"), "q") is None


def test_pipe_is_refused_by_name(path: Path) -> None:
    """A commit would wait for a reader of the pipe."""
    path.parent.mkdir()
    os.mkfifo(path)

    with pytest.raises(OSError, match=r"regular file.*commits\.jsonl"):
        write(path, [report(1)])
    with pytest.raises(OSError, match="regular file"):
        numbers(ReportReader(path))


def test_link_stays_and_its_target_is_renamed_and_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers by the link and by the target would part at the first renaming."""
    monkeypatch.setattr(report_file, "LARGEST_BYTES", 3 * len(report(1).to_json()))
    link = path.parent.with_name("link.jsonl")
    link.symlink_to(path)
    write(link, map(report, range(1, 5)))

    assert link.is_symlink()
    assert older(path).exists()
    assert [one.snapshot_id for one in ReportFiles([link, path]).new()] == [1, 2, 3, 4]


def test_closed_reader_reads_nothing(path: Path) -> None:
    """All would be counted again from the start."""
    write(path, [report(1)])
    reader = ReportReader(path)
    before = numbers(reader)
    reader.close()

    assert (before, numbers(reader)) == ([1], [])


def test_older_file_that_cannot_be_read_hides_no_other_and_costs_no_descriptor(path: Path) -> None:
    """An exporter would count nothing, and the process that it runs in would run out of files."""
    write(path, [report(1)])
    older(path).mkdir()
    files = ReportFiles(path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # no path is needed
    found = [[one.snapshot_id for one in files.new()] for _ in range(20)]
    write(path, [report(2)])

    assert found == [[1]] + [[]] * 19
    assert [one.snapshot_id for one in files.new()] == [2]
    assert files.unreadable == 1
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208


def test_warning_names_the_file_that_cannot_be_read(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A user would look for what is wrong with a file whose reports are counted."""
    write(path, [report(1)])
    older(path).mkdir()
    files = ReportFiles(path)
    read = list(files.new())
    older(path).rmdir()
    path.unlink()
    path.mkdir()
    read += files.new()

    assert len(read) == 1
    assert caplog.messages == [
        f"Reports on commits in {unread} are not counted while it cannot be read: Not a regular file"
        for unread in (older(path), path)
    ]


def test_older_file_alone_that_cannot_be_read_is_told_each_time(path: Path) -> None:
    """A file that is missing and one that cannot be read would look alike."""
    older(path).mkdir(parents=True)
    files = ReportFiles(path)

    assert [list(files.new()) for _ in range(3)] == [[], [], []]
    assert files.unreadable == 3
