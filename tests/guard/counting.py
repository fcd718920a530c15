"""Counts what a step asks of others and what it does over and over: nothing here depends on the machine's speed."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from pydantic import BaseModel
from pyiceberg.table.metadata import TableMetadataCommonFields, TableMetadataUtil
from sqlalchemy import Engine, event
from support.catalogs.rest_fake import RestFake
from support.services.bucket import Bucket

# The ends of the names of the sink's objects, and what they are.
_OBJECTS = {".metadata.json": "table metadata", ".parquet": "data file"}
_REST_COLLECTIONS = {"tables", "views", "namespaces"}


def object_kind(key: str) -> str:
    """Return what an object of a table is: data file, manifest, manifest list or table metadata."""
    for end, kind in _OBJECTS.items():
        if key.endswith(end):
            return kind
    return "manifest list" if key.rpartition("/")[2].startswith("snap-") else "manifest"


@contextmanager
def counting_statements(found: Counter[str]) -> Iterator[None]:
    """Count the statements that are sent to databases, by their first word."""

    def note(*arguments: Any) -> None:
        found[f"SQL {arguments[2].split(maxsplit=1)[0].upper()}"] += 1

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@contextmanager
def counting_copies(found: Counter[str]) -> Iterator[None]:
    """Count how often table metadata is parsed and copied deeply, and all that is copied deeply with it."""
    parse, of_model = TableMetadataUtil.parse_raw, BaseModel.__deepcopy__

    def parse_raw(data: str) -> Any:
        found["table metadata parsed"] += 1
        return parse(data)

    def copy_model(self: BaseModel, memo: dict[int, Any] | None = None) -> Any:
        found["models copied deeply"] += 1
        found["table metadata copied deeply"] += isinstance(self, TableMetadataCommonFields)
        return of_model(self, memo)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableMetadataUtil, "parse_raw", staticmethod(parse_raw))
        patch.setattr(BaseModel, "__deepcopy__", copy_model)
        yield


@contextmanager
def counting_calls(found: Counter[str]) -> Iterator[None]:
    """Count the functions of Python that this thread calls: the work of a step, whatever the machine.

    Garbage is not collected meanwhile: its finalizers would count, those of other tests among them.
    """
    number = 0

    def note(_: FrameType, happened: str, __: Any) -> None:
        nonlocal number
        number += happened == "call"

    before, was_enabled = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)
        if was_enabled:
            gc.enable()
        found["Python calls"] += number


@contextmanager
def counting_objects(bucket: Bucket, found: Counter[str]) -> Iterator[None]:
    """Count the requests to the bucket by kind, and files and bytes that are new in it."""
    asked, objects = len(bucket.traffic()), _objects(bucket)
    yield
    for request, key in bucket.traffic()[asked:]:
        found[f"S3 {request} of a {object_kind(key)}" if key else f"S3 {request}"] += 1
    for key, size in _objects(bucket).items():
        if key not in objects:
            found[f"{object_kind(key)} files"] += 1
            found[f"{object_kind(key)} bytes"] += size


def _objects(bucket: Bucket) -> dict[str, int]:
    folder = bucket.store.folder / bucket.name
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(".sgwtmp")
    }


@contextmanager
def counting_requests(fake: RestFake, found: Counter[str]) -> Iterator[None]:
    """Count the requests to a REST catalog, by method and what they are for."""
    before = len(fake.recorded)
    yield
    for request in fake.recorded[before:]:
        *_, above, last = request.path.split("/")
        what = above.removesuffix("s") if above in _REST_COLLECTIONS else last
        found[f"REST {request.method} {what}"] += 1
