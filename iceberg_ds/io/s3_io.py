"""PyIceberg's door to files for S3: reads, writes and deletes objects with no request that could be spared."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from threading import Lock

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from iceberg_ds.io.credential_renewal import renewing
from iceberg_ds.io.files import ShippedFileIO
from iceberg_ds.io.object_streams import ObjectFile
from iceberg_ds.io.s3_client import FreshCredentials
from iceberg_ds.io.s3_objects import ObjectPlace, S3Download, S3Store, S3Upload, storage_errors
from iceberg_ds.io.s3_settings import s3_settings
from iceberg_ds.io.vended_credentials import expires_at_ms

logger = logging.getLogger(__name__)

_BULK = 1000  # keys of one request at most


class S3File(ObjectFile):
    """One object, to read or to write."""

    def __init__(self, store: S3Store, location: str) -> None:
        super().__init__(location=location)
        self._store = store
        self._place = ObjectPlace.of(location)

    def __len__(self) -> int:
        """Return the size in bytes."""
        with storage_errors("read", self._place):
            return int(self._store.client.head_object(**self._place.arguments)["ContentLength"])

    def _download(self) -> S3Download:
        return S3Download(self._store, self._place)

    def _upload(self, *, if_absent: bool) -> S3Upload:
        return S3Upload(self._store, self._place, if_absent=if_absent)


class S3FileIO(ShippedFileIO):
    """Opens the objects of S3 and of stores that speak like it.

    Args:
        properties: The `s3.*` and `client.*` properties of PyIceberg and Iceberg.

    Raises:
        OptionError: They are wrong, or ask for what is not to be had.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._settings = s3_settings(properties)
        self._lock = Lock()
        self._store: S3Store | None = None
        self._process = 0

    def new_input(self, location: str) -> S3File:
        """Return the object, to be read."""
        return S3File(self._current_store(location), location)

    def new_output(self, location: str) -> S3File:
        """Return the object, to be written."""
        return S3File(self._current_store(location), location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object; one that is missing counts as deleted."""
        place = ObjectPlace.of(location if isinstance(location, str) else location.location)
        with storage_errors("delete", place):
            self._current_store(place.location).client.delete_object(**place.arguments)

    def delete_many(self, locations: Iterable[str]) -> dict[str, str]:
        """Delete many objects with few requests; return why, for each that could not be deleted."""
        problems: dict[str, str] = {}
        buckets: dict[str, list[ObjectPlace]] = {}
        for location in locations:
            place = ObjectPlace.of(location)
            buckets.setdefault(place.bucket, []).append(place)
        for places in buckets.values():
            for start in range(0, len(places), _BULK):
                problems |= self._delete_in_one_request(places[start : start + _BULK])
        return problems

    def _delete_in_one_request(self, places: list[ObjectPlace]) -> dict[str, str]:
        keys = {place.key: place.location for place in places}
        with storage_errors("delete", places[0]):
            answer = self._current_store(places[0].location).client.delete_objects(
                Bucket=places[0].bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
        errors = answer.get("Errors", [])
        return {keys[error["Key"]]: f"{error.get('Code')}: {error.get('Message')}" for error in errors}

    def _current_store(self, location: str) -> S3Store:
        """Return the store of this process: connections and threads do not outlive a fork."""
        with self._lock:
            if self._store is None or self._process != os.getpid():
                credentials = renewing(self.properties, location)
                self._store = S3Store(self._settings, None if credentials is None else lambda: _fresh(credentials()))
                self._process = os.getpid()
            return self._store


def _fresh(properties: Mapping[str, str]) -> FreshCredentials:
    """Return vended credentials as the client wants them."""
    settings = s3_settings(properties)
    # Without an end they are asked for again, in vain and for nothing, once an hour.
    end_ms = expires_at_ms(properties) or (time.time() + 3600) * 1000
    return {
        "access_key": settings.access_key_id or "",
        "secret_key": settings.secret_access_key or "",
        "token": settings.session_token or "",
        "expiry_time": datetime.fromtimestamp(end_ms / 1000, tz=timezone.utc).isoformat(),
    }
