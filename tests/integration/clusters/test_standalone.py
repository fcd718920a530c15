"""A standalone cluster of two workers, the sink shipped with the job: what it writes, and what it survives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.exhaustive import EXHAUSTIVE
from support.hooks.faults import Action, Fault, Point
from support.hooks.memory_probe import read_probes, secret
from support.spark.cluster import SETTINGS, Cluster
from support.spark.cluster_tables import Lake
from support.spark.jobs import BatchJob, StreamJob, dump, write_source
from support.spark.process import SparkProcess, wait_until

from iceberg_ds.snapshots.txn import EPOCHS

pytestmark = pytest.mark.timeout(600)

_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",  # of two tasks, when one has ended
}


class Drivers:
    """Starts drivers on a cluster, whose Python has not the package: `--py-files` brings it."""

    def __init__(self, cluster: Cluster, python: Path, package: Path, folder: Path) -> None:
        self._cluster, self._python, self._package, self._folder = cluster, python, package, folder

    def start(self, name: str, **conf: str) -> SparkProcess:
        """Start one."""
        settings = {**SETTINGS, "spark.submit.pyFiles": str(self._package), **conf}
        return SparkProcess(
            self._folder / name,
            master=self._cluster.master,
            # The driver finds the package as `spark-submit --py-files` lets it.
            environment={"PYSPARK_PYTHON": str(self._python), "PYTHONPATH": str(self._package)},
            conf=settings,
        )


@pytest.fixture(scope="module")
def drivers(
    cluster: Cluster, bare_python: Path, package_zip: Path, tmp_path_factory: pytest.TempPathFactory
) -> Drivers:
    """Return what starts drivers."""
    return Drivers(cluster, bare_python, package_zip, tmp_path_factory.mktemp("drivers"))


@pytest.fixture(scope="module")
def driver(drivers: Drivers) -> Iterator[SparkProcess]:
    """Return a driver."""
    with drivers.start("driver") as process:
        yield process


@pytest.fixture(scope="module")
def hasty_driver(drivers: Drivers) -> Iterator[SparkProcess]:
    """Return a driver that soon starts second attempts of slow tasks."""
    with drivers.start("hasty-driver", **_SPECULATION) as process:
        yield process


@pytest.mark.exhaustive
def test_batches_and_a_stream_land_once(driver: SparkProcess, lake: Lake, tmp_path: Path) -> None:
    """The sink could not be shipped with a job."""
    table = lake.new_name()
    batch = BatchJob(table=table, options=lake.options, register=True)
    write_source(tmp_path / "source", [range(100, 110), range(110, 120)])
    stream = StreamJob(
        source=str(tmp_path / "source"), checkpoint=str(tmp_path / "checkpoint"), table=table, options=lake.options
    )

    errors = [driver.run(dump(job)) for job in (batch, stream, stream)]

    assert errors == [None] * 3
    assert lake.ids(table) == [*range(10), *range(100, 120)]
    assert [found.get(EPOCHS.number_key) for found in lake.summaries(table)] == [None, "0", "1"]
    assert lake.data_files(table) == lake.referenced(table)


@EXHAUSTIVE
def test_executors_never_see_the_catalogs_secrets(
    driver: SparkProcess, cluster: Cluster, lake: Lake, tmp_path: Path
) -> None:
    """Whoever can run code on a worker could read the catalog's credentials."""
    table, reports = lake.new_name(), tmp_path / "reports"
    options = {**lake.options, "catalog.token": secret(), "probe": str(reports)}

    assert driver.run(dump(BatchJob(table=table, options=options, sink="hookedsink"))) is None

    found = read_probes(reports)
    assert {text.rpartition(", ")[2] for text in found["task"]} == {"secret False"}
    assert {text.rpartition(", ")[2] for text in found["commit"]} == {"secret True"}
    assert secret() not in cluster.executor_logs()
    assert lake.ids(table) == list(range(10))


@EXHAUSTIVE
def test_killed_executor_neither_loses_nor_doubles_a_row(driver: SparkProcess, lake: Lake, tmp_path: Path) -> None:
    """Rows would go with every machine that dies."""
    table = lake.new_name()
    fault = Fault(point=Point.IN_TASK, action=Action.KILL_EXECUTOR, fuse=tmp_path / "fuse")
    options = {**lake.options, "small-task-size-bytes": "0", **fault.arm()}

    assert driver.run(dump(BatchJob(table=table, rows=100, partitions=4, options=options, sink="hookedsink"))) is None

    assert fault.has_struck
    assert lake.ids(table) == list(range(100))
    assert len(lake.summaries(table)) == 1


@EXHAUSTIVE
def test_files_that_the_driver_does_not_see_are_refused(driver: SparkProcess) -> None:
    """A table would name files that lie on the disks of workers, where no reader finds them."""
    # Every process finds another folder there: its own working directory, as if disks were not shared.
    warehouse = {"warehouse": "/proc/self/cwd/warehouse", "small-task-size-bytes": "0"}

    error = driver.run(dump(BatchJob(options=warehouse, register=True)))

    assert error is not None
    assert "Cannot commit to db.t: a task reports file:///proc/self/cwd/warehouse/db/t/data/" in error
    assert "and the driver sees" in error
    assert "On a cluster, use an object store or a shared file system as warehouse. Nothing was committed." in error


@pytest.mark.exhaustive
def test_second_attempt_that_overtakes_the_first_adds_no_row(
    hasty_driver: SparkProcess, lake: Lake, tmp_path: Path
) -> None:
    """Speculative execution would write the rows of slow tasks twice."""
    table = lake.new_name()
    fault = Fault(point=Point.AFTER_TASK, action=Action.WAIT, fuse=tmp_path / "fuse")
    options = {**lake.options, "small-task-size-bytes": "0", **fault.arm()}

    assert hasty_driver.run(dump(BatchJob(table=table, options=options, sink="hookedsink"))) is None

    assert fault.barrier.exists()  # the first attempt has written all its rows, and waits still
    assert lake.ids(table) == list(range(10))
    assert len(lake.data_files(table) - lake.referenced(table)) >= 1  # what it wrote


@pytest.mark.exhaustive
def test_stream_goes_on_after_its_driver_was_killed(
    hasty_driver: SparkProcess, driver: SparkProcess, lake: Lake, tmp_path: Path
) -> None:
    """A driver that dies after a commit would write the epoch again when it is restarted."""
    table = lake.new_name()
    fault = Fault(point=Point.AFTER_COMMIT, action=Action.KILL_DRIVER, fuse=tmp_path / "fuse", epoch_id=1)
    write_source(tmp_path / "source", [range(10), range(10, 20), range(20, 30)])
    stream = StreamJob(
        source=str(tmp_path / "source"),
        checkpoint=str(tmp_path / "checkpoint"),
        table=table,
        options={**lake.options, **fault.arm()},
        sink="hookedsink",
    )
    hasty_driver.send(dump(stream))
    wait_until(lambda: fault.has_struck, "the second epoch has landed")
    hasty_driver.wait_java_dead()
    hasty_driver.kill()
    landed = [found[EPOCHS.number_key] for found in lake.summaries(table)]

    error = driver.run(dump(replace(stream, options=lake.options, sink="icebergsink", register=True)))

    assert error is None
    assert fault.has_struck
    assert landed == ["0", "1"]
    assert [found[EPOCHS.number_key] for found in lake.summaries(table)] == ["0", "1", "2"]
    assert lake.ids(table) == list(range(30))
