"""PySpark's warning of a version of pandas that it does not know, where pandas gets bytes or nothing at all.

The filters of warnings are the process's: whoever changes them beside another thread and puts them back may leave that
thread without its own, or the process with those of both. So one thread at a time does, for as long as a plan is built.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_one_at_a_time = threading.RLock()


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Let PySpark not warn of the version of pandas in the block, which runs no job: other threads wait for it."""
    with _one_at_a_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield
