"""One step that is thrown away before the clock starts: compiling kernels costs no time on the axis."""

from __future__ import annotations

from asyncqn.master import Master, compute, learn
from asyncqn.streams import Stream
from asyncqn.types import Algorithm, Array, Asynchronous, Potential, Task


def warm_up(potential: Potential, algorithm: Algorithm, theta0: Array, seed: int) -> None:
    """Compute, learn and commit once, in states of its own: everything is pure, so no trace is left.

    An error is left to the worker that will meet it again and can name its step.
    """
    part = -1 if isinstance(algorithm.pattern, Asynchronous) else 0
    try:
        master = Master(algorithm, potential, theta0, workers=1, last=2, evaluate=2)
        local = algorithm.init_worker(potential, theta0)
        task = Task(0, 0, Stream(seed, 0, 0), part)
        update = compute(algorithm, potential, master.iterate, local, task, master.limit)
        learn(algorithm, potential, master.iterate, local, task, update)
        master.commit([update], 0.0)
    except Exception:
        return
