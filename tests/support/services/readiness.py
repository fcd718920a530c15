"""Waits for a process to say something or to hang up, with any number of open files: `select` knows 1,024 only."""

from __future__ import annotations

import select


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Return whether there is something to read, or nothing will ever be again, within a time (0 or less: at once)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def has_hung_up(descriptor: int, timeout_s: float) -> bool:
    """Return whether the other end hangs up within a time, without reading what it has sent before."""
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    return bool(poll.poll(timeout_s * 1000))
