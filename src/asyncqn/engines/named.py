"""Engines by name, each imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asyncqn.errors import BadInput
from asyncqn.parameters import from_json
from asyncqn.registry import Registry
from asyncqn.types import Engine

ENGINES = Registry(
    {
        "simulator": "asyncqn.engines.simulator:Simulator",
        "threads": "asyncqn.engines.threads:Threads",
        "processes": "asyncqn.engines.processes.engine:Processes",
        "mpi": "asyncqn.engines.mpi.engine:MPI",
        "ray": "asyncqn.engines.ray.engine:Ray",
    }
)
"""Every engine; a run's manifest names its engine by the key."""
REAL_ENGINES = tuple(kind for kind in ENGINES if kind != "simulator")

_RECORDED = (
    "measured",
    "what_if",
    "kind",
    "workers_lost",
    "workers_silent",
    "workers_joined",
    "resumed_from",
)
"""Entries of an engine's manifest that are not parameters of its constructor."""


def engine_class(kind: str) -> type:
    """Return the class of an engine, by name."""
    if kind not in ENGINES:
        raise BadInput(f"there is no engine '{kind}'; there are {', '.join(ENGINES)}.")
    cls: type = ENGINES[kind]
    return cls


def engine_from_json(document: Mapping[str, Any]) -> Engine:
    """Return the engine that a manifest describes."""
    cls = engine_class(document["kind"])
    values = {name: value for name, value in document.items() if name not in _RECORDED}
    # The cluster, or the launcher, says how many workers there are.
    if document["kind"] in ("simulator", "mpi"):
        del values["workers"]
    engine: Engine = from_json(cls, values, f"engine '{document['kind']}'")
    return engine
