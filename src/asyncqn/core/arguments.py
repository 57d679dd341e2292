"""What `minimize` is given, looked at before anything runs: mistakes are one sentence, not a strange run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from asyncqn.errors import require


def check_objects(
    potential: Any, algorithm: Any = None, engine: Any = None, callback: Any = None, checkpoint: Any = None
) -> None:
    """The objects of a run are what they are taken for."""
    for name in ("dim", "n_data", "value", "grad"):
        require(
            hasattr(potential, name), f"{type(potential).__name__} is not a potential: it has no '{name}'."
        )
    for what, given in (("potential", potential), ("algorithm", algorithm), ("engine", engine)):
        example = getattr(given, "__name__", what)
        require(
            not isinstance(given, type),
            f"the {what} is the class {example}: make an object of it, {example}(...).",
        )
    for name in ("value", "grad"):
        require(callable(getattr(potential, name)), f"'{name}' of the potential must be a method.")
    for name in ("dim", "n_data"):
        count = getattr(potential, name)
        whole = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
        require(
            whole and bool(count >= 1),
            f"the potential has {name} = {count!r}: it must be an integer of at least 1.",
        )
    require(
        algorithm is None or all(hasattr(algorithm, name) for name in ("init", "step", "apply", "check")),
        f"{algorithm!r} is not an algorithm: give an object such as AsyncSGD(h=1e-3, batch=10).",
    )
    require(
        engine is None or (hasattr(engine, "minimize") and hasattr(engine, "workers")),
        f"{engine!r} is not an engine: give an object such as Threads(2).",
    )
    require(callback is None or callable(callback), f"callback must be a function, not {callback!r}.")
    require(
        checkpoint is None or isinstance(checkpoint, (str, os.PathLike)),
        f"checkpoint must be the path of a folder, not {checkpoint!r}.",
    )
