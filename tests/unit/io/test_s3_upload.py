"""Objects that are given up before they appear."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from botocore.exceptions import EndpointConnectionError

from iceberg_ds.io.s3_objects import ObjectPlace, S3Store, S3Upload
from iceberg_ds.io.s3_settings import s3_settings

SECRET = "hunter2-s3cr3t"  # noqa: S105  # not a password
ENDPOINT = f"http://writer:{SECRET}@127.0.0.1:1"


class LostClient:
    """A client whose store takes parts, and cannot be reached when they are to be removed."""

    meta = SimpleNamespace(config=SimpleNamespace(request_checksum_calculation="when_required"))

    def create_multipart_upload(self, **_: object) -> dict[str, str]:
        """Begin an upload."""
        return {"UploadId": "u"}

    def upload_part(self, **_: object) -> dict[str, str]:
        """Take a part."""
        return {"ETag": "e"}

    def abort_multipart_upload(self, **_: object) -> NoReturn:
        """Fail as botocore does."""
        raise EndpointConnectionError(endpoint_url=ENDPOINT)


def test_parts_that_stay_are_logged_without_the_address_of_the_store(caplog: pytest.LogCaptureFixture) -> None:
    """A password in the address of a store or proxy would stand in the logs of executors."""
    store: Any = S3Store(replace(s3_settings({"s3.endpoint": ENDPOINT}), part_bytes=1))
    store._client = LostClient()
    upload = S3Upload(store, ObjectPlace.of("s3://bucket/key"), if_absent=False)
    upload.write(b"rows")

    upload.discard()

    assert "Left behind parts of s3://bucket/key, which nobody sees: EndpointConnectionError" in caplog.text
    assert SECRET not in caplog.text
