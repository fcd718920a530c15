"""Pure: which properties are secret, how they look when shown, and which of them a task may have.

The one list of words that tell a secret, and the one masker; what `register` lets Spark hide comes from the same list.
Imports nothing of the package. The rule errs on the side of hiding: a property whose key smells of
a credential is masked, and a URL loses its user and password. Texts of other libraries are searched for the
secrets in all the forms in which libraries quote them.
"""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from iceberg_ds.errors import IcebergSinkError

MASK = "***"

# The one list of words that tell a secret by its name, as a regular expression that Python and Java read alike. These
# words tell it wherever they stand, in values, too ...
UNMISTAKABLE_WORDS = (
    r"token|secret|passw|passphrase|passcode|credential|access[-_.]?key|account[-_.]?key|api[-_.]?key|"
    r"connection[-_]?string|"
    r"odbc[-_]?connect|authorization|cookie"
)
# ... and these in names of properties alone: values such as `db.sessions` are no secrets.
TELLING_WORDS = (
    rf"{UNMISTAKABLE_WORDS}|pwd|auth|private|session|signature|bearer|assertion|client[-_]?id|jwt|"
    r"(?<![a-z])(?:pass|sas)(?![a-z])|"
    r"(?<![\w-])header\.|[-._]key(?![\w.-])|user(?![\w.-])"
)
# The same in the query of an address, where names are short.
TELLING_PARAMETERS = rf"{TELLING_WORDS}|sig|key"
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
# A name that stands alone before @ in the address of storage is a container.
_STORAGE_SCHEME = r"(?:s3[an]?|gs|abfss?|wasbs?|file|hdfs|oss)://"
_SCHEME = rf"(?<![\w+.-])((?!{_STORAGE_SCHEME})[a-z][\w+.-]*://|{_STORAGE_SCHEME}(?=[^/\s:@]+:))"
# What a text may hold is bounded, so that no server can keep the masker busy with a long answer.
# In a property that is an address, all of it may be meant: a password may hold blanks. In a text, a password with
# blanks stands behind a user, and what stands behind a host is a port.
_PASSWORD = re.compile(r"(?<![\w+.-])([a-z][\w+.-]*://)[^/?#\s@:]*:[^/?#\s@]+(?=@)", re.IGNORECASE)
_BEHIND_NAME = re.compile(r"(?<!\s)\s*[:=@].*", re.DOTALL)
# The error that says so would show an address that is mistyped, as without a colon; its property's name tells it.
_ADDRESS_KEY = re.compile(r"(?:uri|url|endpoint)$", re.IGNORECASE)
_NO_ADDRESS = r"(?!\s*['\"]?[a-z][\w+.-]*://)"
_USERINFO_OF_MISTYPED = re.compile(rf"\A{_NO_ADDRESS}[^\x00]+(?=@)", re.IGNORECASE)
_USERINFO_OF_VALUE = re.compile(rf"{_SCHEME}.+(?=@)", re.IGNORECASE | re.DOTALL)
_USERINFO_IN_TEXT = re.compile(
    rf"{_SCHEME}(?:[^/\s:@'\"<>]+:(?!\d+(?:[/\s]|$))[^/'\"<>\r\n]{{1,999}}|\S{{1,999}})(?=@)", re.IGNORECASE
)
_PARAMETER_NAME = rf"([?&;][^=&;?\s]{{0,99}}(?:{TELLING_PARAMETERS})[^=&;?\s]{{0,99}}=)"
_PARAMETER_OF_VALUE = re.compile(rf"{_PARAMETER_NAME}[^&]+", re.IGNORECASE)
_PARAMETER_IN_TEXT = re.compile(rf"{_PARAMETER_NAME}[^&\s'\"]+", re.IGNORECASE)
_SCHEME_IN_HEADER = re.compile(r"\b(Bearer|bearer|BEARER|Basic) (?!\*\*\*)[\w.~+/=-]{6,}")
_HEADER = re.compile(
    r"(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie2?|x-[\w-]{0,99}(?:auth|key|secret|token|signature)"
    r"[\w-]{0,99})(\s*:\s*)(?!\s|\*\*\*|(?:bearer|basic) \*\*\*)"
    # Up to a quote that begins no value of its own, as the one around the header.
    r"(?:(?<=[\s:=(])[bru]{0,2}(?P<open>\\*[\"'])(?:(?!(?<!\\)(?P=open))[^\r\n])*(?P=open)?|[^\r\n'\"])+",
    re.IGNORECASE,
)
_NAME = rf"[\w.-]{{0,99}}(?:{TELLING_WORDS})[\w.-]{{0,99}}"
# A quoted value ends at a quote with as many backslashes as the one that it began with, and may be cut off before it.
# Two quotes in a row are one in SQL, and belong to the value.
_VALUE = r"(?P<open>\\*[\"'])(?P<value>(?:(?P=open){2}|(?!(?<!\\)(?P=open)).)*)"
_KEY = rf"(?P<before>(?<!\\)(?P<mark>\\*[\"'])(?P<key>{_NAME})(?P=mark)\s*"
_FLAGS = re.IGNORECASE | re.DOTALL
# What a value may be wrapped in, as by `SecretStr('...')` of Pydantic and by `Some("...")` of Rust.
_WRAPPER = r"(?:[a-z_]\w{0,40}\()?[bru]{0,2}"
# Several values, up to the bracket that closes them, which stands in none of them. Each text within a text doubles the
# backslashes: of one before the quotes, a quote in a value has three, and a backslash four.
_VALUES = (
    r"(?P<value>(?:(?P<slashes>\\{0,31})(?P<quote>[\"'])"
    r"(?:(?P=slashes){2}\\[\\]|(?P=slashes){2}\\(?P=quote)|(?!(?P=slashes)(?P=quote)).)*(?:(?P=slashes)(?P=quote))?|"
    r"[^\])}\"'\\]|\\(?!\\{0,31}[\"'])|[\])}]\s*,\s*[\[({])+)"
)
# An entry of JSON or of a dict's repr, with one value or several; and a pair, as in lists of headers.
_QUOTED_ENTRY = re.compile(rf"{_KEY}[:=]\s*{_WRAPPER}){_VALUE}", _FLAGS)
_QUOTED_LIST = re.compile(rf"{_KEY}[:=]\s*[\[({{]){_VALUES}", _FLAGS)
_QUOTED_PAIR = re.compile(rf"(?:(?<=[(\[])|(?<=[(\[]b)){_KEY},\s*[bru]{{0,2}}){_VALUE}(?=(?P=open)\s*[)\]])", _FLAGS)
# A parameter of a database's connection, of a command or of an environment; also percent-encoded.
_ASSIGNED = rf"(?P<before>(?<![\w.-])(?P<key>{_NAME})\s?=\s?)"
_QUOTED_PARAMETER = re.compile(rf"{_ASSIGNED}{_WRAPPER}{_VALUE}", _FLAGS)
# Several values in a repr, as of a dataclass: all up to the closing bracket.
_LIST_PARAMETER = re.compile(
    rf"{_ASSIGNED}[\[({{](?=[^\])}}\"';]{{0,99}}[\"'])"
    r"(?P<value>(?:(?P<open>[\"'])(?:\\.|(?!(?P=open)).)*(?P=open)?|[^\])}\"'])+)",
    _FLAGS,
)
_PLAIN_WORD = r"(?:true|false|none|null)(?![\w.-])"
_PARAMETER = re.compile(rf"{_ASSIGNED}(?!{_PLAIN_WORD})(?P<value>\{{(?:[^}}]|\}}\}})*\}}?|[^\s&,;'\")\]}}]+)", _FLAGS)
_ENCODED_PARAMETER = re.compile(
    rf"(?P<before>(?P<key>(?:{TELLING_WORDS}|header\.)[\w.-]{{0,99}})%(?:25){{0,3}}3D)(?P<value>[^\s&'\"]+)", _FLAGS
)
# A value that Pydantic refuses, below the line with its name.
_REFUSED_VALUE = re.compile(
    rf"(?P<before>^(?P<key>{_NAME})\n[^\n]{{0,999}}\binput_value=)(?P<value>[^\n]+?)(?=, input_type=|$)",
    re.IGNORECASE | re.MULTILINE,
)
# An element of XML, such as in the answer of a store.
_ELEMENT = re.compile(rf"(?P<before><(?:\w+:)?(?P<key>{_NAME})(?:\s[^<>]*)?>)(?P<value>[^<]+)", _FLAGS)
# An entry of Hadoop's configuration, and an argument of a command.
_NAMED_ELEMENT = re.compile(rf"(?P<before><name>\s*(?P<key>{_NAME})\s*</name>\s*<value>)(?P<value>[^<]+)", _FLAGS)
_ARGUMENT = re.compile(
    rf"(?P<before>(?<![\w.-])--(?P<key>{_NAME})\s+)(?!--|{_PLAIN_WORD})(?:{_VALUE}|[^\s'\"]+)", _FLAGS
)
# An entry of a Scala map; and of YAML or a list of headers, whose names may be words of a sentence, too.
_MAP_ENTRY = re.compile(rf"(?P<before>(?<![\w.-])(?P<key>{_NAME})\s?->\s?)(?!{_PLAIN_WORD})(?P<value>[^\s,)]+)", _FLAGS)
_KEY_OF_KEY = r"\w{0,99}(?:secret|access|account|api)[-_]?key"
_LINE = re.compile(
    rf"(?P<before>(?<![\w.-])(?P<key>pass(?:word|wd)?|pwd|secret|{_KEY_OF_KEY}|\w{{1,99}}[._-]{_NAME})\s?:\s{{1,9}})"
    rf"(?!{_PLAIN_WORD}|\*\*\*|(?:bearer|basic) \*\*\*)(?:{_WRAPPER}{_VALUE}|[^\s,;'\")\]}}]+)",
    _FLAGS,
)
# A private key, which may be cut off.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
# A token that tells itself by its shape: an object of JSON in Base64, and what follows it.
_JWT = re.compile(r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*){0,3}")
# A login as a header has it. A word without a digit may be one of a sentence about tokens.
_LOGIN = re.compile(r"\b(?:bearer\s+(?=\S*\d)|authorization\s*[:=]\s*[a-z]+\s+)[\w.~+/=-]{6,}", re.IGNORECASE)
# The value of a header `Authorization`.
_AUTHORIZATION = re.compile(r"\s*(?:bearer|basic)\s+(?P<value>\S+)\s*", re.IGNORECASE)
# An entry of a database's connection string.
_DSN_ENTRY = re.compile(r"(?<![\w .-])([\w .-]+)=(\{(?:[^}]|\}\}){0,999}\}|[^;]*)")
# An address up to its user and password: a whole value, and in a text.
_SPARK_ADDRESS = r"https?://[^/\s@'\"]+@|://[^/\s:@]*:[^\x00]*@"
_SPARK_ADDRESS_IN_TEXT = r"https?://[^/\s@'\"]+@|://[^/\s:@'\"]*:[^\s'\"]*@|://[^/\s:@'\"]+:(?!\d+[/\s])[^/'\"\r\n]*@"
# The password of a mistyped address begins at one of its first cuts, or that near to the @.
_CUTS = 9
_NEAR = 999
# A shorter secret is hidden only where it stands alone, else masking would take letters out of every word.
_LONG = 8
_ALWAYS_PLAIN = frozenset({"", "true", "false", "none", "null"})
# Left out is what tells a task how to renew credentials: whoever may set a table's properties could send the task, with
# a token of the catalog, to a server of their own. The REST catalog's client adds it.
_STORAGE_KEY = re.compile(
    r"(?!(client|gcs\.oauth2|adls)\.refresh-credentials-)((s3|gcs|adls|hdfs|oss|hf|fsspec|client)\.|py-io-impl$)"
)
# What ends the name of a secret, alone or as the last word of `db-password`, `db_password` or `dbPassword`, whose
# letters Spark makes small: so a word counts with any letters before it, but for `sas`, with which `kansas` ends. A
# property of a column ends in the column's name, which tells nothing.
_CREDENTIAL = re.compile(
    r"(?!.*\.column\.)(auth\.|header\.|(.*[.-])?sas$|.*("
    rf"{UNMISTAKABLE_WORDS}|pwd|signature|jwt|access[-.]?key[-.]?id|(private|encryption|secret|customer)[-.]?key|"
    r"passwords?|(secret|credential)s)d?$)"
)
# Credentials for all services of AWS; the catalog may be one of them.
_SHARED_CREDENTIAL = re.compile(r"client\.(access-key-id|secret-access-key|session-token)$")


def is_secret(key: str) -> bool:
    """Return whether the value of property `key` must not be shown."""
    name = key.replace("_", "-").lower()
    return _SECRET_KEY.search(name) is not None and name not in _PLAIN_KEYS


def is_credential(key: str) -> bool:
    """Return whether property `key` surely holds a secret; `user` or `session-id` may be no more than a name."""
    name = key.replace("_", "-").lower()
    return is_secret(name) and (_STORAGE_KEY.match(name) is not None or _CREDENTIAL.match(name) is not None)


def mask_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties as they may be shown: secret values and URL users as `***`."""
    return {mask_name(key): _shown(key, value) for key, value in properties.items()}


def mask_name(key: str) -> str:
    """Return the name of a property or an option; a value may stand behind a colon, an = or an @, which no name has."""
    return _BEHIND_NAME.sub(MASK, key)


def _shown(key: str, value: object) -> str:
    if is_secret(key):
        return MASK
    if isinstance(value, list | tuple):
        return str([_shown(key, item) for item in value])
    if isinstance(value, Mapping):
        return str(mask_properties(value))
    shown = mask_url(str(value))
    return _USERINFO_OF_MISTYPED.sub(MASK, shown) if _ADDRESS_KEY.search(key) else shown


def mask_url(text: str) -> str:
    """Return `text`, an address, with its user, password and secret parameters as `***`."""
    text = _masked_behind(text, [*_userinfo_of_value(text), *_PARAMETER_OF_VALUE.finditer(text)])
    for entry in (_ENCODED_PARAMETER, _LIST_PARAMETER, _PARAMETER):
        text = entry.sub(_masked_entry, text)
    return text


def refused_value(text: str, problem: str) -> str:
    """Return how an error shows the value of an option, and what is wrong with it.

    A part of the value that the problem quotes shows no secret either, though it may not look like one any more without
    what stands before it.
    """
    return f"{mask_value(text)!r}: {masked_problem(text, problem)}"


def mask_value(text: str) -> str:
    """Return the value of an option, without what looks like a secret in it."""
    return mask_text(mask_url(text), {})


def task_problem(error: Exception, properties: Mapping[str, Any]) -> str:
    """Return why a task failed, for its answer: a text without any secret of the properties that open storage."""
    return mask_text(
        str(error) if isinstance(error, IcebergSinkError) else f"{type(error).__name__}: {error}", properties
    )


def masked_problem(text: str, problem: str) -> str:
    """Return what is wrong with the value of an option without the secrets in the value, in its letters or small."""
    hidden = re.fullmatch("(.*)".join(map(re.escape, mask_value(text).split(MASK))), text, re.DOTALL)
    secrets = [text] if hidden is None else hidden.groups()
    return mask_text(problem, {"secret": [*secrets, *map(str.lower, secrets)]})


def _userinfo_of_value(text: str) -> list[re.Match[str]]:
    """Return the match of the user and password of an address, up to the last @; none without an @."""
    # Only what is before the last @ is searched, else a long value without one is read anew from each scheme in it.
    found = _USERINFO_OF_VALUE.search(text, 0, text.rfind("@") + 1)
    return [] if found is None else [found]


def _masked_behind(text: str, matches: Iterable[re.Match[str]]) -> str:
    shown, end = [], 0
    for begin, until in _behind(matches):
        shown.append(text[end:begin])
        end = until
    return MASK.join([*shown, text[end:]])


def _behind(matches: Iterable[re.Match[str]]) -> list[tuple[int, int]]:
    """Return where the parts of a text are that stand behind the first group of a match; overlapping ones are one.

    All matches are of the same text: an @ in a parameter ends a user, too, and without its name the rest would show.
    """
    parts: list[tuple[int, int]] = []
    for begin, end in sorted((found.end(1), found.end()) for found in matches):
        if parts and begin < parts[-1][1]:
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((begin, end))
    return parts


def has_password(text: str) -> bool:
    """Return whether a text surely holds an address with a user and a password."""
    return _PASSWORD.search(text) is not None


def holds_secret(text: str) -> bool:
    """Return whether a text surely holds a secret: a password in an address, a token, a key, or a named credential.

    It may be percent-encoded up to twice.
    """
    if _shows_secret(text):
        return True
    return "%" in text and any(map(_shows_secret, (unquote(text), unquote(unquote(text)))))


def _shows_secret(text: str) -> bool:
    if _PASSWORD.search(text) or _JWT.search(text) or _PRIVATE_KEY.search(text) or _LOGIN.search(text):
        return True
    # Blanks around a = are those of a sentence.
    parameters = [entry for entry in _PARAMETER.finditer(text) if " " not in entry["before"]]
    return any(is_credential(entry["key"]) for entry in (*_QUOTED_ENTRY.finditer(text), *parameters))


def mask_password(location: str) -> str:
    """Return `location` with its user and password as `***`; nothing else in it is hidden."""
    return _PASSWORD.sub(rf"\1{MASK}", location)


def mask_text(text: str, properties: Mapping[str, Any]) -> str:
    """Return `text` (an error of another library, say) without any secret.

    Hidden are the secret values of `properties`: as they are, percent-encoded, escaped (both up to twice), in Base64
    alone or with the text around them, or cut off at their end; their long lines and the secrets within them, too, by
    themselves; and all else that looks like a secret: entries with telling names, headers, private keys, users and
    passwords of URLs.
    """
    text = _without(text, {form for secret in set(_secrets(properties)) for form in _forms(secret)})
    text = _JWT.sub(MASK, _PRIVATE_KEY.sub(MASK, text))
    for entry in (_REFUSED_VALUE, _QUOTED_LIST, _QUOTED_ENTRY, _QUOTED_PAIR, _QUOTED_PARAMETER, _LIST_PARAMETER):
        text = entry.sub(_masked_entry, text)
    for entry in (_ENCODED_PARAMETER, _ELEMENT, _NAMED_ELEMENT, _ARGUMENT, _PARAMETER):
        text = entry.sub(_masked_entry, text)
    text = _masked_behind(text, [*_USERINFO_IN_TEXT.finditer(text), *_PARAMETER_IN_TEXT.finditer(text)])
    text = _SCHEME_IN_HEADER.sub(rf"\1 {MASK}", text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    return _LINE.sub(_masked_entry, _MAP_ENTRY.sub(_masked_entry, text))


def masked_cause(error: Exception, properties: Mapping[str, Any]) -> Exception:
    """Return what may be shown as the cause of a sink error: Spark prints causes with all their texts.

    It is `error` itself if neither `error` nor its causes tell a secret, else its masked text and where it was raised.
    """
    if all(mask_text(text, properties) == text for link in _chain(error) for text in _texts(link)):
        return error
    return RuntimeError(mask_text(_printed(error), properties)).with_traceback(error.__traceback__)


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and all that is printed with it: what caused it, and the members of groups."""
    found: list[BaseException] = []
    left: list[BaseException] = [error]
    while left:
        link = left.pop()
        if any(link is known for known in found):
            continue
        found.append(link)
        cause = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        left += [*([] if cause is None else [cause]), *getattr(link, "exceptions", ())]
    return found


def _texts(error: BaseException) -> list[str]:
    notes = getattr(error, "__notes__", ())
    return [_printed(error), *(note for note in notes if isinstance(note, str))]


def _printed(error: BaseException) -> str:
    """Return what Python prints of an error by itself, but for the module of its class, which may sound like a secret.

    That is more than its text, such as the line that could not be parsed, and exists even if the text cannot be made.
    """
    return "".join(traceback.format_exception_only(error)).replace(f"{type(error).__module__}.", "", 1).strip()


def _secrets(properties: Mapping[str, Any], *, is_below_secret: bool = False) -> Iterator[str]:
    """Yield the secrets among the values, those of nested properties too, and those within other values."""
    for key, value in properties.items():
        yield from _secrets_of(value, is_hidden=is_below_secret or is_secret(key))
        if _ADDRESS_KEY.search(key) and (found := _USERINFO_OF_MISTYPED.match(str(value))) is not None:
            userinfo = found.group()
            # What the password is depends on what is mistyped.
            cuts = [cut.end() for cut in re.finditer(r":|[/\\]+", userinfo)]
            near = (cut for place, cut in enumerate(cuts) if place < _CUTS or len(userinfo) - cut < _NEAR)
            yield from (userinfo, *(userinfo[cut:] for cut in near))


def _secrets_of(value: object, *, is_hidden: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _secrets(value, is_below_secret=is_hidden)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_of(item, is_hidden=is_hidden)
    else:
        text = str(value)
        if is_hidden:
            yield text
            yield text.partition(":")[2]  # the client's secret behind its id
            # A line may be quoted alone, or with other ends; a short one may be a brace.
            yield from (line.strip() for line in text.splitlines() if len(line.strip()) > _LONG)
            yield from _secrets_of_header(text)
        yield from _secrets_of_json(text)
        yield from _secrets_of_url(text)


def _secrets_of_header(text: str) -> Iterator[str]:
    if (found := _AUTHORIZATION.fullmatch(text)) is None:
        return
    yield found["value"]
    with suppress(ValueError):  # it is no user with a password
        login = base64.b64decode(found["value"], validate=True).decode()
        yield from (login, login.partition(":")[2])


def _secrets_of_json(text: str) -> Iterator[str]:
    with suppress(ValueError, RecursionError):  # it is no JSON
        if text.lstrip().startswith(("{", "[")):
            yield from _secrets_of(json.loads(text), is_hidden=False)


def _secrets_of_url(text: str) -> Iterator[str]:
    users, parameters = _userinfo_of_value(text), list(_PARAMETER_OF_VALUE.finditer(text))
    for found in users:
        userinfo = found.group().removeprefix(found.group(1))
        yield from (userinfo, unquote(userinfo))
        password = userinfo.partition(":")[2]
        # Parsers of URLs take a password apart that should have been percent-encoded.
        yield from (password, unquote(password), *re.split(r"[\[\]@/?#\s\\]", password))
    yield from (text[begin:end] for begin, end in _behind([*users, *parameters]))
    for parameter in parameters:
        value = parameter.group().removeprefix(parameter.group(1))
        yield from (value, unquote(value), unquote_plus(value))
    for name, entry in _DSN_ENTRY.findall(unquote_plus(text)):
        if is_secret(name.strip().replace(" ", "-")):
            yield from (entry, entry.strip("{}"))
    yield from (found["value"] for found in _PARAMETER.finditer(text) if is_secret(found["key"]))


def _forms(secret: str) -> set[str]:
    """Return the ways in which libraries quote a secret."""
    encoded = secret.encode()
    percent = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    percent |= {quote(form, safe="") for form in percent}
    lower = {re.sub("%[0-9A-F]{2}", lambda code: code.group().lower(), form) for form in percent}
    in_base64 = {base64.b64encode(encoded).decode(), base64.urlsafe_b64encode(encoded).decode(), *_in_base64(encoded)}
    escaped = {repr(encoded)[2:-1], *_escaped(secret)}
    escaped |= {again for form in escaped for again in _escaped(form)}
    return {form for form in {secret, *percent, *lower, *escaped, *in_base64} if form.lower() not in _ALWAYS_PLAIN}


def _escaped(text: str) -> set[str]:
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1], ascii(text)[1:-1]}


def _in_base64(secret: bytes) -> Iterator[str]:
    """Yield what Base64 makes of a secret that is not too short within a longer text, such as `user:secret`."""
    for before in range(3):
        # Three bytes make four characters; those at both ends hold bits of the neighbours, too.
        first, end = -(-8 * before // 6), 8 * (before + len(secret)) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            inner = encode(bytes(before) + secret).decode()[first:end]
            if len(inner) > _LONG:
                yield inner


def _without(text: str, forms: set[str]) -> str:
    short = {form for form in forms if len(form) <= _LONG}
    heads = "|".join(re.escape(form[:_LONG]) for form in forms - short)
    parts, start = [], 0
    while heads and (found := re.compile(heads).search(text, start)) is not None:
        parts += [text[start : found.start()], MASK]
        start = found.start() + max(_common_length(text[found.start() :], form) for form in forms - short)
    text = "".join([*parts, text[start:]])
    for form in sorted(short, key=len, reverse=True):  # which may be parts of the long ones
        text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MASK, text)
    return text


def _common_length(text: str, form: str) -> int:
    """Return how many leading characters both share; a library may have cut the end off."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, form, strict=False)))


def _masked_entry(entry: re.Match[str]) -> str:
    return f"{entry['before']}{MASK}" if is_secret(entry["key"]) else entry.group()


def spark_option_pattern(prefix: str) -> str:
    """Return the Java pattern of names and values of options that Spark must not show.

    Args:
        prefix: The prefix of options that are properties of a catalog, such as `catalog.`.
    """
    name = rf"^{re.escape(prefix)}[^=\s]*(?:{TELLING_WORDS})"
    mistyped = rf"^{_NO_ADDRESS}[^:\x00]*:[^\x00]*@"
    return rf"(?i)url|{name}|(?<![\w-])header\.|{UNMISTAKABLE_WORDS}|{_SPARK_ADDRESS}|{mistyped}|{_PARAMETER_NAME}"


def spark_text_pattern(prefix: str) -> str:
    """Return the Java pattern of what Spark must not show in texts, such as requests of Spark Connect and SQL.

    Options stand there as `key: "catalog.token" value: "..."` and as `'catalog.token' = '...'`; quotes within quotes
    are escaped or doubled. The possessive `*+` keeps Java from running out of stack over a long value.

    Args:
        prefix: The prefix of options that are properties of a catalog, such as `catalog.`.
    """
    key = rf"{re.escape(prefix)}[^'\"\\=\s]*(?:{TELLING_WORDS})[^'\"\\=\s]*\\*['\"]\s*(?:=|,|value:)\s*"
    value = r"(?<mark>\\*['\"])(?:\k<mark>\k<mark>|(?!(?<!\\)\k<mark>).)*+"
    uri = rf"{re.escape(prefix)}uri\\*['\"]\s*(?:=|,|value:)\s*\\*['\"]{_NO_ADDRESS}[^'\"\r\n]*@"
    return rf"(?is){key}{value}|{uri}|{_SPARK_ADDRESS_IN_TEXT}|{_PARAMETER_NAME}[^&\s'\"\\]*"


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return only the properties that open storage: what an executor may have, without any catalog credential."""
    storage = {key: str(value) for key, value in properties.items() if _STORAGE_KEY.match(key)}
    if "s3.access-key-id" in storage:  # then the shared ones are the catalog's alone
        return {key: value for key, value in storage.items() if not _SHARED_CREDENTIAL.match(key)}
    return storage
