"""Spark for tests: how every session is set up, and the one of this process.

A process has one `SparkContext` at a time. `shared_session` keeps it between tests, and starts it anew
only for a test that needs another master.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # PySpark warns of the pandas that it finds
    from pyspark.sql import SparkSession

from support.spark.class_archive import with_archive

TESTS = Path(__file__).parents[2]
NO_PANDAS = "no-pandas"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def prepare_environment(environment: dict[str, str], folder: Path, *, finds_pandas: bool = False) -> None:
    """Change the environment of a Spark process: its Python workers find the tests' modules, and no pandas.

    Args:
        environment: What the Java process will inherit.
        folder: A folder of its own; created if missing.
        finds_pandas: Whether they find pandas, too.
    """
    hidden = folder / NO_PANDAS
    hidden.mkdir(parents=True, exist_ok=True)
    # Each Python worker would spend a second on importing what nothing here uses.
    (hidden / "pandas.py").write_text('raise ImportError("hidden from the tests\' Spark")\n')
    found = [str(TESTS)] if finds_pandas else [str(hidden), str(TESTS)]
    environment["PYTHONPATH"] = os.pathsep.join([*found, *inherited_paths(environment)])
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"


def inherited_paths(environment: Mapping[str, str]) -> list[str]:
    """Return where Python looks for modules by its environment, without what hides pandas."""
    parts = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [part for part in parts if part and Path(part).name != NO_PANDAS]


def spare_defaults(environment: dict[str, str], folder: Path) -> None:
    """Let programs that set up Spark by themselves, as a user would, start it as sparingly as `start_session`.

    Args:
        environment: What the Java process will inherit.
        folder: A folder of its own; created if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.driver.extraJavaOptions": with_archive(JAVA_OPTIONS),
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    environment["SPARK_CONF_DIR"] = str(folder)


def start_session(master: str, folder: Path, **conf: str) -> SparkSession:
    """Start Spark with its temporary files below `folder`.

    Args:
        master: Such as `local[2]`.
        folder: Where temporary files go.
        conf: More settings; `_` stands for a dot.
    """
    builder = SparkSession.builder.master(master).appName("iceberg-ds-tests")
    for key, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": with_archive(JAVA_OPTIONS),
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "spark"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{key.replace("_", "."): value for key, value in conf.items()},
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    master: str
    session: SparkSession


_shared: list[_Shared] = []


def shared_session(master: str) -> SparkSession:
    """Return this process's session; it is started anew if it has another master."""
    if _shared and _shared[0].master == master:
        return _shared[0].session
    if _shared:
        stop_shared_session()
    folder = Path(tempfile.mkdtemp(prefix="iceberg-ds-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if NO_PANDAS not in os.environ.get("PYTHONPATH", ""):  # Java inherits it when it is started, once
        environment = dict(os.environ)
        prepare_environment(environment, folder)
        os.environ.update(environment)
    _shared.append(_Shared(master=master, session=start_session(master, folder)))
    return _shared[0].session


def stop_shared_session() -> None:
    """Stop this process's session, if there is one."""
    while _shared:
        _shared.pop().session.stop()
