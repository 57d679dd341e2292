"""While numba compiles one of our kernels: no collection of garbage, and its flags compared quickly.

Both change nothing but the time.  A compiler makes many objects that live until it is done, so looking for
garbage among them finds little.  And numba asks for every expression that it types which flags are in force,
as the key of a table: all keys have the same hash, and two are compared by building two dictionaries of all
options.  Comparing what was set, and stopping at the first difference, gives the same answer.
"""

from __future__ import annotations

import gc
from typing import Any

from numba.core import event, targetconfig

_OURS = "asyncqn."
TargetConfig: Any = targetconfig.TargetConfig


def same_flags(one: Any, other: Any) -> Any:
    """Whether all options of two configurations are equal, set or by default: numba's own answer, sooner."""
    if one is other:
        return True
    if not isinstance(other, TargetConfig):
        return NotImplemented
    if type(one) is not type(other):
        return one.values() == other.values()
    left, right, options = one._values, other._values, one.options
    return left == right or all(
        left.get(name, options[name].default) == right.get(name, options[name].default)
        for name in left.keys() | right.keys()
    )


def hash_of_names(flags: Any) -> int:
    """The hash of the names of all options, which is numba's own, looked up."""
    kind = type(flags)
    if kind not in _HASHES:
        _HASHES[kind] = hash(tuple(sorted(kind.options)))
    return _HASHES[kind]


_HASHES: dict[type, int] = {}
_THEIRS = TargetConfig.__eq__, TargetConfig.__hash__
_KNOWN = "_values" in getattr(TargetConfig, "__slots__", ()) and hash_of_names(TargetConfig()) == hash(
    TargetConfig()
)
"""Whether this numba is as the one that the above was written for; else its own comparison stays."""


class _Quickly(event.Listener):
    """From the beginning of the outermost of our compilations to its end; numba's lock lets one thread in."""

    def __init__(self) -> None:
        self.depth = 0
        self.collects = False

    def on_start(self, event: Any) -> None:
        if not self.depth and not event.data["dispatcher"].py_func.__module__.startswith(_OURS):
            return
        self.depth += 1
        if self.depth == 1:
            self.collects = gc.isenabled()
            gc.disable()
            if _KNOWN:
                TargetConfig.__eq__, TargetConfig.__hash__ = same_flags, hash_of_names

    def on_end(self, event: Any) -> None:
        if not self.depth:
            return
        self.depth -= 1
        if self.depth == 0:
            TargetConfig.__eq__, TargetConfig.__hash__ = _THEIRS
            if self.collects:
                gc.enable()


def compile_quickly() -> None:
    """From now on, in this process."""
    event.register("numba:compile", _Quickly())
