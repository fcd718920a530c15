"""Pure: which properties are secret, how they look when shown, and which of them a task may have.

Imports nothing of the package. The rule errs on the side of hiding: a property whose key smells of
a credential is masked, and a URL loses its user and password. Texts of other libraries are searched for the
secrets in all the forms in which libraries quote them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Any
from urllib.parse import quote, quote_plus, unquote

MASK = "***"

TELLING_WORDS = (
    r"token|secret|passw|passphrase|pwd|credential|access-?key|account-?key|api-?key|connection-?string|"
    r"(?<![a-z])sas(?![a-z])|auth|private|session|signature|cookie|cryption-key$|sse\.key$|user$|client-?id|"
    r"(?:^|\.)header\."
)
_SECRET_KEY = re.compile(TELLING_WORDS, re.IGNORECASE)
# Keys that only sound like secrets; what they hold helps the user of an error.
_PLAIN_KEYS = frozenset(
    {
        "adls.refresh-credentials-enabled",
        "adls.refresh-credentials-endpoint",
        "auth.type",
        "client.refresh-credentials-enabled",
        "client.refresh-credentials-endpoint",
        "client.role-session-name",
        "gcs.oauth2.refresh-credentials-enabled",
        "gcs.oauth2.refresh-credentials-endpoint",
        "gcs.oauth2.token-expires-at",
        "header.x-iceberg-access-delegation",
        "hive.kerberos-authentication",
        "oauth2-server-uri",
        "rest.authorization-url",
        "s3.role-session-name",
        "s3.session-token-expires-at-ms",
        "token-exchange-enabled",
        "token-refresh-enabled",
    }
)
# What stands alone before @ in the address of storage is a container.
_STORAGE_SCHEME = r"(?:s3[an]?|gs|abfss?|wasbs?|file|hdfs|oss)://"
_URL_USERINFO = re.compile(
    rf"(?<![\w+.-])((?!{_STORAGE_SCHEME})[a-z][\w+.-]*://|{_STORAGE_SCHEME}(?=[^/\s:@]+:))\S+(?=@)", re.IGNORECASE
)
_URL_PARAMETER = re.compile(rf"([?&;][^=&\s]*(?:{TELLING_WORDS}|sig|key)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)
_HEADER = re.compile(r"\b(Bearer|bearer|BEARER|Basic) (?!\*\*\*)[\w.~+/=-]{6,}")
# An entry of JSON or of a dict's repr; the end of its value may be cut off.
_QUOTED_ENTRY = re.compile(
    rf"""(?P<before>(?P<mark>\\*["'])(?P<key>[\w.-]*(?:{TELLING_WORDS})[\w.-]*)(?P=mark)\s*[:=]\s*(?P<open>\\*["']))"""
    r"(?P<value>(?:(?!(?P=open)).)*)",
    re.IGNORECASE | re.DOTALL,
)
# A parameter of a database's connection.
_PARAMETER = re.compile(r"\b((?:password|passwd|pwd|secret|token)=)[^\s&,;'\")]+", re.IGNORECASE)
# A shorter one is hidden only where it stands alone, else it would take letters out of every word.
_LONG = 8
_ALWAYS_PLAIN = frozenset({"", "true", "false", "none", "null"})
# Without what tells a task how to renew credentials: whoever may set a table's properties could send the task, with
# a token of the catalog, to a server of his own. The REST catalog's client adds it.
_STORAGE_KEY = re.compile(
    r"(?!(client|gcs\.oauth2|adls)\.refresh-credentials-)((s3|gcs|adls|hdfs|oss|hf|client)\.|py-io-impl$)"
)
_CATALOG_CREDENTIAL = re.compile(r"(token|credential|password|(auth|header)\..+)$")
# Credentials for all services of AWS; the catalog may be one of them.
_SHARED_CREDENTIAL = re.compile(r"client\.(access-key-id|secret-access-key|session-token)$")


def is_secret(key: str) -> bool:
    """Return whether the value of property `key` must not be shown."""
    name = key.replace("_", "-").lower()
    return _SECRET_KEY.search(name) is not None and name not in _PLAIN_KEYS


def is_credential(key: str) -> bool:
    """Return whether property `key` is known to hold a credential of a catalog or of storage."""
    name = key.replace("_", "-").lower()
    return is_secret(name) and (_STORAGE_KEY.match(name) is not None or _CATALOG_CREDENTIAL.match(name) is not None)


def mask_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties as they may be shown: secret values and URL users as `***`."""
    return {key: _shown(key, value) for key, value in properties.items()}


def _shown(key: str, value: object) -> str:
    if is_secret(key):
        return MASK
    return str(mask_properties(value)) if isinstance(value, Mapping) else mask_url(str(value))


def mask_url(text: str) -> str:
    """Return `text` with the user, password and secret parameters of every URL in it as `***`."""
    return _URL_PARAMETER.sub(rf"\1{MASK}", _URL_USERINFO.sub(rf"\1{MASK}", text))


def mask_text(text: str, properties: Mapping[str, Any]) -> str:
    """Return `text` (an error of another library, say) without any secret.

    Hidden are the secret values of `properties`, also percent-encoded, escaped, in Base64 or cut off at their end,
    and whatever else looks like a secret: entries with telling names, headers, users and passwords of URLs.
    """
    text = _without(text, {form for secret in _secrets(properties) for form in _forms(secret)})
    text = _QUOTED_ENTRY.sub(_masked_entry, text)
    return _PARAMETER.sub(rf"\1{MASK}", _HEADER.sub(rf"\1 {MASK}", mask_url(text)))


def masked_cause(error: Exception, properties: Mapping[str, Any]) -> Exception:
    """Return what may be shown as the cause of an error of ours, because Spark prints causes with all their texts.

    It is `error` itself if neither it nor what caused it tells a secret, else its masked text and where it was raised.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    if all(mask_text(str(link), properties) == str(link) for link in chain):
        return error
    return RuntimeError(mask_text(f"{type(error).__name__}: {error}", properties)).with_traceback(error.__traceback__)


def _secrets(properties: Mapping[str, Any], *, is_below_secret: bool = False) -> Iterator[str]:
    """Yield the secrets among the values, those of nested properties and those within URLs too."""
    for key, value in properties.items():
        is_hidden = is_below_secret or is_secret(key)
        if isinstance(value, Mapping):
            yield from _secrets(value, is_below_secret=is_hidden)
        elif is_hidden:
            yield str(value)
            yield str(value).partition(":")[2]  # the client's secret behind its id
        else:
            yield from _secrets_of_url(str(value))


def _secrets_of_url(text: str) -> Iterator[str]:
    for found in _URL_USERINFO.finditer(text):
        userinfo = found.group().removeprefix(found.group(1))
        yield from (userinfo, unquote(userinfo))
        password = userinfo.partition(":")[2]
        # A password that should have been percent-encoded is taken apart by whoever parses the URL.
        yield from (password, unquote(password), *re.split("[@/?]", password))
    for parameter in _URL_PARAMETER.finditer(text):
        value = parameter.group().removeprefix(parameter.group(1))
        yield from (value, unquote(value))


def _forms(secret: str) -> set[str]:
    """Return the ways in which libraries quote a secret."""
    encoded = secret.encode()
    percent = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    lower = {re.sub("%[0-9A-F]{2}", lambda code: code.group().lower(), form) for form in percent}
    in_base64 = {base64.b64encode(encoded).decode(), base64.urlsafe_b64encode(encoded).decode()}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
    return {form for form in {secret, *percent, *lower, *escaped, *in_base64} if form.lower() not in _ALWAYS_PLAIN}


def _without(text: str, forms: set[str]) -> str:
    short = {form for form in forms if len(form) <= _LONG}
    for form in sorted(short, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    heads = "|".join(re.escape(form[:_LONG]) for form in forms - short)
    parts, start = [], 0
    while heads and (found := re.compile(heads).search(text, start)) is not None:
        parts += [text[start : found.start()], MASK]
        start = found.start() + max(_common_length(text[found.start() :], form) for form in forms - short)
    return "".join([*parts, text[start:]])


def _common_length(text: str, form: str) -> int:
    """Return how many characters both begin with; a library may have cut the end off."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, form, strict=False)))


def _masked_entry(entry: re.Match[str]) -> str:
    return f"{entry['before']}{MASK}" if is_secret(entry["key"]) else entry.group()


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return only what opens storage: what an executor may have, without any catalog credential."""
    storage = {key: str(value) for key, value in properties.items() if _STORAGE_KEY.match(key)}
    if "s3.access-key-id" in storage:  # then the others are the catalog's alone
        return {key: value for key, value in storage.items() if not _SHARED_CREDENTIAL.match(key)}
    return storage
