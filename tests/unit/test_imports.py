"""The directions of imports, as the design draws them, and what merely finding the data source loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import iceberg_ds

PACKAGE = Path(iceberg_ds.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__" or path.parent == PACKAGE
)

# Layers of modules and packages; each may import itself and those that are named beside it.
VALUES = {
    "_version",
    "configuration",
    "errors",
    "identifiers",
    "kept_on_driver",
    "plan",
    "messages",
    "row_counts",
    "task_manifest",
    "table_requests",
    "steps",
    "spark_workers",
    "changes.values",
}
# Of the search for keys, what tasks do; and what the driver does beside commits, with Spark or without.
SEARCH = {
    f"resolving.{name}" for name in ("columns", "hidden", "keyed_rows", "key_sets", "matching", "rewriting", "tasks")
}
RESOLVE = {"resolving"}
# Upserts that search first: a job that writes, and a commit.
UPSERT = {"upserts"}
PURE = {
    "secrets",
    "changes",
    "foreign_options",
    "option",
    "option_values",
    "readers",
    "key_options",
    "option_table",
    "pyiceberg_inner",
    "table_properties",
    "property_types",
    "locations",
    "diagnosis",
    "schemas",
    "layouts",
    "predicates",
    "snapshots",
    *(
        f"resolving.{name}"
        for name in ("values", "live_files", "key_sources", "bounds", "scan", "canonical", "sequences", "result")
    ),
}
FILES = {"storage", "manifests"}
EXECUTOR = {"writing", "session_settings", *SEARCH}
DRIVER = {
    "options",
    "option_scope",
    "file_settings",
    "supported",
    "written_columns",
    "branch_planning",
    "key_planning",
    "planning",
    "catalogs",
    "commits",
}
# What is done to a DataFrame with Spark's own functions, before it is written.
DATAFRAME = {"spark_transforms", "key_distribution", "distribution"}
# What tries a set-up: as much of it as tasks run, and the rest.
PROBE = {f"checks.{name}" for name in ("result", "checklist", "versions", "storage_probe", "executor_probe")}
CHECK = {"checks"}
# What proves a table whole, and says so as checks do.
VERIFY = {"verification"}
COMMAND = {"command_line"}
ADAPTER = {"datasource"}
ENTRANCE = {"registration", "__init__"}
# What the package's functions are in.
LOADED_LATER = {
    "distribution",
    "commits.publishing",
    "checks.checking",
    "verification.verifying",
    "resolving.converting",
    "upserts.upserting",
}

MAY_IMPORT = [
    (VALUES, VALUES),
    (PURE, VALUES | PURE),
    (FILES, VALUES | PURE | FILES),
    (EXECUTOR, VALUES | PURE | FILES | EXECUTOR),
    (DRIVER, VALUES | PURE | FILES | EXECUTOR | DRIVER),
    (RESOLVE, VALUES | PURE | FILES | EXECUTOR | DRIVER | RESOLVE),
    (DATAFRAME, VALUES | PURE | DRIVER | DATAFRAME),
    (UPSERT, VALUES | PURE | FILES | EXECUTOR | DRIVER | RESOLVE | DATAFRAME | UPSERT),
    (PROBE, VALUES | PURE | FILES | PROBE),
    (CHECK, VALUES | PURE | FILES | DRIVER | CHECK),
    (
        VERIFY,
        VALUES
        | PURE
        | FILES
        | EXECUTOR
        | DRIVER
        | RESOLVE
        | {"checks.result", "checks.checklist", "checks.growth"}
        | VERIFY,
    ),
    (COMMAND, VALUES | PURE | DRIVER | CHECK | VERIFY | RESOLVE | COMMAND),
    (ADAPTER, VALUES | EXECUTOR | DRIVER | RESOLVE),
    (ENTRANCE, ADAPTER | ENTRANCE | {"configuration", "errors", "secrets", "_version"} | LOADED_LATER),
]
# Contract tests hold them.
RESTS_ON_INNER_PARTS = {
    "catalogs.metadata_updates",
    "catalogs.staged_metadata",
    "checks.executors",
    "commits.manifest_lists",
    "commits.manifest_reader",
    "manifests.manifest_file",
    "pyiceberg_inner",
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


def is_in(module: str, layer: set[str]) -> bool:
    """Return whether the module, or the package that it is in, belongs to the layer."""
    return module in layer or module.partition(".")[0] in layer


def layer_of(module: str) -> tuple[set[str], set[str]]:
    """Return the module's layer, and what it may import; one that is named itself is not in its package's."""
    found = [(layer, may) for layer, may in MAY_IMPORT if module in layer]
    return (found or [(layer, may) for layer, may in MAY_IMPORT if is_in(module, layer)])[0]


def test_every_module_has_its_place() -> None:
    """A new module would escape the rules below."""
    layers = [layer for layer, _ in MAY_IMPORT]

    assert [module for module in MODULES if not any(is_in(module, layer) for layer in layers)] == []
    assert [name for layer in layers for name in layer if not any(is_in(module, {name}) for module in MODULES)] == []


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_in_the_drawn_direction_only(module: str) -> None:
    """Tasks would load catalog code, and pure decisions could not be tested alone."""
    _, may = layer_of(module)

    assert [name for name in own_imports(module) if not is_in(name, may)] == []


def test_no_two_packages_import_each_other() -> None:
    """One could not be understood, or changed, without the other."""
    below: dict[str, set[str]] = {}
    for module in MODULES:
        package = module.partition(".")[0]
        others = {name.partition(".")[0] for name in own_imports(module)} - {package}
        below.setdefault(package, set()).update(others)

    assert list(TopologicalSorter(below).static_order())  # raises CycleError


def test_only_the_entrances_import_the_data_source() -> None:
    """Spark's adapter would be entangled with Iceberg's logic."""
    assert {module for module in MODULES if "datasource" in own_imports(module)} == ENTRANCE


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


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"catalogs.pyiceberg_patches"}))
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
        ("load_location_provider", {"locations"}),
        ("load_file_io", {"catalogs.client", "catalogs.own_storage", "storage.files", "storage.object_io"}),
    ],
)
def test_what_loads_code_by_name_is_called_at_few_doors(loads_code: str, doors: set[str]) -> None:
    """A table's properties, which name code and hosts, would come to PyIceberg by a way that nobody looks at."""
    used = {module for module in MODULES for name, member in imports(tree(module)) if loads_code in (name, member)}
    members = {module for module in MODULES if f".{loads_code}(" in ast.unparse(tree(module))}

    assert used | members == doors


@pytest.mark.parametrize(
    "module", [module for module in MODULES if is_in(module, VALUES | PURE | FILES | EXECUTOR | DRIVER)]
)
def test_only_the_adapter_knows_sparks_runtime(module: str) -> None:
    """The package could not be used, or tested, without a running Spark."""
    allowed = {"pyspark.sql", "pyspark.sql.types", "pyspark.sql.datasource"}

    assert {name for name, _ in imports(tree(module)) if name.startswith("pyspark")} <= allowed


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new process has loaded after `statement`."""
    script = f"{statement}\nimport sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_finding_the_data_source_loads_neither_pyiceberg_nor_pyarrow() -> None:
    """Where PyIceberg does not load, PySpark would find no Python data source at all, not even others'."""
    loaded = loaded_by("import pyspark_icebergsink")

    assert "iceberg_ds.datasource" in loaded
    assert not loaded & {
        "pyiceberg",
        "pyarrow",
        "pandas",
        "click",
        "rich",
        "iceberg_ds.catalogs.client",
        "iceberg_ds.commits.commit",
        "iceberg_ds.plan",
    }


def test_a_task_loads_no_catalog_code() -> None:
    """Every executor would pay for the catalog's libraries, and have the code that reads credentials."""
    loaded = loaded_by("import iceberg_ds.writing.writers, iceberg_ds.messages")

    assert not loaded & {f"iceberg_ds.{module}" for module in DRIVER}
    assert not loaded & {"sqlalchemy", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql"}


def test_pyspark_finds_the_module_by_its_name() -> None:
    """`format("icebergsink")` would need a registration."""
    loaded = loaded_by("from pyspark_icebergsink import DefaultSource; assert DefaultSource.name() == 'icebergsink'")

    assert "pyspark_icebergsink" in loaded
