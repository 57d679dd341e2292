"""Whether an algorithm, a problem and a number of workers fit together, checked before anything runs."""

from __future__ import annotations

from asyncqn.errors import require
from asyncqn.types import Algorithm, Problem, extra


def offers(problem: Problem, names: tuple[str, ...]) -> bool:
    """Return whether a problem has all of these extras."""
    return all(extra(problem, name) is not None for name in names)


def check_fit(algorithm: Algorithm, problem: Problem, workers: int | None = None) -> None:
    """Raise `BadInput` where the problem lacks an extra that the algorithm requires, where there are more
    workers than it can use, or where its own `check` says no."""
    name = type(algorithm).__name__
    lacking = [need for need in extra(algorithm, "requires") or () if not offers(problem, (need,))]
    require(
        not lacking,
        f"{name} with these parameters needs a problem with {' and '.join(lacking)}, which "
        f"{type(problem).__name__} does not have: add it, or choose other parameters or another algorithm.",
    )
    most = extra(algorithm, "max_workers")
    require(
        most is None or workers is None or workers <= most,
        f"{name} runs on at most {most} worker{'s' * (most != 1)}, not on {workers}.",
    )
    algorithm.check(problem)
