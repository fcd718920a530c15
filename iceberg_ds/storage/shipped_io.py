"""What PyIceberg's doors to files have in common here: the driver ships them to tasks."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.io import FileIO
from pyiceberg.typedef import Properties


class ShippedFileIO(FileIO):
    """Opens files; pickled, it is its properties alone, for connections, locks and threads are of one process."""

    def __getstate__(self) -> dict[str, object]:
        return {"properties": dict(self.properties)}

    def __setstate__(self, state: Mapping[str, Properties]) -> None:
        self.__init__(state["properties"])  # type: ignore[misc]  # there is nothing else to restore
