"""Rows about files, made by what their folders tell: they say what each file says by itself."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iceberg_ds.inspect.orphan_rules import OrphanRules, is_hidden, is_of_other_format, split_key
from iceberg_ds.io.listing import is_metadata_file
from iceberg_ds.io.stores import StoredFile
from iceberg_ds.maintenance.place_tasks import PlacePlan, Role, Rows

TABLE = "s3://bucket/t"
OWN = frozenset({"s3://bucket/t/", "s3://bucket/t/_own/"})
EQUAL = OrphanRules.of(None, {"s3a": "s3", "oss": "s3"}, {"old": "bucket"}, "error")
STORES = st.sampled_from(["s3://bucket", "s3a://bucket", "s3a://old", "oss://other", "file:", "file://", ""])
STEPS = st.sampled_from(
    ["t", "", "data", "_own", "_x", "_p=1", ".x", "metadata", "_delta_log", ".hoodie", "a b%20", "\u00e9", "x://y"]
)
NAMES = st.sampled_from(
    ["f.parquet", "_f", ".f", "_p=1", "", "metadata", "version-hint.text", "1.metadata.json", "2.metadata.json.gz"]
)


@given(store=STORES, steps=st.lists(STEPS, max_size=4), name=NAMES)
@example(store="s3://bucket", steps=[], name="")
@example(store="s3://bucket", steps=["t", "_own"], name="f.parquet")
@example(store="s3://bucket", steps=["t", "_own", "_x"], name="f.parquet")
def test_rows_of_a_stored_file_are_those_of_its_path(store: str, steps: list[str], name: str) -> None:
    """A file of the table would look like an orphan, or what tells of another table be passed over."""
    path = "/".join([store, *steps, name])
    key = EQUAL.key(path)
    plan = PlacePlan(io_properties={}, location=TABLE, rules=EQUAL, own=OWN)
    found = list(Rows(plan).stored(StoredFile(path=path, size_bytes=1, modified_ms=2)))

    tells = is_metadata_file(key) or name == "metadata" or is_of_other_format(key)
    roles = [Role.TELLS] * tells + [Role.FOUND] * (not is_hidden(key, OWN))
    assert [row[0] for row in found] == roles
    for row in found:
        assert (row[2], row[1]) == split_key(key)
        assert row[3] == path


@pytest.mark.parametrize(
    "path", ["s3://bucket/t/data/f.parquet", "s3://bucket/f", "/f", "f", "file:/a/b", "s3a://old//t//f"]
)
def test_row_meets_others_at_the_place_of_its_key(path: str) -> None:
    """Rows about one file would not meet, and it would be deleted."""
    _, place, store, kept, kind, *_ = Rows(PlacePlan(io_properties={}, location=TABLE, rules=EQUAL)).row(
        Role.KNOWN, path, 2
    )

    assert (store, place) == split_key(EQUAL.key(path))
    assert (kept, kind) == ("", 2)
