"""The public surface: what `iceberg_ds` exports, how it is called, and what explains it: docstrings and docs/api.md."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import iceberg_ds
from iceberg_ds.errors import OptionError

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "api.md").read_text()
ERRORS = (REPOSITORY / "docs" / "errors.md").read_text()
TYPED = (REPOSITORY / "tests" / "typing" / "api.py").read_text()
PUBLIC: dict[str, Any] = {name: getattr(iceberg_ds, name) for name in iceberg_ds.__all__}
FUNCTIONS = {name: thing for name, thing in PUBLIC.items() if inspect.isfunction(thing)}
RESULTS = {name: thing for name, thing in PUBLIC.items() if dataclasses.is_dataclass(thing)}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
OF_OTHERS = {"None", "int", "DataFrame", "Callable[[DataFrame, int], None]", "Cut | None", "Iterator[None]"}
FOR_SPARK = {"IcebergSink", "IcebergSource"}  # what they take and return Spark knows by its own classes
ABOUT_A_TABLE = (
    *("check", "convert_deletes", "expire_snapshots", "fast_forward", "maintain", "publish", "remove_orphan_files"),
    *(
        "rewrite_data_files",
        "rewrite_manifests",
        "rewrite_position_delete_files",
        "table_health",
        "upsert_into",
        "verify",
    ),
)


def members(result: Any) -> dict[str, Any]:
    """Return what a user reads of a result beside its fields: properties and methods."""
    fields = {field.name for field in dataclasses.fields(result)}
    return {
        name: value for name, value in inspect.getmembers(result) if not name.startswith("_") and name not in fields
    }


def test_dir_shows_the_public_names_and_no_others() -> None:
    """A notebook would complete names that may change in any version, or miss those that are loaded late."""
    assert dir(iceberg_ds) == sorted(iceberg_ds.__all__)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() | RESULTS.keys()))
def test_function_and_result_is_in_the_reference(name: str) -> None:
    """A user could not find what a name is; the page is made of docstrings and signatures."""
    assert f"\n::: iceberg_ds.{name}\n" in PAGE


@pytest.mark.parametrize("name", iceberg_ds.__all__)
def test_public_name_is_in_the_reference_and_type_checked(name: str) -> None:
    """A name could vanish, or change its type, without notice."""
    assert f"\n::: iceberg_ds.{name}\n" in PAGE or f"`{name}`" in PAGE or f"\n| `{name}` |" in ERRORS
    assert re.search(rf"\biceberg_ds\.{name}\b", TYPED) or name == "__version__" in TYPED


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_explained(name: str) -> None:
    """A user could not know what to give."""
    docstring = inspect.getdoc(FUNCTIONS[name]) or ""

    for argument in inspect.signature(FUNCTIONS[name]).parameters:
        assert re.search(rf"^    {argument}: [A-Z`]", docstring, re.MULTILINE), argument


@pytest.mark.parametrize("name", RESULTS)
def test_result_is_frozen_and_every_attribute_is_explained(name: str) -> None:
    """A user could not know what a number counts, or change what was found."""
    fields = {field.name for field in dataclasses.fields(RESULTS[name])}
    docstring = inspect.getdoc(RESULTS[name]) or ""

    assert RESULTS[name].__dataclass_params__.frozen
    assert [field for field in fields if not re.search(rf"^    {field}: [A-Z`]", docstring, re.MULTILINE)] == []
    assert [one for one, value in members(RESULTS[name]).items() if not inspect.getdoc(value)] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_returns_what_is_public(name: str) -> None:
    """A user could not name the type of a result."""
    assert inspect.signature(FUNCTIONS[name]).return_annotation in OF_OTHERS | CLASSES.keys()


def called_of(name: str) -> list[Any]:
    """Return what of a public name has types: a function; a class, its methods and properties."""
    if name in FUNCTIONS:
        return [FUNCTIONS[name]]
    own = [kind for kind in CLASSES[name].__mro__ if kind.__module__.startswith("iceberg_ds")]
    found = [value for kind in own for one, value in vars(kind).items() if not one.startswith("_")]
    found += [] if name in RESULTS else [CLASSES[name].__init__]
    plain = [getattr(value, "fget", None) or getattr(value, "__func__", value) for value in found]
    return [CLASSES[name], *filter(inspect.isfunction, plain)]


def types_of(thing: Any) -> dict[str, Any]:
    """Return the types of parameters and result, or of attributes, without aliases; those for types alone too."""
    names: dict[str, Any] = {}
    for module in {one.__module__ for one in getattr(thing, "__mro__", (thing,)) if one.__module__ != "builtins"}:
        for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                exec(compile(ast.Module(node.body, []), module, "exec"), names)  # noqa: S102  # its imports
    return {
        name: kind for name, kind in typing.get_type_hints(thing, localns=names).items() if not name.startswith("_")
    }


def parts(kind: Any) -> Iterator[Any]:
    """Yield the classes that a type is made of, and the texts that it allows."""
    inner = kind if isinstance(kind, list) else typing.get_args(kind)
    if not inner:
        yield kind
    for one in inner:
        yield from parts(one)


def explained(thing: Any, name: str) -> str:
    """Return what docstrings say of an argument or attribute, that of the function which they refer to included."""
    docstring = inspect.getdoc(thing) or ""
    found = re.search(rf"^    {name}: .*(\n     .*)*", docstring, re.MULTILINE)
    text = found[0] if found else docstring
    other = re.search(r": As `(\w+)`", text)
    return text + explained(FUNCTIONS[other[1]], name) if other else text


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() | CLASSES.keys() - FOR_SPARK))
def test_types_of_a_public_name_are_public(name: str) -> None:
    """A user could not name the type of a result, or what an argument takes, or find the texts that it allows."""
    private: list[str] = []
    for thing in called_of(name):
        for what, kind in types_of(thing).items():
            for part in parts(kind):
                is_own = inspect.isclass(part) and part.__module__.startswith("iceberg_ds")
                # A protocol need not be named by who has what it describes.
                is_hidden = is_own and part not in CLASSES.values() and not getattr(part, "_is_protocol", False)
                is_untold = isinstance(part, str) and f"`{part}`" not in explained(thing, what)
                private += [f"{thing.__qualname__}, {what}: {part}"] if is_hidden or is_untold else []

    assert private == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_of_one_name_are_the_same_everywhere(name: str) -> None:
    """A user who knows one function would call another one wrongly."""
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    optional = {argument: parameters[argument] for argument in ("spark", "options") if argument in parameters}
    # Beside its streams; their first argument; it makes a DataFrame.
    if name in ("maintaining", "merge", "read", "read_changes", "register", "requeue"):
        del optional["spark"]
    by_name = [argument for argument, one in parameters.items() if one.kind is one.KEYWORD_ONLY]

    assert [one.default for one in optional.values()] == [None] * len(optional)
    assert {"spark": "SparkSession | None", "options": "Mapping[str, str] | None"}.items() >= {
        argument: one.annotation for argument, one in optional.items()
    }.items()
    assert (
        [argument for argument in by_name if argument in {"spark", "options", "branch"}]
        == [argument for argument in ("spark", "options", "branch") if argument in by_name]
        == by_name[: sum(argument in by_name for argument in ("spark", "options", "branch"))]
    )


def arguments_of(name: str) -> dict[str, str]:
    """Return what a function needs besides the table."""
    return {"publish": {"branch": "audit"}, "fast_forward": {"branch": "main", "to": "audit"}}.get(name, {})


@pytest.mark.parametrize("name", ABOUT_A_TABLE)
def test_options_that_name_another_table_are_refused(name: str) -> None:
    """The orphans of another table would be deleted, its branch be published, than the one that was meant."""
    for options in ({"table": "db.other"}, {"TABLE": "other", "namespace": "db"}, {"table": "db.."}):
        with pytest.raises(OptionError, match=r"the argument is 'db\.t', and option 'table' is '.+'\. Drop"):
            FUNCTIONS[name]("db.t", options=options, **arguments_of(name))


@pytest.mark.parametrize("options", [{"table": "db.t"}, {"table": "`db`.t"}, {"Table": "t", "namespace": "db"}])
def test_options_that_name_the_same_table_are_accepted(options: dict[str, str], tmp_path: Path) -> None:
    """A user could not give the options of the write as they are."""
    result = iceberg_ds.verify("db.t", options={**options, "warehouse": str(tmp_path)})

    assert result.table == "db.t"
    assert [check.name for check in result.failures] == ["table"]  # there is none


OLD_FORMS: dict[str, Callable[[Any, dict[str, str]], iceberg_ds.CheckResult]] = {
    "positional": lambda check, options: check(None, options, limit_s=5),
    "mixed": lambda check, options: check(None, options=options),
    "named": lambda check, options: check(spark=None, options=options),
}


@pytest.mark.parametrize("form", OLD_FORMS)
def test_old_form_of_check_works_and_names_the_new_one(form: str) -> None:
    """A job that checks its set-up would break without a word of what to change."""
    options = {"table": "db.t", "warehous": "x"}  # refused at once

    with pytest.warns(DeprecationWarning, match=r"call iceberg_ds\.check\(table, spark=spark, options=opt") as told:
        old = OLD_FORMS[form](iceberg_ds.check, options)
    new = iceberg_ds.check("db.t", options=options)

    assert told[0].filename == __file__
    assert [(check.name, check.outcome, check.detail) for check in old.checks] == [
        (check.name, check.outcome, check.detail) for check in new.checks
    ]
    assert "did you mean 'warehouse'" in old.failures[0].detail


@pytest.mark.parametrize("arguments", [(), ("db.t", {"warehouse": "x"})])
def test_check_without_a_table_or_with_options_by_place_is_refused(arguments: tuple[object, ...]) -> None:
    """A slip would be taken for the old form, with an error that names neither."""
    with warnings.catch_warnings(), pytest.raises(TypeError, match=r"check\(\).*(table|positional)"):
        iceberg_ds.check(*arguments)  # type: ignore[arg-type]  # that is the mistake
