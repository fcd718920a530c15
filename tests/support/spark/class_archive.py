"""Java's own archive of the classes that Spark loads, so that each Spark of the tests starts with half of the work.

`make test` makes it, once for each version of Spark. A Java that the archive does not fit to goes without it, silently.
Run as a script, this makes the archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

FOLDER = Path(__file__).resolve().parents[3] / ".classes"
_TIMEOUT_S = 900
# A busy machine stops Spark before all of it is there.
_TRIES = 2
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive() -> Path:
    """Return where the archive is, or would be."""
    return FOLDER / f"spark-{pyspark.__version__}.jsa"


def with_archive(options: str) -> str:
    """Return Java's options with the archive among them, if there is one."""
    path = archive()
    is_usable = path.exists() and " " not in str(path)
    return f"{options} -XX:SharedArchiveFile={path} {_SILENT}" if is_usable else options


def make(path: Path) -> None:
    """Let a Spark write in the ways of the tests, and keep what it has loaded.

    Raises:
        RuntimeError: It failed each time.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            _make(path)
            break
        except RuntimeError as failure:
            if not tries_left:
                raise
            print(f"Once more: {failure}", file=sys.stderr)  # noqa: T201  # a script


def _make(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        # Java writes the archive when it ends; its output ends with it, and so does this call.
        done = subprocess.run(
            [sys.executable, __file__, folder, str(unfinished)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if done.returncode or not unfinished.exists():
        raise RuntimeError(f"Spark's classes could not be archived:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    unfinished.replace(path)


def _load_classes(folder: Path, path: Path) -> None:
    """Start Spark, and write a batch and a stream."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from support.spark.jobs import BatchJob, StreamJob, write_source  # noqa: PLC0415  # they are found by now
    from support.spark.session import JAVA_OPTIONS, prepare_environment, start_session  # noqa: PLC0415

    environment = dict(os.environ)
    prepare_environment(environment, folder)
    os.environ.update(environment)
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={path} {_SILENT}"
    spark = start_session("local[2]", folder, spark_driver_extraJavaOptions=options)
    write_source(folder / "source", [range(5), range(5, 10)])
    given = {"warehouse": str(folder / "warehouse")}
    BatchJob(rows=10, options=given).run(spark)
    StreamJob(source=str(folder / "source"), checkpoint=str(folder / "checkpoint"), table="db.u", options=given).run(
        spark
    )
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:]:
        _load_classes(*map(Path, sys.argv[1:]))
    elif not archive().exists():
        make(archive())
