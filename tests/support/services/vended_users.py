"""Users of the S3 server whose keys a catalog vends, and how their access begins and ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import boto3
from support.services.servers import REGION, ObjectStore, install_services

_ADMIN_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class VendedUsers:
    """Users that may read and write one bucket.

    Attributes:
        store: The S3 server.
        bucket: The name of the bucket.
    """

    store: ObjectStore
    bucket: str

    def add(self, *names: str, keys: str = "*") -> None:
        """Add users, who may use objects with such keys; their secrets are made of their names."""
        for name in names:
            self.store.add_user(name, self.secret(name))
        self._allow(names, keys)

    def secret(self, name: str) -> str:
        """Return the secret of a user."""
        return f"secret-of-{name}"

    def keys(self, name: str, expires_at_ms: int | None = None) -> dict[str, str]:
        """Return the properties that a catalog vends for a user."""
        keys = {"s3.access-key-id": name, "s3.secret-access-key": self.secret(name)}
        return keys if expires_at_ms is None else {**keys, "s3.session-token-expires-at-ms": str(expires_at_ms)}

    def end(self, name: str) -> None:
        """End the access of a user."""
        owner = ["--access", self.store.access_key, "--secret", self.store.secret_key]
        program = install_services() / "bin" / "versitygw"
        command = [program, "admin", *owner, "--endpoint-url", self.store.endpoint, "delete-user", "--access", name]
        subprocess.run(command, check=True, capture_output=True, timeout=_ADMIN_TIMEOUT_S)

    def _allow(self, names: Sequence[str], keys: str) -> None:
        arn = f"arn:aws:s3:::{self.bucket}"
        statement = {"Effect": "Allow", "Principal": list(names), "Action": "s3:*", "Resource": [arn, f"{arn}/{keys}"]}
        client = boto3.client(
            "s3",
            endpoint_url=self.store.endpoint,
            region_name=REGION,
            aws_access_key_id=self.store.access_key,
            aws_secret_access_key=self.store.secret_key,
        )
        client.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps({"Statement": [statement]}))
        client.close()
