"""A driver of several streams at once: the program of `spark.process.SparkProcess` that runs a list of jobs.

A job is a line: a JSON list of the texts that `spark.jobs.dump` makes of streams. It has ended when all of them have.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from support.spark.jobs import StreamJob, load
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
                jobs = [load(text) for text in json.loads(line)]
                queries = [job.start(spark) for job in jobs if isinstance(job, StreamJob)]
                for query in queries:
                    query.awaitTermination()
            except Exception as error:
                traceback.print_exc()
                answer(f"{type(error).__name__}: {error}")
            else:
                answer(None)


if __name__ == "__main__":
    main()
