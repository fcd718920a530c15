"""One process of a micro-batch: planner, task or committer, as Spark starts it. A script, for `measuring.py`.

Reads JSON from stdin, and prints what the process had loaded in the end beside what Spark's worker loads by itself,
and how much memory Arrow took at most.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

# The modules of Spark that make its worker processes; what they load, the sink does not pay for.
_WORKERS = {
    "planner": "pyspark.sql.worker.write_into_data_source",
    "task": "pyspark.worker",
    "committer": "pyspark.sql.worker.python_streaming_sink_runner",
}


def main() -> None:
    """Play the role."""
    asked = json.load(sys.stdin)
    sys.path.insert(0, str(Path(__file__).parent.parent))
    importlib.import_module(_WORKERS[asked["role"]])
    before = set(sys.modules)
    from guard import steps  # noqa: PLC0415  # it loads the sink, and nothing else that a worker has not

    folder, options = Path(asked["folder"]), asked["options"]
    if asked["role"] == "planner":
        (folder / "writer").write_bytes(steps.plan_stream(options))
    elif asked["role"] == "task":
        rows = steps.Rows(**asked["rows"])
        for number, message in enumerate(steps.run_tasks((folder / "writer").read_bytes(), rows, asked["epoch"])):
            (folder / f"message-{number}").write_bytes(message)
    else:
        messages = [path.read_bytes() for path in sorted(folder.glob("message-*"))]
        steps.commit_stream(options, messages, asked["epoch"])
    loaded = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] != "guard")
    import pyarrow as pa  # noqa: PLC0415

    print(json.dumps({"loaded": loaded, "arrow_bytes": pa.default_memory_pool().max_memory()}))  # noqa: T201


if __name__ == "__main__":
    main()
