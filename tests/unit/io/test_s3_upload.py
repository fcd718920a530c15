"""Objects that are given up before they appear, and those whose first answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from iceberg_ds.io.s3_io import S3Store
from iceberg_ds.io.store_settings import s3_settings
from iceberg_ds.io.stores import Upload

SECRET = "hunter2-s3cr3t"  # noqa: S105  # not a password
ENDPOINT = f"http://writer:{SECRET}@127.0.0.1:1"


class LostStore(S3Store):
    """A store that takes parts, and cannot be reached when they are to be removed."""

    async def answer(self, request: str, **_: Any) -> dict[str, Any]:
        """Answer, or fail as botocore does."""
        if request == "abort_multipart_upload":
            raise EndpointConnectionError(endpoint_url=ENDPOINT)
        return {"UploadId": "u", "ETag": "e"}


def test_parts_that_stay_are_logged_without_the_address_of_the_store(caplog: pytest.LogCaptureFixture) -> None:
    """A password in the address of a store or proxy would stand in the logs of executors."""
    keys = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}
    store = LostStore(s3_settings({**keys, "s3.endpoint": ENDPOINT}))
    store.block_bytes = 1
    upload = Upload(store, "s3://bucket/key", if_absent=False)
    upload.write(b"rows")

    upload.discard()

    assert "Left behind parts of s3://bucket/key, which no reader sees: EndpointConnectionError" in caplog.text
    assert SECRET not in caplog.text


class OccupiedStore(S3Store):
    """A store that has an object already, and refuses to replace it.

    Attributes:
        retries: How often a request is retried before it is refused.
        find_metadata: Returns the object's metadata, from the metadata of the request that is refused.
    """

    retries: int
    find_metadata: Callable[[dict[str, str]], dict[str, str]]
    _refused: dict[str, str]

    async def answer(self, request: str, **arguments: Any) -> dict[str, Any]:
        """Answer as S3 does."""
        if request == "head_object":
            return {"Metadata": self.find_metadata(self._refused)}
        assert arguments["IfNoneMatch"] == "*"
        self._refused = arguments["Metadata"]
        answer = {"HTTPStatusCode": 412, "RetryAttempts": self.retries}
        raise ClientError({"Error": {"Code": "PreconditionFailed"}, "ResponseMetadata": answer}, "PutObject")


def occupied(retries: int, find_metadata: Callable[[dict[str, str]], dict[str, str]]) -> OccupiedStore:
    """Return a store that has an object already."""
    store = OccupiedStore(s3_settings({"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.endpoint": ENDPOINT}))
    store.retries, store.find_metadata = retries, find_metadata
    return store


def test_object_of_a_retried_request_with_its_own_mark_is_written() -> None:
    """A commit would fail because its own metadata file is there already."""
    store = occupied(1, dict)

    store.put("s3://bucket/key", BytesIO(b"rows"), if_absent=True)


@pytest.mark.parametrize(("retries", "metadata"), [(0, {}), (1, {}), (1, {"iceberg-ds-upload": "another"})])
def test_object_without_the_requests_own_mark_is_a_strangers(retries: int, metadata: dict[str, str]) -> None:
    """Two writers of one metadata file would both believe that it is theirs."""
    store = occupied(retries, lambda _: metadata)

    with pytest.raises(FileExistsError, match="Cannot write s3://bucket/key"):
        store.put("s3://bucket/key", BytesIO(b"rows"), if_absent=True)
