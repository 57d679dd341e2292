"""The representation of a problem: its class, its size and its parameters, on one line."""

from __future__ import annotations

from typing import Any


def one_line(problem: Any, *chosen: str) -> str:
    """Return "Class(1,000 rows, dim 20, ...)"; empty words are left out."""
    rows = f"{int(problem.n_data):,} row{'s' * (problem.n_data != 1)}"
    words = [rows, f"dim {int(problem.dim):,}", *(word for word in chosen if word)]
    return f"{type(problem).__name__}({', '.join(words)})"
