"""Pure: what the user is told of a commit that does not simply land: refused, given up, skipped, or in doubt."""

from __future__ import annotations

from datetime import datetime, timezone

from iceberg_ds.catalog.answers import CommitRefusedError
from iceberg_ds.error_hints import LASTING, advice, hint_for
from iceberg_ds.errors import CatalogError, CommitConflictError, DataFileError
from iceberg_ds.plan import TxnId, WriteIdentity
from iceberg_ds.snapshots.commit_status import CommitStatus, Holder, StatusCheck
from iceberg_ds.snapshots.txn import QueryMarker, StrayMarker, TxnMarker
from iceberg_ds.table.names import sql_text

_TO_CHECK = "Check that you may write to the table."
_RUN_AGAIN = "Run it again; many writers at once need more commit.retry.num-retries."
_NOT_SENT = "Run it again once that is mended."


def why_refused(write: WriteIdentity, finding: StatusCheck) -> str | None:
    """Return why `write` may no longer land, or None if it may land or has landed."""
    marker, holder = finding.marker, finding.holder
    nothing = "Nothing was committed. " if finding.is_final else ""
    match finding.status:
        case CommitStatus.FENCED if marker is not None:
            return (
                f"Cannot commit {write}: another live driver of this query committed the same epoch (snapshot "
                f"{marker.snapshot_id}, run {marker.run_id}). Nothing of this one was added. Two drivers run from one "
                "checkpoint or from copies of it: stop one of them."
            )
        case CommitStatus.STALE_EPOCH if marker is not None:
            return (
                f"Cannot commit {write}: the table already holds epoch {marker.number} of this query, committed at "
                f"{_utc(marker)}. Either the checkpoint was rolled back to an older state, or a second "
                f"driver runs on it. {nothing}Restore the newest checkpoint and run a single driver; "
                "or start with a new checkpoint, knowing that its source begins anew."
            )
        case CommitStatus.OTHER_QUERY if holder is not None:
            return _displaced(write, holder)
        case CommitStatus.STRAY if finding.stray is not None:
            return _stray(write, finding.stray, nothing)
    return None


def _stray(write: WriteIdentity, stray: StrayMarker, nothing: str) -> str:
    number = stray.marker.number
    landed, other_way = ("epoch", "") if write.txn is None else ("version", f", or write with a version above {number}")
    stay = (
        "begin with a new checkpoint whose source starts after them"
        if write.txn is None
        else "go on with the next version"
    )
    said = (
        f"Cannot commit {write}: table property '{stray.key}' says that {landed} {number} landed at "
        f"{_utc(stray.marker)} as snapshot {stray.marker.snapshot_id}, and "
    )
    unset = f"remove the property (ALTER TABLE ... UNSET TBLPROPERTIES ({sql_text(stray.key)}))"
    numbered = write.numbered
    lower = (
        ""
        if numbered is None or numbered.number == number
        else f"That says nothing of {landed} {numbered.number}: look first whether the branch has its rows. "
    )
    if stray.is_untold:
        known, done = "an earlier commit did not find it there", "nothing is left to do for it"
        if stray.follows_main:
            told = "only later ones" if stray.proof is None else "no marker of it"
            known = f"main, which is the same further back, has {told}"
        if stray.proof is not None:
            proof = " = ".join(sql_text(part) for part in stray.proof)
            holder = "main have the marker" if stray.follows_main else "the property say so"
            done = f"let {holder} (ALTER TABLE ... SET TBLPROPERTIES ({proof})), and run this again, which skips it"
        return (
            f"{said}history has expired: branch '{stray.branch}' does not show whether it has that snapshot, and "
            f"{known}. {nothing}{lower}Look whether the rows of {landed} {number} are there. If they are, {done}; if "
            f"they are not, {unset}, and run this again, which writes what it has."
        )
    return (
        f"{said}branch '{stray.branch}' does not have that snapshot: somebody has rolled it back, dropped it and made "
        "it again, or replaced the table; or has written all rows again in one snapshot and let the older ones expire. "
        f"{nothing}{lower}Look whether the rows of {landed} {number} are there. If they are not, and are to be written "
        f"again, {unset} and run this again; if they are there, do not, for they would be there twice: {stay}. If they "
        f"are not to be written, set the branch back to a snapshot that has them{other_way}."
    )


def _displaced(write: WriteIdentity, holder: Holder) -> str:
    name = write.stream.name if write.stream is not None else ""
    last = (
        ""
        if holder.marker is None
        else f", whose last epoch {holder.marker.number} was committed at {_utc(holder.marker)}"
    )
    used_up = (
        " That option is set, and has been used up by the query that it accepted: it counts again once that one has "
        "committed without it."
        if holder.was_accepted and write.stream is not None and write.stream.accepts_new_checkpoint
        else ""
    )
    return (
        f"Cannot commit {write}, nothing was committed: the stream '{name}' is written by another query, "
        f"{holder.query_id}{last}. This one has another checkpoint: a new one, or that of another stream. Restore the "
        f"checkpoint of query {holder.query_id}; or set accept-new-checkpoint=true for one run, knowing that a new "
        f"query begins anew with its source, so that rows which the table has may come again.{used_up}"
    )


def given_up(
    write: WriteIdentity, attempts: int, problem: Exception | None
) -> CatalogError | CommitConflictError | DataFileError:
    """Return the error of a write that left nothing after that many requests, the last attempt at which failed."""
    if attempts == 0 and problem is not None:  # such as the store, which did not take what a request would name
        found = hint_for(problem)
        kind = DataFileError if found.cause in LASTING else CommitConflictError
        return kind(
            f"Cannot commit {write}, nothing was sent to the catalog: {problem}. Nothing was committed and its files "
            f"were deleted. {advice(problem, otherwise=_NOT_SENT)}"
        )
    summary = (
        f"Cannot commit {write} after {attempts} attempts: {problem}. Nothing was committed and its files were deleted."
    )
    if isinstance(problem, CommitRefusedError) and problem.is_lasting:
        return CatalogError(f"{summary} {advice(problem, otherwise=_TO_CHECK)}")
    if problem is None or isinstance(problem, CommitRefusedError):
        return CommitConflictError(f"{summary} {_RUN_AGAIN}")
    return CommitConflictError(f"{summary} {advice(problem, otherwise=_RUN_AGAIN)}")  # such as the store


def unknown(write: WriteIdentity, reason: str) -> str:
    """Return the message for a write that may have landed or may still land, because of `reason`."""
    if write.epoch is not None:
        step = "running the query again finds that out"
    elif write.txn is not None:
        step = "running the write again with the same txn-version finds that out"
    else:
        step = "look there before running the write again"
    return (
        f"Commit state of {write} is unknown: {reason}. No files were deleted. It landed if the table has or had "
        f"snapshot {write.snapshot_id}; {step}."
    )


def gone(write: WriteIdentity) -> str:
    """Return the message for a write whose answer was lost and whose table is not in the catalog any more."""
    return (
        f"Commit state of {write} is unknown: the catalog has no such table by now. If it was renamed, that table may "
        f"have the rows: it does if it has or had snapshot {write.snapshot_id}. No files were deleted. Look there "
        "before running the write again, which would create a new table."
    )


def renamed(write: WriteIdentity) -> str:
    """Return the message for a write whose answer was lost and whose table has since lost its name to another table."""
    return (
        f"Commit state of {write} is unknown: another table has that name by now, and the one that the rows were "
        f"written for (UUID {write.table_uuid}) may have them under another name. No files were deleted. They landed "
        f"if that table has or had snapshot {write.snapshot_id}; look there before running the write again, which "
        "would go to the new table."
    )


def skipped(write: WriteIdentity, finding: StatusCheck, record_count: int | None) -> str:
    """Return the log text of a write that was done before, and now has `record_count` rows (None if unknown)."""
    before = _other_count(finding.own, record_count)
    doubt = "" if before is None else _other_rows(before, record_count)
    return f"Skipped {write}: {_done_before(write, finding.own or finding.marker)}{doubt}"


def _done_before(write: WriteIdentity, marker: TxnMarker | None) -> str:
    if marker is None or not isinstance(write.numbered, TxnId):
        return "an earlier run committed it"
    done = f"was committed as snapshot {marker.snapshot_id} at {_utc(marker)}"
    if marker.number == write.numbered.version:
        return f"this version {done}"
    return (
        f"version {marker.number}, which is above it, {done}. Versions of one txn-app-id only grow: rows that are "
        "written out of turn need another one"
    )


def _other_rows(before: int, record_count: int | None) -> str:
    return (
        f". It was committed with {before} rows, and now has {record_count}: the query gives other rows each time, or "
        "the source was divided otherwise, as by a checkpoint that was copied or rolled back. Then rows are "
        "missing: compare the table with the source"
    )


def needs_a_warning(write: WriteIdentity, finding: StatusCheck, record_count: int | None) -> bool:
    """Return whether a skipped write deserves a warning.

    The write may be no repetition, or a batch, whose caller sees nothing else. Spark repeats an epoch by itself.
    """
    is_doubtful = not finding.is_final or _other_count(finding.own, record_count) is not None
    return write.txn is not None or is_doubtful


def _other_count(own: TxnMarker | None, record_count: int | None) -> int | None:
    """Return how many rows this very write was committed with, or None if as many as now, or if unknown."""
    if own is None or record_count is None:
        return None
    return own.record_count if own.record_count != record_count else None


def neighbour_warning(write: WriteIdentity, neighbour: QueryMarker) -> str:
    """Return the warning that a new query writes where another query has written."""
    return (
        f"{write} is the first that this query commits, and branch {write.branch} has rows of another query: "
        f"{neighbour.query_id}, whose last epoch {neighbour.marker.number} was committed at {_utc(neighbour.marker)}. "
        "If that one was the same stream with an earlier checkpoint, its rows may now come again. If they are two, all "
        "is well. Option 'stream-name', one name for each, lets the sink tell."
    )


def fate_of_files(finding: StatusCheck) -> str:
    """Return what became of the files of a write that was skipped."""
    if finding.is_final:
        return "Its files were deleted"
    return "Its files were left where they are: they may be the ones that the table has"


def _utc(marker: TxnMarker) -> str:
    return datetime.fromtimestamp(marker.timestamp_ms / 1000, tz=timezone.utc).isoformat(timespec="seconds")
