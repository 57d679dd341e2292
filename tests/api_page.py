"""docs/reference/api.md, made of the docstrings: `python tests/api_page.py` writes it again."""

from __future__ import annotations

import inspect
from pathlib import Path

import asyncqn

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"
HEAD = """\
# Public names

Made of the docstrings by `python tests/api_page.py`; not edited by hand. `help(asyncqn.NAME)` shows the
parameters and a tested example of each.

| name | kind | meaning |
|---|---|---|
"""


def kind_of(thing: object) -> str:
    """function, error, warning, protocol or class."""
    if not inspect.isclass(thing):
        return "function"
    if issubclass(thing, Exception):
        return "warning" if issubclass(thing, Warning) else "error"
    return "protocol" if getattr(thing, "_is_protocol", False) else "class"


def meaning(thing: object) -> str:
    """The first sentence of the docstring, on one line."""
    first = " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split())
    return first.replace("|", "\\|")


def page() -> str:
    """The whole page."""
    rows = []
    for name in sorted(asyncqn.__all__, key=str.lower):
        thing = getattr(asyncqn, name)
        rows.append(f"| `{name}` | {kind_of(thing)} | {meaning(thing)} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
