"""The version of the package, which the build and the snapshots' summaries read."""

from __future__ import annotations

__version__ = "0.1.0"


def why_not_version(driver: str) -> str | None:
    """Return why this process cannot work for a driver with that version of the package, None if it can."""
    if driver == __version__:
        return None
    return f"the driver has iceberg_ds {driver}, and an executor {__version__}: install one version on all"
