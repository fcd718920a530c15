"""Hides secrets in what urllib3 logs: the address of every request that it sends again, with all of its parameters.

Only requests of the sink are concerned: log records of other requests of the process stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from iceberg_ds.secrets import mask_text

_is_ours: ContextVar[bool] = ContextVar("_is_ours", default=False)


@contextmanager
def masking_logged_addresses() -> Iterator[None]:
    """Mask the secrets in addresses that are logged in the block, in this thread."""
    logging.getLogger("urllib3.connectionpool").addFilter(_mask)  # once: it is known by then
    token = _is_ours.set(True)
    try:
        yield
    finally:
        _is_ours.reset(token)


def _mask(record: logging.LogRecord) -> bool:
    if _is_ours.get():
        record.msg, record.args = mask_text(record.getMessage(), {}), ()
    return True
