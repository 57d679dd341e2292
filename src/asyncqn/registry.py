"""Registry: classes by their names in files and on the command line, imported at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any


class Registry(Mapping[str, Any]):
    """A mapping from names to classes that imports a class only when it is looked up.

    Listing the names, testing whether a name is there and finding the name of a class import nothing.

    Parameters
    ----------
    places : Mapping[str, str]
        The location of the class for each name, as "module:Class".
    group : str, optional
        A group of entry points, with which other installed packages add names.

    Examples
    --------
    >>> from asyncqn.registry import Registry
    >>> kinds = Registry({"counter": "collections:Counter"})
    >>> list(kinds), kinds["counter"]("aab")["a"]
    (['counter'], 2)
    """

    def __init__(self, places: Mapping[str, str], group: str | None = None) -> None:
        self.own = dict(places)
        self.group = group

    @cached_property
    def places(self) -> dict[str, str]:
        """The location of every class, including those of other packages; our own names take precedence."""
        places = dict(self.own)
        if self.group is None:
            return places
        # Sorted, so that the order does not depend on the order of installation.
        for entry in sorted(entry_points(group=self.group)):
            places.setdefault(entry.name, entry.value)
        return places

    def __getitem__(self, name: str) -> Any:
        # Our own names are found without reading the entry points of all installed packages.
        place = self.own[name] if name in self.own else self.places[name]
        module, _, cls = place.partition(":")
        # Not cached here: Python's own cache of modules makes a second lookup cheap.
        return getattr(import_module(module), cls)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def name_of(self, cls: type) -> str | None:
        """Return the name under which a class is registered, or None."""
        # By location, because importing all registered classes to compare them would load every engine.
        place = f"{cls.__module__}:{cls.__qualname__}"
        for name, registered in self.places.items():
            if registered == place:
                return name
        return None
