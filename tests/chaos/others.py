"""What others do to the table during a chaos run: rewrite its data files, and expire its snapshots.

They are PyIceberg and, where it is asked for, Iceberg's own Spark runtime.
"""

from __future__ import annotations

from pathlib import Path

from chaos.world import World
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from support.peer.jvm_peer import JvmPeer, PeerCatalog

_NAME = "db.t"
_TRIES = 5


class Peer:
    """Iceberg's Spark runtime, started when it is first needed.

    Args:
        world: Where the table is.
        folder: For its log and temporary files.
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._running: JvmPeer | None = None

    def compact(self, table: str = _NAME) -> int:
        """Rewrite the data files of a table's main branch; return how many there were."""
        [row] = self._session().sql(
            f"CALL {self._world.catalog}.system.rewrite_data_files(table => '{table}', "
            "options => map('rewrite-all', 'true', 'partial-progress.enabled', 'false'))"
        )
        return int(row["rewritten_data_files_count"])

    def expire(self) -> int:
        """Expire all snapshots but the newest of each branch, and delete their files; return how many files."""
        [row] = self._session().sql(
            f"CALL {self._world.catalog}.system.expire_snapshots(table => '{_NAME}', "
            "older_than => current_timestamp(), retain_last => 1)"
        )
        return sum(int(count) for count in row.values())

    def close(self) -> None:
        """Stop it."""
        if self._running is not None:
            self._running.close()

    def _session(self) -> PeerCatalog:
        if self._running is None:
            self._running = JvmPeer(self._folder)
        return self._running.open_session(self._world.peer_settings)


def load(world: World) -> Table:
    """Load the table as PyIceberg sees it."""
    return load_catalog(world.catalog, **world.properties).load_table(_NAME)


def compact(world: World, branch: str) -> int:
    """Rewrite the data files of a branch into one, in one commit; return how many there were.

    PyIceberg gives up when somebody adds files meanwhile, so that it takes some tries.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return _compact(load(world), branch)
        except (CommitFailedException, ValidationException):
            if not tries_left:
                raise
    return 0


def _compact(table: Table, branch: str) -> int:
    head = table.snapshot_by_name(branch)
    if head is None:
        return 0
    scan = table.scan(snapshot_id=head.snapshot_id)
    files = [task.file for task in scan.plan_files()]
    if len(files) > 1:
        written = _dataframe_to_data_files(table.metadata, scan.to_arrow(), table.io)
        with table.transaction() as change, change.update_snapshot(branch=branch).overwrite() as rewritten:
            for data_file in files:
                rewritten.delete_data_file(data_file)
            for data_file in written:
                rewritten.append_data_file(data_file)
    return len(files)


def expire(world: World) -> int:
    """Expire all snapshots but the newest of each branch; return how many."""
    table = load(world)
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)
