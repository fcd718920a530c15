"""Storage credentials that a REST catalog vends: the sink has no others, and no task has any of the catalog's."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from support.catalogs.rest_fake import RestFake, serve_rest_fake
from support.catalogs.rest_sinks import sink_of
from support.services.servers import REGION, ObjectStore
from support.services.tls_files import make_tls_files
from support.services.vended_users import VendedUsers
from support.tables.sink import SCHEMA, arrow_batch, epoch, rows, write_batches

from iceberg_ds.commit.commit import abort_write
from iceberg_ds.errors import CatalogError, DataFileError, OptionError
from iceberg_ds.io.vended_credentials import REFRESH_ENABLED, REFRESH_ENDPOINT, REFRESH_TOKEN
from iceberg_ds.messages import RowCounts, TaskCommit
from iceberg_ds.plan import WritePlan
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

CREDENTIAL = "writer:s3cr3t-of-the-client"
ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
]
LOAD_CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"


@pytest.fixture(scope="module")
def users(object_store: ObjectStore) -> VendedUsers:
    """Return users who may write to a bucket of their own."""
    object_store.bucket("vended")
    users = VendedUsers(store=object_store, bucket="vended")
    users.add("first", "second", "leaving", "handing", "ending-True", "ending-False")
    return users


@pytest.fixture
def fake(tmp_path: Path, object_store: ObjectStore, users: VendedUsers) -> Iterator[RestFake]:
    """Return a catalog that vends the keys of `first`, for good."""
    warehouse = f"s3://vended/{tmp_path.name}"
    with serve_rest_fake(tmp_path, storage=object_store.properties, warehouse=warehouse) as server:
        server.endpoints = ENDPOINTS
        server.credential = CREDENTIAL
        vend(server, users.keys("first"))
        yield server


def vend(fake: RestFake, keys: dict[str, str], **config: str) -> None:
    """Let the catalog vend these keys, below its warehouse, and useless ones for other places."""
    address = {"s3.endpoint": fake.tables.properties["s3.endpoint"], "s3.region": REGION}
    useless = {"s3.access-key-id": "useless", "s3.secret-access-key": "useless"}

    def answer(table: Table) -> dict[str, Any]:
        credentials = [
            {"prefix": "s3://vended", "config": useless},
            {"prefix": table.metadata.location, "config": keys},
            {"prefix": f"{table.metadata.location}/data/elsewhere", "config": useless},
        ]
        return {"config": {**address, **config}, "storage-credentials": credentials}

    fake.vend = answer


@pytest.fixture
def process_keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return what gives this process keys of its own, as the driver's environment does."""

    def give(key: str, secret: str) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)

    return give


def in_ms(seconds: float) -> int:
    """Return the time in so many seconds, in milliseconds since 1970."""
    return int((time.time() + seconds) * 1000)


def write_in_task(planned: WritePlan, *ids: int) -> tuple[WritePlan, tuple[Any, ...]]:
    """Run a task with nothing but the plan, as it travels; return that and the files."""
    plan = pickle.loads(pickle.dumps(planned))  # noqa: S301  # our own
    return plan, write_batches(plan, rows(*ids), SCHEMA)


def test_table_is_made_and_written_with_vended_credentials_alone(fake: RestFake) -> None:
    """A user would need keys of his own, although the catalog is there to give them."""
    sink = sink_of(fake, credential=CREDENTIAL)

    sink.append(1, of_epoch=epoch(0))
    sink.append(2, of_epoch=epoch(1))
    sink.append(2, of_epoch=epoch(1))

    assert sink.ids() == [1, 2]
    assert fake.recorded[-1].headers["x-iceberg-access-delegation"] == "vended-credentials"


def test_plan_holds_what_opens_storage_and_nothing_of_the_catalog(fake: RestFake, users: VendedUsers) -> None:
    """Every executor could act as the catalog's client."""
    vend(fake, users.keys("first", in_ms(3600)), **{REFRESH_ENDPOINT: "v1/x", "token": "of-the-table"})
    sink = sink_of(
        fake,
        credential=CREDENTIAL,
        **{"header.x-api-key": "k3y", "py-io-impl": "iceberg_ds.io.files.ObjectIO"},
    )
    plan = sink.plan()

    assert {key for key in plan.io_properties if key != "py-io-impl"} == {
        "s3.endpoint",
        "s3.region",
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token-expires-at-ms",
    }
    shipped = pickle.dumps(plan)
    secrets = ("s3cr3t-of", "of-the-table", "k3y", *fake.tokens)
    assert not [secret for secret in secrets if secret.encode() in shipped]


def test_vended_credentials_take_the_place_of_the_users_own(fake: RestFake) -> None:
    """A session token or a role of the user's beside vended keys would make every request fail."""
    own = {
        "s3.access-key-id": "own",
        "s3.secret-access-key": "own",
        "s3.session-token": "own",
        "s3.role-arn": "arn:own",
    }
    sink = sink_of(fake, **{"credential": CREDENTIAL, **own})

    sink.append(1)

    assert sink.ids() == [1]
    assert "own" not in str(dict(sink.plan().io_properties))


def test_files_of_a_given_up_write_are_deleted_with_vended_credentials(
    fake: RestFake, object_store: ObjectStore
) -> None:
    """Every failed job would leave its files behind, because nothing but vended keys can delete them."""
    sink = sink_of(fake, credential=CREDENTIAL)
    messages = sink.write(rows(1), rows(2))
    folder = object_store.folder / "vended" / Path(fake.tables.properties["warehouse"]).name
    written = list(folder.rglob("*.parquet"))

    abort_write(sink.catalog, [messages[0], messages[1], None])

    assert len(written) == 2
    assert list(folder.rglob("*.parquet")) == []


def test_commit_uses_credentials_that_were_vended_after_the_tasks(fake: RestFake, users: VendedUsers) -> None:
    """A job that runs longer than credentials last could not commit."""
    vend(fake, users.keys("leaving"))
    sink = sink_of(fake, credential=CREDENTIAL)
    messages = sink.write(rows(1))
    users.end("leaving")
    vend(fake, users.keys("second"))

    sink.commit(messages)

    assert sink.ids() == [1]


def test_handed_over_rows_are_written_with_vended_credentials(
    fake: RestFake, users: VendedUsers, process_keys: Callable[[str, str], None]
) -> None:
    """Small micro-batches would fail once the credentials of their plan have ended, or where the driver has others."""
    process_keys("of-the-process", "useless")
    vend(fake, users.keys("handing"))
    sink = sink_of(fake, credential=CREDENTIAL)
    messages = sink.hand_over(rows(1), rows(2))
    assert all(message.rows is not None for message in messages)
    users.end("handing")
    vend(fake, users.keys("second"))

    sink.commit(messages)

    assert sink.ids() == [1, 2]


def test_handed_over_rows_are_never_written_with_the_process_keys(
    fake: RestFake, object_store: ObjectStore, process_keys: Callable[[str, str], None]
) -> None:
    """The driver's own rights, which may be far wider, would be used for a table that the catalog keeps it from."""
    sink = sink_of(fake, credential=CREDENTIAL)
    messages = sink.hand_over(rows(1), rows(2))
    assert all(message.rows is not None for message in messages)
    process_keys(object_store.access_key, object_store.secret_key)
    vend(fake, {"s3.access-key-id": "useless", "s3.secret-access-key": "useless"})

    with pytest.raises(DataFileError, match="InvalidAccessKeyId"):
        sink.commit(messages)

    folder = object_store.folder / "vended" / Path(fake.tables.properties["warehouse"]).name
    assert list(folder.rglob("*.parquet")) == []


def test_task_that_outlives_its_credentials_fails_and_says_so(fake: RestFake, users: VendedUsers) -> None:
    """A user would not learn that credentials ended, nor how to have them renewed."""
    vend(fake, users.keys("expired", in_ms(-1)))
    sink = sink_of(fake, credential=CREDENTIAL)
    with pytest.raises(DataFileError) as failure:
        write_in_task(sink.plan(), 1)

    assert REFRESH_ENABLED in str(failure.value)
    assert "secret-of" not in str(failure.value)


@pytest.mark.parametrize("may_renew", [True, False])
def test_task_whose_credentials_end_between_two_files(fake: RestFake, users: VendedUsers, *, may_renew: bool) -> None:
    """Long tasks would fail in their middle although they may renew, or write on with rights that have ended."""
    user = f"ending-{may_renew}"
    fake.endpoints = [*ENDPOINTS, LOAD_CREDENTIALS]
    ends_ms = in_ms(2.5)
    vend(fake, users.keys(user, ends_ms))
    sink = sink_of(fake, **{"credential": CREDENTIAL, REFRESH_ENABLED: str(may_renew).lower()})
    plan = pickle.loads(pickle.dumps(sink.plan(target_file_size_bytes=1)))  # noqa: S301  # our own

    def batches() -> Iterator[pa.RecordBatch]:
        yield arrow_batch(rows(1), SCHEMA)
        users.end(user)
        vend(fake, users.keys("second", in_ms(3600)))
        time.sleep(max(0, ends_ms / 1000 - time.time()))
        yield arrow_batch(rows(2), SCHEMA)

    attempt = TaskAttempt(partition_id=0, task_attempt_id=0)
    if not may_renew:
        with pytest.raises(DataFileError, match=REFRESH_ENABLED):
            write_task(plan, batches(), attempt)
        return
    files = write_task(plan, batches(), attempt)
    sink.commit([TaskCommit(plan.write, 0, files, None, counts=RowCounts(received=2))])

    assert sink.ids() == [1, 2]
    assert len(fake.asked("GET", "/credentials")) == 2


@pytest.mark.parametrize("given", [None, "v1/namespaces/db/tables/t/credentials"], ids=["of the spec", "vended"])
def test_task_that_outlives_its_credentials_renews_them_if_it_may(
    fake: RestFake, users: VendedUsers, given: str | None
) -> None:
    """A task that runs longer than credentials last would fail, each time it is tried again."""
    fake.endpoints = ENDPOINTS if given else [*ENDPOINTS, LOAD_CREDENTIALS]
    vend(fake, users.keys("expired", in_ms(-1)), **({REFRESH_ENDPOINT: given} if given else {}))
    sink = sink_of(fake, **{"credential": CREDENTIAL, REFRESH_ENABLED: "true", "header.polaris-realm": "tests"})
    planned = sink.plan()
    vend(fake, users.keys("second", in_ms(3600)))

    plan, files = write_in_task(planned, 1)

    (asked,) = fake.asked("GET", "/credentials")
    assert len(files) == 1
    assert asked.headers["authorization"] == f"Bearer {plan.io_properties[REFRESH_TOKEN]}"
    assert asked.headers["polaris-realm"] == "tests"
    assert b"s3cr3t-of" not in pickle.dumps(plan)


def test_renewal_trusts_the_catalogs_own_authority(
    tmp_path: Path, object_store: ObjectStore, users: VendedUsers
) -> None:
    """Tasks could not renew from a catalog behind a company's own certificates, or would not verify them."""
    tls = make_tls_files(tmp_path)
    storage = {"storage": object_store.properties, "warehouse": f"s3://vended/{tmp_path.name}"}
    with serve_rest_fake(tmp_path, tls=tls, **storage) as fake:
        fake.endpoints = [*ENDPOINTS, LOAD_CREDENTIALS]
        vend(fake, users.keys("expired", in_ms(-1)))
        trusted = {"ssl.cabundle": str(tls.authority), REFRESH_ENABLED: "true"}
        planned = sink_of(fake, credential=CREDENTIAL, **trusted).plan()
        vend(fake, users.keys("second", in_ms(3600)))

        _, files = write_in_task(planned, 1)

        assert len(files) == 1
        assert len(fake.asked("GET", "/credentials")) == 1


def test_token_for_renewal_is_sent_to_the_catalog_alone(fake: RestFake, users: VendedUsers) -> None:
    """Whoever can write to a table could have every task send him a token of the catalog."""
    elsewhere = "https://thief.example/credentials"
    fake.endpoints = [*ENDPOINTS, LOAD_CREDENTIALS]
    vend(fake, users.keys("first", in_ms(3600)), **{REFRESH_ENDPOINT: elsewhere})
    sink = sink_of(fake, **{"credential": CREDENTIAL, REFRESH_ENABLED: "true"})
    planned = sink.plan(table_properties={REFRESH_ENDPOINT: elsewhere, "client.refresh-credentials-header.x": "y"})

    assert planned.io_properties[REFRESH_ENDPOINT] == f"{fake.uri}/v1/namespaces/db/tables/t/credentials"
    assert "thief" not in str(dict(planned.io_properties))
    assert "client.refresh-credentials-header.x" not in planned.io_properties


def test_table_scoped_token_is_preferred_for_renewal(fake: RestFake, users: VendedUsers) -> None:
    """Tasks would get a token for the whole catalog, although one for the table is enough."""
    fake.endpoints = [*ENDPOINTS, LOAD_CREDENTIALS]
    vend(fake, users.keys("first", in_ms(3600)), token="of-the-table")  # noqa: S106  # made up
    sink = sink_of(fake, **{"credential": CREDENTIAL, REFRESH_ENABLED: "true"})

    assert sink.plan().io_properties[REFRESH_TOKEN] == "of-the-table"


def test_token_for_renewal_is_a_fresh_one(fake: RestFake, users: VendedUsers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that has run for long would give its tasks a token that is about to end."""
    fake.endpoints = [*ENDPOINTS, LOAD_CREDENTIALS]
    vend(fake, users.keys("first", in_ms(3600)))
    sink = sink_of(fake, **{"credential": CREDENTIAL, REFRESH_ENABLED: "true"})
    sink.plan()
    issued = len(fake.tokens)

    sink.plan()
    assert len(fake.tokens) == issued

    monkeypatch.setattr("iceberg_ds.catalog.rest._FRESH_TOKEN_S", 0)
    assert sink.plan().io_properties[REFRESH_TOKEN] == fake.tokens[-1]
    assert len(fake.tokens) == issued + 1


def test_renewal_that_the_catalog_does_not_offer_is_logged(
    fake: RestFake, users: VendedUsers, caplog: pytest.LogCaptureFixture
) -> None:
    """The user would believe that tasks renew their credentials."""
    vend(fake, users.keys("first", in_ms(3600)))
    sink = sink_of(fake, **{"credential": CREDENTIAL, REFRESH_ENABLED: "true"})

    assert REFRESH_TOKEN not in sink.plan().io_properties
    assert "Tasks cannot renew credentials for db.t: there is no credentials endpoint" in caplog.text


def test_renewal_is_refused_where_requests_are_signed(fake: RestFake) -> None:
    """The user would believe that tasks renew their credentials."""
    with pytest.raises(CatalogError, match=f"{REFRESH_ENABLED} needs a bearer token"):
        sink_of(fake, **{REFRESH_ENABLED: "true", "rest.sigv4-enabled": "true"})


def test_catalog_that_wants_to_sign_each_request_is_refused_by_name(fake: RestFake) -> None:
    """Every file would fail with an error of some library that names no way out."""
    fake.vend = lambda _: {"config": {"s3.remote-signing-enabled": "true", "s3.signer.uri": fake.uri}}
    with pytest.raises(OptionError, match="vend credentials instead"):
        sink_of(fake, credential=CREDENTIAL).append(1)


def test_signing_is_not_needed_where_credentials_come_too(fake: RestFake, users: VendedUsers) -> None:
    """A catalog that offers both would be refused."""
    vend(fake, users.keys("first"), **{"s3.remote-signing-enabled": "true", "s3.signer": "S3V4RestSigner"})
    sink = sink_of(fake, credential=CREDENTIAL)

    sink.append(1)

    assert sink.ids() == [1]


def test_class_of_a_file_io_that_the_catalog_sends_is_not_used(fake: RestFake, users: VendedUsers) -> None:
    """A catalog could choose which code runs in tasks, and another one than the tested would."""
    vend(fake, users.keys("first"), **{"py-io-impl": "no.such.FileIO"})
    fake.overrides = {"py-io-impl": "no.such.FileIO"}
    sink = sink_of(fake, credential=CREDENTIAL)

    sink.append(1)

    assert sink.ids() == [1]
