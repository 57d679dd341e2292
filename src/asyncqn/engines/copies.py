"""States and messages as trees: NamedTuples, also within each other, of arrays and single numbers.

Arrays are copied into places of the receiver's own, which are used again and again; a number is taken over
as it is, so that an `int` stays an `int` on every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from asyncqn.types import Algorithm, extra


def sent_fields(algorithm: Algorithm, iterate: Any) -> tuple[str, ...]:
    """Return the fields of the iterate that a worker reads: the algorithm's `sent`, or all."""
    return tuple(extra(algorithm, "sent") or iterate._fields)


def leaves(tree: Any) -> list[Any]:
    """Return the arrays and numbers of a tree, in order."""
    return (
        [leaf for child in tree for leaf in leaves(child)]
        if isinstance(tree, tuple)
        else [tree]
    )


def rebuilt(tree: Any, new: Iterator[Any]) -> Any:
    """Return a tree of the same shape with other leaves."""
    if not isinstance(tree, tuple):
        return next(new)
    children = [rebuilt(child, new) for child in tree]
    return tree._make(children) if hasattr(tree, "_make") else tuple(children)


def copied(tree: Any) -> Any:
    """Return a tree with copies of the arrays."""
    return rebuilt(
        tree,
        (
            np.array(leaf) if isinstance(leaf, np.ndarray) else leaf
            for leaf in leaves(tree)
        ),
    )


def copied_into(places: Any, tree: Any) -> Any:
    """Return `tree` with its arrays copied into those of `places`, a tree of the same shape."""
    # An exact type: a NumPy scalar is a number and must stay one.
    if type(places) is np.ndarray:
        np.copyto(places, tree)
        return places
    if not isinstance(tree, tuple):
        return tree
    children = [copied_into(place, child) for place, child in zip(places, tree)]
    return tree._make(children) if hasattr(tree, "_make") else tuple(children)


def as_iterate(iterate: Any, sent: Sequence[str], values: Sequence[Any]) -> Any:
    """Return an iterate like this one with the given values of the fields `sent`; the others are None."""
    fields = iterate._fields
    if tuple(sent) == fields:
        return iterate._make(values)
    arrived = dict(zip(sent, values))
    return iterate._make([arrived.get(name) for name in fields])


class View:
    """A worker's own copy of the fields `sent` of the iterate; the others are None."""

    def __init__(self, iterate: Any, sent: Sequence[str]) -> None:
        values = [copied(getattr(iterate, name)) for name in sent]
        self._state = as_iterate(iterate, sent, values)
        # Positions instead of names: `take` runs at every step of every worker.
        self._at = [iterate._fields.index(name) for name in sent]
        self._all_arrays = all(type(self._state[i]) is np.ndarray for i in self._at)

    def take(self, values: Sequence[Any]) -> Any:
        """Return the iterate with these values in the fields that are sent; valid until the next call."""
        # The common case, at every step: no new tuple is made.
        if self._all_arrays:
            for i, value in zip(self._at, values):
                np.copyto(self._state[i], value)
            return self._state
        children = list(self._state)
        for i, value in zip(self._at, values):
            children[i] = copied_into(self._state[i], value)
        return self._state._make(children)
