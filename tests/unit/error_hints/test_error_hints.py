"""What failures of real client libraries are taken for, and what their reader is told to do.

Each exception is raised by the library itself, against a server in this process that fails in that way.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
import requests
import s3fs
from botocore.config import Config
from botocore.exceptions import NoCredentialsError
from pyarrow import fs
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NotInstalledError, WaitingForLockException
from sqlalchemy import create_engine, text
from support.services.fake_services import (
    Answer,
    answering,
    closed,
    glue_answer,
    private_tls,
    rest_answer,
    s3_answer,
    silent,
)

from iceberg_ds.error_hints import Cause, ErrorHint, Service, hint_for, next_step
from iceberg_ds.errors import CatalogError
from iceberg_ds.io.files import file_io

SECRET = "made-up"  # noqa: S105  # of servers in this process
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
QUICK = Config(retries={"max_attempts": 0}, connect_timeout=1, read_timeout=1)
Call = Callable[[str], object]


@pytest.fixture(autouse=True)
def _no_aws_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the machine's own credentials out."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


def raised_by(call: Callable[[], object]) -> Exception:
    """Return what `call` raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011  # each library has its own
        call()
    return raised.value


def list_rest(address: str) -> object:
    """Ask a REST catalog, as PyIceberg does."""
    return load_catalog("lake", type="rest", uri=f"http://{address}").list_namespaces()


def log_in(address: str) -> object:
    """Ask a REST catalog for a token."""
    return load_catalog("lake", type="rest", uri=f"http://{address}", credential="id:secret")


def put_here(address: str, scheme: str = "http") -> None:
    """Write a file with this package's own S3 client."""
    properties = {"s3.endpoint": f"{scheme}://{address}", "s3.access-key-id": "key", "s3.secret-access-key": "secret"}
    quick = {"s3.connect-timeout": "1", "s3.request-timeout": "1", "s3.retry.num-retries": "0"}
    with file_io({**properties, **quick}, "s3://b/").new_output("s3://b/timeout/x").create() as stream:
        stream.write(b"x")


def put_arrow(address: str) -> None:
    """Write a file with Arrow's S3 client."""
    store = fs.S3FileSystem(
        access_key="key",
        secret_key=SECRET,
        endpoint_override=address,
        scheme="http",
        region="us-east-1",
        request_timeout=1,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    with store.open_output_stream("b/timeout/x") as stream:
        stream.write(b"x")


def get_arrow(address: str) -> None:
    """Open a file with Arrow's S3 client, which asks with HEAD: there is no room for a reason in the answer."""
    store = fs.S3FileSystem(
        access_key="key", secret_key=SECRET, endpoint_override=address, scheme="http", region="us-east-1"
    )
    store.open_input_stream("b/x")


def list_s3fs(address: str) -> object:
    """List files with s3fs."""
    store = s3fs.S3FileSystem(
        key="key",
        secret=SECRET,
        client_kwargs={"endpoint_url": f"http://{address}", "region_name": "us-east-1"},
        skip_instance_cache=True,
    )
    return store.find("b/x")


def ask_glue(address: str, scheme: str = "http") -> object:
    """Ask Glue as PyIceberg does, with few retries."""
    client = boto3.client("glue", endpoint_url=f"{scheme}://{address}", config=QUICK, **KEYS)
    return client.get_table(DatabaseName="db", Name="t")


def assume_role(address: str) -> object:
    """Ask the token service for a role."""
    client = boto3.client("sts", endpoint_url=f"http://{address}", config=QUICK, **KEYS)
    return client.assume_role(RoleArn="arn:aws:iam::123456789012:role/writer", RoleSessionName="tests")


STS_DENIED = Answer(
    status=403,
    body="<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>",
    headers={"content-type": "text/xml"},
)
S3_PUTS = [put_here, put_arrow]
ANSWERS: list[tuple[Call, Answer, Cause, Service]] = [
    (list_rest, rest_answer(401), Cause.UNAUTHORIZED, Service.REST),
    (list_rest, rest_answer(401, message="Token has expired"), Cause.EXPIRED_CREDENTIALS, Service.REST),
    (list_rest, rest_answer(403), Cause.FORBIDDEN, Service.REST),
    (list_rest, rest_answer(404), Cause.NOT_THIS_SERVICE, Service.REST),
    (list_rest, rest_answer(404, message="Unable to find warehouse lake"), Cause.NO_SUCH_WAREHOUSE, Service.REST),
    (list_rest, rest_answer(400, message="Warehouse lake not found"), Cause.NO_SUCH_WAREHOUSE, Service.REST),
    (list_rest, rest_answer(400), Cause.REFUSED, Service.REST),
    (list_rest, rest_answer(419), Cause.EXPIRED_CREDENTIALS, Service.REST),
    (list_rest, rest_answer(429), Cause.THROTTLED, Service.REST),
    (list_rest, rest_answer(500), Cause.SERVICE_FAILED, Service.REST),
    (list_rest, rest_answer(503), Cause.SERVICE_FAILED, Service.REST),
    (list_rest, Answer(status=200, body="<html>hello</html>"), Cause.NOT_THIS_SERVICE, Service.REST),
    (list_rest, Answer(status=404, body="<html>hello</html>"), Cause.NOT_THIS_SERVICE, Service.REST),
    (log_in, Answer(status=401, body='{"error": "invalid_client"}'), Cause.UNAUTHORIZED, Service.REST),
    *((put, s3_answer(403, "InvalidAccessKeyId"), Cause.UNAUTHORIZED, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(403, "SignatureDoesNotMatch"), Cause.UNAUTHORIZED, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(403, "AccessDenied"), Cause.FORBIDDEN, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(400, "ExpiredToken"), Cause.EXPIRED_CREDENTIALS, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(400, "InvalidToken"), Cause.UNAUTHORIZED, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(403, "RequestTimeTooSkewed"), Cause.CLOCK_SKEW, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(404, "NoSuchBucket"), Cause.NO_SUCH_BUCKET, Service.S3) for put in S3_PUTS),
    *(
        (put, s3_answer(301, "PermanentRedirect", x_amz_bucket_region="eu-central-1"), Cause.WRONG_REGION, Service.S3)
        for put in S3_PUTS
    ),
    *((put, s3_answer(400, "AuthorizationHeaderMalformed"), Cause.WRONG_REGION, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(400, "KMS.DisabledException"), Cause.ENCRYPTION_KEY, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(503, "SlowDown"), Cause.THROTTLED, Service.S3) for put in S3_PUTS),
    *((put, s3_answer(500, "InternalError"), Cause.SERVICE_FAILED, Service.S3) for put in S3_PUTS),
    (list_s3fs, s3_answer(403, "AccessDenied"), Cause.FORBIDDEN, Service.S3),
    (list_s3fs, s3_answer(404, "NoSuchBucket"), Cause.NO_SUCH_BUCKET, Service.S3),
    (get_arrow, s3_answer(403, "SignatureDoesNotMatch"), Cause.FORBIDDEN, Service.S3),
    (get_arrow, s3_answer(400, "ExpiredToken"), Cause.REFUSED, Service.S3),
    (
        get_arrow,
        s3_answer(301, "PermanentRedirect", x_amz_bucket_region="eu-central-1"),
        Cause.WRONG_REGION,
        Service.S3,
    ),
    (ask_glue, glue_answer("AccessDeniedException"), Cause.FORBIDDEN, Service.GLUE),
    (ask_glue, glue_answer("ExpiredTokenException"), Cause.EXPIRED_CREDENTIALS, Service.GLUE),
    (ask_glue, glue_answer("UnrecognizedClientException"), Cause.UNAUTHORIZED, Service.GLUE),
    (ask_glue, glue_answer("InvalidSignatureException"), Cause.UNAUTHORIZED, Service.GLUE),
    (ask_glue, glue_answer("ThrottlingException"), Cause.THROTTLED, Service.GLUE),
    (assume_role, STS_DENIED, Cause.FORBIDDEN, Service.STS),
]


@pytest.mark.parametrize(
    ("call", "answer", "cause", "service"),
    ANSWERS,
    ids=[f"{call.__name__} {answer.status} {cause.name}" for call, answer, cause, _ in ANSWERS],
)
def test_answer_of_a_service_tells_the_cause(call: Call, answer: Answer, cause: Cause, service: Service) -> None:
    """A user would get a library's error, and not learn what to change."""
    with answering(answer) as address:
        error = raised_by(lambda: call(address))

    found = hint_for(error)

    assert found == ErrorHint(cause=cause, next_step=next_step(cause, service)), repr(error)


ASKING: list[tuple[Call, Service]] = [
    (list_rest, Service.REST),
    (put_here, Service.S3),
    (put_arrow, Service.S3),
    (lambda address: load_catalog("lake", type="hive", uri=f"thrift://{address}").list_namespaces(), Service.HIVE),
    (lambda address: create_engine(f"postgresql+psycopg2://writer:secret@{address}/db").connect(), Service.SQL),
    (ask_glue, Service.GLUE),
]
ASKED = ["REST", "S3", "S3 by Arrow", "HIVE", "SQL", "GLUE"]


@pytest.mark.parametrize(("call", "service"), ASKING, ids=ASKED)
def test_port_at_which_nobody_listens_is_told(call: Call, service: Service) -> None:
    """A user who mistypes a port, or whose service is down, would look for it in the wrong place."""
    error = raised_by(lambda: call(closed()))

    found = hint_for(error, asked=service)

    assert found == ErrorHint(cause=Cause.UNREACHABLE, next_step=next_step(Cause.UNREACHABLE, service)), repr(error)


@pytest.mark.parametrize(("call", "service"), ASKING, ids=ASKED)
def test_host_that_nobody_knows_is_told(call: Call, service: Service) -> None:
    """A user who mistypes a host would look for a firewall."""
    error = raised_by(lambda: call("nowhere.invalid:9083"))

    found = hint_for(error, asked=service)

    assert found == ErrorHint(cause=Cause.UNKNOWN_HOST, next_step=next_step(Cause.UNKNOWN_HOST, service)), repr(error)


@pytest.mark.parametrize("call", [put_here, put_arrow, ask_glue], ids=["here", "arrow", "glue"])
def test_silent_host_is_told(call: Call) -> None:
    """A user behind a firewall would look for a wrong key."""
    with silent() as address:
        error = raised_by(lambda: call(address))

    assert hint_for(error).cause is Cause.TIMED_OUT, repr(error)


def test_silent_web_server_is_told() -> None:
    """A user behind a firewall would look for a wrong key."""
    with silent() as address:
        error = raised_by(lambda: requests.get(f"http://{address}", timeout=0.1))

    assert hint_for(error).cause is Cause.TIMED_OUT


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda address: load_catalog("lake", type="rest", uri=f"https://{address}"), "'ssl.cabundle'"),
        (lambda address: put_here(address, "https"), "AWS_CA_BUNDLE"),
        (lambda address: ask_glue(address, "https"), "AWS_CA_BUNDLE"),
    ],
    ids=["REST", "S3", "Glue"],
)
def test_certificate_that_is_not_trusted_is_told(call: Call, hint: str, tmp_path: Path) -> None:
    """A user with a private certificate authority would take the service for unreachable."""
    with answering(Answer(status=200), private_tls(tmp_path)) as address:
        error = raised_by(lambda: call(address))

    found = hint_for(error)

    assert found.cause is Cause.TLS, repr(error)
    assert hint in found.next_step


def test_missing_credentials_are_told() -> None:
    """A user without any credentials would look for a missing right."""
    error = raised_by(lambda: boto3.Session().client("s3", region_name="us-east-1").list_buckets())

    found = hint_for(error)

    assert found.cause is Cause.NO_CREDENTIALS
    assert "'s3.access-key-id'" in found.next_step


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: boto3.Session(profile_name="nope").client("s3"), "'s3.profile-name'"),
        (lambda: boto3.Session().client("s3", endpoint_url="nonsense"), "'s3.endpoint'"),
    ],
    ids=["unknown profile", "no URL"],
)
def test_malformed_settings_are_told(call: Callable[[], object], hint: str) -> None:
    """A user would not learn which setting to correct."""
    found = hint_for(raised_by(call), asked=Service.S3)

    assert found.cause is Cause.CONFIGURATION
    assert hint in found.next_step


def test_missing_region_is_told() -> None:
    """A user of Glue would not learn which setting to add."""
    error = raised_by(lambda: boto3.Session().client("glue"))

    found = hint_for(error, asked=Service.GLUE)

    assert found == ErrorHint(cause=Cause.CONFIGURATION, next_step=next_step(Cause.CONFIGURATION, Service.GLUE))
    assert "'glue.region'" in found.next_step


def test_missing_folder_of_sqlite_is_told() -> None:
    """A user would not learn that the folder of the catalog's file is missing."""
    error = raised_by(lambda: create_engine("sqlite:////nonexistent/folder/catalog.db").connect())

    found = hint_for(error)

    assert found == ErrorHint(cause=Cause.NO_SUCH_DATABASE, next_step=next_step(Cause.NO_SUCH_DATABASE, Service.SQL))


def test_read_only_database_is_told(tmp_path: Path) -> None:
    """A user would not learn that the catalog's file cannot be written."""
    engine = create_engine(f"sqlite:///file:{tmp_path}/catalog.db?mode=rwc&uri=true")
    with engine.begin() as connection:
        connection.execute(text("create table t (x int)"))
    engine = create_engine(f"sqlite:///file:{tmp_path}/catalog.db?mode=ro&uri=true")

    def write() -> None:
        with engine.begin() as connection:
            connection.execute(text("insert into t values (1)"))

    assert hint_for(raised_by(write)).cause is Cause.READ_ONLY


def test_missing_driver_of_a_database_is_told() -> None:
    """A user would not learn which package to install."""
    error = raised_by(lambda: load_catalog("lake", type="sql", uri="nosuchdialect://u:p@127.0.0.1/db"))

    found = hint_for(error, asked=Service.SQL)

    assert found.cause is Cause.MISSING_PACKAGE
    assert "'iceberg-ds[postgres]'" in found.next_step


def write_to_full_disk() -> None:
    """Write to a device that is always full."""
    with fs.LocalFileSystem().open_output_stream("/dev/full") as stream:
        stream.write(b"x" * 1_000_000)


def raise_timeout_of_lock() -> None:
    """Raise what PyIceberg's Hive catalog raises when it does not get the lock."""
    raise WaitingForLockException("Wait on lock for db.t")


def raise_missing_extra() -> None:
    """Raise what PyIceberg raises where an extra is missing."""
    raise NotInstalledError("Hive support not installed")


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        (write_to_full_disk, Cause.DISK_FULL),
        (raise_timeout_of_lock, Cause.LOCKED),
        (raise_missing_extra, Cause.MISSING_PACKAGE),
        (lambda: Path("/nonexistent/x").read_text(), Cause.NO_SUCH_FILE),
        (lambda: Path("/nonexistent/timeout").read_text(), Cause.NO_SUCH_FILE),
        (lambda: Path("/dev/null/x").read_text(), Cause.BAD_PATH),
        (lambda: fs.LocalFileSystem().create_dir(f"/tmp/{'x' * 300}"), Cause.BAD_PATH),  # noqa: S108  # not made
        (lambda: int("timeout: nothing to do with a service"), Cause.UNKNOWN),
    ],
    ids=["disk full", "lock", "extra", "file", "file that is called like a cause", "no folder", "long name", "program"],
)
def test_other_failures_are_told_apart(call: Callable[[], object], cause: Cause) -> None:
    """A user would be sent to a service that has nothing to do with the failure."""
    assert hint_for(raised_by(call)).cause is cause


def retold() -> None:
    """Raise an error of this package that hides what it was raised for, as those of catalogs do."""
    try:
        boto3.Session().client("s3", region_name="us-east-1").list_buckets()
    except NoCredentialsError as error:
        raise CatalogError(f"Cannot connect: {error}.") from None


def test_errors_of_this_package_are_looked_behind() -> None:
    """Every failure of a catalog would look like a broken connection."""
    assert hint_for(raised_by(retold)).cause is Cause.NO_CREDENTIALS
    assert hint_for(CatalogError("Cannot connect.")).cause is Cause.UNKNOWN


def test_chain_that_ends_in_itself_is_read_once() -> None:
    """The error of a job would never be shown."""
    first, second = OSError(errno.ENOSPC, "full"), ValueError("other")
    first.__context__, second.__context__ = second, first

    assert hint_for(second).cause is Cause.DISK_FULL


def test_unknown_failure_still_names_a_next_step() -> None:
    """A user would be left without any hint."""
    found = hint_for(RuntimeError("boom"), asked=Service.REST)

    assert found.cause is Cause.UNKNOWN
    assert "'uri'" in found.next_step


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_next_step_for_every_service(cause: Cause) -> None:
    """A failure would be named without what to do."""
    steps = [next_step(cause, service) for service in Service]

    assert all(step.endswith(".") for step in steps)
    assert not any(mark in step for step in steps for mark in ("{", "}", "None"))


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_stands_in_the_docs(cause: Cause) -> None:
    """A user would not find what an error means."""
    page = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith(f"| {cause.value} | ")]

    assert len(rows) == 1
    assert all(part.strip() for part in rows[0].strip("|").split("|"))
