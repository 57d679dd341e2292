"""Ray: workers are actors, on a local Ray that is started for the run or on an existing cluster.

This file alone imports ray.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from asyncqn.core.checkpoint import Checkpoints
from asyncqn.core.cluster import Cluster
from asyncqn.core.run import Run
from asyncqn.core.serialise import to_json
from asyncqn.core.stopping import TO_THE_END, Stopping
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.master_state import Core
from asyncqn.engines.ray.master import Office
from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.types import Algorithm, Array, Callback, Potential, extra

_LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Ray takes 127.0.0.1 for the address by which other machines reach this one, except on a desktop system."""
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""A local Ray reports to nobody, and does not warn of a change that concerns accelerators."""


@dataclass(frozen=True)
class Ray:
    """Run an algorithm on Ray actors; `add` more of them while it runs.

    workers: W; address: of an existing cluster ("auto", or host:port), None starts a local Ray on the
    loopback interface, unless this process is connected to one already; restarts: how many lost
    workers are replaced, each by a new worker with an empty memory; cpus: of each worker, for Ray's
    accounting (None: half of the cluster is shared out among them, at most one each); patience:
    seconds within which workers must be ready; slow, time_unit, max_staleness and silence: as for
    `Threads` (slow without deaths and joins).
    """

    workers: int
    address: str | None = None
    restarts: int = 10
    cpus: float | None = None
    patience: float = 120.0
    slow: Cluster | None = None
    time_unit: float = 1.0
    max_staleness: int | None = None
    silence: float = math.inf
    _running: list[Office] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        W = self.workers
        require(_count(W) and W >= 1, f"Ray needs at least one worker: workers = {W!r}.")
        require(
            _count(self.restarts) and self.restarts >= 0,
            f"restarts must be an integer that is not negative, not {self.restarts!r}.",
        )
        require(
            self.cpus is None or 0 <= self.cpus <= 1 or (self.cpus < math.inf and self.cpus % 1 == 0),
            f"cpus must be a fraction, or a whole number of CPUs, not {self.cpus!r}.",
        )
        require(0.0 < self.patience < math.inf, f"patience must be positive, not {self.patience!r}.")
        require(
            self.address is None or not self.address.startswith("ray://"),
            "the Ray engine cannot work through a Ray client: run it on a machine of the cluster, with "
            "address 'auto'.",
        )
        require(
            self.slow is None or (self.slow.workers == W and not (self.slow.deaths or self.slow.joins)),
            f"under Ray slow must describe {W} workers, without deaths or joins.",
        )
        require(0.0 < self.time_unit < math.inf, f"time_unit must be positive, not {self.time_unit!r}.")
        require(
            self.max_staleness is None or self.max_staleness >= 0,
            f"max_staleness must not be negative, not {self.max_staleness!r}.",
        )
        require(self.silence > 0.0, f"silence must be positive, not {self.silence!r}.")

    def add(self, n: int = 1) -> None:
        """Start n more workers in the run that is under way: from its callback, or from another thread."""
        require(_count(n) and n >= 1, f"at least one worker can be added, not {n!r}.")
        require(bool(self._running), "workers can be added only while a run is under way.")
        office = self._running[-1]
        require(
            extra(office.core.algorithm, "max_workers") is None,
            f"{type(office.core.algorithm).__name__} limits its workers: none can be added.",
        )
        office.wanted.put(n)

    def minimize(
        self,
        potential: Potential,
        algorithm: Algorithm,
        *,
        theta0: Array,
        commits: int,
        seed: int,
        evaluate: int,
        callback: Callback | None,
        stopping: Stopping = TO_THE_END,
        checkpoints: Checkpoints | None = None,
    ) -> Run:
        ray, slow = _ray(), self.slow
        office: Office | None = None
        core = Core(
            potential, algorithm, theta0=theta0, commits=commits, seed=seed, evaluate=evaluate,
            stopping=stopping,
            workers=self.workers, callback=callback,
            pause=lambda: office.clock.paused(), max_staleness=self.max_staleness,  # type: ignore[union-attr]
            reach=slow.message / 2 if slow is not None else 0.0,
            service=slow.master if slow is not None else 0.0,
            due=checkpoints.due if checkpoints is not None else None,
            start=checkpoints.start if checkpoints is not None else None,
            engine={"kind": "ray", **to_json(self)},
        )  # fmt: skip
        if checkpoints is not None:
            checkpoints.prepare()
        with _connected(ray, self.address), listening_for_interrupts(checkpoints):
            office = Office(
                ray, core, cpus=self._cpus(ray), restarts=self.restarts, patience=self.patience,
                silence=self.silence, slow=slow, unit=self.time_unit, checkpoints=checkpoints,
            )  # fmt: skip
            self._running.append(office)
            try:
                return office.run()
            finally:
                self._running.remove(office)

    def _cpus(self, ray: Any) -> float:
        """Of one worker; by default so few that all fit, and as many again that are added."""
        if self.cpus is not None:
            return self.cpus
        share = float(ray.cluster_resources().get("CPU", 0.0)) / (2 * self.workers)
        return min(1.0, math.floor(share * 1e4) / 1e4)  # Ray counts in ten-thousandths


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtra("ray", "ray", "the Ray engine") from None
    return ray


def _knock(address: str) -> None:
    """Raise an OSError where nobody listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10.0).close()


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Inside the block this process is connected to a Ray: as before, or as `address` says."""
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {"address": "local", "_node_ip_address": _LOOPBACK, "include_dashboard": False}
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update({name: value for name, value in _QUIET.items() if before[name] is None})
    try:
        try:
            if address is not None:
                _knock(address)
            # What workers print, and what Ray says when one is lost, stays in Ray's logs: standard
            # output belongs to the result.
            ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
            ray._private.worker._worker_logs_enabled = False
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            if address is None:
                raise BadInput(f"a local Ray cannot be started ({reason}).") from None
            raise BadInput(
                f"this process cannot connect to a Ray at '{address}' ({reason}): start one with ray start "
                "--head, give this process its token where it wants one, or leave the address out."
            ) from None
        yield
    finally:
        ray.shutdown()
        ray._private.worker._worker_logs_enabled = True
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
