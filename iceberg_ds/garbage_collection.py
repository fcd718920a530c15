"""Python's search for cycles among objects, paused where many objects are made at once that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Let Python not search for cycles in this block, or function: it would search all new objects repeatedly.

    That takes a third of the time of reading manifests, and a seventh of that of loading modules. Memory is freed as
    before, except for cycles; other threads of the process do not search, either.
    """
    was_enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_enabled:
            gc.enable()
