"""The recipes' own programs, run by `spark-submit` as a user would run them, and killed.

Their Spark is the one that Spark's connectors of Kafka and Avro were fetched for, not the one of this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from support.services.kafka import install_recipe_services
from support.services.servers import REPOSITORY
from support.spark.process import kill_members, wait_until
from support.spark.session import JAVA_OPTIONS, inherited_paths
from support.spark.tables import Warehouse

# What Spark lacks; it has the other jars that they need.
_CONNECTORS = ("spark-sql-kafka-*", "spark-token-provider-*", "spark-avro_*", "kafka-clients-*", "commons-pool2-*")
_TIMEOUT_S = 300
_LAST_CHARACTERS = 6000
_DEFAULTS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "WARN",
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


class SubmittedProgram:
    """A program that `spark-submit` runs in a session of its own.

    Args:
        folder: Its working directory, with the embedded catalog and the log; created if missing.
        program: The program.
        arguments: Its arguments.
    """

    def __init__(self, folder: Path, program: Path, *arguments: str | Path) -> None:
        settings = folder / "conf"
        settings.mkdir(parents=True, exist_ok=True)
        lines = [f"{key} {value}\n" for key, value in _DEFAULTS.items()]
        (settings / "spark-defaults.conf").write_text("".join(lines))
        services = install_recipe_services()
        jars = [jar for pattern in _CONNECTORS for jar in (services / "connectors").glob(f"{pattern}.jar")]
        submit = services / "spark" / "pyspark" / "bin" / "spark-submit"
        self._log = folder / f"{program.stem}.log"
        self._name = program.name
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [submit, "--jars", ",".join(map(str, jars)), program, *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**_environment(), "SPARK_CONF_DIR": str(settings)},
                start_new_session=True,
            )

    def __enter__(self) -> SubmittedProgram:  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def check_running(self) -> None:
        """Make sure that it has not ended.

        Raises:
            RuntimeError: It has; the end of its log is in the text.
        """
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._name} ended with {self._process.returncode}. {self._last_words()}")

    def wait(self) -> None:
        """Wait until it ends, as it is meant to.

        Raises:
            RuntimeError: It failed; the end of its log is in the text.
        """
        if self._process.wait(_TIMEOUT_S):
            raise RuntimeError(f"{self._name} ended with {self._process.returncode}. {self._last_words()}")

    def wait_failure(self) -> str:
        """Wait until it ends with an error, and return its log."""
        assert self._process.wait(_TIMEOUT_S) > 0, f"{self._name} has not failed."
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill it without warning, and wait until the last of its processes is gone."""
        kill_members(self._process.pid)
        self._process.wait()

    def _last_words(self) -> str:
        return f"Its log ends with:\n{self._log.read_text(errors='replace')[-_LAST_CHARACTERS:]}"


def wait_for_landing(driver: SubmittedProgram, house: Warehouse, table: str) -> None:
    """Wait until a table that a program writes has one snapshot more than now.

    Raises:
        RuntimeError: The program has ended.
        TimeoutError: Nothing lands.
    """

    def snapshots() -> int:
        driver.check_running()
        return len(house.snapshots(table)) if house.has_table(table) else 0

    before = snapshots()
    wait_until(lambda: snapshots() > before, f"an epoch has landed in {table}")


def _environment() -> dict[str, str]:
    """Return the environment of a user who has the package, and no Spark but the recipe's.

    A package that this process was told to prefer, such as a mutated copy, is the program's, too.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {
        **kept,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([*inherited_paths(os.environ), str(REPOSITORY)]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
