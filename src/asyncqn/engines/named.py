"""Engines by name, each imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from asyncqn.core.cluster import Cluster
from asyncqn.core.plain import from_plain
from asyncqn.errors import BadInput
from asyncqn.types import Engine

ENGINES = {
    "simulator": "asyncqn.engines.simulator:Simulator",
    "threads": "asyncqn.engines.threads:Threads",
    "mpi": "asyncqn.engines.mpi.engine:MPI",
    "ray": "asyncqn.engines.ray.engine:Ray",
}
"""Where the class of each engine lives; a run's manifest names its engine by the key."""

_RECORDED = ("kind", "workers_lost", "workers_joined", "resumed_from")
"""What a manifest says of an engine beside its parameters."""


def engine_class(kind: str) -> type:
    """The class of an engine, by name."""
    if kind not in ENGINES:
        raise BadInput(f"there is no engine '{kind}'; there are {', '.join(ENGINES)}.")
    module, _, name = ENGINES[kind].partition(":")
    cls: type = getattr(import_module(module), name)
    return cls


def engine_from_plain(plain: Mapping[str, Any]) -> Engine:
    """The engine that a manifest describes."""
    cls = engine_class(plain["kind"])
    values = {name: value for name, value in plain.items() if name not in _RECORDED}
    for name in ("slow", "cluster"):
        if values.get(name) is not None:
            values[name] = from_plain(Cluster, values[name], "the cluster of the run")
    if plain["kind"] in ("simulator", "mpi"):  # the cluster, or the launcher, says how many
        del values["workers"]
    engine: Engine = from_plain(cls, values, f"engine '{plain['kind']}'")
    return engine
