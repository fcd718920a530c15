"""Digests of keys that all meet: a digest may narrow a search, and never decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pytest

from iceberg_ds.cdc import reader
from iceberg_ds.deletes import key_reader, match


@contextmanager
def one_digest() -> Iterator[None]:
    """Let all keys have one digest, in tasks, commits and searches."""

    def meeting(columns: Sequence[pa.Array], seed: bytes) -> pa.Array:
        del seed
        return pa.repeat(pa.scalar(7, pa.uint64()), len(columns[0]))

    with pytest.MonkeyPatch.context() as patch:
        for module in (reader, match, key_reader):
            patch.setattr(module, "digest_keys", meeting)
        yield
