"""Run moto as a server, with the one check added that its Glue lacks: `python moto_server.py --host H --port P`.

Glue refuses a change of a table whose `VersionId` is not the one that the change names; moto takes every change.
What runs against this server shows that the sink sends the version id of what it has read, and what it does when
Glue refuses. It does not show that Amazon's Glue refuses.
"""

from __future__ import annotations

import threading

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse
from moto.server import main

_one_change_at_a_time = threading.Lock()
_update_table = GlueResponse.update_table
_create_table = GlueResponse.create_table


def _checked_update(self: GlueResponse) -> ActionResult:
    """Change a table, unless the change names a version that is not the table's."""
    with _one_change_at_a_time:
        expected = self.parameters.get("VersionId")
        name = (self.parameters.get("TableInput") or {}).get("Name")
        current = self.glue_backend.get_table(self.parameters.get("DatabaseName"), name).as_dict()["VersionId"]
        if expected is not None and expected != current:
            raise JsonRESTError(
                "ConcurrentModificationException", f"Version {expected} of {name} was named, but {current} is current."
            )
        return _update_table(self)


def _lone_create(self: GlueResponse) -> ActionResult:
    """Create a table, unless there is one; looking and creating are one step."""
    with _one_change_at_a_time:
        return _create_table(self)


if __name__ == "__main__":
    GlueResponse.update_table = _checked_update
    GlueResponse.create_table = _lone_create
    main()
