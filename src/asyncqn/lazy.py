"""Public names of a package, imported at their first use, from the one list that type checkers read."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module

__all__ = ["attach"]


def attach(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose `__init__.pyi` lists its names.

    A name is imported from the module that the stub names, when it is first asked for.  So whoever imports
    the package pays for what is used: numba, the slowest import, waits until something is computed.

    Parameters
    ----------
    package : str
        The `__name__` of the package that is being imported.

    Examples
    --------
    >>> import asyncqn.lab
    >>> "time_to" in asyncqn.lab.__all__
    True
    """
    module = sys.modules[package]
    stub = ast.parse(module.__loader__.get_data(f"{module.__file__}i"))  # type: ignore[union-attr]
    homes = {
        alias.name: f"{package}.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return find, lambda: sorted(homes), sorted(homes)
