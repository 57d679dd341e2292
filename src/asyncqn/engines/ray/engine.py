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
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any

from asyncqn.core.request import Request
from asyncqn.engines.clock import Clock
from asyncqn.engines.elastic import ElasticEngine, StartTimeout
from asyncqn.engines.interrupts import listening_for_interrupts
from asyncqn.engines.ray.master import RayMaster
from asyncqn.engines.worker_setup import WorkerSetup
from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.parameters import Workers, parameter
from asyncqn.runs.run import Run
from asyncqn.types import Array

_LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Ray takes 127.0.0.1 for the address by which other machines reach this one, except on a desktop system."""
_SWITCHED_OFF = ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")
"""A local Ray reports to nobody, and does not warn of a change that concerns accelerators."""
MESSAGE_SECONDS = 5e-3
SECONDS_PER_NUMBER = 2e-8
"""Seconds of a message to an actor and back on one machine, and seconds on top for every number of theta.
Both are assumed, from rates of about 200 updates per second that were measured on one machine."""


@dataclass(frozen=True)
class Ray(ElasticEngine):
    """Run an algorithm on Ray actors; `add` starts more of them during a run.

    Parameters
    ----------
    workers : int
        Number of workers, W.
    address : str, optional
        Address of an existing Ray cluster, "auto" or "host:port". By default a local Ray is started on the
        loopback interface, unless this process is connected to one already.
    restarts : int, default 10
        How many lost workers are replaced; a new worker begins with an empty memory.
    cpus : float, optional
        CPUs of each worker in Ray's accounting. By default the workers share half of the cluster, at most
        one CPU each.
    start_timeout : float, default 120.0
        Seconds within which the workers must be ready.
    timing_model, time_unit, max_staleness, give_up_after
        Options of every real engine; see `asyncqn.engines.real.RealEngine`.

    Examples
    --------
    >>> import asyncqn as aq
    >>> problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    >>> run = aq.minimize(problem, engine=aq.Ray(workers=2))
    >>> run.status
    'converged'
    """

    workers: Workers
    address: str | None = None
    restarts: Annotated[int, parameter(ge=0)] = 10
    cpus: Annotated[float | None, parameter(ge=0.0)] = None
    start_timeout: StartTimeout = 120.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.cpus is None or self.cpus <= 1 or self.cpus % 1 == 0,
            f"cpus must be a fraction, or a whole number of CPUs, not {self.cpus!r}.",
        )
        require(
            self.address is None or not self.address.startswith("ray://"),
            "the Ray engine cannot work through a Ray client: run it on a machine of the cluster, with "
            "address 'auto'.",
        )
        self.check_options(self.workers)

    def minimize(self, request: Request) -> Run:
        ray = _ray()
        clock = Clock(self.time_unit)
        setup = WorkerSetup.of(request, self)
        state = self.coordinator(request, "ray", self.workers, clock)
        with (
            _connected(ray, self.address),
            listening_for_interrupts(request.checkpoints),
        ):
            return self.conduct(RayMaster(ray, state, clock, self, setup))

    def message_seconds(self, theta0: Array) -> float:
        """Return the assumed time of a message: a local Ray takes seconds to start, too long to measure one.

        `python -m benchmarks.run round_trip` measures it on your machine.
        """
        return MESSAGE_SECONDS + SECONDS_PER_NUMBER * theta0.size

    def cpus_of_one(self, ray: Any) -> float:
        """Return the CPUs of a worker: by default few enough for all workers and as many added ones."""
        if self.cpus is not None:
            return self.cpus
        # Half of the cluster stays free, for workers that are added or replaced.
        share = float(ray.cluster_resources().get("CPU", 0.0)) / (2 * self.workers)
        return min(1.0, math.floor(share * 1e4) / 1e4)  # Ray counts in ten-thousandths


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise MissingExtra("ray", "ray", "the Ray engine") from None
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Connect this process to a Ray inside the block: to the present one, or as `address` says."""
    if ray.is_initialized():
        yield
        return
    try:
        with _importable_folder():
            _connect(ray, address)
        yield
    finally:
        ray.shutdown()


def _importable_folder() -> AbstractContextManager[None]:
    """Leave the current folder inside the block, unless this process imports modules from it.

    `ray.init` makes the current folder the first from which actors import, so that a file `socket.py` there
    would be run by every actor.
    """
    folders = {os.path.abspath(folder) for folder in sys.path}
    return nullcontext() if os.getcwd() in folders else chdir(os.sep)


def _connect(ray: Any, address: str | None) -> None:
    """Call `ray.init`, and turn whatever it raises into one sentence; its time-outs have many classes."""
    # What workers print stays in Ray's logs: standard output belongs to the result.
    quietly: Any = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if address is None:
            for name in _SWITCHED_OFF:
                os.environ.setdefault(name, "0")
            ray.init(
                address="local",
                include_dashboard=False,
                _node_ip_address=_LOOPBACK,
                **quietly,
            )
            return
        host, _, port = address.rpartition(":")
        # Ray itself would try for minutes; "auto" is resolved by Ray.
        if port.isdecimal():
            socket.create_connection((host, int(port)), timeout=10.0).close()
        ray.init(address=address, **quietly)
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        if address is None:
            raise BadInput(
                f"a local Ray cannot be started ({reason}): try again when the machine is less busy, or "
                "use the engine threads."
            ) from None
        raise BadInput(
            f"this process cannot connect to a Ray at '{address}' ({reason}): start one with ray start "
            "--head, give this process its token where it wants one, or leave the address out."
        ) from None
