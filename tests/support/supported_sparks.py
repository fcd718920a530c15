"""The versions of Spark that the matrix of `make test-matrix` has: the newest patch of each supported minor version."""

from __future__ import annotations

import ast
from pathlib import Path

_MATRIX = Path(__file__).parents[2] / ".ci" / "test_matrix.py"


def supported_sparks() -> tuple[str, ...]:
    """Return the versions, the lowest first."""
    for statement in ast.parse(_MATRIX.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SPARKS":
            return tuple(ast.literal_eval(statement.value))
    raise LookupError(f"{_MATRIX} has no SPARKS")
