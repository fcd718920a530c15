"""Waits for a process to say something, however many files this one has open: `select` knows the first 1,024 only."""

from __future__ import annotations

import select


def is_readable(descriptor: int, timeout_s: float) -> bool:
    """Return whether there is something to read, or nothing will ever be again, within a time (0 or less: at once)."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))
