"""Registry: classes by the names they have in files and on the command line, imported at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any


class Registry(Mapping[str, Any]):
    """A mapping from names to classes that imports a class only when it is looked up.

    Listing the names, testing whether a name is there and finding the name of a class import nothing.

    Parameters
    ----------
    places : Mapping[str, str]
        For every name the place of its class, as "module:Class".

    Examples
    --------
    >>> from asyncqn.registry import Registry
    >>> kinds = Registry({"counter": "collections:Counter"})
    >>> list(kinds), kinds["counter"]("aab")["a"]
    (['counter'], 2)
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self.places = dict(places)

    def __getitem__(self, name: str) -> Any:
        module, _, cls = self.places[name].partition(":")
        return getattr(import_module(module), cls)

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def name_of(self, cls: type) -> str | None:
        """Return the name under which a class is registered, or None."""
        place = f"{cls.__module__}:{cls.__qualname__}"
        return next((name for name, known in self.places.items() if known == place), None)
