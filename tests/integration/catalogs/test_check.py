"""`check` on healthy and on broken set-ups, over real servers: what is wrong is named, and nothing is left behind."""

from __future__ import annotations

import json
import sys
import time
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from support.exhaustive import EXHAUSTIVE
from support.services.bucket import Bucket
from support.services.fake_services import answering, closed, rest_answer, s3_answer, silent
from support.services.servers import CatalogService, ObjectStore
from support.spark.session import stop_shared_session

import iceberg_ds
from iceberg_ds.cli import main
from iceberg_ds.inspect import machine_checks
from iceberg_ds.inspect.checklist import Check, CheckResult

SECRET = "M4rk3d-S3cr3t-0f-Th1s-T3st"  # noqa: S105  # marked, to be looked for
PUT, LARGE, DELETE = "storage: write a file", "storage: write a large file in parts", "storage: delete it"
Options = dict[str, str]
ID_AND_NAME = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@pytest.fixture
def bucket(object_store: ObjectStore, request: pytest.FixtureRequest) -> Bucket:
    """Return a new bucket for the test."""
    name = "check-" + "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_").lower())
    bucket = Bucket(store=object_store, name=name[:60].strip("-"))
    assert bucket.location
    return bucket


@pytest.fixture
def options(bucket: Bucket, tmp_path: Path) -> Options:
    """Return the options of a write to a SQL catalog that exists, with its files in the bucket."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{bucket.location}/warehouse",
        **bucket.store.properties,
    }
    load_catalog("lake", **properties)
    return {"catalog": "lake", "table": "db.t", **{f"catalog.{key}": value for key, value in properties.items()}}


@pytest.fixture
def rest(rest_catalog: CatalogService, request: pytest.FixtureRequest) -> Options:
    """Return the options of a write to a REST catalog, to a table that no other test uses."""
    return {**rest_catalog.options, "table": f"check.{request.node.originalname}"}


def found(result: CheckResult, name: str) -> Check:
    """Return the only check of that name on the driver."""
    (check,) = [check for check in result.checks if check.name == name and check.where == "driver"]
    return check


def failures(result: CheckResult) -> dict[str, str]:
    """Return what failed, and what is to be done about it."""
    return {check.name: f"{check.detail} | {check.next_step}" for check in result.failures}


def files_below(folder: Path) -> set[str]:
    """Return all files below a folder, without what the S3 server keeps for itself."""
    files = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {str(path) for path in files if not path.parts[0].startswith(".")}


def test_healthy_set_up_passes_on_driver_and_executors(
    spark: SparkSession, rest: Options, object_store: ObjectStore
) -> None:
    """A user would look for faults that are not there, or be told nothing of the executors."""
    catalog = load_catalog("rest", **{key[8:]: value for key, value in rest.items() if key.startswith("catalog.")})
    catalog.create_namespace_if_not_exists("check")
    table = catalog.create_table(rest["table"], ID_AND_NAME)
    before = files_below(object_store.folder)

    result = iceberg_ds.check(rest["table"], spark=spark, options=rest, schema="id BIGINT, name STRING")

    assert result.ok, str(result)
    executors = [check for check in result.checks if check.where.partition(" ")[2].startswith("(process")]
    assert {"versions", "clock against the driver's", PUT, LARGE, DELETE} <= {check.name for check in executors}
    assert found(result, "executors").detail == "1 of 1 answered"
    assert {check.outcome for check in result.checks} == {"ok"}, str(result)
    assert files_below(object_store.folder) == before
    assert catalog.load_table(rest["table"]).metadata_location == table.metadata_location


def test_table_that_does_not_exist_is_not_made(
    rest: Options, rest_catalog: CatalogService, object_store: ObjectStore
) -> None:
    """A check would leave a table, a namespace or files behind."""
    rest["table"] = "check_new.below.t"
    catalog = load_catalog("rest", **rest_catalog.properties)
    before = files_below(object_store.folder), catalog.list_namespaces()

    result = iceberg_ds.check(rest["table"], options=rest)

    assert result.ok, str(result)
    assert found(result, "right to create the table").outcome == "ok"
    assert (files_below(object_store.folder), catalog.list_namespaces()) == before


def test_embedded_catalog_is_not_made(tmp_path: Path) -> None:
    """A check in a wrong folder would leave a catalog there."""
    result = iceberg_ds.check("db.t", options={"warehouse": str(tmp_path / "warehouse")})

    assert result.ok, str(result)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("address", "hint"), [("nowhere.invalid:8181", "name service"), (None, "Check host and port")])
def test_wrong_address_of_the_catalog_is_named(rest: Options, address: str | None, hint: str) -> None:
    """A user who mistypes the host or the port would not learn which setting is wrong."""
    result = iceberg_ds.check(rest["table"], options={**rest, "catalog.uri": f"http://{address or closed()}"})

    assert list(failures(result)) == ["catalog is reached"]
    assert "'uri'" in found(result, "catalog is reached").next_step
    assert hint in found(result, "catalog is reached").next_step
    assert found(result, "catalog accepts the credentials").outcome == "skipped"
    assert found(result, PUT).outcome == "ok"


@EXHAUSTIVE
def test_wrong_endpoint_of_the_storage_is_named(options: Options) -> None:
    """A user whose storage is not reached would look at the catalog."""
    result = iceberg_ds.check("db.t", options={**options, "catalog.s3.endpoint": f"http://{closed()}"})

    assert "'s3.endpoint'" in failures(result)["right to create the table"]
    assert found(result, "catalog is reached").outcome == "ok"


@pytest.mark.parametrize("key", ["s3.access-key-id", "s3.secret-access-key"])
def test_wrong_key_is_named(rest: Options, key: str) -> None:
    """A user with a wrong key would not learn which property is wrong, or everybody would learn the key."""
    result = iceberg_ds.check(rest["table"], options={**rest, f"catalog.{key}": SECRET})

    assert f"'{key}'" in found(result, PUT).next_step
    assert found(result, LARGE).outcome == found(result, DELETE).outcome == "skipped"
    assert SECRET not in f"{result} {result.to_json()}"


def allow(bucket: Bucket, user: str, *actions: str) -> None:
    """Let a user do something with the objects of the bucket."""
    resource = [f"arn:aws:s3:::{bucket.name}/*"]
    statement = {"Effect": "Allow", "Principal": {"AWS": [user]}, "Action": list(actions), "Resource": resource}
    bucket.client.put_bucket_policy(Bucket=bucket.name, Policy=json.dumps({"Statement": [statement]}))


def test_missing_right_to_write_is_named(options: Options, bucket: Bucket) -> None:
    """A user would learn only after an hour that the job may not write."""
    reader = bucket.store.add_user(f"reader-{bucket.name}", SECRET)
    allow(bucket, f"reader-{bucket.name}", "s3:GetObject")

    result = iceberg_ds.check("db.t", options={**options, **{f"catalog.{key}": value for key, value in reader.items()}})

    assert "Allow s3:PutObject" in failures(result)["right to create the table"]
    assert SECRET not in f"{result} {result.to_json()}"


def test_missing_right_to_delete_is_named_with_what_is_left(options: Options, bucket: Bucket) -> None:
    """A user would find files of failed writes after months."""
    writer = bucket.store.add_user(f"writer-{bucket.name}", SECRET)
    allow(bucket, f"writer-{bucket.name}", "s3:GetObject", "s3:PutObject")
    by_writer = {f"catalog.{key}": value for key, value in writer.items()}

    result = iceberg_ds.check("db.t", options={**options, "location": f"{bucket.location}/t", **by_writer})

    assert "s3:DeleteObject" in failures(result)[DELETE]
    assert bucket.name in failures(result)["removal of the scratch table"]


def test_missing_bucket_is_named(options: Options) -> None:
    """A user would learn only after an hour that the bucket is not there."""
    result = iceberg_ds.check("db.t", options={**options, "location": "s3://no-such-bucket/t"})

    assert list(failures(result)) == [PUT]
    assert "NoSuchBucket" in found(result, PUT).detail
    assert "'location'" in found(result, PUT).next_step


def local(tmp_path: Path, endpoint: str) -> Options:
    """Return options of a local catalog whose tables go to a store at `endpoint`."""
    load_catalog("lake", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db")
    return {
        "table": "db.t",
        "location": "s3://elsewhere/t",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": f"file://{tmp_path}/warehouse",
        "catalog.s3.endpoint": f"http://{endpoint}",
        "catalog.s3.access-key-id": "key",
        "catalog.s3.secret-access-key": SECRET,
        "catalog.s3.region": "us-east-1",
    }


def test_wrong_region_is_named(tmp_path: Path) -> None:
    """A user whose bucket is in another region would look for a missing right."""
    with answering(s3_answer(301, "PermanentRedirect", x_amz_bucket_region="eu-central-1")) as endpoint:
        result = iceberg_ds.check("db.t", options=local(tmp_path, endpoint))

    assert list(failures(result)) == [PUT]
    assert "'s3.region'" in found(result, PUT).next_step


def test_expired_token_of_the_storage_is_named(tmp_path: Path) -> None:
    """A user whose session has ended would look for a missing right."""
    with answering(s3_answer(400, "ExpiredToken")) as endpoint:
        result = iceberg_ds.check("db.t", options=local(tmp_path, endpoint))

    assert "'s3.session-token'" in found(result, PUT).next_step
    assert "renew" in found(result, PUT).next_step


def test_expired_token_of_the_catalog_is_named(rest: Options) -> None:
    """A user whose token has ended would look for a wrong address."""
    with answering(rest_answer(419, "AuthenticationTimeoutException", f"{SECRET} has expired")) as address:
        expired = {**rest, "catalog.uri": f"http://{address}", "catalog.token": SECRET}
        result = iceberg_ds.check(rest["table"], options=expired)

    assert found(result, "catalog is reached").outcome == "ok"
    assert "'token'" in found(result, "catalog accepts the credentials").next_step
    assert found(result, PUT).outcome == "ok"
    assert SECRET not in f"{result} {result.to_json()}"


def test_silent_catalog_is_given_up(rest: Options) -> None:
    """A check would hang as the job would."""
    started = time.monotonic()
    with silent() as address:
        result = iceberg_ds.check(rest["table"], options={**rest, "catalog.uri": f"http://{address}"}, limit_s=1)

    assert "firewall" in failures(result)["catalog is reached"]
    assert time.monotonic() - started < 20


def test_missing_namespace_is_named_where_nothing_is_to_be_created(rest: Options) -> None:
    """A user would learn only at the first write that the identifier is wrong."""
    options = {**rest, "table": "no_such_namespace.t", "create-table": "false"}

    result = iceberg_ds.check("no_such_namespace.t", options=options)

    assert list(failures(result)) == ["namespace"]
    assert "create-table=true" in failures(result)["namespace"]


def test_missing_table_is_named_where_nothing_is_to_be_created(options: Options) -> None:
    """A user would learn only at the first write that the identifier is wrong."""
    load_catalog("lake", **{key[8:]: value for key, value in options.items() if "." in key}).create_namespace("db")

    result = iceberg_ds.check("db.t", options={**options, "create-table": "false"})

    assert list(failures(result)) == ["table"]
    assert "create-table=true" in failures(result)["table"]


def test_table_of_format_version_3_is_fine(rest: Options) -> None:
    """A user would not write a table that can be written."""
    catalog = load_catalog("rest", **{key[8:]: value for key, value in rest.items() if key.startswith("catalog.")})
    catalog.create_namespace_if_not_exists("check")
    catalog.create_table(rest["table"], ID_AND_NAME, properties={"format-version": "3"})

    result = iceberg_ds.check(rest["table"], options=rest)

    assert "format version 3" in found(result, "table").detail


def test_columns_that_do_not_fit_are_named(options: Options, tmp_path: Path) -> None:
    """A user would learn only after the query has run that its columns do not fit."""
    properties = {key[8:]: value for key, value in options.items() if key.startswith("catalog.")}
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("db")
    catalog.create_table("db.t", ID_AND_NAME)
    sample = tmp_path / "sample.csv"
    sample.write_text("id,nam\n1,a\n")

    result = iceberg_ds.check("db.t", options=options, sample=sample)

    assert "nam" in failures(result)["schema"]
    assert found(result, PUT).outcome == "ok"


@EXHAUSTIVE
def test_columns_as_text_are_read_by_the_given_session(spark: SparkSession, options: Options) -> None:
    """Nested columns could not be checked, or a user would see an error of Spark's parser."""
    nested = iceberg_ds.check("db.t", spark=spark, options=options, schema="id BIGINT, tags ARRAY<STRING>")
    unknown = iceberg_ds.check("db.t", spark=spark, options=options, schema="id NUMBER")

    assert found(nested, "given columns").detail == "struct<id:bigint,tags:array<string>>"
    assert "columns 'id NUMBER' are not understood" in failures(unknown)["given columns"]


def old_arrow(folder: Path) -> Path:
    """Return an archive by which Python takes the installed PyArrow for an old one."""
    path = folder / "old_arrow.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pyarrow-9.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: pyarrow\nVersion: 9.0.0\n")
    return path


@EXHAUSTIVE
def test_old_arrow_on_executors_is_named(spark: SparkSession, options: Options, tmp_path: Path) -> None:
    """A job would fail in its tasks, or write files that the driver cannot take."""
    here = [*sys.path]
    spark.sparkContext.addPyFile(str(old_arrow(tmp_path)))
    sys.path[:] = here  # Spark adds it to the driver's, too

    result = iceberg_ds.check("db.t", spark=spark, options=options)
    stop_shared_session()  # other tests are to have the real one

    (failure,) = result.failures
    assert failure.name == "versions"
    assert failure.where != "driver"
    assert failure.detail == "pyarrow is 9.0.0, and 18 or later is needed"


def broken_read(*_: object) -> None:
    """Fail in the middle of a check."""
    raise RuntimeError("boom")


def test_check_that_fails_midway_leaves_nothing(
    options: Options, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken store would be filled by checks."""
    before = files_below(object_store.folder)
    monkeypatch.setattr(machine_checks, "_get", broken_read)

    result = iceberg_ds.check("db.t", options=options)

    assert failures(result) == {
        "storage: read it": "RuntimeError: boom | " + found(result, "storage: read it").next_step
    }
    assert files_below(object_store.folder) == before


def test_what_executors_leave_is_removed_by_the_driver(
    options: Options, bucket: Bucket, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a killed executor would stay for ever."""
    elsewhere = {**options, "location": f"{bucket.location}/t"}  # not in the scratch table, which goes as a whole
    before = files_below(object_store.folder)
    monkeypatch.setattr(machine_checks, "_delete", lambda *_: None)

    iceberg_ds.check("db.t", options=elsewhere)

    assert files_below(object_store.folder) == before


def invoke(options: Options, *arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and what it printed."""
    pairs = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    done = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["check", *arguments, *pairs])
    return done.exit_code, done.output


def test_command_succeeds_where_all_is_well(options: Options) -> None:
    """A script could not go on only if all is well."""
    code, output = invoke(options)

    assert code == 0, output
    assert "Ready" in output
    assert "✔" in output


def test_command_fails_and_says_what_to_do(options: Options) -> None:
    """A script would go on although the job cannot work."""
    code, output = invoke({**options, "location": "s3://no-such-bucket/t"})

    assert code == 1, output
    assert "Not ready" in output
    assert "✘" in output
    assert "next: Create it" in output


def test_command_prints_json(options: Options) -> None:
    """A program could not read what was found."""
    code, output = invoke({**options, "catalog.s3.secret-access-key": SECRET}, "--json")
    told = json.loads(output)

    assert code == 1
    assert told["ok"] is False
    assert {"name", "where", "outcome", "seconds", "detail", "next_step"} == set(told["checks"][0])
    assert SECRET not in output


def test_command_tries_the_catalog(tmp_path: Path) -> None:
    """A user could not learn whether a catalog keeps rows exactly once."""
    code, output = invoke({"warehouse": str(tmp_path / "warehouse")}, "--catalog")

    assert code == 0, output
    assert "rows land exactly once" in output
    assert not (tmp_path / "warehouse" / "catalog.db").exists()


@pytest.mark.parametrize("pair", ["table", SECRET])
def test_command_refuses_malformed_options_without_showing_them(pair: str) -> None:
    """A secret in the wrong place would stand in a log."""
    done = CliRunner().invoke(main, ["check", "db.t", "--option", pair])

    assert done.exit_code == 2
    assert "expected KEY=VALUE" in done.output
    assert SECRET not in done.output


def test_unknown_option_is_named_and_the_rest_not_tried() -> None:
    """A user would learn of a misspelt option from something that follows from it."""
    result = iceberg_ds.check("db.t", options={"warehous": "x"})

    assert "did you mean 'warehouse'" in failures(result)["options"]
    assert found(result, "catalog is reached").outcome == "skipped"
