"""The private name of PyIceberg that decisions on histories need, behind a function of our own.

A contract test holds it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.snapshots import Snapshot


def summary_entries(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what the summary of a snapshot says beside its operation, nothing if the snapshot has none.

    The public way to it takes ten times as long, and all snapshots of a long history are asked.
    """
    if snapshot.summary is None:
        return {}
    private = snapshot.summary.__pydantic_private__ or {}
    entries: Mapping[str, str] | None = private.get("_additional_properties")
    return snapshot.summary.additional_properties if entries is None else entries
