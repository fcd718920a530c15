"""Spares Spark's Python workers two searches that they make in every task, plan and commit.

After each call they look for garbage among all objects of all loaded modules, 120,000 of them in a task of this sink:
60 ms, for which the next task waits. Before each call, Spark below 4.2 tells Python to look at its import folders
anew, and Python then reads the table of contents of Spark's own archives once for every package that was looked for
in them: 100 ms. Imports nothing of the package.
"""

from __future__ import annotations

import gc
import os
import sys
from zipimport import zipimporter

_DAEMON = "pyspark.daemon"
_known = 0  # modules when the objects were last set aside


def ease_worker() -> None:
    """Spare this process both searches from now on, if it is one of Spark's workers; call it at the end of a call."""
    if not _is_spark_worker():
        return
    _forget_sparks_archives()
    _set_modules_aside()


def _is_spark_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _DAEMON


def _forget_sparks_archives() -> None:
    """Drop what Python remembers of folders in Spark's archives, which never change; an import finds them again."""
    specs = [getattr(sys.modules.get(name), "__spec__", None) for name in ("pyspark", "py4j")]
    loaders = [spec.loader for spec in specs if spec is not None]
    archives = {loader.archive for loader in loaders if isinstance(loader, zipimporter)}
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and (finder.archive in archives or _is_sparks_jar(finder.archive)):
            sys.path_importer_cache.pop(path, None)


def _is_sparks_jar(archive: str) -> bool:
    """Return whether it is the one that Spark has on the path of its workers, with Python code or without."""
    name = os.path.basename(archive)  # noqa: PTH119  # the archive is a str, and pathlib is not loaded here
    return name.startswith("spark-core_") and name.endswith(".jar")


def _set_modules_aside() -> None:
    """Take all that is alive out of the collector's sight, once there are modules that it has not seen.

    Memory is freed as before, but for cycles among what is alive now.
    """
    global _known  # noqa: PLW0603  # one for the process
    if _known == len(sys.modules):
        return
    _known = len(sys.modules)
    gc.collect()
    gc.freeze()
