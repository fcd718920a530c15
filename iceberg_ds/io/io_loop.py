"""The event loop that makes the requests to S3, in a thread of its own, one in each process.

fsspec has a loop, too, but a forked child would wait for ever for it: the child has a copy of the loop and of its
connections, and not its thread. This loop counts as closed in a child, which so leaves the parent's connections alone.
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
    """A loop that runs only in the process that made it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        super().__init__()

    def is_closed(self) -> bool:
        """Return whether the loop takes no more work in this process."""
        return super().is_closed() or self._is_of_another_process()

    def is_running(self) -> bool:
        """Return whether the loop's thread runs in this process."""
        return super().is_running() and not self._is_of_another_process()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., _Result], *args: object
    ) -> asyncio.Future[_Result]:
        """Call a function that waits, such as for the address of a host, in another thread."""
        try:
            return super().run_in_executor(executor, func, *args)
        except RuntimeError:
            if not self.is_running():
                raise
        # The interpreter is ending and starts no more threads. Aborting an upload still has to find the store's host.
        done: asyncio.Future[_Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Log an error that no caller waits for, in the process that made the loop."""
        if not self._is_of_another_process():
            super().call_exception_handler(context)

    def is_mine(self) -> bool:
        """Return whether the caller is in the loop's own thread."""
        try:
            return asyncio.get_running_loop() is self
        except RuntimeError:
            return False

    def _is_of_another_process(self) -> bool:
        return self._process != os.getpid()


_lock = Lock()
_loop: IoLoop | None = None


def io_loop() -> IoLoop:
    """Return the running loop of this process."""
    global _loop  # noqa: PLW0603  # one in each process
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = IoLoop()
            Thread(target=_loop.run_forever, name="iceberg-ds-io", daemon=True).start()
        return _loop


def _forget() -> None:
    global _lock  # noqa: PLW0603  # another thread may have held the lock during the fork
    _lock = Lock()


os.register_at_fork(after_in_child=_forget)
