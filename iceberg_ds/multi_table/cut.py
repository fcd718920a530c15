"""A consistent cut: which snapshots of several tables belong together, for readers that read all of them.

`record_cut` says what a cut is and how the sink records it; this module answers readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.existing import missing_database
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError, TableNotFoundError, UnsupportedTableError
from iceberg_ds.multi_table.cut_table import OPTION, WRITER, check_columns, find_recorder, place_of, read_cuts
from iceberg_ds.options.arguments import TEXT, require_types
from iceberg_ds.options.parse import given_options, options_of_call, parse_options
from iceberg_ds.options.sink_options import SinkOptions
from iceberg_ds.snapshots.refs import MAIN_BRANCH
from iceberg_ds.table.names import identifier_text, parse_identifier

_OF_ROUTE = "route-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Snapshots of several tables that belong together.

    Attributes:
        app_id: Who wrote the tables: the name of the stream, the id of a stream without a name, or the application.
        epoch: Number of the last epoch, or version, whose rows the snapshots have.
        snapshots: The snapshot of each table, by its identifier; None for a table that no epoch has written so far.
    """

    app_id: str
    epoch: int
    snapshots: Mapping[str, int | None]

    def to_json(self) -> str:
        """Return the attributes as a JSON object."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        listed = "\n".join(f"  - {name}: {found or 'no snapshot yet'}" for name, found in self.snapshots.items())
        return f"Epoch {self.epoch} of {self.app_id} is complete in {len(self.snapshots)} tables:\n{listed}"


def last_complete(
    tables: Sequence[str] | None = None, *, options: Mapping[str, str] | None = None, app_id: str | None = None
) -> Cut | None:
    """Return which snapshots of tables belong together: those of the newest epoch that is complete in all tables.

    Each snapshot stays readable until the third epoch after it writes its table, however soon snapshots are expired.

    A table has a place in the cut once an epoch with the option has written it. Name the tables to be sure that none is
    left out: a table that earlier epochs have written, and no recorded one, is then refused.

    Args:
        tables: Identifiers of the tables; None for all tables that the recorded epochs have written.
        options: Where the tables are, as in the write, with `consistent-cut`. None for no options is refused.
        app_id: Who writes the tables: the value of `stream-name` or `txn-app-id`, or the id of a stream without a name.
            None if there is only one such writer.

    Returns:
        The cut, or None if no epoch was complete so far.

    Raises:
        OptionError: The options lack `consistent-cut`, or are malformed, or there are several writers and no `app_id`.
        TableNotFoundError: A table of the cut does not exist any more under its name.
        UnsupportedTableError: A table of the cut was replaced, or its snapshot was removed in spite of its tag, or only
            epochs before the first cut have written it, or it was away when the cut was recorded; or the table of the
            cut has other columns.
        CatalogError: The catalog could not be reached.
        DataFileError: The table of the cut could not be read.
    """
    require_types("tell the last complete cut", app_id=(app_id, TEXT))
    given = given_options(options)
    if not given.get(OPTION):
        raise OptionError(f"Cannot tell the last complete cut: give option '{OPTION}', as the write has it.")
    if (namespace := given.get("route-namespace")) is not None:
        given["namespace"] = namespace
    # Those of a route would say that rows name their tables.
    given = {key: value for key, value in given.items() if not key.startswith(_OF_ROUTE)}
    parsed = parse_options(options_of_call(given[OPTION], given))
    if isinstance(tables, str):
        raise OptionError(
            f"Cannot tell the last complete cut of {tables!r}: give a list of tables, such as [{tables!r}]."
        )
    names = None if tables is None else [parse_options(options_of_call(name, given)).table for name in tables]
    settings = catalog_settings(parsed)
    if missing_database(settings) is not None:  # looking makes none
        return None
    catalog = connect(settings, parsed.reports)
    with catalog.hiding_secrets():
        return _last_complete(catalog, parsed, names, app_id)


def _last_complete(
    catalog: CatalogClient, options: SinkOptions, tables: Sequence[tuple[str, ...]] | None, app_id: str | None
) -> Cut | None:
    cuts = catalog.find_table(place_of(options))
    if cuts is None:
        return None
    check_columns(cuts)
    found = read_cuts(catalog, cuts, app_id)
    writers = sorted(set(found.column(WRITER).to_pylist()))
    if not writers:
        return None
    if len(writers) > 1:
        raise OptionError(
            f"Cannot tell the last complete cut: {identifier_text(cuts.name())} has cuts of {', '.join(writers)}. Say "
            "which one is meant by argument 'app_id'."
        )
    cut = _RecordedCut(cuts.metadata, found, writers[0])
    if tables is None:
        tables = [parse_identifier(name) for name in cut.names]
    branch = options.branch or MAIN_BRANCH
    snapshots = {identifier_text(name): cut.snapshot_of(catalog, name, branch) for name in tables}
    return Cut(app_id=cut.app_id, epoch=cut.epoch, snapshots=snapshots)


class _RecordedCut:
    """The last cut of a writer, as it is recorded.

    Args:
        cuts: The table of cuts.
        rows: The rows of the cut.
        app_id: The writer.
    """

    def __init__(self, cuts: TableMetadata, rows: pa.Table, app_id: str) -> None:
        self.app_id = app_id
        self.epoch: int = rows.column("epoch")[0].as_py()
        self._cuts = cuts
        self._by_name = {row["table_name"]: row for row in rows.to_pylist()}
        self._by_uuid = {row["table_uuid"]: row for row in self._by_name.values()}

    @property
    def names(self) -> list[str]:
        """The identifiers of the tables in the cut."""
        return list(self._by_name)

    def snapshot_of(self, catalog: CatalogClient, identifier: tuple[str, ...], branch: str) -> int | None:
        """Return the snapshot of a table in the cut, under any name of it; None if no epoch has written it so far.

        Raises:
            TableNotFoundError: There is no such table any more.
            UnsupportedTableError: The snapshot cannot be told or read.
        """
        name = identifier_text(identifier)
        table = catalog.find_table(identifier)
        if table is None and name in self._by_name:
            raise TableNotFoundError(
                f"Cannot read {name} in the last complete cut: there is no such table any more. Name the tables that "
                "are still there, or a new name of this one."
            )
        if table is None:
            return None
        metadata = table.metadata
        row = self._by_uuid.get(str(metadata.table_uuid))
        if row is None and name in self._by_name:
            raise _unreadable(
                name,
                "another table has its name by now",
                "Give the table its name back, or leave it out until an epoch",
            )
        if row is None:
            if self._misses(metadata, branch):
                raise UnsupportedTableError(
                    f"Cannot tell which snapshot of {name} is in the last complete cut: epochs of {self.app_id} have "
                    f"written it, but none with option '{OPTION}'. Let one with the option write it, or leave it out."
                )
            return None
        snapshot_id: int | None = row["snapshot_id"]
        if snapshot_id is None:
            raise UnsupportedTableError(
                f"Cannot tell which snapshot of {name} is in the last complete cut: when it was recorded, "
                f"{row['table_name']} was renamed, dropped or rolled back, and epochs without option '{OPTION}' may "
                "have written it before. Give it its name and rows back: then the next epoch with the option tells it, "
                "and so does one that writes it. Or leave it out."
            )
        if metadata.snapshot_by_id(snapshot_id) is None:
            raise _unreadable(
                name,
                f"its snapshot {snapshot_id} is gone: newer epochs have landed meanwhile, or its tag was dropped",
                "Ask for the cut again; if it is gone still, leave the table out until an epoch",
            )
        return snapshot_id

    def _misses(self, metadata: TableMetadata, branch: str) -> bool:
        """Return whether an epoch that is not above the cut's has written a table that is not in the cut."""
        writer = find_recorder(self._cuts, self.app_id)
        if writer is None:
            return False
        own = writer.id_in(self._cuts, MAIN_BRANCH)
        return writer.last_marker(metadata, branch, of=own, up_to=self.epoch) is not None


def _unreadable(name: str, why: str, way_on: str) -> UnsupportedTableError:
    return UnsupportedTableError(f"Cannot read {name} in the last complete cut: {why}. {way_on} writes it.")
