"""The check that an algorithm, a problem and a number of workers fit together, made before anything runs.

The three are chosen independently; a mismatch is reported in one sentence here, and not as an error in a
worker.
"""

from __future__ import annotations

from asyncqn.errors import require
from asyncqn.types import Algorithm, Problem, extra


def offers(problem: Problem, names: tuple[str, ...]) -> bool:
    """Return whether a problem has all of these extras."""
    return all(extra(problem, name) is not None for name in names)


def check_fit(
    algorithm: Algorithm, problem: Problem, workers: int | None = None
) -> None:
    """Raise `BadInput` unless the algorithm can run on this problem with this number of workers.

    The problem must have every extra that the algorithm requires, the workers must not exceed its
    `max_workers`, and its own `check` must pass.
    """
    name = type(algorithm).__name__
    # Named one by one, so that the message says what to add.
    lacking = [
        need
        for need in extra(algorithm, "requires") or ()
        if not offers(problem, (need,))
    ]
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
    check = extra(algorithm, "check")
    if check is not None:
        check(problem)
