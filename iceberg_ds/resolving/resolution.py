"""What a search for keys is to find, what it has found so far, and what of that still fits the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.types import IcebergType

from iceberg_ds.commits.added import Added
from iceberg_ds.resolving.key_sources import KeySource
from iceberg_ds.resolving.live_files import LiveFile, LiveFiles
from iceberg_ds.resolving.scan import applying_positions, plan_work
from iceberg_ds.resolving.values import FileAnswer, FileWork, GroupAnswer, Marks


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The keys whose rows are to be hidden, and the deletes by keys that are to go then.

    Attributes:
        paths: The files of deletes that are to go: those that the branch had at the beginning.
        key_types: The types of all key columns, by field id.
        written: Further files of keys, which are in no snapshot and come into none.
        counts_stored: Whether rows that the table shows may win, so that it must be known which ones it shows.
    """

    paths: frozenset[str]
    key_types: Mapping[int, IcebergType]
    written: tuple[KeySource, ...] = ()
    counts_stored: bool = False

    def sources(self, live: LiveFiles) -> list[KeySource]:
        """Return all keys, of the deletes those that are still there."""
        return [*(KeySource.of(found) for found in self.deletes(live)), *self.written]

    def deletes(self, live: LiveFiles) -> list[LiveFile]:
        """Return the deletes that are still there."""
        return [found for found in live.equalities if found.path in self.paths]

    def is_whole(self, live: LiveFiles) -> bool:
        """Return whether all deletes are still there, so that what was found by them is hidden still."""
        return len(self.deletes(live)) == len(self.paths)


class Resolution:
    """The answers of all tasks so far."""

    def __init__(self) -> None:
        self._answers: dict[str, FileAnswer] = {}
        self._marks: list[Marks] = []
        self._looked_at: set[str] = set()  # data files, for keys that stay the same

    def take(self, answers: Iterable[GroupAnswer]) -> None:
        """Take the answers of tasks, in place of earlier ones for the same data files."""
        for answer in answers:
            self._answers.update({found.path: found for found in answer.files})
            self._looked_at.update(found.path for found in answer.files)
            self._marks += answer.marks

    def plan(
        self,
        live: LiveFiles,
        sources: Sequence[KeySource],
        specs: Mapping[int, PartitionSpec],
        key_types: Mapping[int, IcebergType],
    ) -> list[FileWork]:
        """Return what is still to be searched in a snapshot; data files without work are not looked at again.

        Those that were rewritten count as looked at; whether they are as they were is asked elsewhere. Arguments as of
        `plan_work`.
        """
        left = [found for found in live.data if found.path not in self._looked_at]
        work = plan_work(replace(live, data=left), sources, specs, key_types)
        self._looked_at |= {found.path for found in left} - {item.path for item in work}
        return work

    def prune(self, live: LiveFiles) -> list[DataFile]:
        """Forget what is of no use any more, and return the files that tasks have written for it."""
        changed = set(self.changed(live))
        present = {found.path for found in live.data}
        gone = {path for path in self._answers if path not in present or path in changed}
        useless = [file for path in gone for file in self._answers[path].rewritten or ()]
        self._answers = {path: answer for path, answer in self._answers.items() if path not in gone}
        self._looked_at -= gone
        useless += [marks.file for marks in self._marks if marks.paths.isdisjoint(self._answers)]
        self._marks = [marks for marks in self._marks if not marks.paths.isdisjoint(self._answers)]
        return useless

    @property
    def rewritten(self) -> dict[str, FileAnswer]:
        """The answers for data files that were rewritten, by path."""
        return {path: answer for path, answer in self._answers.items() if answer.rewritten is not None}

    def changed(self, live: LiveFiles) -> list[str]:
        """Return the data files whose answers are wrong by now.

        Rows that position deletes hid were not marked: if these deletes are gone, the rows must be looked for again. An
        answer that rests on deletes is wrong, too, if others have come, or if the data file is gone.
        """
        resting = [path for path, answer in self._answers.items() if answer.rests_on_deletes]
        present = applying_positions(live, resting)
        changed = [path for path in resting if present.get(path) != self._answers[path].positions]
        data, positions = {found.path for found in live.data}, {found.path for found in live.positions}
        marked = (answer for path, answer in self._answers.items() if path in data and not answer.rests_on_deletes)
        return changed + [answer.path for answer in marked if not answer.positions <= positions]

    @property
    def late_keys(self) -> pa.Table | None:
        """The keys of which the table has a row that wins over the incoming one, with digests; each once, or None."""
        told = [answer.late_keys for answer in self._answers.values() if answer.late_keys is not None]
        if not told:
            return None
        keys = pa.concat_tables(told)
        return keys.group_by(keys.column_names).aggregate([])

    @property
    def hit(self) -> list[FileAnswer]:
        """The answers for data files in which rows were found."""
        return [answer for answer in self._answers.values() if answer.rows]

    @property
    def added(self) -> Added:
        """All files that tasks have written."""
        rewritten = (file for answer in self.rewritten.values() for file in answer.rewritten or ())
        return Added(tuple(rewritten), delete_files=tuple(marks.file for marks in self._marks))
