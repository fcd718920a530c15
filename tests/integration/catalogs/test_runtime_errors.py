"""What a user of Spark sees when a catalog or a store fails while a job runs; and that nothing is lost or left behind.

Every error names the thing, the reason and the next step. Once its cause is gone, the same write lands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.catalogs.rest_fake import Fault, RestFake, serve_rest_fake
from support.exhaustive import EXHAUSTIVE, few
from support.services.fake_services import answering, closed, private_tls, rest_answer, s3_answer
from support.services.servers import ObjectStore
from support.services.vended_users import VendedUsers
from support.spark.jobs import BatchJob, StreamJob, write_source

TABLE = "/namespaces/db/tables/t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """A REST catalog and the bucket of its tables.

    Attributes:
        fake: The catalog.
        store: The store.
        bucket: Name of the bucket.
        folder: For a stream's source and checkpoint.
    """

    fake: RestFake
    store: ObjectStore = field(repr=False)
    bucket: str
    folder: Path

    @property
    def options(self) -> dict[str, str]:
        """The options of a write that lands."""
        store = {f"catalog.{key}": value for key, value in self.store.properties.items()}
        return {"catalog.type": "rest", "catalog.uri": self.fake.uri, "catalog.rest.client.max-retries": "0", **store}

    def append(self, spark: SparkSession, **options: str) -> None:
        """Append ids 0 and 1 in a batch."""
        BatchJob(rows=2, options=self._with(options)).run(spark)

    def stream(self, spark: SparkSession, **options: str) -> None:
        """Run a stream of ids 0, 1 and 2 to its end, from where it stopped."""
        source, checkpoint = self.folder / "source", self.folder / "checkpoint"
        if not source.exists():
            write_source(source, [range(3)])
        StreamJob(source=str(source), checkpoint=str(checkpoint), options=self._with(options)).run(spark)

    def _with(self, options: Mapping[str, str]) -> dict[str, str]:
        return {**self.options, **{f"catalog.{key.replace('_', '-')}": value for key, value in options.items()}}

    def ids(self) -> list[int]:
        """Return the ids of all rows."""
        found: list[int] = self.fake.tables.load_table("db.t").scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    def files(self) -> set[Path]:
        """Return the data files in the bucket."""
        return set((self.store.folder / self.bucket).rglob("*.parquet"))


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path, object_store: ObjectStore) -> Iterator[Lake]:
    """Return an empty lake with a bucket of its own."""
    bucket = f"errors-{abs(hash(request.node.name))}"
    location = object_store.bucket(bucket)
    (tmp_path / "catalog").mkdir()
    with serve_rest_fake(tmp_path / "catalog", storage=object_store.properties, warehouse=location) as fake:
        yield Lake(fake=fake, store=object_store, bucket=bucket, folder=tmp_path)


def told(write: Callable[..., None], spark: SparkSession, **options: str) -> str:
    """Return what the user of a failing write is told."""
    with pytest.raises(Exception, match="Cannot") as failed:
        write(spark, **options)
    return str(failed.value)


@EXHAUSTIVE
def test_unreachable_catalog(spark: SparkSession, lake: Lake) -> None:
    """A user would not see that nothing runs at the address, or which option has it."""
    address = closed()

    text = told(lake.append, spark, uri=f"http://{address}")

    assert "Cannot connect to catalog 'default'" in text
    assert address in text
    assert "Connection refused" in text
    assert "Check host and port in 'uri'" in text
    lake.append(spark)
    assert lake.ids() == [0, 1]


@pytest.mark.exhaustive
def test_unreachable_catalog_of_a_stream(spark: SparkSession, lake: Lake) -> None:
    """The rows of a stream could be lost while its catalog is down."""
    text = told(lake.stream, spark, uri=f"http://{closed()}")

    assert "Connection refused" in text
    assert "Check host and port in 'uri'" in text
    lake.stream(spark)
    assert lake.ids() == [0, 1, 2]


@EXHAUSTIVE
def test_catalog_without_a_trusted_certificate(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """A user would not learn where to name the authority."""
    with answering(rest_answer(500), private_tls(tmp_path)) as address:
        text = told(lake.append, spark, uri=f"https://{address}")

    assert "CERTIFICATE_VERIFY_FAILED" in text
    assert "'ssl.cabundle'" in text


@pytest.mark.parametrize(
    ("status", "reason", "next_step"),
    few(
        1,
        [
            (401, "UnauthorizedError", "Check 'token', or 'credential'"),
            (403, "ForbiddenError", "Let the catalog's admin"),
        ],
    ),
)
def test_catalog_that_does_not_let_a_writer_in(
    spark: SparkSession, lake: Lake, status: int, reason: str, next_step: str
) -> None:
    """A user would not see whether the secret or a right is missing."""
    with answering(rest_answer(status, message="said by the catalog")) as address:
        text = told(lake.append, spark, uri=f"http://{address}")

    assert "Cannot connect to catalog 'default'" in text
    assert f"{reason}: SomeException: said by the catalog" in text
    assert next_step in text


@EXHAUSTIVE
@pytest.mark.parametrize("status", few(1, [401, 403]))
def test_commit_that_the_catalog_forbids(spark: SparkSession, lake: Lake, status: int) -> None:
    """Files of a refused commit would stay, or the user would not learn that nothing landed."""
    lake.append(spark)
    before = lake.files()
    lake.fake.faults.extend([Fault(method="POST", path=TABLE, status=status)] * 5)

    text = told(lake.append, spark)

    assert "Cannot commit db.t" in text
    assert "Nothing was committed and its files were deleted" in text
    assert ("Check 'token'" if status == 401 else "Let the catalog's administrator") in text
    assert lake.files() == before
    lake.fake.faults.clear()
    lake.append(spark)
    assert lake.ids() == [0, 0, 1, 1]


@pytest.mark.exhaustive
def test_commit_of_a_stream_that_the_catalog_forbids(spark: SparkSession, lake: Lake) -> None:
    """The rows of the epoch could be lost or doubled when the right is back."""
    lake.fake.faults.extend([Fault(method="POST", path=TABLE, status=403)] * 5)

    text = told(lake.stream, spark)

    assert "Nothing was committed and its files were deleted" in text
    assert "Let the catalog's administrator" in text
    assert lake.files() == set()
    lake.fake.faults.clear()
    lake.stream(spark)
    assert lake.ids() == [0, 1, 2]


@pytest.mark.exhaustive
def test_store_that_forbids_a_task_to_write(spark: SparkSession, lake: Lake) -> None:
    """A user would not learn which right is missing, on what."""
    user = lake.store.add_user(f"reader-of-{lake.bucket}", "secret-of-the-reader")

    text = told(lake.append, spark, **user)

    assert f"Cannot write a data file of db.t below s3://{lake.bucket}/db" in text
    assert "AccessDenied" in text
    assert "Allow s3:PutObject" in text
    assert "secret-of-the-reader" not in text
    assert lake.files() == set()
    lake.append(spark)
    assert lake.ids() == [0, 1]


@pytest.mark.exhaustive
def test_store_that_forbids_a_task_of_a_stream_to_write(spark: SparkSession, lake: Lake) -> None:
    """The rows of the epoch could be lost when the right is back."""
    user = lake.store.add_user(f"reader-of-{lake.bucket}", "secret-of-the-reader")

    text = told(lake.stream, spark, **user)

    assert "Allow s3:PutObject" in text
    lake.stream(spark)
    assert lake.ids() == [0, 1, 2]


@EXHAUSTIVE
def test_store_that_forbids_the_commit_to_write(spark: SparkSession, lake: Lake) -> None:
    """A user would be told to run it again, because of other writers that do not exist."""
    users = VendedUsers(store=lake.store, bucket=lake.bucket)
    name = f"writer-of-data-of-{lake.bucket}"
    users.add(name, keys="*/data/*")

    text = told(lake.append, spark, **users.keys(name))

    assert "Cannot commit db.t" in text
    assert "AccessDenied" in text
    assert "Nothing was committed and its files were deleted" in text
    assert "Allow s3:PutObject" in text
    assert lake.files() == set()
    lake.append(spark)
    assert lake.ids() == [0, 1]


@pytest.mark.exhaustive
def test_missing_bucket(spark: SparkSession, lake: Lake) -> None:
    """A user would not see that the bucket's name is wrong."""
    (lake.store.folder / lake.bucket).rmdir()

    text = told(lake.append, spark)

    assert f"Cannot write a data file of db.t below s3://{lake.bucket}/db" in text
    assert "NoSuchBucket" in text
    assert "Create it, or correct its name in 'warehouse'" in text
    lake.store.bucket(lake.bucket)
    lake.append(spark)
    assert lake.ids() == [0, 1]


@pytest.mark.exhaustive
def test_wrong_region(spark: SparkSession, lake: Lake) -> None:
    """A user would not see in which region the bucket is."""
    answer = s3_answer(400, "AuthorizationHeaderMalformed", x_amz_bucket_region="eu-central-1")
    with answering(answer) as address:
        text = told(lake.append, spark, **{"s3.endpoint": f"http://{address}"})

    assert f"Cannot write a data file of db.t below s3://{lake.bucket}/db" in text
    assert "Set 's3.region' to the bucket's region" in text
    lake.append(spark)
    assert lake.ids() == [0, 1]


@pytest.mark.exhaustive
def test_store_without_a_trusted_certificate(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """A user would not learn where to name the authority."""
    with answering(s3_answer(500, "InternalError"), private_tls(tmp_path)) as address:
        text = told(lake.append, spark, **{"s3.endpoint": f"https://{address}"})

    assert f"Cannot write a data file of db.t below s3://{lake.bucket}/db" in text
    assert "CERTIFICATE_VERIFY_FAILED" in text
    assert "AWS_CA_BUNDLE" in text
