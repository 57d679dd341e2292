"""asyncqn: asynchronous stochastic quasi-Newton optimization, simulated and real, replayed to the bit."""

import sys
from importlib import import_module
from types import ModuleType

from asyncqn.lazy import attach

__version__ = "0.2.0.dev0"
__getattr__, __dir__, __all__ = attach(__name__)


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
