"""Which deletes apply to which data files: the rules of the spec's "Scan Planning", one by one."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from support.tables.live_files import BY_DAY, BY_REGION, KEY, PATH_ID, SPECS, TYPES, VOID, keys, live, positions

from iceberg_ds.deletes.index import KeySource, KnownKeys, plan_work
from iceberg_ds.deletes.work import FileWork
from iceberg_ds.snapshots.live_files import LiveFile, LiveFiles, applying_positions, only_path


def plan(*files: LiveFile) -> dict[str, FileWork]:
    """Return the work for the files of a snapshot, by path."""
    found = LiveFiles.of(files)
    work = plan_work(found, [KeySource.of(source) for source in found.equalities], SPECS, TYPES)
    return {item.path: item for item in work}


def applied(*files: LiveFile) -> dict[str, list[str]]:
    """Return which deletes by key apply to each data file to which any does."""
    return {path: sorted(key.path for key in item.keys) for path, item in plan(*files).items()}


def test_delete_by_key_applies_to_older_data_only() -> None:
    """An epoch would delete its own rows, or rows that came after it."""
    files = [live("old", 1), live("same", 2), live("new", 3), keys("d", 2)]

    assert applied(*files) == {"old": ["d"]}


def test_delete_without_partitions_applies_to_the_whole_table() -> None:
    """A row that moved to another partition would be there twice."""
    data = [live("eu", 1, spec=BY_REGION, partition=("EU",)), live("day", 1, spec=BY_DAY, partition=(5,))]

    assert applied(*data, live("none", 1), keys("d", 2)) == {"eu": ["d"], "day": ["d"], "none": ["d"]}


def test_spec_whose_partitions_are_all_void_has_none() -> None:
    """Deletes would miss the rest of a table whose partitioning was dropped in format version 1."""
    data = live("eu", 1, spec=BY_REGION, partition=("EU",))

    assert applied(data, keys("d", 2, spec=VOID, partition=(None,))) == {"eu": ["d"]}


def test_delete_of_a_partition_applies_to_that_partition_of_that_spec_only() -> None:
    """Rows of other partitions that have the key would be lost."""
    data = [
        live("eu", 1, spec=BY_REGION, partition=("EU",)),
        live("us", 1, spec=BY_REGION, partition=("US",)),
        live("null", 1, spec=BY_REGION, partition=(None,)),
        live("day", 1, spec=BY_DAY, partition=("EU",)),
        live("none", 1),
    ]

    assert applied(*data, keys("d", 2, spec=BY_REGION, partition=("EU",))) == {"eu": ["d"]}
    assert applied(*data, keys("d", 2, spec=BY_REGION, partition=(None,))) == {"null": ["d"]}


def test_zeros_of_either_sign_are_two_partitions() -> None:
    """A delete would reach rows of the other one."""
    data = [live("plus", 1, spec=BY_DAY, partition=(0.0,)), live("minus", 1, spec=BY_DAY, partition=(-0.0,))]

    assert applied(*data, keys("d", 2, spec=BY_DAY, partition=(-0.0,))) == {"minus": ["d"]}


def test_only_files_whose_bounds_meet_are_searched() -> None:
    """Every data file would be read for each delete."""
    low, high = (5).to_bytes(8, "little"), (9).to_bytes(8, "little")
    data = [live("near", 1, bounds={KEY: (low, high)}), live("far", 1, bounds={KEY: (high, high)})]
    files = [*data, keys("d", 2, bounds={KEY: (low, low)})]

    # Nulls may be in both as long as nobody has counted them.
    assert applied(*files) == {"near": ["d"], "far": ["d"]}
    assert applied(*map(_without_nulls, files)) == {"near": ["d"]}


def _without_nulls(found: LiveFile) -> LiveFile:
    data_file = found.data_file
    counted = DataFile.from_args(
        content=data_file.content,
        file_path=data_file.file_path,
        file_format=data_file.file_format,
        partition=data_file.partition,
        record_count=3,
        file_size_in_bytes=100,
        null_value_counts={KEY: 0},
        lower_bounds=data_file.lower_bounds,
        upper_bounds=data_file.upper_bounds,
        equality_ids=data_file.equality_ids,
    )
    counted.spec_id = data_file.spec_id
    return LiveFile(data_file=counted, sequence_number=found.sequence_number)


def test_keys_of_no_snapshot_are_looked_for_everywhere() -> None:
    """An upsert would leave the rows that came with the last commit."""
    found = LiveFiles.of([live("old", 1), live("new", 99)])
    source = KeySource(data_file=keys("k", 0).data_file, sequence_number=None)

    work = plan_work(found, [source], SPECS, TYPES)

    assert [(item.path, [key.sequence_number for key in item.keys]) for item in work] == [
        ("old", [None]),
        ("new", [None]),
    ]


def test_deletes_by_different_columns_are_told_apart() -> None:
    """Rows would be compared in the wrong columns."""
    work = plan(live("f", 1), keys("one", 2), keys("two", 2, by=(2, KEY)))

    assert {key.path: key.field_ids for key in work["f"].keys} == {"one": (KEY,), "two": (KEY, 2)}


def test_position_deletes_apply_to_their_partition_and_to_what_is_as_old() -> None:
    """Rows that are hidden would be counted, or written, again; or rows that are not hidden be left out."""
    work = plan(
        live("f", 2, spec=BY_REGION, partition=("EU",)),
        keys("d", 3),
        positions("older", 1, spec=BY_REGION, partition=("EU",)),
        positions("same", 2, spec=BY_REGION, partition=("EU",)),
        positions("newer", 3, spec=BY_REGION, partition=("EU",)),
        positions("elsewhere", 3, spec=BY_REGION, partition=("US",)),
        positions("everywhere", 3),
    )

    assert sorted(work["f"].hidden_by.positions) == ["newer", "same"]


def test_position_deletes_of_one_file_apply_to_it_in_any_partition() -> None:
    """Other readers apply them by its path: a row that they do not show would come back."""
    named = {PATH_ID: (b"f", b"f")}
    work = plan(
        live("f", 2, spec=BY_REGION, partition=("EU",)),
        keys("d", 3),
        positions("older", 1, bounds=named),
        positions("elsewhere", 2, spec=BY_REGION, partition=("US",), bounds=named),
        positions("of another one", 2, spec=BY_REGION, partition=("EU",), bounds={PATH_ID: (b"g", b"g")}),
    )

    assert work["f"].hidden_by.positions == ("elsewhere",)


@pytest.mark.parametrize(
    ("low", "high", "applies"),
    [
        (b"f", b"f", True),
        (b"a", b"z", True),
        (b"a", b"e", False),
        (b"g", b"z", False),
        (b"", b"g", True),
    ],
)
def test_position_deletes_of_other_files_are_not_read(low: bytes, high: bytes, applies: bool) -> None:  # noqa: FBT001
    """The deletes of a whole partition would be read for each of its files."""
    hiding = positions("p", 3, bounds={PATH_ID: (low, high)})

    assert bool(plan(live("f", 1), keys("d", 2), hiding)["f"].hidden_by.positions) is applies
    assert applying_positions(LiveFiles.of([live("f", 1), hiding]), ["f"]) == {"f": {"p"} if applies else frozenset()}


def test_position_deletes_of_one_file_are_known_by_their_bounds() -> None:
    """Deletes of a file that is gone would stay for good, or those of another one be dropped."""
    assert only_path(positions("p", 1, bounds={PATH_ID: (b"f", b"f")}).data_file) == "f"
    assert only_path(positions("p", 1, bounds={PATH_ID: (b"f", b"g")}).data_file) is None
    assert only_path(positions("p", 1).data_file) is None


def test_files_without_work_are_left_out() -> None:
    """Tasks would read files for nothing."""
    assert plan(live("f", 1), positions("p", 2)) == {}
    assert applying_positions(LiveFiles.of([live("f", 1)]), ["gone"]) == {}


def test_work_says_how_much_is_to_be_read() -> None:
    """One task would get all the large files."""
    known = live("known", 1, sizes={KEY: 40, 2: 50})
    unknown = live("unknown", 1, sizes={2: 50})

    assert {path: item.read_bytes for path, item in plan(known, unknown, keys("d", 2)).items()} == {
        "known": 40,
        "unknown": 100,
    }


def test_work_travels_without_the_metrics_of_its_files() -> None:
    """The driver would send the bounds of a thousand columns for each file."""
    item = plan(live("f", 1, spec=BY_REGION, partition=("EU",), bounds={KEY: (b"a", b"b")}), keys("d", 2))["f"]

    sent = pickle.loads(pickle.dumps(item))  # noqa: S301  # what was just pickled

    assert sent == item
    assert sent.place == (BY_REGION, item.place[1])
    assert sent.data_file.lower_bounds is None


def _random_file(draw: random.Random, number: int, name: str) -> LiveFile:
    """Return a data file, or one of deletes by key, of the whole table or of a region, with keys of some range."""
    low = draw.randrange(20)
    bounds = {KEY: (low.to_bytes(8, "little"), (low + draw.randrange(6)).to_bytes(8, "little"))}
    place: dict[str, Any] = draw.choice(
        [{}, {"spec": BY_REGION, "partition": ("EU",)}, {"spec": BY_REGION, "partition": ("US",)}]
    )
    made = draw.choice([live, live, keys])(name, number, bounds=bounds, **place)
    return _without_nulls(made) if made.data_file.content == DataFileContent.DATA else made


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_of_other_snapshots_changes_no_plan(seed: int) -> None:
    """A read of changes would look for the deletes of another snapshot, or miss some."""
    draw = random.Random(seed)  # noqa: S311
    known, files, applying = KnownKeys(), dict[str, LiveFile](), 0
    for number in range(1, 25):
        for _ in range(draw.randrange(4)):
            name = f"f{draw.randrange(30)}"  # a name may come again, as another file
            files[name] = _random_file(draw, max(1, number - draw.choice([0, 0, 0, 3])), name)
        for name in draw.sample(sorted(files), min(len(files), draw.choice([0, 0, 0, 0, 1, 1, len(files) // 3]))):
            del files[name]
        found = LiveFiles.of(files.values())
        sources = [KeySource.of(source) for source in found.equalities]

        anew = plan_work(found, sources, SPECS, TYPES, with_all=True)

        assert plan_work(found, sources, SPECS, TYPES, with_all=True, known=known) == anew
        applying += sum(len(item.keys) for item in anew)
    assert applying


def test_file_that_is_two_files_over_time_is_planned_as_each() -> None:
    """What is known of a file would be taken for that of another one that came later under its name."""
    low, high = (5).to_bytes(8, "little"), (9).to_bytes(8, "little")
    known, deletes = KnownKeys(), _without_nulls(keys("d", 2, bounds={KEY: (low, low)}))
    for bounds, number, expected in ((low, 1, ["d"]), (high, 0, []), (low, 1, ["d"])):
        found = LiveFiles.of([_without_nulls(live("f", number, bounds={KEY: (bounds, bounds)})), deletes])
        (item,) = plan_work(found, [KeySource.of(deletes)], SPECS, TYPES, with_all=True, known=known)
        assert [key.path for key in item.keys] == expected
