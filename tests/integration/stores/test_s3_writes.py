"""Writes of tables to a real S3 server: what they ask of it, and what a user reads when it refuses."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.services.bucket import Bucket
from support.services.server_process import free_port
from support.tables.sink import NAME, SCHEMA, Sink, arrow_batch, rows, write_batches

from iceberg_ds import DataFileError, OptionError
from iceberg_ds.catalog.client import connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.options.parse import parse_options
from iceberg_ds.writers.task_writer import TaskAttempt, write_task

SECRET = "marked-secret"  # noqa: S105  # none
LIST_BUCKET = "s3:ListBucket"
ONE_TRY = {"s3.retry.num-retries": "0"}


def options_of(bucket: Bucket, folder: Path, **properties: str) -> dict[str, str]:
    """Return the options of writes to a SQL catalog with its tables in the bucket."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{bucket.location}/warehouse",
        **bucket.store.properties,
        **properties,
    }
    return {"table": NAME, "catalog": "stores", **{f"catalog.{key}": value for key, value in catalog.items()}}


@pytest.fixture
def sink(bucket: Bucket, tmp_path: Path) -> Sink:
    """Return a table in the bucket, in a SQL catalog."""
    options = parse_options(options_of(bucket, tmp_path))
    return Sink(catalog=connect(catalog_settings(options)), options=options)


def write_with(sink: Sink, **changed: str) -> None:
    """Run a task whose storage properties are changed."""
    plan = sink.plan()
    properties = {**plan.io_properties, **ONE_TRY, **{key.replace("__", "."): changed[key] for key in changed}}
    write_batches(replace(plan, io_properties=properties), rows(1), SCHEMA)


def failure_of(sink: Sink, **changed: Any) -> str:
    """Return what a user reads when such a task fails."""
    with pytest.raises(DataFileError, match=r"Cannot write a data file of db\.t below s3://") as raised:
        write_with(sink, **{key.replace(".", "__"): text for key, text in changed.items()})
    return str(raised.value)


def test_commit_asks_the_store_for_no_more_than_it_needs(sink: Sink, bucket: Bucket) -> None:
    """Each micro-batch would take longer and cost more."""
    planner = Sink(catalog=sink.catalog.another(), options=sink.options)  # a process of its own, as with Spark
    sink.append(1)
    sink.append(2)
    before = bucket.requests()
    sink.commit(sink.write(rows(3), plan=planner.plan()))
    asked = Counter(bucket.requests()[len(before) :])

    # A data file, a manifest, a manifest list, the table's metadata; the planner reads the metadata, and the
    # committer nothing that it has written itself.
    assert asked == {"PUT": 4, "GET": 1}


def test_creation_lists_the_new_place_once(sink: Sink, bucket: Bucket) -> None:
    """Each table would cost more, or two of them would share a folder."""
    sink.append(1)

    assert Counter(bucket.requests())["GET list"] == 1


def test_writes_list_nothing_and_look_for_nothing(sink: Sink, bucket: Bucket) -> None:
    """A policy without the right to list would not do, and buckets with many objects would be slow."""
    sink.append(1)
    before = bucket.requests()
    sink.overwrite(rows(2))
    sink.append(3)

    assert set(bucket.requests()[len(before) :]) == {"PUT", "GET"}


@pytest.mark.parametrize("name", ["a#b", "a?b", "a\nb", "..", "."])
def test_objects_that_readers_do_not_agree_on_are_refused(sink: Sink, bucket: Bucket, name: str) -> None:
    """Iceberg's Java library would look for another object, and some servers would write one elsewhere."""
    folder = f"{bucket.location}/{name}/t"

    with pytest.raises(OptionError, match=r"its location is .*which readers do not agree on"):
        replace(sink, options=replace(sink.options, location=folder)).append(1)

    assert bucket.object_keys() == []


def test_failed_task_leaves_nothing(sink: Sink, bucket: Bucket) -> None:
    """Truncated files of failed tasks would appear for a moment, or stay if they cannot be deleted."""
    plan = sink.plan()
    plan = replace(plan, write=replace(plan.write, files=replace(plan.write.files, row_group_size_bytes=1000)))
    before = bucket.requests()

    def upstream() -> Iterator[pa.RecordBatch]:
        for _ in range(10):
            yield arrow_batch(rows(*range(1000)), SCHEMA)
        raise KeyError("upstream")

    with pytest.raises(DataFileError, match="upstream"):
        write_task(plan, upstream(), TaskAttempt(partition_id=0, task_attempt_id=0))

    assert bucket.requests() == before
    assert bucket.object_keys() == []


def test_wrong_key_is_named(sink: Sink) -> None:
    """A user would not learn that the key is wrong."""
    assert "'s3.access-key-id'" in failure_of(sink, **{"s3.access-key-id": "nobody"})


def test_wrong_secret_is_named_and_not_shown(sink: Sink) -> None:
    """A user would not learn that the secret is wrong, or everybody would learn the secret."""
    text = failure_of(sink, **{"s3.secret-access-key": SECRET})

    assert "'s3.secret-access-key'" in text
    assert SECRET not in text


def test_missing_right_to_write_is_named(sink: Sink, bucket: Bucket, caplog: pytest.LogCaptureFixture) -> None:
    """A user would not learn which right is missing, or be warned of files that are not there."""
    reader = bucket.store.add_user(f"reader-{bucket.name}", SECRET)
    allow(bucket, f"reader-{bucket.name}", "s3:GetObject", LIST_BUCKET)
    with caplog.at_level(logging.WARNING):
        text = failure_of(sink, **reader)

    assert "AccessDenied" in text
    assert "Allow s3:PutObject" in text
    assert caplog.records == []


def test_the_smallest_policy_is_enough(sink: Sink, bucket: Bucket, tmp_path: Path) -> None:
    """A user who grants what the documentation says could not write."""
    writer = bucket.store.add_user(f"writer-{bucket.name}", SECRET)
    allow(bucket, f"writer-{bucket.name}", "s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload")
    options = parse_options(options_of(bucket, tmp_path, **writer))
    own = Sink(catalog=connect(catalog_settings(options)), options=options)
    own.append(1)
    own.overwrite(rows(2))

    assert sink.ids() == [2]


def allow(bucket: Bucket, user: str, *actions: str) -> None:
    """Let a user do something in the bucket."""
    places = [f"arn:aws:s3:::{bucket.name}", f"arn:aws:s3:::{bucket.name}/*"]
    statements = [
        {"Effect": "Allow", "Principal": {"AWS": [user]}, "Action": [action], "Resource": places[action != LIST_BUCKET]}
        for action in actions
    ]
    bucket.client.put_bucket_policy(Bucket=bucket.name, Policy=json.dumps({"Statement": statements}))


def test_missing_bucket_is_named(sink: Sink) -> None:
    """A user would not learn that the bucket is not there."""
    plan = sink.plan()
    with pytest.raises(DataFileError, match=r"NoSuchBucket.*Create it, or correct its name"):
        write_batches(replace(plan, location="s3://no-such-bucket/t"), rows(1), SCHEMA)


def test_store_that_does_not_run_is_named(sink: Sink) -> None:
    """A user would not learn that nothing listens there."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    text = failure_of(sink, **{"s3.endpoint": endpoint})

    assert endpoint in text
    assert "Check host and port in 's3.endpoint'" in text


def test_unknown_host_is_named(sink: Sink) -> None:
    """A user would not learn that the name is misspelt."""
    assert "Check the spelling of the host in 's3.endpoint'" in failure_of(sink, **{"s3.endpoint": "http://s3.invalid"})


def test_wrong_protocol_is_named(sink: Sink, bucket: Bucket) -> None:
    """A user would not learn that the store speaks no TLS."""
    endpoint = bucket.store.endpoint.replace("http:", "https:")

    assert "Check http or https in 's3.endpoint'" in failure_of(sink, **{"s3.endpoint": endpoint})


def test_wrong_region_is_corrected_by_what_the_store_answers(sink: Sink, bucket: Bucket) -> None:
    """A job would fail for a setting that the store corrects in its first answer."""
    before = bucket.requests()
    write_with(sink, s3__region="eu-central-1")
    write_with(sink, s3__region="eu-central-1")

    assert bucket.requests()[len(before) :].count("PUT") <= 4
    assert sum(key.endswith(".parquet") for key in bucket.object_keys()) == 2


def test_ended_credentials_are_named_with_the_ways_on(sink: Sink) -> None:
    """A user would see a store's refusal, and not that the catalog's credentials are too short-lived."""
    ended = {"s3.session-token-expires-at-ms": str(int(time.time() * 1000) - 1000), "s3.access-key-id": "ended"}
    text = failure_of(sink, **ended)

    assert "client.refresh-credentials-enabled=true" in text


def read_only(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without a way to sign."""
    return {key: value for key, value in properties.items() if "key" not in key}


def test_absent_credentials_are_named(sink: Sink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user would not learn that there are no credentials at all."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    plan = sink.plan()
    with pytest.raises(DataFileError, match=r"Give 's3\.access-key-id'"):
        write_batches(replace(plan, io_properties=read_only(plan.io_properties)), rows(1), SCHEMA)
