"""Parsing of options: values, problems, aliases and masking."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from iceberg_ds.deletes.upsert import upsert_into
from iceberg_ds.errors import OptionError
from iceberg_ds.options.declaring import Option, options_table
from iceberg_ds.options.parse import SPARK_KEYS, given_options, options_of_call, parse_options
from iceberg_ds.options.read_options import READ_OPTIONS
from iceberg_ds.options.sink_options import OPTIONS

SECRET = "hunter2-s3cr3t"  # noqa: S105  # the thing to hide


def refusal(raw: dict[str, str]) -> str:
    """Return the text of the error that these options raise."""
    with pytest.raises(OptionError) as raised:
        parse_options(raw)
    return str(raised.value)


def test_all_options_are_parsed(tmp_path: Path) -> None:
    """An option that a user gives would be ignored."""
    options = parse_options(
        {
            "table": "prod.db.events",
            "catalog": "lake",
            "catalog.uri": "http://127.0.0.1:8181",
            "catalog.s3.endpoint": "http://127.0.0.1:7070",
            "warehouse": str(tmp_path),
            "create-table": "False",
            "target-file-size-bytes": "1000",
            "compression-codec": "GZIP",
            "compression-level": "9",
            "write-format": "PARQUET",
        }
    )

    assert options.table == ("prod", "db", "events")
    assert options.catalog == "lake"
    assert options.catalog_properties == {"uri": "http://127.0.0.1:8181", "s3.endpoint": "http://127.0.0.1:7070"}
    assert options.warehouse == str(tmp_path)
    assert options.create_table is False
    assert options.target_file_size_bytes == 1000
    assert options.compression_codec == "gzip"
    assert options.compression_level == 9


def test_options_that_were_not_given_are_none() -> None:
    """A default would win over the table's property."""
    options = parse_options({"table": "db.t"})

    assert options.catalog is None
    assert options.warehouse is None
    assert options.target_file_size_bytes is None
    assert options.compression_codec is None
    assert options.compression_level is None
    assert options.create_table is True
    assert dict(options.catalog_properties) == {}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("table", "events", "separated by a dot"),
        ("table", "db.", "separated by a dot"),
        ("table", ".t", "separated by a dot"),
        ("table", "db. .t", "separated by a dot"),
        ("table", "", "separated by a dot"),
        ("catalog", " ", "expected a name"),
        ("warehouse", "s3://bucket/x", "catalog.*"),
        ("warehouse", "hdfs:/data/x", "catalog.*"),
        ("warehouse", "/data/hdfs://x", "catalog.*"),
        ("metrics-file", "hdfs:/data/x.jsonl", "path of a local file"),
        ("create-table", "yes", "true or false"),
        ("create-table", "", "true or false"),
        ("target-file-size-bytes", "0", "whole number above 0"),
        ("target-file-size-bytes", "-1", "whole number above 0"),
        ("target-file-size-bytes", "512MB", "whole number above 0"),
        ("target-file-size-bytes", "²", "whole number above 0"),
        ("compression-codec", "lzo", "zstd, snappy, gzip, lz4, brotli, uncompressed"),
        ("compression-level", "high", "whole number"),
        ("write-format", "orc", "parquet"),
    ],
)
def test_malformed_value_is_named_with_what_is_expected(name: str, value: str, reason: str) -> None:
    """A user would not learn which option is wrong, or what to write instead."""
    text = refusal({"table": "db.t", name: value})

    assert f"option '{name}' is {value!r}" in text
    assert reason in text


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("target-file-size", "target-file-size-bytes"),
        ("compression_codec", "compression-codec"),
        ("targetfilesizebytes", "target-file-size-bytes"),
        ("createtable", "create-table"),
        ("ware-house", "warehouse"),
        ("tabel", "table"),
        ("fanout_enabled", "fanout-enabled"),
        ("max-records-per-file", "maxrecordsperfile"),
    ],
)
def test_unknown_option_is_answered_with_the_nearest_name(misspelt: str, meant: str) -> None:
    """A misspelt option would be ignored, or its user left to guess."""
    assert f"unknown option '{misspelt}': did you mean '{meant}'?" in refusal({"table": "db.t", misspelt: "1"})


@pytest.mark.parametrize("key", ["xyz", "catalog."])
def test_unknown_option_that_resembles_none_lists_the_known_ones(key: str) -> None:
    """A user would not learn which options there are."""
    text = refusal({"table": "db.t", key: "1"})

    assert f"unknown option '{key}'" in text
    assert key == "catalog." or "known options: table, namespace, catalog, warehouse" in text


def test_all_problems_are_reported_at_once() -> None:
    """A user would fix one option per run."""
    text = refusal({"path": "nodots", "create-table": "maybe", "compression-codec": "lzo", "bogus-thing": "1"})

    assert len(re.findall(r"^  - ", text, re.MULTILINE)) == 4


def test_table_comes_from_save_or_start() -> None:
    """`save("db.t")` would not name the table."""
    assert parse_options({"path": "db.t"}).table == ("db", "t")


def test_table_may_be_named_twice_alike() -> None:
    """A user who names the table twice, and alike, would be refused."""
    assert parse_options({"path": "db.t", "table": "db.t"}).table == ("db", "t")


def test_two_different_tables_are_refused() -> None:
    """Rows would go to one of two tables, by luck."""
    text = refusal({"path": "db.t", "table": "db.other"})

    assert "option 'table' and the table in save(), start() or load() differ ('db.t')" in text


def test_missing_table_is_refused_with_all_ways_to_name_it() -> None:
    """A user would not learn how to name the table."""
    text = refusal({})

    assert 'save("db.t"), start("db.t"), load("db.t") or option("table", "db.t")' in text


def test_malformed_table_is_one_problem_not_two() -> None:
    """A user would be told that no table is named although one is, misspelt."""
    text = refusal({"table": "events"})

    assert text.count("\n") == 1
    assert "no table is named" not in text


def test_functions_take_options_as_spark_does() -> None:
    """A call would refuse what the write that has the same options takes."""
    given: dict[str, Any] = {"Create-Table": False, "target-file-size-bytes": 1024, "catalog.URI": "http://Here"}

    assert given_options(given) == {
        "create-table": "False",
        "target-file-size-bytes": "1024",
        "catalog.uri": "http://Here",
    }
    assert given_options(None) == {}


def test_keys_that_spark_adds_pass() -> None:
    """Every stream would be refused for Spark's own options."""
    raw = dict.fromkeys(SPARK_KEYS - {"path"}, "/tmp/x")  # noqa: S108  # never opened

    assert parse_options({**raw, "path": "db.t"}).table == ("db", "t")


def test_warehouse_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors would look for a relative warehouse in another working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    assert parse_options({"table": "db.t", "warehouse": "wh"}).warehouse == str(tmp_path / "wh")
    assert parse_options({"table": "db.t", "warehouse": "~/wh"}).warehouse == str(tmp_path / "home" / "wh")


def test_secrets_are_masked_when_shown() -> None:
    """Catalog credentials would stand in a log."""
    options = parse_options(
        {
            "table": "db.t",
            "catalog.uri": f"postgresql://writer:{SECRET}@db.example/catalog",
            "catalog.token": SECRET,
            "catalog.s3.secret-access-key": SECRET,
        }
    )

    assert SECRET not in repr(options)
    assert SECRET not in str(options)
    assert "'token': '***'" in str(options)
    assert "db.example" in str(options)


def test_refused_value_does_not_show_credentials_of_a_url() -> None:
    """A password in a misplaced URL would stand in the error."""
    assert SECRET not in refusal({"table": "db.t", "warehouse": f"s3://key:{SECRET}@bucket/x"})


def test_table_of_a_function_does_not_show_credentials_of_a_url() -> None:
    """A password in the argument of `upsert` or of `convert_deletes` would stand in the error."""
    place = f"s3a://key:{SECRET}@bucket/db/t"
    for table, option in ((place, "db.t"), ("db.t", place), ("db.t", f"Bearer {SECRET}")):
        with pytest.raises(OptionError, match="which table is meant") as raised:
            options_of_call(table, {"table": option})
        assert SECRET not in str(raised.value)
    with pytest.raises(OptionError, match="option 'txn-version' is given") as raised:
        upsert_into(place, options={"txn-version": "1"})
    assert SECRET not in str(raised.value)


def test_option_without_a_value_is_no_option() -> None:
    """Rows would land on a branch named `None`; Spark's own writer leaves such options out, too."""
    assert options_of_call("db.t", {"Branch": None, "keys": "id"}) == {"table": "db.t", "keys": "id"}  # type: ignore[dict-item]
    with pytest.raises(OptionError, match="The options are a list, expected a mapping, or None"):
        given_options(["branch"])  # type: ignore[arg-type]  # as a user might


def test_what_is_no_identifier_is_no_table() -> None:
    """Some functions take the session first, and others the table: `re` would say what it expects."""
    with pytest.raises(
        OptionError, match=r"^The table is a dict, expected its identifier, a text such as 'db\.events'\.$"
    ):
        options_of_call({"password": "secret"}, None)  # type: ignore[arg-type]  # as a user might


@pytest.mark.parametrize(
    "options",
    [
        {"path": f"s3a://key:{SECRET}@my.bucket/db/t"},
        {"table": f"s3a://key:{SECRET}@bucket/db/t"},
        {"table": "db.t", "path": f"s3a://key:{SECRET}@bucket/db/t"},
        {"table": "db.t", "namespace": f"postgresql://u:{SECRET}@h.example"},
        {"table": "db.t", f"token: {SECRET}": "="},
        {"table": "db.t", f"uri:postgresql://u:{SECRET}@h/?x": "1"},
    ],
)
def test_secret_in_the_wrong_place_is_not_shown(options: dict[str, str]) -> None:
    """The error that tells of the mistake would show it."""
    assert SECRET not in refusal(options)


@pytest.mark.parametrize(
    "option",
    [
        "distribution-mode",
        "max-bad-rows",
        "replace-where",
        "delete-when",
        "partition-by",
        "sort-by",
        "keys",
        "format-version",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "at http://u:{}@h",
        "Authorization: Bearer {}",
        '{{"token": "{}"}}',
        "s3.sse-c.key: {}",
        "a password={}",
        "an odbc_connect=x%3BPWD%3D{}",
        "--password {}",
        "Login(tokens=['x', '{}'], host='h')",
        "https://h.example/t?next=Server%253Dh%253BPWD%253D{}",
    ],
)
def test_secret_in_a_malformed_value_is_not_shown(option: str, text: str) -> None:
    """What is wrong with a value is told with the part of it that cannot be read: it would show the secret alone."""
    refused = refusal({"table": "db.t", option: text.format(SECRET)})

    assert option in refused
    assert SECRET not in refused


def test_secret_behind_a_colon_is_not_taken_for_a_name() -> None:
    """A log would show what stands behind a colon in place of an equals sign, as in `--option catalog.token:x=`."""
    options = parse_options({"table": "db.t", f"catalog.credential:id:{SECRET}": "="})

    assert SECRET not in str(options)
    assert "'credential***'" in str(options)


@pytest.mark.parametrize(
    "option",
    [
        "table-property.s3.secret-access-key",
        "table-property.adls.sas-token.account",
        "table-property.token",
        "table-property.encryption.key",
        "snapshot-property.credential",
        "snapshot-property.db.pwd",
        "snapshot-property.dynamodb.session-token",
        "snapshot-property.my.private_key",
        "snapshot-property.api_key",
        "snapshot-property.my-secret-key",
        "snapshot-property.passwd",
        "snapshot-property.signature",
        "snapshot-property.header.authorization",
        "snapshot-property.header.x-team",
        "table-property.auth.basic.username",
        "snapshot-property.dbpassword",
        "snapshot-property.app.accesstoken",
        "snapshot-property.clientsecret",
        "snapshot-property.sastoken",
        "snapshot-property.sas",
        "snapshot-property.jwt",
        "snapshot-property.userjwt",
        "table-property.access-key-id",
        "table-property.accesskeyid",
        "table-property.aws_access_key_id",
        "snapshot-property.credentials",
        "snapshot-property.dbpasswords",
    ],
)
def test_secret_as_a_property_of_table_or_snapshot_is_refused(option: str) -> None:
    """A credential would stand in the table's metadata for all of its readers and for ever."""
    refused = refusal({"table": "db.t", option: SECRET})

    assert f"options {option} would write secrets into the table's metadata" in refused
    assert "below 'catalog.'" in refused
    assert SECRET not in refused


@pytest.mark.parametrize(
    "option", ["table-property.comment", "snapshot-property.source", "location", "userMetadata", "txn-app-id", "branch"]
)
def test_address_with_a_password_is_kept_out_of_metadata(option: str) -> None:
    """The name of a property tells nothing, and the password would stand in the metadata, in errors and in logs."""
    refused = refusal({"table": "db.t", option.lower(): f"s3a://writer:{SECRET}@bucket/x"})

    assert f"options {option} would write secrets into the table's metadata" in refused
    assert SECRET not in refused


@pytest.mark.parametrize(
    "text",
    [
        f"Server=h;password={SECRET}",
        f"aws_access_key_id=AKIA;aws_secret_access_key={SECRET}",
        f'{{"user": "u", "token": "{SECRET}"}}',
        f"Bearer {SECRET}",
        f"Authorization: Basic {SECRET}",
        f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.c2lnbmF0dXJl",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    ],
)
@pytest.mark.parametrize("option", ["table-property.comment", "snapshot-property.source", "userMetadata", "sort-by"])
def test_secret_that_its_shape_tells_is_kept_out_of_metadata(option: str, text: str) -> None:
    """A token that was pasted into the wrong option would stand in the metadata, in errors and in logs."""
    refused = refusal({"table": "db.t", option.lower(): text})

    assert f"options {option} would write secrets into the table's metadata" in refused
    assert SECRET not in refused


@pytest.mark.parametrize(
    "text",
    [
        "the token = md5 of the id",
        "of Bearer tokens",
        "a basic understanding",
        "user=etl",
        "token-count=7",
        '{"tokens": 7, "primary-key": "id"}',
        "token=none",
    ],
)
def test_property_that_speaks_of_secrets_is_taken(text: str) -> None:
    """Comments of tables would be refused."""
    assert parse_options({"table": "db.t", "table-property.comment": text}).table_properties["comment"] == text


@pytest.mark.parametrize(
    "text", ["see https://wiki/@me", "mailto:me@x", "s3://b/a:b@c", "abfss://c@a.dfs.core.windows.net/x"]
)
def test_property_that_only_looks_like_an_address_with_a_password_is_taken(text: str) -> None:
    """Comments of tables would be refused."""
    assert parse_options({"table": "db.t", "table-property.comment": text}).table_properties["comment"] == text


@pytest.mark.parametrize(
    "option",
    [
        "table-property.write.metadata.metrics.column.session_id",
        "table-property.write.parquet.bloom-filter-enabled.column.user",
        "table-property.write.parquet.bloom-filter-enabled.column.password",
        "table-property.author",
        "snapshot-property.session-id",
        "snapshot-property.token-count",
        "snapshot-property.tokenizer",
        "snapshot-property.cookies",
        "snapshot-property.max-tokens",
        "snapshot-property.primary-key",
        "snapshot-property.partition-key",
        "snapshot-property.partitionkey",
        "snapshot-property.monkey",
        "snapshot-property.kansas",
        "snapshot-property.compass",
        "snapshot-property.password-changed-at",
        "table-property.encryption.key-id",
        "table-property.auth.type",
        "table-property.write.metadata.metrics.column.accesstoken",
    ],
)
def test_property_that_only_sounds_like_a_secret_is_taken(option: str) -> None:
    """A user could not set a property because of a column's name."""
    parse_options({"table": "db.t", option: "1"})


@pytest.mark.parametrize("declared", [OPTIONS, READ_OPTIONS], ids=["writes", "reads"])
def test_documented_table_has_every_option_once(declared: tuple[Option, ...]) -> None:
    """The page of options would not tell of one."""
    table = options_table(declared)

    for option in declared:
        assert table.count(f"| `{option.name}` |") == 1
        assert option.doc in table
    assert len(table.splitlines()) == len(declared) + 2


def test_namespace_completes_a_bare_name() -> None:
    """A job for many tables would have to repeat the namespace in each name."""
    assert parse_options({"path": "t", "namespace": "a.b"}).table == ("a", "b", "t")
    assert parse_options({"path": "db.t", "namespace": "a.b"}).table == ("db", "t")


@pytest.mark.parametrize("key", ["merge-schema", "mergeschema"])
def test_merge_schema_is_a_word_for_adding_columns(key: str) -> None:
    """A user of another sink would find columns refused that were added there."""
    assert parse_options({"table": "db.t", key: "true"}).schema_evolution == "add-columns"
    assert parse_options({"table": "db.t", key: "false"}).schema_evolution == "strict"
    assert parse_options({"table": "db.t", key: "true", "schema-evolution": "full"}).schema_evolution == "full"


def test_replace_where_is_known_by_deltas_spelling() -> None:
    """A user of another sink would get an error for a word that he knows."""
    assert parse_options({"table": "db.t", "replacewhere": "id = 1"}).replace_where == "id = 1"


def test_groups_of_options_keep_their_keys_and_values() -> None:
    """Properties would get lost, or get into the wrong place."""
    options = parse_options(
        {
            "table": "db.t",
            "table-property.write.data.path": "s3://b",
            "snapshot-property.team": "x=y",
            "catalog.uri": "u",
        }
    )

    assert options.table_properties == {"write.data.path": "s3://b"}
    assert options.snapshot_properties == {"team": "x=y"}
    assert options.catalog_properties == {"uri": "u"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"replace-where": "id = 1", "overwrite-mode": "dynamic"}, "in two ways"),
        ({"drop-missing-columns": "true"}, "needs 'schema-evolution=full'"),
        ({"evolve-partitioning": "true"}, "needs 'partition-by'"),
        ({"staging-branch": "main"}, "are the same"),
        ({"merge-schema": "true", "schema-evolution": "strict"}, "contradict each other"),
        ({"merge-schema": "true", "mergeschema": "false"}, "given twice"),
        ({"snapshot-property.total-records": "1"}, "what readers go by: total-records"),
        ({"snapshot-property.spark.sql.streaming.epochid": "1"}, "what the commit itself records"),
        ({"snapshot-property.manifests-kept": "1"}, "what readers go by: manifests-kept"),
        ({"snapshot-property.source-snapshot-id": "1"}, "what readers go by: source-snapshot-id"),
        ({"snapshot-property.self": "x"}, "what readers go by: self"),
        ({"table-property.format-version": "1"}, "an option of its own"),
        ({"check-nullability": "false"}, "would break the table"),
        ({"format-version": "4"}, "expected one of 1, 2, 3"),
        ({"replace-where": "id === 1"}, "expected a predicate"),
        ({"location": "/"}, "expected a location"),
    ],
)
def test_options_that_contradict_each_other_or_the_table_are_refused(options: dict[str, str], reason: str) -> None:
    """A write would do something else than what one of its options says."""
    assert reason in refusal({"table": "db.t", **options})


@pytest.mark.parametrize("names", [("txn-app-id", "txn-version"), ("txnappid", "txnversion")])
def test_application_and_version_are_parsed(names: tuple[str, str]) -> None:
    """A batch would not be recognised when it is repeated, or a job could not be moved over from Delta."""
    options = parse_options({"table": "db.t", names[0]: "load", names[1]: "9223372036854775807"})

    assert (options.txn_app_id, options.txn_version) == ("load", 2**63 - 1)


@pytest.mark.parametrize("version", ["", "-1", "1.5", "1_000", " 7", "9223372036854775808", "²"])
def test_version_that_is_no_whole_number_is_refused(version: str) -> None:
    """Two versions could be taken for one, and rows be lost."""
    text = refusal({"table": "db.t", "txn-app-id": "load", "txn-version": version})

    assert "expected a whole number from 0 to 9223372036854775807" in text


@pytest.mark.parametrize("option", ["txn-app-id", "stream-name"])
@pytest.mark.parametrize("name", ["x" * 161, "." * 54, "ü" * 27])
def test_name_that_a_catalog_could_not_keep_is_refused(option: str, name: str) -> None:
    """Each commit would fail over a catalog that cuts the names of properties, or two writers would have one mark."""
    given = {"table": "db.t", "txn-version": "1", option: name}

    assert f"option '{option}' is '{name}': expected a name of at most 160 characters" in refusal(given)


@pytest.mark.parametrize("given", [{"txn-app-id": "load"}, {"txn-version": "1"}])
def test_application_and_version_need_each_other(given: dict[str, str]) -> None:
    """A user who forgets one would believe that retries are safe."""
    assert "'txn-app-id' and 'txn-version' need each other" in refusal({"table": "db.t", **given})


def test_accepting_a_new_checkpoint_needs_a_name() -> None:
    """A user would believe that a reset was accepted, or that others are refused."""
    assert "'accept-new-checkpoint' needs 'stream-name'" in refusal({"table": "db.t", "accept-new-checkpoint": "true"})
    named = parse_options({"table": "db.t", "stream-name": "orders", "accept-new-checkpoint": "true"})
    assert (named.stream_name, named.accept_new_checkpoint) == ("orders", True)
