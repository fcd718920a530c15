"""The directions of imports, as the design draws them, and what merely finding the data source loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
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
MODULES = sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))

# The rooms, each below the next: a module imports those of its own room and of the rooms below it.
VALUES = {
    "_version",
    "errors",
    "secrets",
    "garbage_collection",
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
    "deletes.hidden",
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
    "catalog.pyiceberg_patches",
    "inspect.executors",
    "pyiceberg_inner",
    "snapshots.avro_files",
    "snapshots.manifest_file",
    "snapshots.manifests",
    "snapshots.version_3",
    "spark.filesystems",
}
INNER_PACKAGES = ("pyiceberg.avro",)
LOADERS = {"__import__", "builtins.__import__", "importlib.__import__", "importlib.import_module"}
# Where a name is made while the program runs, and why.
LOADED_BY_NAME = {
    ("__init__", "import_module(_LATER[name])"): "public names, whose modules the table names in texts",
    ("inspect.machine_checks", "import_module(name)"): "packages whose versions are compared",
    ("io.files", "importlib.import_module(module)"): "stores, whose modules the table above names in texts",
    ("io.fsspec_io", "importlib.import_module(name)"): "libraries of stores, which are extras",
    ("metrics.reporters", "import_module(module)"): "the user's own function, which an option names",
}
# Methods that change what they are called of.
CHANGING = {
    *("register", "addFilter", "removeFilter", "addHandler", "removeHandler", "setLevel"),
    *("update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__setattr__"),
}
# The same of lists such as `sys.path`; a list in a name is told from no other one of that name.
CHANGING_LISTS = {"append", "insert", "extend", "remove"}
# Functions that change something for the whole process.
OF_PROCESS = {
    *("signal.signal", "locale.setlocale", "socket.setdefaulttimeout", "os.chdir", "os.umask", "os.putenv"),
    *("logging.basicConfig", "logging.disable", "logging.setLoggerClass", "logging.captureWarnings"),
    *("warnings.simplefilter", "warnings.filterwarnings", "multiprocessing.set_start_method", "sys.setrecursionlimit"),
    *("fsspec.register_implementation", "gc.disable", "gc.enable", "gc.freeze", "gc.set_threshold"),
    *("unittest.mock.patch", "mock.patch", "builtins.setattr"),
}
# Changes beside those of `catalog.pyiceberg_patches`, and why.
CHANGES_ALLOWED = {
    (
        "io.logged_addresses",
        "logging.getLogger('urllib3.connectionpool').addFilter",
    ): "records of the sink alone",
    ("io.stores", "atexit.register"): "what it is made for: uploads end before the interpreter does",
    ("reading.source", "SupportsTriggerAvailableNow.register"): "Spark below 4.2 has no such class to derive from",
    ("cli", "os.environ.setdefault"): "the command's own process: Spark would start another Python",
    ("spark.workers", "sys.path_importer_cache.pop"): "a cache, which an import fills again",
    ("catalog.own_storage", "catalog.__class__"): "this catalog alone, which belongs to the sink",
    ("garbage_collection", "gc.disable()"): "within a block, which puts it back",
    ("garbage_collection", "gc.enable()"): "what the block found",
    (
        "spark.pandas_warning",
        "warnings.filterwarnings('ignore', message='PySpark does not yet fully support pandas')",
    ): "within a block, which puts it back",
    ("spark.workers", "gc.freeze()"): "a task's own process",
}


@cache
def tree(module: str) -> ast.Module:
    """Return the module, parsed."""
    return ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text())


def imports(node: ast.AST, module: str = "") -> Iterator[tuple[str, str]]:
    """Yield module and name of every import at or below `node`, those in functions, for types, and by calls too."""
    for found in ast.walk(node):
        if isinstance(found, ast.ImportFrom):
            yield from ((source_of(found, module), alias.name) for alias in found.names)
        elif isinstance(found, ast.Import):
            yield from ((alias.name, "") for alias in found.names)
        elif isinstance(found, ast.Call) and module and (name := loaded_name(found, module)):
            yield name, ""


def source_of(found: ast.ImportFrom, module: str) -> str:
    """Return the full name of the module that `found`, in `module` of the package, imports from."""
    above = ["iceberg_ds", *module.split(".")][: -found.level] if found.level else []
    return ".".join([*above, *filter(None, [found.module])])


def own_module(name: str) -> str:
    """Return the module of the package that has `name`, or is `name`, without `iceberg_ds`."""
    own = name.removeprefix("iceberg_ds").removeprefix(".")
    while own and own not in MODULES and f"{own}.__init__" not in MODULES:
        own = own.rpartition(".")[0]
    return own if own in MODULES else f"{own}.__init__".removeprefix(".")


def own_imports(module: str) -> set[str]:
    """Return the modules of the package that `module` imports."""
    named = {f"{name}.{member}" if member else name for name, member in imports(tree(module), module)}
    return {own_module(name) for name in named if f"{name}.".startswith("iceberg_ds.")}


@cache
def bound(module: str) -> dict[str, list[ast.expr | str]]:
    """Return what each name in a module may stand for, whichever function binds it: a full name, or an expression."""
    found: dict[str, list[ast.expr | str]] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found.setdefault(name, []).append(alias.name if alias.asname else name)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, []).append(f"{source_of(node, module)}.{alias.name}")
        for target, value in assigned(node):
            bind(found, target, value)
    return found


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield targets of an assignment, or of a loop over what is written down, with what they get."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value:
        yield node.target, node.value
    elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Tuple | ast.List):
        yield from ((node.target, value) for value in node.iter.elts)


def bind(found: dict[str, list[ast.expr | str]], target: ast.expr, value: ast.expr) -> None:
    """Add to `found` what an assignment gives a name."""
    if isinstance(target, ast.Name):
        found.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, its in zip(target.elts, value.elts, strict=False):
            bind(found, one, its)


def origin(node: ast.expr | str, module: str, seen: frozenset[str] = frozenset()) -> str:
    """Return the full name of a module, or of what another package made, as far as the text tells; "" for all else.

    Classes and namespaces that are asked of an object count as made by another package, as in `type(table)`.
    """
    if isinstance(node, str):
        return maker_of(node, seen)
    if isinstance(node, ast.Name) and (place := f"{module}:{node.id}") not in seen:
        found = [origin(value, module, seen | {place}) for value in bound(module).get(node.id, ())]
        return max(found, key=is_foreign, default=node.id if node.id in LOADERS else "")
    if isinstance(node, ast.Attribute):
        if node.attr in {"__class__", "__dict__"}:
            return asked_of(node.value, node)
        above = origin(node.value, module, seen)
        return above and maker_of(f"{above}.{node.attr}", seen)
    if isinstance(node, ast.Subscript | ast.IfExp | ast.BoolOp):
        return max((origin(part, module, seen) for part in parts_of(node)), key=is_foreign)
    return origin_of_call(node, module, seen) if isinstance(node, ast.Call) else ""


def parts_of(node: ast.Subscript | ast.IfExp | ast.BoolOp) -> list[ast.expr]:
    """Return the expressions that an expression may be, or be a part of."""
    if isinstance(node, ast.BoolOp):
        return node.values
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node.value]


def origin_of_call(node: ast.Call, module: str, seen: frozenset[str]) -> str:
    """Return the origin of what a call of one of few known functions returns."""
    called, arguments = ast.unparse(node.func), ast.unparse(node.args)
    if node.args and called in {"type", "vars"}:
        return asked_of(node.args[0], node)
    if node.args and called == "getattr":
        return origin(node.args[0], module, seen)
    function = origin(node.func, module, seen)
    if function in LOADERS:
        return maker_of(loaded_name(node, module) or ast.unparse(node), seen)
    return function if function == "logging.getLogger" and arguments != "__name__" else ""


def asked_of(owner: ast.expr, node: ast.expr) -> str:
    """Return the text that asks an object for its class or namespace, "" if it asks itself."""
    return "" if ast.unparse(owner) == "self" else ast.unparse(node)


def maker_of(name: str, seen: frozenset[str]) -> str:
    """Return a full name, followed through the package's modules to what made it; "" if a module of it did."""
    if not is_own(name):
        return name
    module = own_module(name)
    inside = name.removeprefix(f"iceberg_ds.{module}".removesuffix(".__init__")).removeprefix(".")
    if not inside:
        return name
    first, _, below = inside.partition(".")
    found = origin(ast.Name(first), module, seen)
    return found and (maker_of(f"{found}.{below}", seen) if below else found)


def is_own(name: str) -> bool:
    """Return whether a full name is one of the package."""
    return f"{name}.".startswith("iceberg_ds.")


def is_foreign(name: str) -> bool:
    """Return whether an origin is another package."""
    return bool(name) and not is_own(name)


def loaded_name(node: ast.Call, module: str) -> str:
    """Return the name of the module that a call loads by a text, "" if it is no such call."""
    named = ast.literal_eval(node.args[0]) if node.args and isinstance(node.args[0], ast.Constant) else ""
    is_loader = isinstance(node.func, ast.Name | ast.Attribute) and origin(node.func, module) in LOADERS
    return named if is_loader and isinstance(named, str) and not named.startswith(".") else ""


def changes(module: str) -> Iterator[str]:
    """Yield what a module changes of other packages, as far as its text tells."""
    for node in ast.walk(tree(module)):
        changed: list[ast.expr] = []
        if isinstance(node, ast.Attribute | ast.Subscript):
            method = getattr(node, "attr", "")
            is_changed = isinstance(node.ctx, ast.Store | ast.Del) or method in CHANGING
            is_changed |= method in CHANGING_LISTS and isinstance(node.value, ast.Attribute)
            changed = [node.value] if is_changed else []
            if is_changed and method == "__class__":
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("setattr", "delattr", "attr__")):
            changed = node.args[:1]
        if isinstance(node, ast.Call) and origin(node.func, module) in OF_PROCESS:
            yield ast.unparse(node)
        if any(is_foreign(origin(owner, module)) for owner in changed):
            yield ast.unparse(node)


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

    assert {room_of(name) for name in own_imports(module) | named_in_texts(module)} <= below


def test_modules_are_loaded_by_their_names_in_few_places() -> None:
    """The rules of this file could not see what a module imports."""
    found: set[tuple[str, str]] = set()
    for module in MODULES:
        calls = {node.func: node for node in ast.walk(tree(module)) if isinstance(node, ast.Call)}
        loaders = (
            node
            for node in ast.walk(tree(module))
            if isinstance(node, ast.Name | ast.Attribute) and origin(node, module) in LOADERS
        )
        found.update(
            (module, ast.unparse(calls.get(node, node)))
            for node in loaders
            if node not in calls or not loaded_name(calls[node], module)
        )

    assert found == LOADED_BY_NAME.keys()


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
    foreign = [(name, member) for name, member in imports(tree(module), module) if name.startswith("pyiceberg")]
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
    assert [change for change in changes(module) if (module, change) not in CHANGES_ALLOWED] == []


def test_what_may_change_other_packages_does() -> None:
    """A place that is allowed for a reason which has gone would hide another change."""
    assert CHANGES_ALLOWED.keys() <= {(module, change) for module in MODULES for change in changes(module)}


@pytest.mark.parametrize(
    ("loads_code", "doors"),
    [
        ("load_location_provider", {"table.locations"}),
        ("load_file_io", {"catalog.client", "catalog.own_storage", "io.files"}),
    ],
)
def test_what_loads_code_by_name_is_called_at_few_doors(loads_code: str, doors: set[str]) -> None:
    """A table's properties, which name code and hosts, would come to PyIceberg by a way that nobody looks at."""
    used = {
        module for module in MODULES for name, member in imports(tree(module), module) if loads_code in (name, member)
    }
    members = {module for module in MODULES if f".{loads_code}(" in ast.unparse(tree(module))}

    assert used | members == doors


@pytest.mark.parametrize("module", [module for module in MODULES if room_of(module) in WITHOUT_SPARK])
def test_only_the_adapter_knows_sparks_runtime(module: str) -> None:
    """The package could not be used, or tested, without a running Spark."""
    allowed = {"pyspark.sql", "pyspark.sql.types", "pyspark.sql.variant_utils", "pyspark.sql.datasource"}

    assert {name for name, _ in imports(tree(module), module) if name.startswith("pyspark")} <= allowed


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
