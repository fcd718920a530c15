"""The program of `spark_process.SparkProcess`: starts Spark and runs the jobs that it reads from standard input."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from support.spark.jobs import load
from support.spark.session import start_session


def main() -> None:
    """Say when Spark is ready, and after each job how it went."""
    folder, master, answers, conf = sys.argv[1:]
    spark = start_session(master, Path(folder), **json.loads(conf))
    with os.fdopen(int(answers), "w") as stream:

        def answer(error: str | None) -> None:
            stream.write(json.dumps({"error": error}) + "\n")
            stream.flush()

        answer(None)
        for line in sys.stdin:
            try:
                load(line).run(spark)
            except Exception as error:
                traceback.print_exc()
                answer(f"{type(error).__name__}: {error}")
            else:
                answer(None)


if __name__ == "__main__":
    main()
