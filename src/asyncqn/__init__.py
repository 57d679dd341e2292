"""asyncqn: asynchronous stochastic quasi-Newton optimization, simulated and real, replayed bit for bit."""

import ast
import logging
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import resolve_name
from types import ModuleType

__version__ = "0.2.0.dev0"


def lazy_names(
    package: str,
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose `__init__.pyi` lists its names.

    A name is imported from the module that the stub names, when it is first used. Importing the package is
    therefore cheap: numba, the slowest import, waits until something is computed. A name may be a module.
    """
    # Parsing the stub instead of listing the names twice keeps editors and the interpreter in agreement.
    module = sys.modules[package]
    stub = ast.parse(module.__loader__.get_data(f"{module.__file__}i"))  # type: ignore[union-attr]
    homes = {
        alias.asname or alias.name: (
            resolve_name(f"{'.' * node.level}{node.module or ''}", package),
            alias.name,
        )
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, own_name = homes[name]
        thing = getattr(import_module(home), own_name, None)
        if thing is None:
            thing = import_module(f"{home}.{own_name}")
        # Stored, so that the next lookup does not come here.
        setattr(module, name, thing)
        return thing

    return find, lambda: sorted(homes), sorted(homes)


# Silent until the user adds a handler.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__getattr__, __dir__, __all__ = lazy_names(__name__)


class _Package(ModuleType):
    """The class of this package, in which `minimize` and `resume` are always the functions.

    Importing the submodule `asyncqn.minimize` would otherwise bind the name `minimize` to that module.
    """

    def __setattr__(self, name: str, value: object) -> None:
        submodule = (
            isinstance(value, ModuleType) and value.__name__ == f"asyncqn.{name}"
        )
        if not (submodule and name in __all__):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[object, ...]:
        # Picklers save a module by name, but know only ModuleType itself.
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
