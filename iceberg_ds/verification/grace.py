"""Pure: how old a file must be before it counts as left behind, as text such as `3d` and `36h`."""

from __future__ import annotations

import re

from iceberg_ds.errors import OptionError

DEFAULT_GRACE = "3d"
# Below it, files of a write that still runs could be taken for orphans.
LOWEST_SAFE_GRACE = "24h"
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(s|m|h|d)[a-z]*\s*", re.IGNORECASE)


def parse_grace_ms(text: str) -> int:
    """Return a time such as `3d`, `36h`, `90 minutes` in milliseconds.

    Raises:
        OptionError: It is none.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise OptionError(f"'{text}' is no age of files. Give a number with s, m, h or d, such as 36h or 3d.")
    return int(float(found[1]) * _UNITS_MS[found[2].lower()])


def require_safe_grace(text: str, *, force: bool) -> None:
    """Refuse to delete files of an age at which a write that still runs may have some.

    Args:
        text: The age, as `parse_grace_ms` takes it.
        force: The user says that nothing writes.

    Raises:
        OptionError: The age is too low.
    """
    if not force and parse_grace_ms(text) < parse_grace_ms(LOWEST_SAFE_GRACE):
        raise OptionError(
            f"Cannot delete orphans older than {text}: a write that still runs may have files of that age. Give "
            f"{LOWEST_SAFE_GRACE} or more, or force it if nothing writes to the table now."
        )
