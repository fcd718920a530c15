"""The directions of imports, as the design draws them, and what merely finding the data source loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import iceberg_ds

PACKAGE = Path(iceberg_ds.__file__).parent
REPOSITORY = Path(__file__).parents[2]
SCRIPTS = sorted(
    path for folder in ("benchmarks", "examples", ".ci") for path in REPOSITORY.joinpath(folder).rglob("*.py")
)
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__" or path.parent == PACKAGE
)

# The rooms, each below the next: a module imports those of its own room and of the rooms below it.
VALUES = {
    "_version",
    "errors",
    "secrets",
    "parsing",
    "fault_points",
    "error_hints",
    "plan",
    "messages",
    "pyiceberg_inner",
}
ROOMS = (
    VALUES,
    {"io"},
    {"metrics"},
    {"table"},
    {"expressions"},
    {"cdc"},
    {"snapshots"},
    {"writers"},
    {"options"},
    {"catalog"},
    {"spark"},
    {"commit"},
    {"planning"},
    {"deletes"},
    {"reading"},
    {"row_level"},
    {"multi_table"},
    {"inspect"},
    {"maintenance"},
    {"datasource"},
    {"session"},
    {"cli", "__init__"},
)
# What tasks and executors run of rooms that the driver works in: without catalogs and commits.
RUN_IN_TASKS = {
    "deletes.work",
    "deletes.index",
    "deletes.key_reader",
    "deletes.match",
    "deletes.tasks",
    "inspect.checklist",
    "inspect.contents",
    "inspect.executors",
    "inspect.machine_checks",
    "inspect.orphan_rules",
    "maintenance.rewrite_tasks",
    "maintenance.rewrite_work",
    "maintenance.moved_places",
    "maintenance.place_tasks",
    "maintenance.position_delete_tasks",
    "deletes.chosen",
    "row_level.change_tasks",
    "reading.deleted_rows",
    "reading.row_changes",
    "reading.python_scan",
    "reading.scan_task",
    "reading.spark_arrow",
    "spark.arrow_job",
    "spark.write_job",
}
ABOVE_TASKS = {"catalog", "commit", "planning"}
# What works without a running Spark.
WITH_SPARK = {
    "spark",
    "deletes",
    "reading",
    "row_level",
    "multi_table",
    "inspect",
    "maintenance",
    "datasource",
    "session",
    "cli",
    "__init__",
}
WITHOUT_SPARK = set().union(*ROOMS) - WITH_SPARK
# Contract tests hold them.
RESTS_ON_INNER_PARTS = {
    "catalog.own_storage",
    "inspect.executors",
    "pyiceberg_inner",
    "snapshots.avro_files",
    "snapshots.manifest_file",
    "snapshots.manifests",
    "snapshots.version_3",
    "spark.filesystems",
}
INNER_PACKAGES = ("pyiceberg.avro",)


def tree(module: str) -> ast.Module:
    """Return the module, parsed."""
    return ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text())


def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import at or below `node`, those in functions and for types too."""
    for found in ast.walk(node):
        if isinstance(found, ast.ImportFrom) and found.module:
            yield from ((found.module, alias.name) for alias in found.names)
        elif isinstance(found, ast.Import):
            yield from ((alias.name, "") for alias in found.names)


def own_imports(module: str) -> set[str]:
    """Return the modules of the package that `module` imports."""
    named = {f"{name}.{member}" if member else name for name, member in imports(tree(module))}
    own = {name.removeprefix("iceberg_ds.") for name in named if name.startswith("iceberg_ds.")}
    return {name if name in MODULES else name.rpartition(".")[0] for name in own}


def named_in_texts(module: str) -> set[str]:
    """Return the modules of the package that `module` loads by name: texts that are nothing but such a name."""
    texts = {node.value for node in ast.walk(tree(module)) if isinstance(node, ast.Constant)}
    return {name for name in MODULES if f"iceberg_ds.{name}" in texts}


def room_of(module: str) -> str:
    """Return the room of a module, its own name if it stands loose."""
    return module.partition(".")[0]


def test_every_module_has_its_room() -> None:
    """A new module would escape the rules below."""
    assert {room_of(module) for module in MODULES} == set().union(*ROOMS)
    assert set(MODULES) >= RUN_IN_TASKS


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_what_lies_below_it_only(module: str) -> None:
    """Tasks would load catalog code, and pure decisions could not be tested alone."""
    place = next(number for number, rooms in enumerate(ROOMS) if room_of(module) in rooms)
    below = set().union(*ROOMS[: place + 1]) - (ABOVE_TASKS if module in RUN_IN_TASKS else set())

    assert {room_of(name) for name in own_imports(module)} <= below


def test_no_two_packages_import_each_other() -> None:
    """One could not be understood, or changed, without the other."""
    below: dict[str, set[str]] = {}
    for module in MODULES:
        package = module.partition(".")[0]
        others = {name.partition(".")[0] for name in own_imports(module)} - {package}
        below.setdefault(package, set()).update(others)

    assert list(TopologicalSorter(below).static_order())  # raises CycleError


def test_no_two_modules_import_each_other() -> None:
    """One could not be understood without the other; imports in functions, and by names in texts, count."""
    below = {module: (own_imports(module) | named_in_texts(module)) - {module} for module in MODULES}

    assert list(TopologicalSorter(below).static_order())  # raises CycleError


def test_only_the_entrances_import_the_data_source() -> None:
    """Spark's adapter would be entangled with Iceberg's logic."""
    assert {module for module in MODULES if "datasource" in own_imports(module)} == {"session", "__init__"}


@pytest.mark.parametrize("module", sorted(set(MODULES) - RESTS_ON_INNER_PARTS))
def test_only_few_modules_rest_on_pyicebergs_inner_parts(module: str) -> None:
    """A new PyIceberg would break the package in more than one place."""
    foreign = [(name, member) for name, member in imports(tree(module)) if name.startswith("pyiceberg")]
    private = [
        (name, member)
        for name, member in foreign
        if name.startswith(INNER_PACKAGES) or any(part.startswith("_") for part in (*name.split("."), member))
    ]

    assert private == []


@pytest.mark.parametrize("module", sorted(set(MODULES) - RESTS_ON_INNER_PARTS))
def test_no_module_reaches_into_the_private_parts_of_other_objects(module: str) -> None:
    """A new PyIceberg would break the package where nobody looks."""
    reached = [
        ast.unparse(node)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) not in {"self", "cls", "super()"}
    ]

    assert reached == []


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"catalog.pyiceberg_patches"}))
def test_one_module_alone_changes_other_packages(module: str) -> None:
    """What users do with PyIceberg in the same process would run other code than they know."""
    parsed = tree(module)
    foreign = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(parsed)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and not (getattr(node, "module", None) or node.names[0].name).startswith("iceberg_ds")
        for alias in node.names
    }
    set_by_name = [
        node.args[0]
        for node in ast.walk(parsed)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"setattr", "delattr"}
    ]
    assigned = [
        node.value
        for node in ast.walk(parsed)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
    ]

    assert [
        ast.unparse(owner)
        for owner in (*assigned, *set_by_name)
        if ast.unparse(owner).partition(".")[0].partition("[")[0] in foreign
    ] == []


@pytest.mark.parametrize(
    ("loads_code", "doors"),
    [
        ("load_location_provider", {"table.locations"}),
        ("load_file_io", {"catalog.client", "catalog.own_storage", "io.files"}),
    ],
)
def test_what_loads_code_by_name_is_called_at_few_doors(loads_code: str, doors: set[str]) -> None:
    """A table's properties, which name code and hosts, would come to PyIceberg by a way that nobody looks at."""
    used = {module for module in MODULES for name, member in imports(tree(module)) if loads_code in (name, member)}
    members = {module for module in MODULES if f".{loads_code}(" in ast.unparse(tree(module))}

    assert used | members == doors


@pytest.mark.parametrize("module", [module for module in MODULES if room_of(module) in WITHOUT_SPARK])
def test_only_the_adapter_knows_sparks_runtime(module: str) -> None:
    """The package could not be used, or tested, without a running Spark."""
    allowed = {"pyspark.sql", "pyspark.sql.types", "pyspark.sql.variant_utils", "pyspark.sql.datasource"}

    assert {name for name, _ in imports(tree(module)) if name.startswith("pyspark")} <= allowed


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_beside_the_package_imports_names_that_exist(script: Path) -> None:
    """A benchmark or an example would fail at its first line, and no test would run it."""
    named = imports(ast.parse(script.read_text()))
    own = {(module, name) for module, name in named if name and module.partition(".")[0] == "iceberg_ds"}
    modules = {("iceberg_ds." + module).rpartition(".")[::2] for module in MODULES}

    assert {(module, name) for module, name in own - modules if not hasattr(import_module(module), name)} == set()


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new process has loaded after `statement`."""
    script = f"{statement}\nimport sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_finding_the_data_source_loads_neither_pyiceberg_nor_pyarrow() -> None:
    """Where PyIceberg does not load, PySpark would find no Python data source at all, not even others'."""
    loaded = loaded_by("import pyspark_icebergsink, pyspark_icebergsource, iceberg_ds; dir(iceberg_ds)")

    assert "iceberg_ds.datasource" in loaded
    assert not loaded & {
        "pyiceberg",
        "pyarrow",
        "pandas",
        "click",
        "rich",
        "iceberg_ds.catalog.client",
        "iceberg_ds.commit.commit",
        "iceberg_ds.plan",
    }


def test_a_task_loads_no_catalog_code() -> None:
    """Every executor would pay for the catalog's libraries, and have the code that reads credentials."""
    loaded = loaded_by("import iceberg_ds.writers.task_writer, iceberg_ds.messages")

    assert not {name for name in loaded if name.startswith(tuple(f"iceberg_ds.{room}" for room in ABOVE_TASKS))}
    assert not loaded & {"sqlalchemy", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql"}


@pytest.mark.parametrize("name", ["icebergsink", "icebergsource"])
def test_pyspark_finds_the_module_by_its_name(name: str) -> None:
    """A format would need a registration, in the session that happens to be active."""
    loaded = loaded_by(f"from pyspark_{name} import DefaultSource; assert DefaultSource.name() == '{name}'")

    assert f"pyspark_{name}" in loaded
