"""asyncqn: asynchronous stochastic quasi-Newton optimization, simulated and real, replayed bit for bit."""

import ast
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

__version__ = "0.2.0.dev0"


def lazy_names(
    package: str,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose `__init__.pyi` lists its names.

    A name is imported from the module that the stub names, when it is first used. Importing the package is
    therefore cheap: numba, the slowest import, waits until something is computed.

    Parameters
    ----------
    package : str
        The `__name__` of the package that is being imported.

    Returns
    -------
    tuple
        `__getattr__`, `__dir__` and `__all__` of the package.

    Examples
    --------
    >>> import asyncqn as aq
    >>> import asyncqn.lab
    >>> names = aq.lazy_names("asyncqn.lab")[2]
    >>> "delay_limit" in names, names == asyncqn.lab.__all__
    (True, True)
    """
    # Parsing the stub instead of listing the names twice keeps editors and the interpreter in agreement.
    module = sys.modules[package]
    stub = ast.parse(module.__loader__.get_data(f"{module.__file__}i"))  # type: ignore[union-attr]
    # One dot in the stub means the package itself, each further dot one package above it.
    homes = {
        alias.name: f"{package.rsplit('.', node.level - 1)[0] if node.level > 1 else package}.{node.module}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        # Stored, so that the next lookup does not come here.
        setattr(module, name, value)
        return value

    return find, lambda: sorted(homes), sorted(homes)


logging.getLogger(__name__).addHandler(
    logging.NullHandler()
)  # silent until the user adds a handler

__getattr__, _, _names = lazy_names(__name__)
__all__ = sorted([*_names, "lazy_names"])


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """The class of this package, in which `minimize` and `resume` are always the functions.

    Importing the submodule `asyncqn.minimize` would otherwise bind the name `minimize` to that module.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        # Picklers save a module by name, but know only ModuleType itself.
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
