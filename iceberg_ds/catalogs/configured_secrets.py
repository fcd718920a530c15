"""Pure: what options may say of a catalog whose credentials PyIceberg's configuration holds.

On a server that many use, such as one of Spark Connect, file and environment are the server's and options are each
user's. Whoever may choose the host, the proxy, the certificates or the class of a catalog gets the credentials that
are sent there. So beside credentials of the configuration, options may say what leads no request elsewhere, and
nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from iceberg_ds.catalogs.rest_properties import flat
from iceberg_ds.secrets import is_secret, mask_url

# What is read and how much at a time, how long to wait, and how files are stored; all at the configured places.
_LEADS_NOWHERE = re.compile(
    r"warehouse|header\.x-iceberg-access-delegation|snapshot-loading-mode|rest-page-size|view-endpoints-supported"
    r"|rest\.client\.(connection-timeout-ms|socket-timeout-ms|max-retries)"
    r"|lock-check-(min-wait-time|max-wait-time|retries)|hive\.hive2-compatible"
    r"|(s3|client)\.region|s3\.(path-style-access|force-virtual-addressing|dualstack-enabled)"
    r"|s3\.(connect-timeout|request-timeout|retry\..+|multipart\..+)"
    r"|s3\.(server-side-encryption|sse\.type|sse\.key|sse-kms-key-id|write\.storage-class)"
    r"|gcs\.(project-id|requester-pays|consistency|cache-timeout)"
)
# Ways to sign in without any credential.
_NO_SIGN_IN = ("none", "noop")


def why_not_beside(configured: Mapping[str, Any], asked: Mapping[str, str]) -> str | None:
    """Return why options must not say this of a catalog, None if they may.

    Args:
        configured: The properties that PyIceberg's configuration has for the catalog; none if it does not know it.
        asked: The properties that options give, which take the place of configured ones of the same name; empty ones
            do not, in PyIceberg.
    """
    known = {str(key).lower(): str(value) for key, value in flat(configured)}
    secrets = sorted(key for key, value in known.items() if not asked.get(key) and _signs_in(key, value))
    leading = sorted(
        key for key, value in asked.items() if known.get(key) != value and not _LEADS_NOWHERE.fullmatch(key)
    )
    if not secrets or not leading:
        return None
    return (
        f"options {', '.join(f'catalog.{key}' for key in leading)} could lead credentials elsewhere that file or "
        f"environment of the driver hold for it ({', '.join(secrets)})"
    )


def _signs_in(key: str, value: str) -> bool:
    """Return whether a property is a credential, or makes the catalog's client fetch one from the machine."""
    if key == "auth.type":
        return value.lower() not in _NO_SIGN_IN
    return is_secret(key) or mask_url(value) != value
