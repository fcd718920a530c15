"""Pure: how much history each commit to a table has to carry, when that is too much, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

# Measured on a local disk: with so many of either, a commit takes several times as long as to a new table.
MANY_SNAPSHOTS = 1000
MANY_MANIFESTS = 1000

NEXT_STEP = (
    "Expire old snapshots and rewrite the manifests from time to time, for example with Spark's procedures "
    "expire_snapshots and rewrite_manifests; properties history.expire.max-snapshot-age-ms and "
    "history.expire.min-snapshots-to-keep say how much of it stays."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a commit reads and writes because of what was committed before.

    Attributes:
        snapshots: Snapshots in the table's metadata.
        manifests: Manifests that the branch's newest snapshot lists, None if that is not known.
        load_ms: How long it took to load the table, in milliseconds.
        metadata_bytes: Size of the metadata file, None if that is not known.
    """

    snapshots: int
    manifests: int | None
    load_ms: float
    metadata_bytes: int | None = None

    @property
    def is_much(self) -> bool:
        """Whether it makes commits slow."""
        return self.snapshots >= MANY_SNAPSHOTS or (self.manifests or 0) >= MANY_MANIFESTS

    def __str__(self) -> str:
        size = "" if self.metadata_bytes is None else f" in a metadata file of {self.metadata_bytes / 1e6:.1f} MB"
        manifests = "" if self.manifests is None else f", {self.manifests:,} manifests in the branch"
        return f"{self.snapshots:,} snapshots{size}{manifests}; the table was loaded in {self.load_ms:.0f} ms"
