"""asyncqn: asynchronous stochastic quasi-Newton optimization, simulated and real, replayed to the bit."""

import ast
import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.2.0.dev0"


def _public_names() -> dict[str, str]:
    """Map each public name to the module that defines it, as `__init__.pyi` lists them."""
    stub = ast.parse(__loader__.get_data(f"{__file__}i"))
    return {
        alias.name: f"{__name__}.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


_HOMES = _public_names()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Import a public name at its first use: numba, the slowest import, waits until something is computed."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__.copy()


class _Package(ModuleType):
    """The class of this package, in which `minimize` and `resume` are always the functions.

    Importing the submodule `asyncqn.minimize` would otherwise bind the name `minimize` to that module.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        # Picklers save a module by name, but know only ModuleType itself.
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
