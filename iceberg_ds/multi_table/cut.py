"""A consistent cut: which snapshots of several tables belong together, for readers that read all of them.

`record_cut` says what a cut is and how the sink records it; this module answers readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from iceberg_ds.catalog.client import CatalogClient, connect
from iceberg_ds.catalog.settings import catalog_settings
from iceberg_ds.errors import OptionError, UnsupportedTableError
from iceberg_ds.multi_table.cut_table import OPTION, WRITER, check_columns, place_of, read_cuts
from iceberg_ds.options.parse import given_options, options_of_call, parse_options
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

    Args:
        tables: Identifiers of the tables; None for all tables that the epochs have written.
        options: Where the tables are, as in the write, with `consistent-cut`. None for no options is refused.
        app_id: Who writes the tables: the value of `stream-name` or `txn-app-id`, or the id of a stream without a name.
            None if there is only one such writer.

    Returns:
        The cut, or None if no epoch was complete so far.

    Raises:
        OptionError: The options lack `consistent-cut`, or are malformed, or there are several writers and no `app_id`.
        TableNotFoundError: A table of the cut does not exist any more.
        UnsupportedTableError: A table of the cut was replaced, or its snapshot was removed in spite of its tag; or the
            table of the cut has other columns.
        CatalogError: The catalog could not be reached.
        DataFileError: The table of the cut could not be read.
    """
    given = given_options(options)
    if not given.get(OPTION):
        raise OptionError(f"Cannot tell the last complete cut: give option '{OPTION}', as the write has it.")
    # Those of a route would say that rows name their tables.
    given = {key: value for key, value in given.items() if not key.startswith(_OF_ROUTE)}
    parsed = parse_options(options_of_call(given[OPTION], given))
    catalog = connect(catalog_settings(parsed), parsed.reports)
    with catalog.hiding_secrets():
        return _last_complete(catalog, place_of(parsed), tables, app_id)


def _last_complete(
    catalog: CatalogClient, place: tuple[str, ...], tables: Sequence[str] | None, app_id: str | None
) -> Cut | None:
    table = catalog.find_table(place)
    if table is None:
        return None
    check_columns(table)
    found = read_cuts(catalog, table, app_id)
    writers = sorted(set(found.column(WRITER).to_pylist()))
    if not writers:
        return None
    if len(writers) > 1:
        raise OptionError(
            f"Cannot tell the last complete cut: {identifier_text(place)} has cuts of {', '.join(writers)}. Say which "
            "one is meant by argument 'app_id'."
        )
    rows = {row["table_name"]: row for row in found.to_pylist()}
    names = list(rows) if tables is None else [identifier_text(parse_identifier(name)) for name in tables]
    snapshots = {name: rows[name]["snapshot_id"] if name in rows else None for name in names}
    for name in names:
        if name in rows:
            _check_readable(catalog, name, rows[name]["table_uuid"], rows[name]["snapshot_id"])
    return Cut(app_id=writers[0], epoch=found.column("epoch")[0].as_py(), snapshots=snapshots)


def _check_readable(catalog: CatalogClient, name: str, table_uuid: str, snapshot_id: int) -> None:
    metadata = catalog.load_table(parse_identifier(name)).metadata
    if str(metadata.table_uuid) != table_uuid:
        why = "another table has its name by now"
    elif metadata.snapshot_by_id(snapshot_id) is None:
        why = f"its snapshot {snapshot_id} is gone: newer epochs have landed meanwhile, or its tag was dropped"
    else:
        return
    raise UnsupportedTableError(f"Cannot read {name} in the last complete cut: {why}. Ask for the cut again.")
