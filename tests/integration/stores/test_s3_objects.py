"""Objects on a real S3 server: what appears, what never appears, and how many requests that takes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from aiobotocore.awsrequest import AioAWSResponse
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import EndpointConnectionError
from pyiceberg.io import FileIO
from support.exhaustive import each_value
from support.services.bucket import Bucket
from support.services.stored_files import read, write, write_half

from iceberg_ds.io.cleanup import Proof, delete_files
from iceberg_ds.io.files import ObjectIO
from iceberg_ds.io.s3_io import S3FileIO, S3Store

MEGABYTE = 1024 * 1024
PART = 5 * MEGABYTE
EXIT_TIMEOUT_S = 60
FORGET_TIMEOUT_S = 20


def small_parts(bucket: Bucket) -> FileIO:
    """Return the door to files with the smallest parts."""
    return bucket.io(**{"s3.multipart.part-size-bytes": str(PART), "s3.retry.num-retries": "1"})


def store_client(io: FileIO, location: str) -> Any:
    """Return the client that `io` uses, to make it fail; from now on no other storage has the same."""
    assert isinstance(io, ObjectIO)
    file_io = io.store_of(location)
    assert isinstance(file_io, S3FileIO)
    store = S3Store(file_io._store(location)._settings)
    file_io._stores = dict.fromkeys(file_io._stores, store)
    return store.files.s3


def refuse(io: FileIO, location: str, request: str) -> None:
    """Make the network fail for one kind of request."""

    def fail(**_: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://cut")

    store_client(io, location).meta.events.register_first(f"before-send.s3.{request}", fail)


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 7])
def test_bytes_come_back_as_they_were_written(bucket: Bucket, size: int) -> None:
    """A file of a certain size would be corrupt."""
    io, location, data = small_parts(bucket), f"{bucket.location}/x", os.urandom(size)
    write(io, location, data)

    assert read(io, location) == data
    assert len(io.new_input(location)) == size
    assert bucket.pending_uploads() == []


def test_many_pieces_make_the_same_file(bucket: Bucket) -> None:
    """A file would be corrupt if its encoder writes it in pieces."""
    io, location, data = small_parts(bucket), f"{bucket.location}/x", os.urandom(2 * PART + 100)
    with io.new_output(location).create(overwrite=True) as stream:
        for start in range(0, len(data), 999_983):
            assert stream.tell() == start
            stream.write(data[start : start + 999_983])

    assert read(io, location) == data


def test_small_file_takes_one_request_to_write_and_one_to_read(bucket: Bucket) -> None:
    """Each commit would take longer and cost more."""
    io, location = bucket.io(), f"{bucket.location}/metadata.json"
    write(io, location, b"{}")
    read(io, location)

    assert bucket.requests() == ["PUT", "GET"]


def test_large_file_is_uploaded_in_parts_and_nothing_else_is_asked(bucket: Bucket) -> None:
    """A large file would need its whole size in memory, or rights that the documentation does not name."""
    io, location = small_parts(bucket), f"{bucket.location}/x"
    write(io, location, bytes(2 * PART + 1))

    assert Counter(bucket.requests()) == {"POST uploads": 1, "PUT part": 3, "POST upload": 1}


def test_parquet_file_is_read_by_its_end_first(bucket: Bucket) -> None:
    """A rewrite would ask for sizes that it is told anyway."""
    io, location = bucket.io(), f"{bucket.location}/x.parquet"
    table = pa.table({"a": range(1_000_000), "b": [str(number) for number in range(1_000_000)]})
    with io.new_output(location).create(overwrite=True) as stream:
        pq.write_table(table, stream)
    with io.new_input(location).open() as source:
        found = pq.read_table(source)

    assert found.equals(table)
    assert "HEAD" not in bucket.requests()


def test_reader_may_jump(bucket: Bucket) -> None:
    """Readers that look for a footer or a column would see other bytes."""
    io, location, data = bucket.io(), f"{bucket.location}/x", os.urandom(3 * MEGABYTE)
    write(io, location, data)
    with io.new_input(location).open() as source:
        source.seek(-10, os.SEEK_END)
        assert source.read(20) == data[-10:]
        assert source.read(1) == b""
        source.seek(5)
        assert source.read(3) == data[5:8]
        source.seek(2, os.SEEK_CUR)
        assert source.read(2 * MEGABYTE) == data[10 : 10 + 2 * MEGABYTE]
        assert source.read() == data[10 + 2 * MEGABYTE :]


def test_missing_object_is_said_to_be_missing(bucket: Bucket) -> None:
    """A user would not learn which file of the table is gone."""
    io, location = bucket.io(), f"{bucket.location}/missing"

    assert not io.new_input(location).exists()
    with pytest.raises(FileNotFoundError, match=location):
        read(io, location)


def test_error_of_a_store_has_a_first_cause(bucket: Bucket) -> None:
    """Whoever looks for the cause of a failed commit would look for ever."""
    with pytest.raises(FileNotFoundError) as raised:
        read(bucket.io(), f"{bucket.location}/missing")
    seen: list[BaseException] = []
    cause: BaseException | None = raised.value
    while cause is not None and cause not in seen:
        seen.append(cause)
        cause = cause.__cause__ or cause.__context__

    assert cause is None


@pytest.mark.parametrize("written", [10, 3 * PART])
def test_error_while_writing_leaves_neither_object_nor_upload(bucket: Bucket, written: int) -> None:
    """A truncated file would lie in the table's folder, or parts that are paid for and never seen."""
    io, location = small_parts(bucket), f"{bucket.location}/x"
    with pytest.raises(KeyError):
        write_half(io, location, bytes(written))

    assert bucket.object_keys() == []
    assert bucket.pending_uploads() == []


@pytest.mark.parametrize("written", [10, 3 * PART])
def test_stream_that_is_forgotten_leaves_neither_object_nor_upload(bucket: Bucket, written: int) -> None:
    """A truncated file would appear when Python collects a stream that nobody closed."""
    stream = small_parts(bucket).new_output(f"{bucket.location}/x").create(overwrite=True)
    stream.write(bytes(written))
    del stream
    deadline = time.monotonic() + FORGET_TIMEOUT_S  # the parts that are under way end first
    while bucket.pending_uploads() and time.monotonic() < deadline:
        time.sleep(0.05)

    assert bucket.pending_uploads() == []
    assert bucket.object_keys() == []


@pytest.mark.parametrize("request_name", ["UploadPart", "CompleteMultipartUpload"])
def test_upload_that_fails_is_an_error_and_leaves_nothing(bucket: Bucket, request_name: str) -> None:
    """A file with a missing part would be committed, or the parts be paid for."""
    io, location = small_parts(bucket), f"{bucket.location}/x"
    refuse(io, location, request_name)
    with pytest.raises(OSError, match=f"Cannot write {location}: .*http://cut"):
        write(io, location, bytes(4 * PART))

    assert bucket.object_keys() == []
    assert bucket.pending_uploads() == []


def test_file_whose_end_is_unknown_is_deleted_when_it_is_given_up(bucket: Bucket) -> None:
    """A file that was written after all would stay for ever in the table's folder."""
    io, location = small_parts(bucket), f"{bucket.location}/x"
    client = store_client(io, location)
    client.meta.events.register_first("after-call.s3.PutObject", _lose_answer)
    stream: Any = io.new_output(location).create(overwrite=True)
    stream.write(b"abc")
    with pytest.raises(OSError, match="lost"):
        stream.close()
    assert bucket.object_keys() == ["x"]
    stream.discard()

    assert bucket.object_keys() == []


def _lose_answer(**_: object) -> None:
    raise EndpointConnectionError(endpoint_url="lost")


class Refusal:
    """The body of an answer of a store that refuses."""

    raw_headers = ()

    def __init__(self, code: str) -> None:
        self._code = code

    async def read(self) -> bytes:
        """Return its bytes."""
        return f"<Error><Code>{self._code}</Code></Error>".encode()


def carry_out(request: AWSPreparedRequest) -> None:
    """Let a request through."""
    headers = {key: text for key, text in request.headers.items() if key != "Content-Length"}
    body = request.body.getvalue() if isinstance(request.body, BytesIO) else request.body
    done = requests.request(request.method, request.url, data=body, headers=headers, timeout=30)
    assert done.status_code == 200


def lose_first_answer(request: AWSPreparedRequest, **_: object) -> AioAWSResponse:
    """Let the first request through and lose its answer; answer the second as a store that has done it."""
    if "attempt=1" not in str(request.headers["amz-sdk-request"]):
        return AioAWSResponse(request.url, 404, {}, Refusal("NoSuchUpload"))
    carry_out(request)
    return AioAWSResponse(request.url, 503, {}, Refusal("ServiceUnavailable"))


def lose_first_answer_alone(request: AWSPreparedRequest, **_: object) -> AioAWSResponse | None:
    """Let the first request through and lose its answer; the second is the store's to answer."""
    if "attempt=1" not in str(request.headers["amz-sdk-request"]):
        return None
    carry_out(request)
    return AioAWSResponse(request.url, 503, {}, Refusal("ServiceUnavailable"))


@pytest.mark.parametrize(("size", "request_name"), [(5, "PutObject"), (PART + 1, "CompleteMultipartUpload")])
def test_lost_answer_is_not_taken_for_a_strangers(bucket: Bucket, size: int, request_name: str) -> None:
    """A table's metadata would be refused because it is there already, and the commit fail for its own success."""
    door, location = small_parts(bucket), f"{bucket.location}/x"
    events = store_client(door, location).meta.events
    events.register_first(f"before-send.s3.{request_name}", lose_first_answer_alone)
    write(door, location, bytes(size), overwrite=False)

    assert len(door.new_input(location)) == size
    assert bucket.pending_uploads() == []


def test_strangers_file_is_not_taken_for_the_one_whose_answer_was_lost(bucket: Bucket) -> None:
    """Two writers of one metadata file would both believe that it is theirs."""
    door, location = small_parts(bucket), f"{bucket.location}/x"
    write(bucket.io(), location, b"a stranger's", overwrite=False)
    answers = iter([AioAWSResponse(location, 503, {}, Refusal("ServiceUnavailable"))])
    store_client(door, location).meta.events.register_first("before-send.s3.PutObject", lambda **_: next(answers, None))

    with pytest.raises(FileExistsError, match=location):
        write(door, location, b"mine", overwrite=False)
    assert read(door, location) == b"a stranger's"


def test_upload_that_was_completed_unheard_is_deleted_when_it_is_given_up(bucket: Bucket) -> None:
    """A file that no table refers to would stay: the second request is told that there is no such upload."""
    io, location = small_parts(bucket), f"{bucket.location}/x"
    store_client(io, location).meta.events.register_first("before-send.s3.CompleteMultipartUpload", lose_first_answer)
    stream: Any = io.new_output(location).create(overwrite=True)
    stream.write(bytes(PART + 1))
    with pytest.raises(OSError, match="NoSuchUpload"):
        stream.close()
    assert bucket.object_keys() == ["x"]
    stream.discard()

    assert bucket.object_keys() == []


def test_existing_object_is_not_overwritten_without_leave(bucket: Bucket) -> None:
    """Two writers of one metadata file would both believe that it is theirs."""
    io, location = bucket.io(), f"{bucket.location}/x"
    write(io, location, b"first", overwrite=False)
    with pytest.raises(FileExistsError, match=location):
        write(io, location, b"second", overwrite=False)

    assert read(io, location) == b"first"
    assert bucket.requests() == ["PUT", "PUT", "GET"]


def refuse_condition(request: AWSPreparedRequest, **_: object) -> AioAWSResponse | None:
    """Answer as a store that knows no conditional writes."""
    if "If-None-Match" not in request.headers:
        return None
    return AioAWSResponse(request.url, 501, {}, Refusal("NotImplemented"))


@pytest.mark.parametrize("size", [5, PART + 1])
def test_store_that_knows_no_conditions_gets_a_plain_write(bucket: Bucket, size: int) -> None:
    """No table could be created in a store that only speaks like S3."""
    io, location = small_parts(bucket), f"{bucket.location}/x"
    events = store_client(io, location).meta.events
    for request in ("PutObject", "CompleteMultipartUpload"):
        events.register_first(f"before-send.s3.{request}", refuse_condition)
    write(io, location, bytes(size), overwrite=False)

    assert len(io.new_input(location)) == size
    assert bucket.pending_uploads() == []


def test_many_files_are_deleted_with_one_request(bucket: Bucket) -> None:
    """A failed write of many files would be cleaned up one request after the other."""
    io = bucket.io()
    paths = [f"{bucket.location}/folder/{name}" for name in ("a", "b c", "d%2Fe", "ü")]
    for path in paths:
        write(io, path, b"x")

    assert delete_files(io, [*paths, f"{bucket.location}/missing"], Proof.TASK_FAILED) == 0
    assert [request for request in bucket.requests() if request != "PUT"] == ["POST delete"]
    assert bucket.object_keys() == []


PROGRAM = """
import os, sys, time
from iceberg_ds.io.files import ObjectIO
stream = ObjectIO({properties}).new_output("{location}/x").create(overwrite=True)
stream.write(bytes({written}))
print("written", flush=True)
{ending}
"""


def program(bucket: Bucket, written: int, ending: str) -> subprocess.Popen[str]:
    """Start a process that writes and does not close."""
    properties = {**bucket.store.properties, "s3.multipart.part-size-bytes": str(PART)}
    script = PROGRAM.format(properties=properties, location=bucket.location, written=written, ending=ending)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("written", "ending"), each_value([10, 5 * PART], ["", "raise KeyError", "sys.exit(3)"]))
def test_interpreter_with_an_open_stream_ends_and_leaves_nothing(bucket: Bucket, written: int, ending: str) -> None:
    """A Python worker would hang for ever at its end, or leave a truncated file."""
    process = program(bucket, written, ending)
    _, errors = process.communicate(timeout=EXIT_TIMEOUT_S)

    assert process.returncode == {"": 0, "raise KeyError": 1, "sys.exit(3)": 3}[ending]
    assert ("KeyError" in errors) == (ending == "raise KeyError")
    assert bucket.object_keys() == []
    assert bucket.pending_uploads() == []


def test_killed_process_leaves_no_object(bucket: Bucket) -> None:
    """A truncated file would lie in the table's folder."""
    process = program(bucket, 5 * PART, "time.sleep(600)")
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=EXIT_TIMEOUT_S)

    assert bucket.object_keys() == []


def test_child_of_a_fork_does_not_end_the_parents_upload(bucket: Bucket) -> None:
    """A program that forks while it writes would lose its file."""
    ending = (
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "stream.write(b'end')\n"
        "stream.close()"
    )
    _, errors = program(bucket, 2 * PART, ending).communicate(timeout=EXIT_TIMEOUT_S)

    assert errors == ""
    assert len(bucket.io().new_input(f"{bucket.location}/x")) == 2 * PART + 3


def test_opening_a_store_asks_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task would wait for seconds before its first row, for a region or for credentials of an instance."""

    def refuse_network(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(socket, "getaddrinfo", refuse_network)
    monkeypatch.setattr(socket.socket, "connect", refuse_network)

    ObjectIO().new_output("s3://bucket/x").create(overwrite=True)
