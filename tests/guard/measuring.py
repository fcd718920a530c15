"""Measures all figures of the guard: scenes of a few writes each, whose steps are counted one by one.

A figure's name says its scene, its step and what was counted. What was not seen is not in the result: it counts as 0.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pytest
from guard.counting import (
    counting_calls,
    counting_copies,
    counting_objects,
    counting_requests,
    counting_statements,
)
from guard.history import age
from guard.steps import Rows, Sizes, Watch, batch_write, micro_batch, plan_stream
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config
from support.catalogs.rest_fake import RestFake, serve_rest_fake
from support.services.bucket import Bucket
from support.services.servers import ObjectStore

Figures = dict[str, int]

TABLE = ("db", "t")
SHORT, LONG = 10, 1_000
ON_HISTORY = {SHORT: "micro-batch on 10 snapshots", LONG: "micro-batch on 1,000 snapshots"}
ON_REST_HISTORY = {number: f"{name}, REST" for number, name in ON_HISTORY.items()}
_SMALL = Rows()
_FILES = Rows(batch_rows=20_000)
_BIG_TASK = Rows(tasks=1, batches=30, batch_rows=10_000, parts=50)
_ROLES = ("planner", "task", "committer")
# What S3 needs, and whoever does not go there must not load.
_OF_S3 = ("s3fs", "aiobotocore", "aiohttp")
# These catalogs do not need the others; each takes long to load, or is a way past the count.
FORBIDDEN = (*_OF_S3, "pandas", "boto3", "rich", "click", "adlfs", "gcsfs", "duckdb", "polars")
_ONLY_DRIVER = ("sqlalchemy", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql", "iceberg_ds.catalog")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where scenes take place.

    Attributes:
        store: An S3 server.
        folder: A folder for catalogs and for tables that are not in the store.
    """

    store: ObjectStore
    folder: Path

    def new_folder(self, name: str) -> Path:
        """Return a new folder."""
        path = self.folder / _slug(name)
        path.mkdir()
        return path


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _options(catalog: Mapping[str, str], **options: str) -> dict[str, str]:
    return {
        "table": ".".join(TABLE),
        "catalog": "guard",
        **{f"catalog.{key}": text for key, text in catalog.items()},
        **{key.replace("_", "-"): text for key, text in options.items()},
    }


def _sql_on_s3(bucket: Bucket, folder: Path) -> dict[str, str]:
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{bucket.location}/warehouse",
        **bucket.store.properties,
    }


def options_on_s3(bucket: Bucket, folder: Path) -> dict[str, str]:
    """Return the options of writes to a SQL catalog in `folder` with its tables in the bucket."""
    return _options(_sql_on_s3(bucket, folder))


class _Scene:
    """A SQL catalog with its tables in a bucket; adds what its steps count to `figures`.

    Attributes:
        name: What the figures call it.
        is_first: Whether the coming steps are the first that this process takes.
        bucket: Where its tables are.
        properties: PyIceberg's properties of the catalog.
        options: The sink's options.
    """

    def __init__(self, place: Place, name: str, figures: Figures, **options: str) -> None:
        folder = place.new_folder(name)
        self.name = name
        self.is_first = False
        self.bucket = Bucket(store=place.store, name=f"guard-{_slug(name)}")
        self._figures = figures
        self.properties = _sql_on_s3(self.bucket, folder)
        self.options = _options(self.properties, **options)

    def raw(self) -> Catalog:
        """Return the catalog as PyIceberg opens it."""
        return load_catalog("guard", **self.properties)

    def watch(self, step: str, run: Callable[[], Any]) -> Any:
        """Count what a step does."""
        found: Counter[str] = Counter()
        with (
            counting_objects(self.bucket, found),
            counting_statements(found),
            counting_copies(found),
            counting_calls(found),
        ):
            result = run()
        if step == "tasks" or self.is_first:  # their work is in libraries; and the first write loads modules
            del found["Python calls"]
        note(self._figures, f"{self.name} / {step}", found)
        return result

    def note_sizes(self, sizes: Sizes) -> None:
        """Note the sizes of what travels."""
        note(self._figures, f"{self.name} / plan", {"writer bytes": sizes.writer})
        note(self._figures, f"{self.name} / tasks", {"message bytes": sizes.message})


def note(figures: Figures, step: str, found: Mapping[str, int]) -> None:
    """Add what was counted in a step."""
    figures.update({f"{step}: {name}": number for name, number in found.items() if number})


def measure_batches(place: Place) -> Figures:
    """Measure batch writes: one that makes the table, one into a table, one into partitions, one that is reported."""
    figures: Figures = {}
    new = _Scene(place, "first batch write", figures)
    new.is_first = True
    new.note_sizes(batch_write(new.options, _SMALL, new.watch))
    new.name, new.is_first = "batch write", False
    new.note_sizes(batch_write(new.options, _FILES, new.watch))
    parted = _Scene(place, "partitioned batch write", figures, partition_by="part")
    batch_write(parted.options, _SMALL)
    parted.note_sizes(batch_write(parted.options, _FILES, parted.watch))
    reports = {"metrics_file": f"{place.folder}/commits.jsonl", "metrics_reporter": "log", "snapshot_metrics": "true"}
    told = _Scene(place, "batch write, every report", figures, **reports)
    batch_write(told.options, _SMALL)
    told.note_sizes(batch_write(told.options, _FILES, told.watch))
    return figures


def measure_micro_batches(place: Place) -> Figures:
    """Measure the second micro-batch of a stream on a short and on a long history, in a SQL catalog on S3."""
    figures: Figures = {}
    for snapshots, name in ON_HISTORY.items():
        scene = _Scene(place, name, figures)
        _second_micro_batch(scene.options, scene.raw(), snapshots, scene.watch, scene.note_sizes)
    return figures


def measure_rest(place: Place) -> Figures:
    """Measure what a REST catalog is asked."""
    figures: Figures = {}
    for snapshots, name in ON_REST_HISTORY.items():
        with serve_rest_fake(place.new_folder(name)) as fake:
            options = _options({"type": "rest", "uri": fake.uri})
            watch = partial(_watch_rest, fake, figures)
            batch_write(options, _SMALL, partial(watch, "first batch write, REST") if snapshots == SHORT else _plainly)
            batch_write(options, _SMALL, partial(watch, "batch write, REST") if snapshots == SHORT else _plainly)
            fake.tables.drop_table(TABLE)
            _second_micro_batch(options, fake.tables, snapshots, partial(watch, name), _forget)
    return figures


def _second_micro_batch(
    options: Mapping[str, str], catalog: Catalog, snapshots: int, watch: Watch, sizes: Callable[[Sizes], None]
) -> None:
    batch_write(options, _SMALL)
    age(catalog, TABLE, snapshots - 1)
    micro_batch(options, _SMALL, 0)
    sizes(micro_batch(options, _SMALL, 1, watch))


def _watch_rest(fake: RestFake, figures: Figures, name: str, step: str, run: Callable[[], Any]) -> Any:
    found: Counter[str] = Counter()
    with counting_requests(fake, found):
        result = run()
    note(figures, f"{name} / {step}", found)
    return result


def _plainly(_: str, run: Callable[[], Any]) -> Any:
    return run()


def _forget(_: Sizes) -> None:
    """Do nothing: another scene notes the sizes."""


def measure_roles(place: Place) -> Figures:
    """Measure which modules planner, task and committer of a stream load, and how much memory Arrow takes in a task."""
    figures: Figures = {}
    scene = _Scene(place, "roles", {})
    folder = place.new_folder("messages")
    for role in _ROLES:
        figures.update(_of_role(role, "SQL and S3", play(role, folder, scene.options)))
    with serve_rest_fake(place.new_folder("roles-rest")) as fake:
        for name, options in {"one file": {}, "50 partitions": {"partition_by": "part"}}.items():
            rest = _options({"type": "rest", "uri": fake.uri}, **options)
            folder = place.new_folder(name)
            (folder / "writer").write_bytes(plan_stream(rest))
            task = play("task", folder, rest, _BIG_TASK)
            figures[f"300,000 rows, {name} / tasks: Arrow memory bytes"] = task["arrow_bytes"]
        figures.update(_of_role("task", "local files", task))
        figures.update(_of_role("planner", "REST", play("planner", place.new_folder("planner"), rest)))
        figures.update(_of_role("committer", "REST", play("committer", folder, rest)))
    return figures


def _of_role(role: str, catalog: str, done: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    step, loaded = f"{role}, {catalog} / process", done["loaded"]
    yield f"{step}: modules", len(loaded)
    for package in (*FORBIDDEN, *(_ONLY_DRIVER if role == "task" else ())):
        inside = sum(name == package or name.startswith(f"{package}.") for name in loaded)
        if inside and not ("S3" in catalog and package in _OF_S3):
            yield f"{step}: modules of {package}", inside


def play(role: str, folder: Path, options: Mapping[str, str], rows: Rows = _SMALL) -> dict[str, Any]:
    """Play a role in a process of its own; return what it says."""
    asked = {"role": role, "folder": str(folder), "options": dict(options), "rows": asdict(rows), "epoch": 0}
    script = Path(__file__).with_name("role.py")
    done = subprocess.run(
        [sys.executable, script], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"The {role} failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(group: str, place: Place) -> Figures:
    """Measure a group of figures, without the catalogs that this machine's user has configured."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("PYICEBERG_")]:
            patch.delenv(name)
        patch.setenv("PYICEBERG_HOME", str(place.folder))
        patch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        return MEASURES[group](place)


MEASURES: dict[str, Callable[[Place], Figures]] = {
    "batches": measure_batches,
    "micro-batches": measure_micro_batches,
    "rest": measure_rest,
    "roles": measure_roles,
}
