"""Secrets of every shape, and the places in which libraries, databases and Spark show them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

from hypothesis import strategies as st

# Names of properties, headers and parameters that hold secrets.
SECRET_NAMES = (
    "token",
    "credential",
    "password",
    "db.pwd",
    "signature",
    "s3.secret-access-key",
    "s3.access-key-id",
    "s3.session-token",
    "s3.customer-key",
    "s3.sse-c.key",
    "s3.sse.key",
    "encryption.key",
    "client.secret-access-key",
    "adls.account-key",
    "adls.client-id",
    "adls.client-secret",
    "adls.connection-string",
    "adls.sas-token.account.dfs.core.windows.net",
    "gcs.oauth2.token",
    "auth.basic.passphrase",
    "auth.custom.anything",
    "auth.oauth2.client_secret",
    "header.authorization",
    "header.x-anything",
    "jdbc.user",
    "api_key",
    "hf.token",
)
# What a secret is made of: all that encodings, quotes and addresses treat in their own way.
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_DIFFICULT = " '\"\\@/?&;:=%#+{}[](),<>~!$*|^`\t\u00e9\u4e2d"
# The core is looked for; long enough to be no word of the text around it.
SECRETS = st.builds(
    lambda head, core, tail: (f"{head}{core}{tail}", core),
    st.text(_LETTERS + _DIFFICULT, max_size=6),
    st.text(_LETTERS, min_size=12, max_size=20).map(lambda text: f"Zq{text}"),
    st.text(_LETTERS + _DIFFICULT, max_size=6),
)
NAMES = st.sampled_from(SECRET_NAMES)

Place = Callable[[str, str], str]


def _escaped(text: str, levels: int) -> str:
    for _ in range(levels):
        text = json.dumps(text, ensure_ascii=False)[1:-1]
    return text


def json_within(levels: int) -> Place:
    """Return what puts a secret into an object of JSON, which is a text in so many others."""
    return lambda name, secret: f"body: {_escaped(json.dumps({name: secret, 'x': 'plain'}), levels)} was refused"


# By their names: texts in which nothing but what stands near a secret tells that it is one.
PLACES: dict[str, Place] = {
    "JSON": json_within(0),
    "JSON in JSON": json_within(1),
    "JSON in JSON in JSON": json_within(2),
    "compact JSON": lambda name, secret: json.dumps({name: secret, "x": "plain"}, separators=(",", ":")),
    "ASCII": lambda name, secret: json.dumps({name: secret}, ensure_ascii=True),
    "repr": lambda name, secret: f"input_value={ ({name: secret, 'x': 1})!r} is wrong",
    "repr of bytes": lambda name, secret: f"{ ({name: secret.encode()})!r}",
    "repr of a list": lambda name, secret: f"{ ({name: [secret, 'plain']})!r}",
    "list of JSON in JSON": lambda name, secret: _escaped(json.dumps({name: ["plain", secret], "x": 1}), 1),
    "repr of a dict": lambda name, secret: f"{ ({name: {'x': secret}, 'y': 1})!r}",
    "repr of a pair": lambda name, secret: f"headers [{(name, secret)!r}]",
    "repr of a pair of bytes": lambda name, secret: f"headers [{(name.encode(), secret.encode())!r}]",
    "wrapped": lambda name, secret: f"{{'{name}': SecretBytes({secret.encode()!r}), 'x': 1}}",
    "wrapped parameter": lambda name, secret: f"Login(host='h', {name}=SecretStr({secret!r}), port=1)",
    "struct of Rust": lambda name, secret: f"Login {{ host: h, s3.{name}: Some({json.dumps(secret)}), port: 1 }}",
    "Pydantic": lambda name, secret: (
        f"1 validation error for LoadTableResult\nconfig.{name}\n  Input should be a valid integer, unable to parse "
        f"[type=int_parsing, input_value={secret!r}, input_type=str]\n    For further information visit https://h.example"
    ),
    "JWT": lambda _, secret: f"malformed eyJhbGciOiJIUzI1NiJ9.eyJ{re.sub('[^A-Za-z0-9_]', '-', secret)}.x here",
    "SQL": lambda name, secret: f"OPTIONS ('{name}' = '{secret.replace(chr(39), chr(39) * 2)}', 'x' = 'plain')",
    "quoted parameter": lambda name, secret: f"connect(host='h', {name}={secret!r}, port=1)",
    "parameter of bytes": lambda name, secret: f"Login(host='h', {name}={secret.encode()!r}, port=1)",
    "parameter with several": lambda name, secret: f"Login(host='h', {name}={['plain', secret]!r}, port=1)",
    "parameter with a dict": lambda name, secret: f"Login(host='h', {name}={ ({'x': secret})!r}, port=1)",
    "parameter": lambda name, secret: f"host=h {name}={quote_plus(secret)} port=1",
    "connection string": lambda name, secret: f"Server=h;{name}={{{secret.replace('}', '}}')}}};Port=1",
    "query": lambda name, secret: f"GET https://h.example/t?x=1&{name}={quote(secret, safe='')}&y=2 HTTP/1.1",
    "encoded query": lambda name, secret: f"https://h.example/t?c=Server%3Dh%3B{name}%3D{quote(secret, safe='')}%3B",
    "bearer": lambda _, secret: f"Authorization: Bearer {quote(secret, safe='')}",
    "XML": lambda name, secret: f"invalid XML: <r><{name}>{escape(secret)}</{name}><Expiration>1</Expiration></r>",
    "XML with a namespace": lambda name, secret: f"<r><ns:{name} a='b'>{escape(secret)}</ns:{name}></r>",
    "configuration of Hadoop": lambda name, secret: (
        f"<property><name>fs.{name}</name>\n  <value>{escape(secret)}</value></property>"
    ),
    "argument of a command": lambda name, secret: (
        f"failed: tool --{name.replace('header', 'auth')} {quote(secret, safe='')} h"
    ),
    "quoted argument": lambda name, secret: f"failed: tool --{name.replace('header', 'auth')} {json.dumps(secret)} h",
    "map of Scala": lambda name, secret: f"Map(x -> plain, {name} -> {quote(secret, safe='')}, y -> plain)",
    "line of YAML": lambda name, secret: f"line 4:\n    s3.{name}: {quote(secret, safe='')}\n    ^",
    "quoted line of YAML": lambda name, secret: f"line 4:\n    s3.{name}: {json.dumps(secret)}\n    ^",
    "address": lambda _, secret: f"cannot reach postgresql://writer:{quote(secret, safe='')}@db.example/catalog now",
    "address without a user": lambda _, secret: f"cannot reach https://{quote(secret, safe='')}@h.example/api now",
}
