"""The command `iceberg-ds watch`: exit codes, JSON, the terminal, Prometheus, and what its page says."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from support.exhaustive import EXHAUSTIVE
from support.spark.process import wait_until
from support.tables.changes_by_others import plain_table
from support.tables.metadata import START_MS, line, metadata_of
from support.tables.sink import NAME, QUERY, Sink, embedded_options, epoch

import iceberg_ds
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.cli import main
from iceberg_ds.errors import OptionError
from iceberg_ds.inspect import health_gauges
from iceberg_ds.inspect.file_counts import SnapshotCounts
from iceberg_ds.inspect.health import HealthReader, TableHealth, WriterHealth, health_of
from iceberg_ds.inspect.thresholds import Thresholds
from iceberg_ds.inspect.watch import Look, SparingWatch, Watch, exit_code, show_until_interrupted, view

PAGE = (Path(__file__).parents[3] / "docs" / "metrics" / "watch.md").read_text()
SECRET = "t0k3n-of-the-catalog"  # noqa: S105  # no real one
HEALTH = health_of(
    metadata_of(line(1)), NAME, "main", SnapshotCounts(), metadata_bytes=2_000_000, now_ms=START_MS + 5000
)
SEEN = Look(table=NAME, branch="main", health=HEALTH)
UNSEEN = Look(table="db.gone", branch="main", error="Table db.gone does not exist.")


def run(sink: Sink, *arguments: str, tables: tuple[str, ...] = (NAME,)) -> Result:
    """Run the command for tables of the sink's warehouse."""
    place = f"warehouse={sink.options.warehouse}"
    return CliRunner().invoke(main, ["watch", *tables, "--option", place, *arguments])


def watching(sink: Sink, *tables: str, **options: str) -> Watch:
    """Return what watches tables of the sink's warehouse."""
    place = {"warehouse": str(sink.options.warehouse), **options}
    return Watch(tables or (NAME,), place, thresholds=Thresholds(), limit_s=30)


def test_healthy_table_ends_with_zero_and_is_shown(sink: Sink) -> None:
    """A scheduler would raise an alarm for a table that is well."""
    sink.append(1, 2, 3)

    result = run(sink)

    assert result.exit_code == 0, result.output
    assert re.search(r"✔ +db\.t +3 +1 +1 +0 +1 +1 +\d+ s", result.output)
    assert "db.t: The history is too short for a forecast." in result.output


def test_exceeded_threshold_ends_with_one_and_the_next_step(sink: Sink) -> None:
    """A scheduler would go on while a table degrades."""
    sink.append(1)
    sink.append(2)

    result = run(sink, "--max-snapshots", "1")

    assert result.exit_code == 1, result.output
    assert (
        "db.t: 2 snapshots, more than 1\n  next: Expire old snapshots: `iceberg-ds expire-snapshots db.t"
        in result.output
    )
    assert run(sink, "--max-snapshots", "2").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-age", "soon"],
        ["--max-snapshots", "-1"],
        ["--every", "0"],
        *(
            [name, number]
            for name in ("--every", "--timeout", "--max-metadata-mb", "--max-deletes-per-file")
            for number in ("nan", "inf", "1e300")
        ),
        ["--max-age", "nan"],
        ["--max-lag", "9" * 400 + "d"],
        ["--serve", "1", "--json"],
        ["--serve", "70000"],
        ["--option", "warehous=x"],
        ["--option", "table=db.other"],
    ],
)
def test_wrong_use_ends_with_two(sink: Sink, arguments: list[str]) -> None:
    """A slip in a crontab would look like a finding, or like a table that is well."""
    sink.append(1)

    assert run(sink, *arguments).exit_code == 2
    assert CliRunner().invoke(main, ["watch"]).exit_code == 2


def test_table_that_cannot_be_looked_at_ends_with_three_beside_those_that_can(sink: Sink) -> None:
    """One dropped table would hide all others, or be passed over."""
    sink.append(1)

    result = run(sink, "--max-snapshots", "0", tables=("db.gone", NAME))

    assert result.exit_code == 3, result.output
    assert re.search(r"✘ +db\.gone", result.output)
    assert re.search(r"! +db\.t +1 ", result.output)
    assert "db.gone: Table db.gone does not exist" in result.output


def test_missing_branch_of_one_table_hides_no_other_table(sink: Sink) -> None:
    """A scheduler would see wrong use where a branch was dropped."""
    sink.append(1)

    result = run(sink, "--branch", "audit")

    assert result.exit_code == 3
    assert "'audit' is no branch of it" in result.output


@pytest.mark.parametrize(
    ("looks", "code"),
    [([], 0), ([SEEN], 0), ([SEEN, UNSEEN], 3)],
)
def test_exit_code_is_that_of_the_worst_look(looks: list[Look], code: int) -> None:
    """A scheduler could not tell findings from an outage."""
    assert exit_code(looks) == code


def test_json_is_a_list_with_a_look_at_each_table(sink: Sink) -> None:
    """A program could not tell which table has which finding."""
    sink.append(1)

    result = run(sink, "--json", "--max-manifests", "0", tables=(NAME, "db.gone"))

    assert result.exit_code == 3
    seen, gone = json.loads(result.stdout)
    assert (seen["ok"], seen["table"], seen["branch"], seen["error"]) == (False, NAME, "main", None)
    assert seen["health"]["rows"] == 1
    (finding,) = seen["findings"]
    assert (finding["name"], finding["value"], finding["limit"]) == ("max-manifests", 1, 0)
    assert (gone["ok"], gone["table"], gone["health"], gone["findings"]) == (False, "db.gone", None, [])
    assert "does not exist" in gone["error"]


def test_age_of_the_last_commit_is_a_threshold_in_any_unit(sink: Sink) -> None:
    """A stream that stopped would be noticed by its readers."""
    sink.append(1)
    time.sleep(0.01)

    assert run(sink, "--max-age", "0s").exit_code == 1
    assert run(sink, "--max-age", "15m").exit_code == run(sink, "--max-age", "3d").exit_code == 0
    assert run(sink, "--max-lag", "0s").exit_code == 0  # which nothing tells


def test_table_that_is_named_twice_is_looked_at_once(sink: Sink) -> None:
    """Prometheus would refuse figures that are there twice."""
    sink.append(1)

    assert [look.table for look in watching(sink, NAME, "`db`.t", NAME).look()] == [NAME]


def test_catalog_that_answers_badly_shows_no_secret(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token of a catalog would stand in the log of a scheduler, and in Prometheus' page."""

    def fail(_: HealthReader) -> TableHealth:
        raise RuntimeError(f"401 for Bearer {SECRET}")

    watched = watching(sink, **{"catalog.token": SECRET, "catalog.type": "rest", "catalog.uri": "http://127.0.0.1:1"})
    monkeypatch.setattr(HealthReader, "read", fail)

    (look,) = watched.look()

    assert look.error == "Cannot look at db.t: RuntimeError: 401 for Bearer ***"


@pytest.mark.usefixtures("waits")
def test_catalog_that_cannot_be_reached_ends_with_three_without_secrets() -> None:
    """A scheduler would take an outage for a finding, or print the token."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # where nobody listens
        place = f"catalog.uri=http://127.0.0.1:{taken.getsockname()[1]}"
        options = ["catalog=lake", "catalog.type=rest", place, f"catalog.token={SECRET}"]

        result = CliRunner().invoke(main, ["watch", NAME, *(word for one in options for word in ("--option", one))])

    assert result.exit_code == 3, result.output
    assert "Cannot connect to" in result.output
    assert SECRET not in result.output


def test_table_whose_catalog_hangs_is_given_up(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog that hangs would keep a scheduler from the tables behind it."""
    sink.append(1)
    read = HealthReader.read

    def hang(reader: HealthReader) -> TableHealth:
        if reader.table == "db.slow":
            time.sleep(30)
        return read(reader)

    monkeypatch.setattr(HealthReader, "read", hang)
    watched = Watch(("db.slow", NAME), {"warehouse": str(sink.options.warehouse)}, thresholds=Thresholds(), limit_s=1)

    slow, seen = watched.look()

    assert slow.error == "Cannot look at db.slow: there was no answer within 1 s."
    assert seen.ok


def test_look_that_hangs_is_not_repeated_until_it_ends(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each scrape of a store that hangs would leave one more thread, until the machine has none left."""
    sink.append(1)
    read, calls, released = HealthReader.read, [], threading.Event()

    def hang(reader: HealthReader) -> TableHealth:
        calls.append(reader)
        released.wait(30)
        return read(reader)

    monkeypatch.setattr(HealthReader, "read", hang)
    watched = Watch((NAME,), {"warehouse": str(sink.options.warehouse)}, thresholds=Thresholds(), limit_s=0.2)
    threads = threading.active_count()
    errors = [watched.look()[0].error for _ in range(5)]
    waiting = threading.active_count() - threads
    released.set()
    wait_until(lambda: watched.look()[0].ok, "the look ends")

    assert errors[0] == "Cannot look at db.t: there was no answer within 0.2 s."
    assert set(errors[1:]) == {"Cannot look at db.t: an earlier look at it has had no answer yet."}
    assert (waiting, len(calls)) == (1, 2)


def looks_and_clock() -> tuple[list[int], Callable[[], list[Look]], list[float], Callable[[], float]]:
    """Return a note of looks, what looks, a time, and a clock that shows it."""
    looked, now = [0], [0.0]

    def look() -> list[Look]:
        looked[0] += 1
        return [replace(SEEN, error=str(looked[0]))]

    return looked, look, now, lambda: now[0]


def test_tables_are_looked_at_no_more_often_than_asked() -> None:
    """Two Prometheus servers with short intervals would load the catalog without end."""
    looked, look, now, clock = looks_and_clock()
    sparing = SparingWatch(look, 10, clock)

    assert [sparing.look()[0].error for _ in range(3)] == ["1", "1", "1"]
    now[0] = 9.9
    assert sparing.look()[0].error == "1"
    now[0] = 10.0
    assert sparing.look()[0].error == "2"
    assert looked == [2]


def test_terminal_shows_the_tables_again_until_interrupted(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who watches a table would see what was there when the command started."""
    sink.append(1)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            raise KeyboardInterrupt
        sink.append(2, 3)

    monkeypatch.setattr("iceberg_ds.inspect.watch.time", SimpleNamespace(sleep=wait))  # threads of others sleep, too
    shown = StringIO()

    looks = show_until_interrupted(watching(sink), Console(file=shown, force_terminal=True, width=160), 7)

    assert waited == [7, 7]
    assert looks[0].health is not None
    assert looks[0].health.rows == 3
    assert "db.t" in shown.getvalue()
    assert exit_code(looks) == 0


def test_view_tells_deletes_writers_and_marks_names_that_look_like_markup() -> None:
    """A user would see half of the findings, or an error instead of a table with brackets in its name."""
    health = replace(
        HEALTH,
        table="db.`[red]`",
        delete_files=4,
        equality_delete_files=3,
        position_delete_files=1,
        equality_deletes=9,
        position_deletes=2,
        rows=100,
        writers=health_of(
            metadata_of(line(1, s1={"spark.sql.streaming.queryId": QUERY, "spark.sql.streaming.epochId": "8"})),
            NAME,
            "main",
            SnapshotCounts(),
            metadata_bytes=None,
            now_ms=START_MS + 90_001,
        ).writers,
    )
    shown = StringIO()

    Console(file=shown, width=160).print(
        view([Look(table=health.table, branch="audit", health=health)], Thresholds(max_metadata_mb=None))
    )

    text = shown.getvalue()
    assert "db.`[red]`, branch audit: 3 equality and 1 position delete files" in text
    assert "they hide at most 11 rows" in text
    assert f"  query {QUERY}: last number 8, 1.5 min ago" in text


def test_view_fits_a_narrow_terminal() -> None:
    """A user with a terminal of 80 columns would see figures that are cut."""
    large = replace(HEALTH, rows=123_456_789, data_files=6400, small_files=6400, snapshots=14_400, lag_s=5.0)
    shown = StringIO()

    Console(file=shown, width=80).print(view([Look(table="db.t", branch="main", health=large)], Thresholds()))

    (row,) = [line for line in shown.getvalue().splitlines() if "123,456,789" in line]
    assert row.split() == ["✔", "db.t", "123,456,789", "6,400", "6,400", "0", "14,400", "0", "5", "s", "5", "s"]


def served(looks: list[Look]) -> str:
    """Return what Prometheus reads of these looks."""
    prometheus = pytest.importorskip("prometheus_client")
    text: str = prometheus.generate_latest(health_gauges.health_registry(lambda: looks)).decode()
    return text


def test_gauges_have_the_figures_of_each_table_and_zero_for_one_that_is_down() -> None:
    """An alert on a table that was dropped, or whose catalog is down, would never fire."""
    text = served([SEEN, UNSEEN])

    assert 'iceberg_table_health_up{branch="main",table="db.t"} 1.0' in text
    assert 'iceberg_table_health_up{branch="main",table="db.gone"} 0.0' in text
    assert 'iceberg_table_health_metadata_bytes{branch="main",table="db.t"} 2e+06' in text
    assert 'iceberg_table_health_last_commit_age_seconds{branch="main",table="db.t"} 4.999' in text
    assert 'iceberg_table_health_thresholds_exceeded{branch="main",table="db.t"} 0.0' in text
    assert text.count('table="db.gone"') == 1
    assert not re.search(r"^iceberg_table_health_lag_seconds\{", text, re.MULTILINE)  # unknown is no series


def test_every_figure_is_a_gauge_and_each_writer_has_its_own(sink: Sink) -> None:
    """A stream that stands still would be hidden behind another one, or a figure be seen in terminals only."""
    sink.append(1, of_epoch=epoch(3))
    look = watching(sink).look()[0]
    assert look.health is not None
    (writer,) = look.health.writers
    stream = replace(writer, kind="stream", name="clicks", lag_s=1.5)
    known = replace(look.health, lag_s=2.5, newest_event_ms=1, writers=(stream,))

    text = served([replace(look, health=known)])

    labels = 'branch="main",kind="stream",table="db.t",writer="clicks"'
    assert f"iceberg_table_health_writer_number{{{labels}}} 3.0" in text
    assert f"iceberg_table_health_writer_age_seconds{{{labels}}} " in text
    assert 'iceberg_table_health_lag_seconds{branch="main",table="db.t"} 2.5' in text
    for gauge in health_gauges.GAUGES:
        assert (f'{gauge.name}{{branch="main",table="db.t"}} ' in text) is (gauge.value(known) is not None), gauge.name


def test_figures_are_served_over_http_and_the_port_is_let_go(monkeypatch: pytest.MonkeyPatch, sink: Sink) -> None:
    """Prometheus would find nothing, or the next start be refused because of the last one."""
    pytest.importorskip("prometheus_client")
    sink.append(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scraped: list[str] = []

    def wait(_: float) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            scraped.append(answer.read().decode())
        if len(scraped) == 2:
            raise KeyboardInterrupt
        plain_table(sink).delete("id = 1")

    monkeypatch.setattr("iceberg_ds.cli.time", SimpleNamespace(sleep=wait))

    result = run(sink, "--serve", str(port), "--every", "3600")

    assert result.exit_code == 0, result.output
    assert all('iceberg_table_health_rows{branch="main",table="db.t"} 1.0' in text for text in scraped)  # looked once
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_port_that_is_taken_is_wrong_use(sink: Sink) -> None:
    """A second watcher would end with an error of a library."""
    pytest.importorskip("prometheus_client")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        result = run(sink, "--serve", str(taken.getsockname()[1]))

    assert result.exit_code == 2
    assert "Cannot serve on port" in result.output


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, sink: Sink) -> None:
    """A user would see an error of Python, and not know what to install."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    result = run(sink, "--serve", "9105")

    assert result.exit_code == 2
    assert "pip install 'iceberg-ds[prometheus]'" in " ".join(result.output.split())
    with pytest.raises(OptionError, match=r"package prometheus_client is not installed"):
        health_gauges.serve(list, 9105)


def test_examples_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user who copies them would get an error."""
    options = embedded_options(tmp_path / "lake", table="shop.events")
    Sink(catalog=connect(catalog_settings(options)), options=options).append(1, 2, 3)
    codes = re.findall(r"^```python\n(# example: .+?)^```$", PAGE, re.DOTALL | re.MULTILINE)

    for code in codes:
        exec(code.replace("/lake", str(tmp_path / "lake")), {})  # noqa: S102  # the page's own

    assert codes
    assert "shop.events, branch main: 3 rows" in capsys.readouterr().out


def test_every_option_and_gauge_is_on_the_page() -> None:
    """A user could not find out what a threshold means, or which gauges there are."""
    options = [name for one in main.commands["watch"].params for name in one.opts if name.startswith("--")]
    gauges = [*(gauge.name for gauge in health_gauges.GAUGES), *health_gauges.OTHERS]

    assert [name for name in options if f"`{name}" not in PAGE] == []
    assert [name for name in gauges if f"`{name.removeprefix(health_gauges.PREFIX)}`" not in PAGE] == []


def test_thresholds_of_the_page_are_those_of_the_command() -> None:
    """A user would rely on a default that is another one."""
    told = dict(re.findall(r"^\| `--(max-[a-z-]+)(?: AGE)?` \| ([^|]+?) \|", PAGE, re.MULTILINE))
    defaults = {
        one.opts[0].removeprefix("--"): f"{one.default:g}" if isinstance(one.default, int | float) else "off"
        for one in main.commands["watch"].params
        if one.opts[0].startswith("--max-")
    }

    assert {name: text.replace(",", "") for name, text in told.items()} == defaults


def test_names_in_notebooks_are_the_public_ones() -> None:
    """A user could not name the types of what the function returns."""
    assert {"table_health", "TableHealth", "WriterHealth", "Forecast"} <= set(iceberg_ds.__all__)


def test_figures_are_served_to_this_machine_unless_an_address_is_given() -> None:
    """Anybody in the network could read the names of tables and writers."""
    pytest.importorskip("prometheus_client")
    urls = []
    for address in ((), ("127.0.0.2",)):
        url, end = health_gauges.serve(lambda: [SEEN], 0, *address)
        urls.append(url)
        other = "127.0.0.2" if not address else "127.0.0.1"
        with socket.socket() as caller:
            assert caller.connect_ex((other, int(url.split(":")[2].split("/")[0]))) != 0
        end()

    assert [re.sub(r":\d+/", "/", url) for url in urls] == ["http://127.0.0.1/metrics", "http://127.0.0.2/metrics"]


@pytest.mark.parametrize("address", ["256.1.1.1", "a..b"])
def test_address_that_is_none_is_wrong_use(sink: Sink, address: str) -> None:
    """A user would see an error of Python."""
    pytest.importorskip("prometheus_client")

    result = run(sink, "--serve", "0", "--address", address)

    assert result.exit_code == 2
    assert f"of {address}: " in result.output


def test_series_of_writers_are_bounded_and_of_names_only() -> None:
    """Each restart of an unnamed query would add series to Prometheus, without end."""
    pytest.importorskip("prometheus_client")

    def writer(kind: str, name: str, age: int) -> WriterHealth:
        return WriterHealth(
            kind=kind,  # type: ignore[arg-type]  # one of them
            name=name,
            query_id=None,
            number=1,
            last_commit_ms=START_MS - age,
            age_s=age / 1000,
        )

    unnamed = [writer("query", QUERY, 0), writer("query", "q", 0), writer("application", QUERY, 0)]
    unnamed += [writer("application", name, 0) for name in (f"{QUERY} > db.t", f"quarantine {'0f' * 16}")]
    named = [writer("application", f"app-{number}", number) for number in range(150)]
    health = replace(HEALTH, writers=(*unnamed, writer("stream", QUERY, 0), *named))

    text = served([replace(SEEN, health=health)])

    found = re.findall(r'^iceberg_table_health_writer_number\{.*kind="(.+?)".*writer="(.+?)"', text, re.MULTILINE)
    assert found == [("stream", QUERY), *(("application", f"app-{number}") for number in range(99))]


def test_look_that_takes_longer_than_the_time_between_two_is_kept() -> None:
    """Prometheus would wait for a look at each scrape, and scrapes would queue."""
    looked, look, now, clock = looks_and_clock()

    def slow() -> list[Look]:
        now[0] += 15
        return look()

    sparing = SparingWatch(slow, 10, clock)

    assert [sparing.look()[0].error for _ in range(3)] == ["1", "1", "1"]
    now[0] += 10
    assert sparing.look()[0].error == "2"
    assert looked == [2]


def test_scrapes_at_once_share_one_look() -> None:
    """Eight scrapes would look at the tables eight times, one after the other."""
    looked, look, _, _ = looks_and_clock()
    asked, may_end = threading.Barrier(8), threading.Event()

    def slow() -> list[Look]:
        may_end.wait(30)
        return look()

    sparing = SparingWatch(slow, 1e-9)  # so short that only the shared look counts

    def scrape(_: int) -> list[Look]:
        asked.wait(30)
        return sparing.look()

    with ThreadPoolExecutor(8) as threads:
        found = threads.map(scrape, range(8))
        time.sleep(0.3)  # until all wait
        may_end.set()

    assert [looks[0].error for looks in found] == ["1"] * 8
    assert looked == [1]


def test_view_shows_control_characters_escaped() -> None:
    """Whoever names an application could clear the terminal of who watches, or write into it."""
    evil = "a\x1b[2J\x07\u202e"
    writer = WriterHealth(kind="application", name=evil, query_id=None, number=1, last_commit_ms=1, age_s=9.0)
    health = replace(HEALTH, writers=(writer,), last_commit_age_s=9.0)
    shown = StringIO()
    looks = [Look(table=evil, branch=evil, health=health), Look(table="t", branch="main", error=f"No {evil}")]

    Console(file=shown, width=160).print(view(looks, Thresholds()))

    assert r"application a\x1b[2J\x07\u202e: last number 1" in shown.getvalue()
    assert r"No a\x1b[2J" in shown.getvalue()
    assert not {"\x1b", "\x07", "\u202e"} & set(shown.getvalue())


def test_mistyped_warehouse_ends_with_three_and_is_not_made(tmp_path: Path) -> None:
    """A watcher in a crontab would make a catalog where there was none."""
    result = CliRunner().invoke(main, ["watch", NAME, "--option", f"warehouse={tmp_path}/lak"])

    assert result.exit_code == 3
    assert f"there is no catalog in folder {tmp_path}/lak" in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_next_step_of_the_command_names_its_options(sink: Sink) -> None:
    """A user who copies it would be told that the table does not exist."""
    sink.append(1)
    time.sleep(0.01)

    (look,) = json.loads(run(sink, "--json", "--max-age", "0s").stdout)

    assert f"`iceberg-ds check db.t --option warehouse={sink.options.warehouse}`" in look["findings"][0]["next_step"]


@EXHAUSTIVE
def test_command_runs_as_a_module() -> None:
    """A user without the script on the path would see nothing, and an exit code of success."""
    ran = subprocess.run([sys.executable, "-m", "iceberg_ds.cli", "watch"], capture_output=True, text=True, check=False)

    assert ran.returncode == 2
    assert "Usage: iceberg-ds watch" in ran.stderr
