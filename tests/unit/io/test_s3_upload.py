"""Objects that are given up before they appear."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from iceberg_ds.io.object_streams import Upload
from iceberg_ds.io.s3_io import S3Store
from iceberg_ds.io.s3_settings import s3_settings

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

    assert "Left behind parts of s3://bucket/key, which nobody sees: EndpointConnectionError" in caplog.text
    assert SECRET not in caplog.text
