"""Pure: arguments as procedures take them: a time, milliseconds or an age; how many requests at once."""

from __future__ import annotations

from datetime import datetime

from iceberg_ds.errors import OptionError
from iceberg_ds.inspect.orphans import parse_grace_ms
from iceberg_ds.parsing import milliseconds


def older_than_ms(action: str, older_than: datetime | int | str, now_ms: int) -> int:
    """Return a time in milliseconds since the Unix epoch.

    Args:
        action: What is to be done, such as `expire snapshots`, for errors.
        older_than: A time with a time zone, milliseconds since the Unix epoch, an age such as `7d`, or `now`.
        now_ms: The present time.

    Raises:
        OptionError: It is none of these.
    """
    if isinstance(older_than, datetime):
        if older_than.tzinfo is None:
            raise OptionError(
                f"Cannot {action}: older_than is {older_than}, and no time zone says which time. Give it one, as "
                "datetime(..., tzinfo=timezone.utc)."
            )
        return milliseconds(older_than)
    if isinstance(older_than, int) and not isinstance(older_than, bool):
        return older_than
    if not isinstance(older_than, str):
        raise OptionError(
            f"Cannot {action}: older_than is {older_than!r}. Give a time with a time zone, or an age such as '7d'."
        )
    if older_than.strip().lower() == "now":
        return now_ms
    try:
        return now_ms - parse_grace_ms(older_than)
    except OptionError:
        raise OptionError(
            f"Cannot {action}: older_than is '{older_than}', expected an age with s, m, h or d such as 36h or 7d, or "
            "now."
        ) from None


def checked_at_once(action: str, max_concurrent_deletes: int | None) -> int | None:
    """Return how many requests may delete files at once; None for one.

    Args:
        action: What is to be done, for errors.
        max_concurrent_deletes: The number that was given, or None.

    Raises:
        OptionError: It is no whole number from 1.
    """
    number = max_concurrent_deletes
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
        raise OptionError(f"Cannot {action}: max_concurrent_deletes is {number!r}, expected a whole number from 1.")
    return number
