"""Fixtures of the tests with real object stores."""

from __future__ import annotations

import re

import pytest
from support.bucket import Bucket
from support.service_fixtures import object_store, sts
from support.services import ObjectStore

__all__ = ["object_store", "sts"]


@pytest.fixture
def bucket(request: pytest.FixtureRequest, object_store: ObjectStore) -> Bucket:
    """Return a bucket that no other test uses."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())[:50].strip("-")
    found = Bucket(store=object_store, name=name)
    object_store.bucket(name)
    return found
