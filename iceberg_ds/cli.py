"""The command `iceberg-ds`: a subcommand for each public function that needs no DataFrame, in the same words.

All take the options of a write. The exit code is 0 only if all is well, 1 if something failed, 2 for a wrong use;
`watch` ends with 3 if a table could not be looked at.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from iceberg_ds._version import __version__
from iceberg_ds.errors import IcebergSinkError, OptionError
from iceberg_ds.inspect.check import check_write
from iceberg_ds.inspect.checklist import Check, CheckResult, print_result
from iceberg_ds.inspect.orphans import DEFAULT_GRACE, parse_grace_ms, print_orphans
from iceberg_ds.inspect.thresholds import DEFAULTS, Thresholds
from iceberg_ds.inspect.verify import verify as verify_table
from iceberg_ds.options.parse import given_options, options_of_call, parse_options
from iceberg_ds.secrets import mask_name
from iceberg_ds.snapshots.refs import MAIN_BRANCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from iceberg_ds.deletes.work import RowEncoding
    from iceberg_ds.inspect.watch import Look
    from iceberg_ds.maintenance.rewrite_data_files import Strategy

_FAILED = 1
# Where scratch tables go if no table is named: a namespace that is made for them and removed.
_SCRATCH_TABLE = "iceberg_ds_check.t"
_LOG_WIDTH = 140  # columns where there is no terminal
_FOREVER_S = 3600.0
_HIGHEST = 1_000_000_000  # of figures and seconds; Python cannot wait much longer


class _Number(click.FloatRange):
    """A number in a range: `nan`, which is in every range, and `inf` are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number) or number > _HIGHEST:
            self.fail(f"{value!r} is no number up to {_HIGHEST:,}.", param, ctx)
        return number


_option = click.option("--option", "pairs", metavar="KEY=VALUE", multiple=True, help="Option of a write; repeatable.")
_master = click.option(
    "--master", default="local[*]", show_default=True, help="Spark's master, such as spark://host:7077."
)
_remote = click.option("--remote", help="Address of a Spark Connect server, such as sc://host:15002, instead.")
_own_master = click.option("--master", help="Spark's master, such as spark://host:7077, whose executors do the work.")
_own_remote = click.option("--remote", help="Address of a Spark Connect server, such as sc://host:15002, instead.")
_at_once = click.option(
    "--max-concurrent-deletes", type=click.IntRange(min=1), help="Requests that delete files at once; 1 if not given."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="iceberg-ds")
def main() -> None:
    """Check, verify and maintain Iceberg tables that Spark writes with format("icebergsink")."""


@main.command()
@click.argument("table", required=False)
@_option
@click.option("--schema", help="Columns of the write, such as 'id BIGINT, name STRING'.")
@click.option("--sample", type=click.Path(), help="A Parquet, CSV or JSON file with these columns instead.")
@click.option("--catalog", "is_conformance", is_flag=True, help="Try on scratch tables whether commits are safe here.")
@click.option("--master", help="Spark's master, such as spark://host:7077, whose executors are checked, too.")
@click.option("--remote", help="Spark Connect server, such as sc://host:15002, whose executors are checked, too.")
@click.option("--timeout", "limit_s", type=_Number(min=1), default=60.0, help="Seconds for each step.")
@_json
def check(  # noqa: PLR0913, PLR0917  # one for each option of the command
    table: str | None,
    pairs: Sequence[str],
    schema: str | None,
    sample: str | None,
    is_conformance: bool,  # noqa: FBT001  # click's
    master: str | None,
    remote: str | None,
    limit_s: float,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Try all that a write to TABLE needs, from this machine, and leave nothing behind.

    With --master or --remote every executor tries it, too.
    """
    options = _options(pairs, table)
    with _session(master, remote) as spark:
        if is_conformance:
            result = _conformance({"table": _SCRATCH_TABLE, **options})
        else:
            result = check_write(options, spark, schema=schema, sample=sample, limit_s=limit_s)
    if as_json:
        click.echo(result.to_json())
    else:
        print_result(result, _console())
    sys.exit(0 if result.ok else _FAILED)


@main.command()
@click.argument("table")
@_option
@click.option("--deep", is_flag=True, help="Read all rows, too: recompute metrics, compare row ids.")
@click.option("--unique-keys", is_flag=True, help="Read all keys, too, and find keys with several rows.")
@click.option("--all-snapshots", is_flag=True, help="Look at files of all snapshots, not only of branches and tags.")
@click.option("--orphans/--no-orphans", default=True, help="Look for files that nothing refers to (default), or not.")
@click.option("--older-than", metavar="AGE", default=DEFAULT_GRACE, show_default=True, help="Age of orphans: 36h, 3d.")
@click.option("--delete-orphans", is_flag=True, help="Delete orphans, after another load of the table confirms them.")
@click.option("--force", is_flag=True, help="Delete orphans younger than 24 hours, too: only if nothing writes.")
@_json
def verify(
    table: str,
    pairs: Sequence[str],
    as_json: bool,  # noqa: FBT001  # click's
    **wishes: Any,  # noqa: ANN401  # the arguments of the function of that name
) -> None:
    """Prove TABLE whole: history, epochs, manifests, files, rows; and list the files that nothing refers to."""
    with _errors_shown():
        result = verify_table(table, options=_options(pairs, table), **wishes)
    if as_json:
        click.echo(result.to_json())
    else:
        console = _console()
        print_result(result, console, ("Whole", "Not whole"))
        print_orphans(result.orphans, console)
    sys.exit(0 if result.ok else _FAILED)


@main.command("convert-deletes")
@click.argument("table")
@_option
@click.option("--branch", help="The branch whose deletes are converted; main if not given.")
@click.option(
    "--encoding",
    type=click.Choice(["position", "copy-on-write"]),
    default="position",
    show_default=True,
    help="Mark deleted rows by position, or write their files without them.",
)
@_master
@_remote
@_json
def convert_deletes(  # noqa: PLR0913, PLR0917  # one for each option of the command
    table: str,
    pairs: Sequence[str],
    branch: str | None,
    encoding: RowEncoding,
    master: str,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Turn the equality deletes of TABLE into position deletes, or rewrite files, so that every reader can read it."""
    from iceberg_ds.deletes.convert import convert_deletes as convert  # noqa: PLC0415  # --help needs none of it

    options = _options(pairs, table)
    with _errors_shown(), _working(None if remote else master, remote, "iceberg-ds convert-deletes") as spark:
        result = convert(table, spark, options=options, branch=branch, encoding=encoding)
    click.echo(result.to_json() if as_json else str(result))


@main.command("rewrite-data-files")
@click.argument("table")
@_option
@click.option(
    "--strategy",
    type=click.Choice(["binpack", "sort", "zorder"]),
    default="binpack",
    show_default=True,
    help="Whether rows stay in the order of their files, are sorted, or are sorted by several columns alike.",
)
@click.option(
    "--sort-order",
    help="Order of the strategy sort, such as 'ts desc, id' or 'zorder(a, b)'; the table's own if not given.",
)
@click.option("--where", help="Rewrite only files that may have rows which satisfy this predicate.")
@click.option("--branch", help="The branch whose files are rewritten; main if not given.")
@_master
@_remote
@_json
def rewrite_data_files(  # noqa: PLR0913, PLR0917  # one for each option of the command
    table: str,
    pairs: Sequence[str],
    strategy: Strategy,
    sort_order: str | None,
    where: str | None,
    branch: str | None,
    master: str,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Make few large files of the small ones of TABLE, without deleted rows, while others write."""
    from iceberg_ds.maintenance.rewrite_data_files import rewrite_data_files as rewrite  # noqa: PLC0415  # as above

    options = _options(pairs, table)
    with _errors_shown(), _working(None if remote else master, remote, "iceberg-ds rewrite-data-files") as spark:
        result = rewrite(
            table, spark, strategy=strategy, sort_order=sort_order, where=where, branch=branch, options=options
        )
    click.echo(result.to_json() if as_json else str(result))


@main.command("rewrite-manifests")
@click.argument("table")
@_option
@click.option("--branch", help="The branch whose manifests are rewritten; main if not given.")
@click.option("--spec-id", type=int, help="Id of the partition spec whose manifests are rewritten; else the current.")
@click.option("--sort-by", "sort_by", multiple=True, metavar="FIELD", help="A partition field to cluster by first.")
@_json
def rewrite_manifests(  # noqa: PLR0913, PLR0917  # one for each option of the command
    table: str,
    pairs: Sequence[str],
    branch: str | None,
    spec_id: int | None,
    sort_by: Sequence[str],
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """List the files of TABLE in manifests that each cover few partitions, so that readers open fewer of them."""
    from iceberg_ds.maintenance.rewrite_manifests import rewrite_manifests as rewrite  # noqa: PLC0415  # as above

    options = _options(pairs, table)
    with _errors_shown():
        result = rewrite(table, spec_id=spec_id, sort_by=sort_by or None, options=options, branch=branch)
    click.echo(result.to_json() if as_json else str(result))


@main.command("rewrite-position-delete-files")
@click.argument("table")
@_option
@click.option("--where", metavar="PREDICATE", help="Only in partitions that may have such rows.")
@click.option("--branch", help="The branch whose delete files are rewritten; main if not given.")
@_master
@_remote
@_json
def rewrite_position_delete_files(  # noqa: PLR0913, PLR0917  # one for each option of the command
    table: str,
    pairs: Sequence[str],
    where: str | None,
    branch: str | None,
    master: str,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Write few position delete files in place of the many of TABLE, and drop those that hide nothing any more."""
    from iceberg_ds.maintenance.rewrite_position_deletes import (  # noqa: PLC0415  # --help needs none of it
        rewrite_position_delete_files as rewrite,
    )

    options = _options(pairs, table)
    name = "iceberg-ds rewrite-position-delete-files"
    with _errors_shown(), _working(None if remote else master, remote, name) as spark:
        result = rewrite(table, spark, where=where, options=options, branch=branch)
    click.echo(result.to_json() if as_json else str(result))


@main.command("expire-snapshots")
@click.argument("table")
@_option
@click.option("--older-than", metavar="AGE", help="Age from which snapshots go: 36h, 7d, now; else the table's, or 5d.")
@click.option(
    "--retain-last", type=click.IntRange(min=1), help="Snapshots that each branch keeps; else the table's number, or 1."
)
@click.option("--snapshot-id", "snapshot_ids", type=int, multiple=True, help="A snapshot that goes; repeatable.")
@click.option("--clean-expired-metadata", is_flag=True, help="Remove unused schemas and partition specs, too.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and say what would go.")
@_at_once
@click.option("--stream-results", is_flag=True, help="Take the paths that Spark finds in portions: for huge tables.")
@_own_master
@_own_remote
@_json
def expire_snapshots(
    table: str,
    pairs: Sequence[str],
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  # click's
    **wishes: Any,  # noqa: ANN401  # the arguments of the function of that name
) -> None:
    """Remove old snapshots of TABLE, and the files that only they refer to.

    The exit code is 1 if files of removed snapshots were left.
    """
    from iceberg_ds.maintenance.expire_snapshots import expire_snapshots as expire  # noqa: PLC0415  # as above

    options = _options(pairs, table)
    with _errors_shown(), _session(None if remote else master, remote, "iceberg-ds expire-snapshots") as spark:
        result = expire(table, spark=spark, options=options, **wishes)
    click.echo(result.to_json() if as_json else str(result))
    sys.exit(_FAILED if result.left_files and not result.dry_run else 0)


@main.command()
@click.argument("table")
@click.argument("branch")
@_option
@click.option("--to", default=MAIN_BRANCH, show_default=True, help="The branch that readers use, which moves forward.")
@_json
def publish(
    table: str,
    branch: str,
    pairs: Sequence[str],
    to: str,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Make the rows of an audited BRANCH of TABLE those of main, or of another branch, in one step."""
    _fast_forward(table, to, branch, pairs, as_json=as_json)


@main.command("fast-forward")
@click.argument("table")
@click.argument("branch")
@click.argument("to")
@_option
@_json
def fast_forward(
    table: str,
    branch: str,
    to: str,
    pairs: Sequence[str],
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Move BRANCH of TABLE forward to the snapshot of branch TO, in one step."""
    _fast_forward(table, branch, to, pairs, as_json=as_json)


def _pairs(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Return texts such as `s3a,s3n=s3` as a mapping."""
    pairs = dict(text.rpartition("=")[::2] for text in texts)
    if not all(pairs):
        raise click.BadParameter("expected names, = and the name that stands for them, such as s3a,s3n=s3")
    return pairs


@main.command("remove-orphan-files")
@click.argument("table")
@_option
@click.option("--older-than", metavar="AGE", default=DEFAULT_GRACE, show_default=True, help="Age of files: 36h, 3d.")
@click.option("--dry-run", is_flag=True, help="Delete nothing, and say what would go.")
@click.option("--force", is_flag=True, help="Delete files younger than 24 hours, too: only if nothing writes.")
@click.option("--location", metavar="FOLDER", help="Only files below this folder of the table go.")
@click.option("--file-list", metavar="TABLE", help="A table of Spark that names the files in place of a listing.")
@click.option(
    "--equal-schemes", metavar="A,B=C", multiple=True, callback=_pairs, help="Schemes that are one; repeatable."
)
@click.option(
    "--equal-authorities", metavar="A,B=C", multiple=True, callback=_pairs, help="Authorities that are one; repeatable."
)
@click.option(
    "--prefix-mismatch-mode",
    type=click.Choice(["error", "ignore", "delete"]),
    default="error",
    show_default=True,
    help="What becomes of a file whose path is one of the table's but for scheme or authority.",
)
@_at_once
@click.option("--stream-results", is_flag=True, help="Name 20,000 files at most: for huge tables.")
@_own_master
@_own_remote
@_json
def remove_orphan_files(
    table: str,
    pairs: Sequence[str],
    master: str | None,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  # click's
    **wishes: Any,  # noqa: ANN401  # the arguments of the function of that name
) -> None:
    """Delete the files of TABLE that nothing refers to, as writes that were killed leave them.

    The exit code is 1 if some were left.
    """
    from iceberg_ds.maintenance.remove_orphan_files import remove_orphan_files as remove  # noqa: PLC0415  # as above

    options = _options(pairs, table)
    with _errors_shown(), _session(None if remote else master, remote, "iceberg-ds remove-orphan-files") as spark:
        result = remove(table, spark, options=options, **wishes)
    click.echo(result.to_json() if as_json else str(result))
    sys.exit(_FAILED if result.left_files_count and not result.dry_run else 0)


@main.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@_option
@click.option("--branch", help="The branch whose files are looked after; main if not given.")
@click.option(
    "--policy",
    "file",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file: when what is due, for all tables, and below the name of a table for that one.",
)
@click.option("--once/--serve", default=True, help="Do what is due now (default), or again and again until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    metavar="SECONDS",
    type=_Number(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="From one look to the next.",
)
@click.option("--dry-run", is_flag=True, help="Do nothing, and say what is due.")
@_master
@_remote
@_json
def maintain(  # noqa: PLR0913, PLR0917  # one for each option of the command
    tables: Sequence[str],
    pairs: Sequence[str],
    branch: str | None,
    file: str | None,
    once: bool,  # noqa: FBT001  # click's
    every_s: float,
    dry_run: bool,  # noqa: FBT001  # click's
    master: str,
    remote: str | None,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Do what is due for each TABLE: convert deletes, rewrite files and manifests, expire snapshots."""
    from iceberg_ds.maintenance.maintain import maintain as maintain_table  # noqa: PLC0415  # as above
    from iceberg_ds.maintenance.policy import policies_of  # noqa: PLC0415  # as above

    is_well = True
    with _errors_shown(), _session(None if remote else master, remote, "iceberg-ds maintain") as spark:
        policies = policies_of(file, tables)
        while True:
            for table, policy in policies.items():
                options = _options(pairs, table)
                result = maintain_table(table, spark, options=options, branch=branch, policy=policy, dry_run=dry_run)
                is_well = is_well and result.ok
                click.echo(result.to_json() if as_json else str(result))
            if once or dry_run:
                break
            time.sleep(every_s)
    sys.exit(0 if is_well else _FAILED)


@main.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--serve", "port", metavar="PORT", type=click.IntRange(0, 65535), help="Serve to Prometheus until Ctrl-C."
)
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option("--push", "gateway", metavar="URL", help="Push to a Prometheus Pushgateway.")
@click.option("--job", default="iceberg-ds", show_default=True, help="Name of the job at the gateway.")
@_json
def metrics(  # noqa: PLR0913, PLR0917  # one for each option of the command
    files: Sequence[str],
    port: int | None,
    address: str,
    gateway: str | None,
    job: str,
    as_json: bool,  # noqa: FBT001  # click's
) -> None:
    """Sum up the reports on commits in each FILE of option `metrics-file`, or hand the sums to Prometheus."""
    if port is not None and (gateway is not None or as_json):
        raise click.UsageError("--serve goes on until Ctrl-C: it does not go together with --push or --json.")
    with _errors_shown():
        if port is not None:
            from iceberg_ds.metrics.prometheus import serve_metrics  # noqa: PLC0415  # an extra

            with serve_metrics(files, port, address=address) as server:
                click.echo(f"Serving metrics at {server.url}; Ctrl-C ends it.")
                with suppress(KeyboardInterrupt):
                    threading.Event().wait()
            return
        if gateway is not None:
            from iceberg_ds.metrics.prometheus import push_metrics  # noqa: PLC0415  # an extra

            push_metrics(files, gateway, job=job)
        _print_metrics(files, as_json=as_json)


def _print_metrics(files: Sequence[str], *, as_json: bool) -> None:
    from iceberg_ds.metrics.metrics import Metrics, print_metrics  # noqa: PLC0415  # --help needs none of it

    found = Metrics(files)
    if as_json:
        click.echo(found.to_json())
    else:
        print_metrics(found, _console())
    if found.unreadable:  # the log says why
        click.echo("A file of reports could not be read, and none of its reports are counted.", err=True)
        sys.exit(_FAILED)


def _fast_forward(table: str, branch: str, to: str, pairs: Sequence[str], *, as_json: bool) -> None:
    from iceberg_ds.commit.fast_forward import fast_forward as move  # noqa: PLC0415  # --help needs none of it

    with _errors_shown():
        snapshot_id = move(table, branch, to, options=_options(pairs, table))
    sentence = f"Branch '{branch}' of {table} has snapshot {snapshot_id} of branch '{to}'."
    click.echo(json.dumps({"table": table, "snapshot_id": snapshot_id}, indent=2) if as_json else sentence)


def _age_s(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Return an age such as `90s`, `15m`, `36h` or `3d` in seconds."""
    try:
        return None if text is None else parse_grace_ms(text) / 1000
    except (OptionError, OverflowError):  # the latter for more digits than any number has
        raise click.BadParameter("expected a number with s, m, h or d, such as 15m") from None


_LIMITS = (
    click.option("--max-snapshots", type=click.IntRange(min=0), default=DEFAULTS.max_snapshots, help="Snapshots."),
    click.option(
        "--max-metadata-mb",
        type=_Number(min=0),
        default=DEFAULTS.max_metadata_mb,
        help="Size of the metadata file in MB.",
    ),
    click.option(
        "--max-manifests", type=click.IntRange(min=0), default=DEFAULTS.max_manifests, help="Manifests of the branch."
    ),
    click.option(
        "--max-small-files",
        type=click.IntRange(min=0),
        default=DEFAULTS.max_small_files,
        help="Data files below a quarter of write.target-file-size-bytes.",
    ),
    click.option(
        "--max-deletes-per-file",
        type=_Number(min=0),
        default=DEFAULTS.max_deletes_per_file,
        help="Delete files for each data file, from 10 delete files on.",
    ),
    click.option("--max-age", "max_age_s", metavar="AGE", callback=_age_s, help="Age of the last commit: 15m, 3d."),
    click.option("--max-lag", "max_lag_s", metavar="AGE", callback=_age_s, help="Age of the newest row: 15m, 3d."),
)


def _limits(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the thresholds to a command."""
    for add in reversed(_LIMITS):
        command = add(command)
    return command


@main.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@_option
@click.option("--branch", help="The branch of each table; main if not given.")
@click.option("--serve", "port", metavar="PORT", type=click.IntRange(0, 65535), help="Serve Prometheus here.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option(
    "--every",
    "every_s",
    metavar="SECONDS",
    type=_Number(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="From one look to the next.",
)
@click.option("--timeout", "limit_s", type=_Number(min=1), default=60.0, help="Seconds for a look at one table.")
@_limits
@_json
def watch(  # noqa: PLR0913, PLR0917  # one for each option of the command
    tables: Sequence[str],
    pairs: Sequence[str],
    branch: str | None,
    port: int | None,
    address: str,
    every_s: float,
    limit_s: float,
    as_json: bool,  # noqa: FBT001  # click's
    **limits: Any,  # noqa: ANN401  # the thresholds, by their names
) -> None:
    """Tell how each TABLE does: small files, deletes, history, age, lag, growth; and what to do where it is too much.

    In a terminal it looks again until Ctrl-C. The exit code is 0 if all is well, 1 if a threshold is exceeded, 3 if a
    table could not be looked at.
    """
    from iceberg_ds.inspect import watch as watching  # noqa: PLC0415  # --help needs none of it

    if port is not None and as_json:
        raise click.UsageError("--serve and --json do not go together: the figures that are served are no JSON.")
    with _errors_shown():
        watched = watching.Watch(
            tables, _options(pairs, None), branch, thresholds=Thresholds(**limits), limit_s=limit_s
        )
    if port is not None:
        _serve(watching.SparingWatch(watched.look, every_s).look, port, address)
        return
    if as_json:
        click.echo(watching.looks_json(looks := watched.look()))
    elif sys.stdout.isatty():
        looks = watching.show_until_interrupted(watched, _console(), every_s)
    else:
        _console().print(watching.view(looks := watched.look(), watched.thresholds))
    sys.exit(watching.exit_code(looks))


def _serve(look: Callable[[], list[Look]], port: int, address: str) -> None:
    from iceberg_ds.inspect.health_gauges import serve  # noqa: PLC0415  # --help needs none of it

    with _errors_shown():
        url, end = serve(look, port, address)
    click.echo(f"Serving {url}, until Ctrl-C.", err=True)
    try:
        while True:
            time.sleep(_FOREVER_S)
    except KeyboardInterrupt:
        end()


@contextmanager
def _errors_shown() -> Iterator[None]:
    """Turn errors of the sink into a message and an exit code: 2 for wrong options, 1 for other errors."""
    try:
        yield
    except OptionError as error:
        raise click.UsageError(str(error)) from error
    except IcebergSinkError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(_FAILED)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)


def _options(pairs: Sequence[str], table: str | None) -> dict[str, str]:
    """Return the options, with the table among them if the command names one."""
    options: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            # The value could be a secret that stands in the wrong place.
            raise click.BadParameter("expected KEY=VALUE", param_hint="--option")
        if options.setdefault(key, value) != value:
            raise click.BadParameter(f"'{mask_name(key)}' is given twice: give it once", param_hint="--option")
    if table is None:
        return given_options(options)
    with _errors_shown():
        return options_of_call(table, options)


@contextmanager
def _working(master: str | None, remote: str | None, name: str) -> Iterator[SparkSession | None]:
    """Yield a Spark session as `_session` does, and show on a terminal how far its jobs are."""
    from iceberg_ds.spark.progress_line import progress_line  # noqa: PLC0415  # --help needs none of it

    with _session(master, remote, name) as spark, progress_line(spark, sys.stderr):
        yield spark


@contextmanager
def _session(master: str | None, remote: str | None, name: str = "iceberg-ds check") -> Iterator[SparkSession | None]:
    """Yield a Spark session, which is stopped at the end; or None if neither `master` nor `remote` is given."""
    if master is None and remote is None:
        yield None
        return
    if (remote or master or "").startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # it would take any Python of that name
    # It takes seconds that most checks need not spend.
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.appName(name)
    builder = builder.remote(remote) if remote is not None else builder.master(str(master))
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _conformance(options: dict[str, str]) -> CheckResult:
    from iceberg_ds.catalog.client import CatalogClient  # noqa: PLC0415  # loads libraries that --help does not need
    from iceberg_ds.catalog.loading import load  # noqa: PLC0415
    from iceberg_ds.catalog.settings import catalog_settings  # noqa: PLC0415
    from iceberg_ds.inspect.catalog_checks import no_new_database, no_new_folders  # noqa: PLC0415
    from iceberg_ds.inspect.conformance import check_conformance  # noqa: PLC0415

    try:
        parsed = parse_options(options)
        settings = catalog_settings(parsed)
        with no_new_database(settings) as tried:
            client, namespace = CatalogClient(load(tried), tried), parsed.table[:-1]
            with no_new_folders(client, namespace):
                results = check_conformance(client, namespace)
    except IcebergSinkError as error:
        return CheckResult(checks=(Check(name="catalog", outcome="failed", detail=str(error)),))
    return CheckResult(
        checks=tuple(
            Check(
                name=found.name,
                outcome="ok" if found.passed else "failed" if found.is_needed else "warning",
                where="catalog",
                seconds=found.seconds,
                detail=found.detail,
                next_step=found.next_step,
            )
            for found in results
        )
    )


if __name__ == "__main__":
    main(prog_name="iceberg-ds")
