"""Uses PyIceberg before and after the sink was used in the same process, and prints as JSON what differs.

    python pyiceberg_user.py <folder for a warehouse>

`replaced` are the names in PyIceberg's modules and classes behind which something else stands afterwards, `replaced
again` those after a second use, `filters` the loggers of other packages that have other filters, `before` and `after`
what a user's own calls do.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import pickle
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyiceberg
from pyiceberg import serializers
from pyiceberg.catalog import load_catalog, rest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, StaticTable
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import ListType, LongType, NestedField

ID = Schema(NestedField(1, "id", LongType(), required=False))


def marks() -> Iterator[tuple[str, object]]:
    """Yield each name in PyIceberg's modules, classes and dispatchers with what stands behind it."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] != "pyiceberg":
            continue
        for key, value in list(vars(module).items()):
            yield f"{name}.{key}", value
            if inspect.isclass(value) and value.__module__ == name:
                for inner, held in list(vars(value).items()):
                    if not inner.startswith("_abc_"):  # which classes were asked for
                        yield f"{name}.{key}.{inner}", held
            registry = getattr(value, "registry", None)
            for kind, handler in registry.items() if hasattr(registry, "items") else ():
                yield f"{name}.{key}[{kind.__module__}.{kind.__qualname__}]", handler


def filters() -> dict[str, list[str]]:
    """Return the filters of all loggers that have some."""
    known = {name: log for name, log in logging.Logger.manager.loggerDict.items() if isinstance(log, logging.Logger)}
    return {name: [str(one) for one in log.filters] for name, log in known.items() if log.filters}


def what_a_user_sees(folder: Path) -> dict[str, str]:
    """Return what a user's own calls do, by what they are."""
    seen: dict[str, str] = {}

    def note(what: str, call: Any) -> None:
        try:
            seen[what] = str(call())
        except Exception as problem:
            seen[what] = type(problem).__name__

    made = new_table_metadata(ID, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, f"file://{folder}/t", {})
    path = folder / "variant.metadata.json"
    path.write_text(made.model_dump_json().replace('"type":"long"', '"type":"variant"'))
    note("a table with a variant", lambda: StaticTable.from_metadata(str(path)).schema())
    note("a list of variants", lambda: ListType(element_id=1, element="variant", element_required=False))
    note("a subclass of a request", lambda: type("Own", (rest.CommitTableRequest,), {}).__name__)
    note("the schema of a request", lambda: sorted(rest.CommitTableRequest.model_json_schema()["properties"]))
    parts = {"identifier": {"namespace": ["db"], "name": "t"}, "requirements": [], "updates": []}
    request = rest.CommitTableRequest(**parts)
    answer = f'{{"metadata-location":"x","metadata":{made.model_dump_json()}}}'
    note("a request is what it was", lambda: request == CommitTableRequest(**parts))
    note("a pickled request", lambda: b"iceberg_ds" in pickle.dumps(request))
    read_answer = rest.TableResponse.model_validate_json
    note("an answer is one of its class", lambda: isinstance(read_answer(answer), rest.TableResponse))
    note("an answer that is given by name", lambda: read_answer(json_data=answer).metadata_location)

    calls: list[str] = []
    read = serializers.FromInputFile.table_metadata

    def own(*given: Any, **named: Any) -> Any:
        calls.append("read")
        return read(*given, **named)

    serializers.FromInputFile.table_metadata = staticmethod(own)  # type: ignore[method-assign]
    use_the_sink(folder / "other") if "iceberg_ds" in sys.modules else None
    catalog = load_catalog("own", type="sql", uri=f"sqlite:///{folder}/own.db", warehouse=f"file://{folder}/own")
    catalog.create_namespace_if_not_exists("db")
    name = f"db.t{len(list(folder.rglob('*')))}"
    catalog.create_table(name, ID)
    catalog.load_table(name)
    seen["calls of a function that wraps one of PyIceberg's"] = str(len(calls))
    serializers.FromInputFile.table_metadata = staticmethod(read)  # type: ignore[method-assign]

    record = logging.makeLogRecord({"name": "urllib3.connectionpool", "msg": "GET %s", "args": ("/x?token=abc",)})
    logging.getLogger("urllib3.connectionpool").filter(record)
    note("a logged address", record.getMessage)
    return seen


def use_the_sink(folder: Path) -> None:
    """Import every module of the product, and connect to a catalog."""
    import iceberg_ds  # noqa: PLC0415  # after PyIceberg was looked at
    from iceberg_ds.catalog.client import connect  # noqa: PLC0415
    from iceberg_ds.catalog.pyiceberg_patches import fit_rest_messages  # noqa: PLC0415
    from iceberg_ds.catalog.settings import catalog_settings  # noqa: PLC0415
    from iceberg_ds.io.logged_addresses import masking_logged_addresses  # noqa: PLC0415
    from iceberg_ds.options.parse import parse_options  # noqa: PLC0415

    for found in pkgutil.walk_packages(iceberg_ds.__path__, "iceberg_ds."):
        importlib.import_module(found.name)
    options = parse_options({"table": "db.t", "warehouse": str(folder)})
    connect(catalog_settings(options))
    fit_rest_messages()
    with masking_logged_addresses():
        pass


def main() -> None:
    """Look, use the sink, and look again."""
    folder = Path(sys.argv[1])
    for found in pkgutil.walk_packages(pyiceberg.__path__, "pyiceberg."):
        with suppress(Exception):  # its libraries are not installed
            importlib.import_module(found.name)
    before, filtered, seen = dict(marks()), filters(), what_a_user_sees(folder)
    use_the_sink(folder / "warehouse")
    after = dict(marks())
    use_the_sink(folder / "another")
    again = dict(marks())
    found = {
        "replaced": sorted(name for name, value in after.items() if before.get(name) is not value),
        "replaced again": sorted(name for name, value in again.items() if after.get(name) is not value),
        "filters": sorted(name for name, known in filters().items() if known != filtered.get(name)),
        "before": seen,
        "after": what_a_user_sees(folder),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
