"""What lies below a location, as far as it can be found out: in local folders and in S3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from iceberg_ds.storage.files import is_local, is_s3

if TYPE_CHECKING:
    from botocore.client import BaseClient


def list_files(properties: Mapping[str, str], location: str) -> list[str]:
    """Return the files below `location`, none for a store that cannot be listed.

    Args:
        properties: What opens the storage.
        location: A folder, or the beginning of keys.
    """
    if is_local(location):
        folder = location.removeprefix("file://")
        prefix = location[: len(location) - len(folder)]
        return [f"{prefix}{path}" for path in Path(folder).rglob("*") if path.is_file()]
    if is_s3(location):
        return _list_objects(properties, location.rstrip("/") + "/")
    return []


def _list_objects(properties: Mapping[str, str], location: str) -> list[str]:
    bucket, _, key = location.partition("://")[2].partition("/")
    root = location.removesuffix(key)
    pages = _client(frozenset(properties.items())).get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key)
    return [f"{root}{entry['Key']}" for page in pages for entry in page.get("Contents", [])]


@lru_cache(maxsize=4)
def _client(properties: frozenset[tuple[str, str]]) -> BaseClient:
    # They load Amazon's libraries.
    from iceberg_ds.storage.s3_client import s3_client  # noqa: PLC0415
    from iceberg_ds.storage.s3_settings import s3_settings  # noqa: PLC0415

    return s3_client(s3_settings(dict(properties)))
