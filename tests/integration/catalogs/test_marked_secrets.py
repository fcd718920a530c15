"""Writes with marked secrets through every path, and a search for them in all that is left behind.

One Spark process with its UI, its event log, its log of the Python workers, and everything at a talkative level.
What may be where is the table `ALLOWED`; every secret must be found nowhere else, in no form.
"""

from __future__ import annotations

import base64
import json
import re
import textwrap
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from support.catalogs.rest_fake import RestFake, serve_rest_fake
from support.hooks.faults import Action, Fault, Point
from support.services.fake_services import Answer, answering, closed, rest_answer
from support.services.server_process import free_port
from support.services.servers import REPOSITORY, ObjectStore
from support.spark.jobs import BatchJob, Job, SqlJob, StreamJob, dump, write_source
from support.spark.process import SparkProcess

pytestmark = pytest.mark.exhaustive
DOCUMENT = REPOSITORY / "docs" / "secrets.md"
BUCKET = "marked"

# Where something can be left behind.
LOG = "what Spark's driver, Java and Python workers print"
ERRORS = "what the user is told"
EVENTS = "event log"
UI = "pages and REST API of Spark's UI"
WORKER_LOGS = "Spark's table of the Python workers' logs"
EXPLAINED = "EXPLAIN"
PROCESSES = "command lines"
TASKS = "what tasks hold"
MESSAGES = "what tasks report"
TABLES = "data, manifests and metadata of tables"
CATALOGS = "databases of the catalogs"
CHECKPOINTS = "checkpoints"
TEMPORARY = "Spark's temporary files"
PLACES = frozenset({LOG, ERRORS, EVENTS, UI, WORKER_LOGS, EXPLAINED, PROCESSES, TASKS, MESSAGES, TABLES, CATALOGS})
PLACES |= {CHECKPOINTS, TEMPORARY}


def mark(name: str) -> str:
    """Return a secret with characters that are encoded in addresses."""
    return f"MARK+{name}/7f3a=9"


TOKEN, CLIENT_SECRET, HEADER = mark("token"), mark("client-secret"), mark("header")
PASSWORD, PARAMETER = mark("password"), mark("parameter")
ANSWERED_TOKEN, ANSWERED_KEY = mark("answered-token"), mark("answered-key")
SIGNED_IN, SESSION = mark("signed-in"), mark("session")
WRONG_KEY, ENVIRONMENT = mark("wrong-key"), mark("environment")
# The store's own keys: what tasks open files with, and nothing else is for.
STORE_KEY, STORE_SECRET = "tests-access-key", "tests-secret-key"  # of a server of the tests

ALLOWED: dict[str, frozenset[str]] = {
    TOKEN: frozenset(),
    CLIENT_SECRET: frozenset(),
    HEADER: frozenset(),
    PASSWORD: frozenset(),
    PARAMETER: frozenset(),
    ANSWERED_TOKEN: frozenset(),
    ANSWERED_KEY: frozenset(),
    SIGNED_IN: frozenset(),
    ENVIRONMENT: frozenset(),
    STORE_KEY: frozenset({TASKS}),
    STORE_SECRET: frozenset({TASKS}),
    SESSION: frozenset(),
    WRONG_KEY: frozenset(),
}


def forms(secret: str) -> set[bytes]:
    """Return what a secret looks like in a text, an address, JSON or Base64, wherever it begins there."""
    texts = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), secret.replace("/", r"\/")}
    inner = {base64.b64encode(b"x" * shift + secret.encode())[4:-4] for shift in range(3)}
    return {text.encode() for text in texts} | inner


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What was left behind, by place."""

    found: dict[str, list[bytes]] = field(default_factory=dict)

    def add(self, place: str, text: str | bytes) -> None:
        """Add a text."""
        self.found.setdefault(place, []).append(text.encode() if isinstance(text, str) else text)

    def add_files(self, place: str, *folders: Path) -> None:
        """Add all files below folders."""
        for folder in folders:
            for path in folder.rglob("*"):
                if path.is_file():
                    self.add(place, str(path).encode() + b"\n" + path.read_bytes())

    def holds(self, place: str, secret: str) -> bool:
        """Return whether a secret is at a place."""
        return any(form in text for form in forms(secret) for text in self.found[place])


@dataclass(slots=True, kw_only=True)
class Writes:
    """The Spark process and what it is given.

    Attributes:
        folder: For all that it writes.
        process: The process.
        ui: Address of its UI.
        evidence: What was left behind so far.
    """

    folder: Path
    process: SparkProcess
    ui: str
    evidence: Evidence = field(default_factory=Evidence)

    def run(self, job: Job, error: str | None = None) -> None:
        """Run a job that must go well, or fail with an error that has this part."""
        found = self.process.run(dump(job))
        assert (found is None) == (error is None), found
        if error is not None and found is not None:
            assert error in found
            self.evidence.add(ERRORS, found)

    def batch(self, options: dict[str, str], error: str | None = None, mode: str = "append") -> None:
        """Write a batch."""
        evidence = {"evidence": str(self.folder / "evidence")}
        self.run(BatchJob(rows=4, sink="hookedsink", options={**options, **evidence}, mode=mode), error)

    def stream(self, name: str, options: dict[str, str], error: str | None = None) -> None:
        """Run a stream of one epoch."""
        source, checkpoint = self.folder / "source", self.folder / "checkpoints" / name
        given = {**options, "evidence": str(self.folder / "evidence")}
        job = StreamJob(source=str(source), checkpoint=str(checkpoint), sink="hookedsink", options=given)
        self.run(job, error)

    def fault(self, name: str, point: Point) -> dict[str, str]:
        """Return the options that make a write fail there."""
        return Fault(point=point, action=Action.RAISE, fuse=self.folder / f"{name}.fuse").arm()


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory, object_store: ObjectStore) -> Evidence:
    """Return what is left behind by all writes."""
    folder = tmp_path_factory.mktemp("marked")
    for name in ("events", "catalogs"):
        (folder / name).mkdir()
    write_source(folder / "source", [range(5)])
    warehouse = f"{object_store.bucket(BUCKET)}/rest"
    with serve_rest_fake(folder / "catalogs", storage=object_store.properties, warehouse=warehouse) as fake:
        fake.credential = f"writer:{CLIENT_SECRET}"
        environment = configure_as_documented(folder, {"catalog": fake.uri, "store": object_store.endpoint})
        ui_port = free_port()
        conf = talkative(folder / "events", ui_port)
        with SparkProcess(folder / "driver", environment=environment, conf=conf) as process:
            writes = Writes(folder=folder, process=process, ui=f"http://127.0.0.1:{ui_port}")
            shown = "CREATE TABLE shown (id BIGINT, name STRING) USING hookedsink"
            writes.run(SqlJob(statements=[shown], log_level="INFO"))
            write_to_store(writes, object_store)
            write_to_rest_catalog(writes, object_store, fake)
            write_to_broken_catalogs(writes)
            look_around(writes)
    found = writes.evidence
    found.add(LOG, process.log())
    found.add_files(EVENTS, folder / "events")
    found.add_files(TASKS, folder / "evidence" / "task")
    found.add_files(MESSAGES, folder / "evidence" / "messages")
    found.add_files(TABLES, object_store.folder / BUCKET)
    found.add_files(CATALOGS, folder / "catalogs")
    found.add_files(CHECKPOINTS, folder / "checkpoints")
    return found


def talkative(events: Path, ui_port: int) -> dict[str, str]:
    """Return settings with which Spark tells as much as it can."""
    return {
        "spark_ui_enabled": "true",
        "spark_ui_port": str(ui_port),
        "spark_eventLog_enabled": "true",
        "spark_eventLog_dir": f"file://{events}",
        "spark_eventLog_compress": "false",
        "spark_sql_ui_explainMode": "extended",
        "spark_sql_pyspark_worker_logging_enabled": "true",
    }


def configure_as_documented(folder: Path, addresses: Mapping[str, str]) -> dict[str, str]:
    """Write the documented configuration file, and return the documented environment, with catalogs of these tests."""
    (file,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (exports,) = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    values = {f"https://{name}.example.com": address for name, address in addresses.items()}
    values |= {"the-client-secret": CLIENT_SECRET, "the-access-key": STORE_KEY, "the-secret-key": STORE_SECRET}
    for placeholder, value in values.items():
        assert placeholder in file
        assert placeholder in exports
        file, exports = file.replace(placeholder, value), exports.replace(placeholder, value)
    unreachable = f"postgresql+psycopg2://writer:{quote(PASSWORD, safe='')}@{closed()}/db"
    broken = f"  broken:\n    type: sql\n    uri: {unreachable}\n    s3.secret-access-key: {WRONG_KEY}\n"
    (folder / ".pyiceberg.yaml").write_text(textwrap.dedent(file) + broken)
    named = re.findall(r"export (\S+?)=(.*)", exports.replace("__LAKE__", "__EXPORTED__"))
    prefix = "PYICEBERG_CATALOG__REFUSED"
    refused = {f"{prefix}__TYPE": "rest", f"{prefix}__URI": addresses["catalog"], f"{prefix}__TOKEN": ENVIRONMENT}
    return {"PYICEBERG_HOME": str(folder), **dict(named), **refused}


def write_to_store(writes: Writes, store: ObjectStore) -> None:
    """Write to S3 with a SQL catalog: appended, replaced, streamed, explained, and failing at every step."""
    uri = f"sqlite:///{writes.folder}/catalogs/sql.db"
    options = {
        "catalog": "marked",
        "catalog.type": "sql",
        "catalog.uri": f"{uri}?timeout=60",
        "catalog.warehouse": f"{store.bucket(BUCKET)}/sql",
        "catalog.token": TOKEN,
        "catalog.credential": f"writer:{CLIENT_SECRET}",
        "catalog.header.x-any": HEADER,
        **{f"catalog.{key}": value for key, value in store.properties.items()},
    }
    writes.batch(options)
    writes.batch(options, mode="overwrite")
    writes.stream("appended", options)
    writes.batch({**options, "schema-evolution": "strict", "sort-by": "nothing"}, "nothing")
    writes.batch({**options, "catalog.s3.secret-access-key": WRONG_KEY}, "Cannot")
    writes.batch({**options, "catalog.s3.session-token": SESSION}, "Cannot")
    writes.batch({**options, "table-property.s3.secret-access-key": WRONG_KEY}, "table-property.s3.secret-access-key")
    own_files = {**options, "small-task-size-bytes": "0"}  # so that tasks come to their files' steps
    for point in (Point.IN_TASK, Point.BEFORE_COMMIT, Point.AFTER_COMMIT):
        writes.batch({**own_files, **writes.fault(f"batch-{point.name}", point)}, "planned fault")
    for point in (Point.IN_TASK, Point.BEFORE_COMMIT):
        writes.stream(f"failing-{point.name}", {**own_files, **writes.fault(f"stream-{point.name}", point)}, "planned")
    given = {**options, "table": "db.t", "evidence": str(writes.folder / "evidence")}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
    insert = f"INSERT INTO shown WITH ({listed}) SELECT id, string(id) AS name FROM range(3)"  # noqa: S608  # no input
    writes.run(SqlJob(statements=[insert]))
    writes.run(SqlJob(statements=[f"EXPLAIN EXTENDED {insert}"], rows=str(writes.folder / "explained")))
    writes.evidence.add(EXPLAINED, (writes.folder / "explained").read_text())


def write_to_rest_catalog(writes: Writes, store: ObjectStore, fake: RestFake) -> None:
    """Write to a REST catalog that asks for credentials and vends storage credentials."""
    writes.batch({"catalog": "lake"})
    writes.batch({"catalog": "exported"})
    writes.batch({"catalog": "refused"}, "Cannot")
    fake.vend = lambda _: {"config": store.properties}
    options = {"catalog.type": "rest", "catalog.uri": fake.uri, "catalog.header.x-any": HEADER}
    writes.batch({**options, "catalog.credential": f"writer:{CLIENT_SECRET}"})
    writes.batch({**options, "catalog.credential": f"writer:{CLIENT_SECRET}-but-wrong"}, "Cannot")
    fake.tokens.append(SIGNED_IN)
    writes.stream("rest", {**options, "catalog.token": SIGNED_IN})


def write_to_broken_catalogs(writes: Writes) -> None:
    """Write to catalogs that cannot be reached, or that tell in their answers what they were sent."""
    secrets = {"catalog.token": TOKEN, "catalog.header.x-any": HEADER, "catalog.header.y": CLIENT_SECRET}
    told = f"{TOKEN} {quote(HEADER)} {base64.b64encode(CLIENT_SECRET.encode()).decode()} {CLIENT_SECRET[:-3]}..."
    answered = {"access_token": ANSWERED_TOKEN, "config": {"s3.secret-access-key": ANSWERED_KEY}}
    answers = [
        rest_answer(401, message=f"not known: Bearer {told}"),
        Answer(status=400, body=json.dumps(answered)),
        Answer(status=200, body=json.dumps(answered)),
    ]
    for answer in answers:
        with answering(answer) as address:
            writes.batch({"catalog.type": "rest", "catalog.uri": f"http://{address}", **secrets}, "Cannot")
    with answering(answers[0]) as address:
        writes.stream("telling", {"catalog.type": "rest", "catalog.uri": f"http://{address}", **secrets}, "Cannot")
    with answering(rest_answer(400, message=f"client_secret={quote_plus(CLIENT_SECRET)}")) as address:
        oauth = {"catalog.oauth2-server-uri": f"http://{address}/t", "catalog.credential": f"writer:{CLIENT_SECRET}"}
        writes.batch({"catalog.type": "rest", "catalog.uri": f"http://{address}", **oauth}, "Cannot")
    user = f"writer:{quote(PASSWORD, safe='')}@{closed()}"
    for uri in (f"http://{user}/api", f"http://{closed()}/api?access_token={quote(PARAMETER)}"):
        writes.batch({"catalog.type": "rest", "catalog.uri": uri, **secrets}, "Cannot")
    for uri in (
        f"postgresql+psycopg2://{user}/db",
        f"postgresql+psycopg2://writer:{PASSWORD}@{closed()}/db",
        f"postgresql+psycopg2://{closed()}/db?password={quote(PARAMETER, safe='')}",
    ):
        writes.batch({"catalog.type": "sql", "catalog.uri": uri}, "Cannot")
    writes.stream("sql", {"catalog.type": "sql", "catalog.uri": f"postgresql+psycopg2://{user}/db"}, "Cannot")
    writes.batch({"catalog": "broken"}, "Cannot")


def look_around(writes: Writes) -> None:
    """Add what only a living Spark shows."""
    logs = writes.folder / "worker-logs"
    writes.run(SqlJob(statements=["SELECT * FROM python_worker_logs()"], rows=str(logs)))
    found = writes.evidence
    found.add(WORKER_LOGS, logs.read_text())
    for page in pages(writes.ui):
        found.add(UI, page)
    found.add_files(TEMPORARY, writes.folder / "driver" / "spark")
    for path in Path("/proc").glob("[0-9]*/stat"):
        if f" {writes.process.pid} " in path.read_text():
            found.add(PROCESSES, (path.parent / "cmdline").read_bytes())


def pages(address: str) -> Iterator[bytes]:
    """Yield all pages of Spark's UI that tell of its queries, and what its REST API says."""

    def fetch(path: str) -> bytes:
        with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:  # noqa: S310  # of Spark's UI
            text: bytes = answer.read()
            return text

    (application,) = json.loads(fetch("/api/v1/applications"))
    api = f"/api/v1/applications/{application['id']}"
    queries = fetch(f"{api}/sql?details=true&planDescription=true&length=1000")
    failed = [stage["stageId"] for stage in json.loads(fetch(f"{api}/stages?status=failed"))]
    yield queries
    for path in ("/jobs/", "/stages/", "/SQL/", "/environment/", "/executors/", "/StreamingQuery/"):
        yield fetch(path)
    for path in ("jobs", "stages?details=true", "environment", "allexecutors"):
        yield fetch(f"{api}/{path}")
    for query in json.loads(queries):
        yield fetch(f"/SQL/execution/?id={query['id']}")
    for stage in failed:
        yield fetch(f"/stages/stage/?id={stage}&attempt=0")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", sorted(PLACES))
def test_no_secret_is_where_it_must_not_be(evidence: Evidence, place: str) -> None:
    """Whoever may look there could use the catalog or the store in the user's name."""
    leaked = [secret for secret, allowed in ALLOWED.items() if place not in allowed and evidence.holds(place, secret)]

    assert leaked == []


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (LOG, " INFO "),
        (LOG, "Committed db.t"),
        (LOG, "Traceback"),
        (ERRORS, "Cannot connect to catalog"),
        (EVENTS, "SparkListenerSQLExecutionStart"),
        (EVENTS, "catalog.s3.access-key-id=*********(redacted)"),
        (UI, "AppendData"),
        (WORKER_LOGS, "Committed db.t"),
        (EXPLAINED, "catalog.header.x-any=*********(redacted)"),
        (PROCESSES, "SparkSubmit"),
        (TASKS, STORE_SECRET),
        (MESSAGES, "s3://marked/sql/db"),
        (TABLES, "s3://marked/rest/db"),
        (CATALOGS, "s3://marked/sql/db"),
        (CHECKPOINTS, "batchWatermarkMs"),
        (TEMPORARY, ""),
    ],
)
def test_every_place_was_looked_at(evidence: Evidence, place: str, text: str) -> None:
    """A search in the wrong place finds nothing, and would pass for ever."""
    assert any(text.encode() in found for found in evidence.found[place])
