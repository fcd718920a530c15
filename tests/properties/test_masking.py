"""No secret of any shape, in any place, is shown; what Spark hides is told by the same words."""

from __future__ import annotations

import base64
import json
import re
import traceback
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.checks.secret_places import NAMES, PLACES, SECRETS

from iceberg_ds.secrets import (
    is_secret,
    mask_properties,
    mask_text,
    masked_cause,
    spark_option_pattern,
    spark_text_pattern,
)

OPTION = re.compile(spark_option_pattern("catalog."))


def python(pattern: str) -> re.Pattern[str]:
    """Return Java's pattern as Python writes it."""
    return re.compile(pattern.replace("(?<mark>", "(?P<mark>").replace(r"\k<mark>", "(?P=mark)").replace("*+", "*"))


TEXT = python(spark_text_pattern("catalog."))


@pytest.mark.parametrize("place", PLACES)
@given(name=NAMES, secret=SECRETS)
def test_secret_that_only_its_surroundings_tell_is_hidden(place: str, name: str, secret: tuple[str, str]) -> None:
    """Credentials that a catalog vends, or that a library quotes in its own form, would stand in logs."""
    whole, core = secret
    text = PLACES[place](name, whole)

    assert core not in mask_text(text, {})


@given(
    name=NAMES,
    secret=SECRETS,
    quoted=st.sampled_from(
        [
            *(str, repr, json.dumps, quote, quote_plus, lambda text: quote(text, safe="").lower()),
            *(
                lambda text: repr(text.encode()),
                lambda text: repr(repr(text)),
                lambda text: json.dumps(json.dumps(text)),
            ),
            lambda text: quote(quote(text, safe=""), safe=""),
        ]
    ),
)
def test_secret_of_a_property_is_hidden_wherever_it_is_quoted(
    name: str, secret: tuple[str, str], quoted: type[str]
) -> None:
    """An error of another library would show what the user configured."""
    whole, core = secret
    assume(whole.partition(":")[2] != "<")  # a secret that is one sign is hidden in plain words, too
    masked = mask_text(f"refused <{quoted(whole)}>, see the log", {name: whole})

    assert core not in masked
    assert masked.startswith("refused <")


@given(name=NAMES, secret=SECRETS, before=st.binary(max_size=7), after=st.binary(max_size=7))
def test_secret_of_a_property_is_hidden_in_base64_of_a_longer_text(
    name: str, secret: tuple[str, str], before: bytes, after: bytes
) -> None:
    """A proxy, or a library, shows the header of a user and a password, without the word Basic before it."""
    whole, core = secret
    encoded = base64.b64encode(before + whole.encode() + after).decode()
    assume(len(whole.encode()) > 8)  # a shorter one is hidden only where it stands alone

    masked = mask_text(f"refused <{encoded}>", {name: whole}).removeprefix("refused <").removesuffix(">")

    assert all(base64.b64encode(bytes(shift) + core.encode()).decode()[4:-4] not in masked for shift in range(3))


@given(secret=SECRETS, user=st.sampled_from(["writer", ""]), scheme=st.sampled_from(["postgresql", "mysql+pymysql"]))
def test_password_of_an_address_is_hidden_however_it_is_written(
    secret: tuple[str, str], user: str, scheme: str
) -> None:
    """A database's password would stand in the error of a user who did not encode it."""
    whole, core = secret
    uri = f"{scheme}://{user}:{whole}@db.example/catalog"

    assert core not in mask_properties({"uri": uri})["uri"]
    assert core not in mask_text(f"cannot connect to {uri}: {whole} is no host", {"uri": uri})


@given(
    secret=SECRETS,
    key=st.sampled_from(["uri", "catalog.uri", "s3.endpoint", "s3.proxy-uri"]),
    begin=st.sampled_from(["postgresql//", "postgresql:/", "postgresql:", "postgresql ://", "1pg://", "\\\\", ""]),
)
def test_password_of_a_mistyped_address_is_hidden(secret: tuple[str, str], key: str, begin: str) -> None:
    """The error that tells a user of the missing colon would show the password, and be sent to others for help."""
    whole, core = secret
    uri = f"{begin}writer:{whole}@db.example/catalog"

    assert core not in mask_properties({key: uri})[key]
    assert core not in mask_text(f"cannot parse {uri!r}, is it {whole}?", {key: uri})
    assert OPTION.search(uri) is not None
    plain = quote(whole, safe="")
    assert plain not in TEXT.sub("***", f'key: "catalog.uri" value: "{uri.replace(whole, plain)}"')


@pytest.mark.parametrize("uri", ["sqlite:////data/catalog.db", "thrift://h:9083", "h:9083", "abfss://c@a.example/t"])
def test_address_without_a_password_is_shown(uri: str) -> None:
    """A user could not see in an error which address was meant."""
    assert mask_properties({"uri": uri, "s3.endpoint": uri}) == {"uri": uri, "s3.endpoint": uri}


@given(
    secret=SECRETS,
    parameter=st.sampled_from(["password", "token", "sig", "api_key"]),
    begin=st.sampled_from(["postgresql://db.example/catalog", "https://u:p@h.example/", "http://h:1"]),
)
def test_secret_in_the_query_of_an_address_is_hidden_whatever_is_in_it(
    secret: tuple[str, str], parameter: str, begin: str
) -> None:
    """What stands behind an @ in a password would be shown as the host of the catalog."""
    whole, core = secret
    uri = f"{begin}?x=1&{parameter}=p@{whole.replace('&', '')}"

    assert core not in mask_properties({"uri": uri})["uri"]
    assert core not in mask_text(f"cannot connect to {uri}", {"uri": uri})
    plain = quote(whole, safe="@:")
    assert core not in mask_text(f"cannot connect to {begin}?x=1&{parameter}=p@{plain} now", {})


@given(secret=SECRETS, name=st.sampled_from(["PWD", "Password", "AccessKey", "Authentication Token"]))
def test_password_of_a_connection_string_in_an_address_is_hidden(secret: tuple[str, str], name: str) -> None:
    """A password that a driver's connection string holds would be shown twice encoded, or by the driver itself."""
    whole, core = secret
    entry = "{" + whole.replace("}", "}}") + "}" if set(whole) & set("{};= ") else whole
    uri = "mssql+pyodbc:///?odbc_connect=" + quote_plus(f"DRIVER={{ODBC}};UID=u;{name}={entry};Server=h")

    assert core not in mask_properties({"uri": uri})["uri"]
    assert core not in mask_text(f"login failed: DRIVER={{ODBC}};{name}={entry};Server=h", {"uri": uri})


@given(name=NAMES, secret=SECRETS, place=st.sampled_from(sorted(PLACES)), depth=st.integers(0, 3))
def test_chained_exceptions_print_no_secret(name: str, secret: tuple[str, str], place: str, depth: int) -> None:
    """Spark prints an error with all of its causes, and their texts."""
    whole, core = secret
    error: Exception = OSError(PLACES[place](name, whole))
    for level in range(depth):
        outer = RuntimeError(f"level {level}")
        outer.__cause__ = error if level % 2 else None
        outer.__context__ = error
        error = outer
    printed = "".join(traceback.format_exception(masked_cause(error, {name: whole})))

    assert core not in printed


@given(name=st.from_regex(r"\A[a-z0-9]{0,4}([a-z0-9._-]{0,12})\Z") | NAMES, more=st.sampled_from(["", "-x", ".x", "x"]))
def test_spark_hides_every_option_whose_name_is_secret_to_us(name: str, more: str) -> None:
    """The list of words that `register` gives to Spark would drift from the sink's own."""
    key = f"{name}{more}"
    if is_secret(key):
        assert OPTION.search(f"catalog.{key}") is not None
        assert TEXT.search(f'key: "catalog.{key}" value: "x"') is not None
        assert TEXT.search(f"'catalog.{key}' = 'x'") is not None


@given(name=NAMES, secret=SECRETS, levels=st.integers(0, 2))
def test_spark_hides_a_secret_option_in_requests_to_its_end(name: str, secret: tuple[str, str], levels: int) -> None:
    """Spark Connect shows each request as a text, in which a quote within a secret is escaped."""
    whole, core = secret
    request = json.dumps(f"catalog.{name}") + " value: " + json.dumps(whole)
    sql = f"'catalog.{name}' = '" + whole.replace("\\", "\\\\").replace("'", "''") + "', 'x' = 'y'"
    for _ in range(levels):
        request, sql = json.dumps(request)[1:-1], json.dumps(sql)[1:-1]

    assert core not in TEXT.sub("***", f"options {{ key: {request} }}")
    assert core not in TEXT.sub("***", f"INSERT INTO t WITH ({sql})")


@given(secret=SECRETS)
def test_spark_hides_an_address_with_a_password(secret: tuple[str, str]) -> None:
    """The password of the catalog's database would stand in Spark's UI."""
    whole, core = secret
    uri = f"postgresql://writer:{whole}@db.example/catalog"

    assert OPTION.search(uri) is not None
    assert core not in TEXT.sub("***", f'value: "{uri.replace(whole, quote(whole, safe=""))}"')
