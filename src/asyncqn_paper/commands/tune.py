"""`python -m asyncqn_paper tune`: search parameters on a problem of the paper by simulated time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli import STUDIES, Output, StudyRequest, check_study, option, run_study
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from asyncqn_paper.movielens import Timing

COMMAND = "python -m asyncqn_paper tune"
FACTORIZATION = "matrix-factorization"
_GAUSSIAN, _RATINGS = "With --problem linear-gaussian and others", "With --problem matrix-factorization"


def _positive(option: str, number: float) -> None:
    require(0.0 < number < math.inf, f"--{option} must be positive and finite, not {number}.")


@dataclass(frozen=True)
class GaussianOptions:
    """The options of a problem of Fig. 2 and of its cluster."""

    variance: Annotated[float, option(_GAUSSIAN, "sigma_w^2 of the workers' times.")] = 200.0
    epsilon: Annotated[float, option(_GAUSSIAN, "Relative error to reach.")] = 0.05

    def check(self) -> None:
        _positive("epsilon", self.epsilon)
        variance = self.variance
        require(0.0 <= variance < math.inf, f"--variance must be finite and not negative, not {variance}.")

    def study(
        self, algorithm: str, problem: str, W: int, runs: dict[str, int], output: Path | None
    ) -> StudyRequest:
        """Return the study of an algorithm on a problem of Fig. 2."""
        from asyncqn_paper.problems import PROBLEMS
        from asyncqn_paper.studies import GaussianProblem

        known = (*PROBLEMS, FACTORIZATION)
        # `tune` handles FACTORIZATION before it comes here; it is listed because the user may have meant it.
        require(problem in known, f"there is no problem '{problem}' to tune; there are {', '.join(known)}.")
        given: dict[str, Any] = {**vars(self), **runs}
        tuned = GaussianProblem(algorithm=algorithm, workers=W, problem=PROBLEMS[problem], **given)
        path = output or STUDIES / f"{algorithm}-{problem}-W{W}-var{self.variance:g}.json"
        options = f"--workers {W} --variance {self.variance:g} --epsilon {self.epsilon:g}"
        return StudyRequest(tuned, path, f"{COMMAND} {algorithm} --problem {problem} {options}")


@dataclass(frozen=True)
class RatingsOptions:
    """The options of a factorization of ratings and of its cluster."""

    ratings: Annotated[
        str, option(_RATINGS, "A stored or synthetic set; `asyncqn recommender data list`.")
    ] = "ml-1m"
    rmse: Annotated[float, option(_RATINGS, "RMSE on these ratings to reach.")] = 0.91
    limit: Annotated[float, option(_RATINGS, "Simulated seconds after which a run is too slow.")] = 0.5
    rho: Annotated[float | None, option(_RATINGS, "Fix rho at this value.  [it is searched]")] = None
    timing: Annotated[
        str | None, option(_RATINGS, "Seconds of STEP,COMMIT,MESSAGES.  [measured on this machine]")
    ] = None

    def check(self) -> None:
        _positive("rmse", self.rmse)
        _positive("limit", self.limit)

    def study(self, algorithm: str, W: int, runs: dict[str, int], output: Path | None) -> StudyRequest:
        """Return the study of an algorithm on ratings."""
        from asyncqn_paper.studies import RatingsProblem

        kept = "" if self.rho is None else f"-rho{self.rho:g}"
        path = output or STUDIES / f"{algorithm}-{self.ratings}-W{W}{kept}.json"
        times = _timing(algorithm, self.ratings, self.timing, path)
        goal: dict[str, Any] = {"rmse": self.rmse, "limit": self.limit, "rho": self.rho}
        tuned = RatingsProblem(
            algorithm=algorithm, ratings=self.ratings, workers=W, **times._asdict(), **goal, **runs
        )
        options = f"--ratings {self.ratings} --workers {W} --rmse {self.rmse:g} --limit {self.limit:g}"
        options += f" --timing {','.join(f'{t:g}' for t in times)}"
        options += "" if self.rho is None else f" --rho {self.rho:g}"
        command = f"{COMMAND} {algorithm} --problem {FACTORIZATION} {options}"
        return StudyRequest(tuned, path, command, "simulated seconds")


def tune(
    algorithm: Annotated[str, typer.Argument(help="One of {tunable}.")],
    gaussian: GaussianOptions,
    factorization: RatingsOptions,
    out: Output,
    problem: Annotated[
        str, typer.Option(help="linear-gaussian, another of Fig. 2, or matrix-factorization.")
    ] = "linear-gaussian",
    workers: Annotated[
        int | None, typer.Option(help="Number of simulated workers.  [40; with ratings 10]")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Number of trials.  [20 for each parameter that is searched]")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs per trial.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="First seed of the runs.")] = 0,
    processes: Annotated[int, typer.Option(help="Number of processes that run trials.")] = 2,
    output: Annotated[
        Path | None,
        typer.Option(help="File of the study, which is continued if it exists.  [runs/tuned/NAME.json]"),
    ] = None,
) -> None:
    """Search parameters by simulated time to a goal; an interrupted study continues from its file."""
    from asyncqn.lab import known_algorithm

    known_algorithm(algorithm)
    check_study(workers, seeds, processes, output)
    gaussian.check()
    factorization.check()
    runs = {"seeds": seeds, "seed": seed}
    if problem == FACTORIZATION:
        request = factorization.study(algorithm, workers or 10, runs, output)
    else:
        request = gaussian.study(algorithm, problem, workers or 40, runs, output)
    run_study(request, out, budget=budget, processes=processes)


def _timing(algorithm: str, ratings: str, given: str | None, path: Path) -> Timing:
    """Return the given times, or those of the study that continues, or measured times with three digits."""
    from asyncqn.lab import load_study
    from asyncqn_paper.movielens import Timing, measure_timing, model, parameters, size_of

    if given is not None:
        try:
            step, commit, messages = (float(word) for word in given.split(","))
        except ValueError:
            raise BadInput(
                f"--timing must be three times in seconds, such as 6e-4,2e-5,1e-3, not '{given}'."
            ) from None
        return Timing(step, commit, messages)
    # A study that continues keeps its clock: trials timed on two machines cannot be compared.
    if path.exists():
        stored = load_study(path).problem
        if set(Timing._fields) <= set(stored):
            return Timing(*(float(stored[name]) for name in Timing._fields))
    table = parameters(size_of(ratings), model(ratings).n_data)
    if algorithm not in table:
        raise BadInput(f"ratings are tuned for {', '.join(table)}, not for {algorithm}: choose one of these.")
    # Three digits, so that the command that is printed repeats the study exactly.
    return Timing(*(float(f"{t:.3g}") for t in measure_timing(ratings, algorithm, table[algorithm])))
