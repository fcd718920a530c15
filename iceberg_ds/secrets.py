"""Pure: which properties are secret, how they look when shown, and which of them a task may have.

Imports nothing of the package. The rule errs on the side of hiding: a property whose key smells of
a credential is masked, and a URL loses its user and password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_TELLING_WORDS = "token|secret|passw|credential|access-key|account-key|sas|auth|private|session|user$|client-id"
_SECRET_KEY = re.compile(_TELLING_WORDS, re.IGNORECASE)
_URL_USERINFO = re.compile(r"(?<=://)\S+(?=@)")
_URL_PARAMETER = re.compile(rf"([?&;][^=&\s]*(?:{_TELLING_WORDS}|pwd|sig)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)
_STORAGE_KEY = re.compile(r"(s3|gcs|adls|hdfs|oss|hf|client)\.|py-io-impl$")


def is_secret(key: str) -> bool:
    """Return whether the value of property `key` must not be shown."""
    return _SECRET_KEY.search(key) is not None


def mask_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties as they may be shown: secret values and URL users as `***`."""
    return {key: MASK if is_secret(key) else mask_url(str(value)) for key, value in properties.items()}


def mask_url(text: str) -> str:
    """Return `text` with the user, password and secret parameters of every URL in it as `***`."""
    return _URL_PARAMETER.sub(rf"\1{MASK}", _URL_USERINFO.sub(MASK, text))


def mask_text(text: str, properties: Mapping[str, str]) -> str:
    """Return `text` (an error of another library, say) without any secret value of `properties` in it."""
    for key, value in properties.items():
        if is_secret(key) and value:
            text = text.replace(str(value), MASK)
    return mask_url(text)


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return only what opens storage: what an executor may have, without any catalog credential."""
    return {key: value for key, value in properties.items() if _STORAGE_KEY.match(key)}
