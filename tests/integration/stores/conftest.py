"""Fixtures of the tests with real object stores."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

import pytest
from support.services.bucket import Bucket
from support.services.cloud_stores import Azure, CloudBucket, Gcs, serve_azure, serve_gcs
from support.services.fixtures import object_store, sts
from support.services.servers import ObjectStore

__all__ = ["object_store", "sts"]


@pytest.fixture(scope="package")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    """Return a server that speaks as Google Cloud Storage."""
    with serve_gcs(tmp_path_factory.mktemp("gcs")) as store:
        yield store


@pytest.fixture(scope="package")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azure]:
    """Return a server that speaks as Azure's blobs."""
    with serve_azure(tmp_path_factory.mktemp("azure")) as store:
        yield store


@pytest.fixture
def bucket_name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test gives its bucket."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    return f"{words[:45].strip('-')}-{zlib.crc32(request.node.name.encode()):08x}"


@pytest.fixture
def bucket(bucket_name: str, object_store: ObjectStore) -> Bucket:
    """Return a bucket of S3 that no other test uses."""
    object_store.bucket(bucket_name)
    return Bucket(store=object_store, name=bucket_name)


@pytest.fixture(params=["gcs", "azure"])
def cloud(request: pytest.FixtureRequest, bucket_name: str) -> CloudBucket:
    """Return a bucket that no other test uses, of Google Cloud Storage and of Azure in turn."""
    store: Gcs | Azure = request.getfixturevalue(request.param)
    found = store.bucket(bucket_name)
    found.forget()
    return found


@pytest.fixture(params=["s3", "gcs", "azure"])
def place(request: pytest.FixtureRequest, bucket_name: str) -> Bucket | CloudBucket:
    """Return a bucket that no other test uses, of each store in turn."""
    if request.param == "s3":
        found: Bucket = request.getfixturevalue("bucket")
        return found
    store: Gcs | Azure = request.getfixturevalue(request.param)
    return store.bucket(bucket_name)
