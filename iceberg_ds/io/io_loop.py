"""The event loop of a process, in a thread of its own, in which requests to S3 are made.

A process that is forked has the loop's connections too, and a copy of what it waits for, but not its thread. There the
loop counts as closed: what is collected as garbage, or ended, leaves the connections of the parent alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from threading import Lock, Thread
from typing import TypeVar

_Result = TypeVar("_Result")


class IoLoop(asyncio.SelectorEventLoop):
    """A loop that only the process knows that has made it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        super().__init__()

    def is_closed(self) -> bool:
        """Return whether nothing can be done in it any more."""
        return super().is_closed() or self._is_of_another_process()

    def is_running(self) -> bool:
        """Return whether its thread runs."""
        return super().is_running() and not self._is_of_another_process()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., _Result], *args: object
    ) -> asyncio.Future[_Result]:
        """Call what waits, such as for the address of a host, in another thread."""
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:
            if not self.is_running():
                raise
        # The interpreter ends, and starts no threads any more; what removes an upload still has to find its store.
        done: asyncio.Future[_Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Tell of an error that nobody waits for."""
        if not self._is_of_another_process():
            super().call_exception_handler(context)

    def is_mine(self) -> bool:
        """Return whether it runs in the thread that asks."""
        try:
            return asyncio.get_running_loop() is self
        except RuntimeError:
            return False

    def _is_of_another_process(self) -> bool:
        return self._process != os.getpid()


_lock = Lock()
_loop: IoLoop | None = None


def io_loop() -> IoLoop:
    """Return the loop of this process, which runs."""
    global _loop  # noqa: PLW0603  # one of each process
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = IoLoop()
            Thread(target=_loop.run_forever, name="iceberg-ds-io", daemon=True).start()
        return _loop


def _forget() -> None:
    global _lock  # noqa: PLW0603  # another thread may have held it when the process was forked
    _lock = Lock()


os.register_at_fork(after_in_child=_forget)
