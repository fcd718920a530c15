"""The daemon of workers that also knows the sink of these runs: after a kill, there is time for more kills."""

from __future__ import annotations

from support.spark.worker_daemon import serve

if __name__ == "__main__":
    serve("chaos.sink")
