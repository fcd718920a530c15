"""Pure: which properties are secret, how they look when shown, and which of them a task may have.

Imports nothing of the package. The rule errs on the side of hiding: a property whose key smells of
a credential is masked, and a URL loses its user and password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_SECRET_KEY = re.compile(
    r"token|secret|passw|credential|access-key|account-key|sas|auth|private|session|user$|client-id", re.IGNORECASE
)
_URL_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_STORAGE_KEY = re.compile(r"(s3|gcs|adls|hdfs|oss|hf|client)\.|py-io-impl$")


def is_secret(key: str) -> bool:
    """Return whether the value of property `key` must not be shown."""
    return _SECRET_KEY.search(key) is not None


def mask_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as they may be shown: secret values and URL users as `***`."""
    return {key: MASK if is_secret(key) else _URL_USERINFO.sub(MASK, str(value)) for key, value in properties.items()}


def mask_text(text: str, properties: Mapping[str, str]) -> str:
    """Return `text` (an error of another library, say) without any secret value of `properties` in it."""
    for key, value in properties.items():
        if is_secret(key) and value:
            text = text.replace(str(value), MASK)
    return _URL_USERINFO.sub(MASK, text)


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return only what opens storage: what an executor may have, without any catalog credential."""
    return {key: value for key, value in properties.items() if _STORAGE_KEY.match(key)}
