"""`asyncqn tune ALGORITHM [JOB]`: search parameters by simulated time to a goal."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from asyncqn.cli.options import SettingOptions, option
from asyncqn.cli.output import Output
from asyncqn.errors import BadInput, require

if TYPE_CHECKING:
    from asyncqn.lab.tuning.problem import TuningProblem
    from asyncqn.lab.tuning.tuner import Study
    from asyncqn_paper.movielens import Timing

FACTORIZATION = "matrix-factorization"
_GAUSSIAN, _RATINGS = "With --problem linear-gaussian and others", "With --problem matrix-factorization"
FOLDER = Path("runs/tuned")
"""Where studies are kept unless the user names a file."""


class Asked(NamedTuple):
    """What is tuned, where the study is kept, and the words for it."""

    problem: TuningProblem
    path: Path
    options: str
    unit: str = "units"


def _positive(option: str, number: float) -> None:
    require(0.0 < number < math.inf, f"--{option} must be positive and finite, not {number}.")


@dataclass(frozen=True)
class GaussianOptions:
    """What the command line says of a problem of Fig. 2 and its cluster."""

    variance: Annotated[float, option(_GAUSSIAN, "sigma_w^2 of the workers' times.")] = 200.0
    epsilon: Annotated[float, option(_GAUSSIAN, "Relative error to reach.")] = 0.05
    serial: Annotated[float, option(_GAUSSIAN, "Of a message's 10 units, what occupies the master.")] = 0.0

    def check(self) -> None:
        _positive("epsilon", self.epsilon)
        variance, serial = self.variance, self.serial
        require(0.0 <= variance < math.inf, f"--variance must be finite and not negative, not {variance}.")
        require(0.0 <= serial <= 10.0, f"--serial must lie between 0 and 10, not {serial}.")

    def asked(self, algorithm: str, problem: str, W: int, runs: dict[str, int], output: Path | None) -> Asked:
        """The study of an algorithm on a problem of Fig. 2."""
        from asyncqn_paper.problems import PROBLEMS
        from asyncqn_paper.studies import GaussianProblem

        known = (*PROBLEMS, FACTORIZATION)
        require(problem in known, f"there is no problem '{problem}' to tune; there are {', '.join(known)}.")
        tuned = GaussianProblem(
            algorithm=algorithm, workers=W, problem=PROBLEMS[problem], **vars(self), **runs
        )
        link = f"-b{self.serial:g}" if self.serial else ""
        path = output or FOLDER / f"{algorithm}-{problem}-W{W}-var{self.variance:g}{link}.json"
        options = f"--workers {W} --variance {self.variance:g} --epsilon {self.epsilon:g}"
        options += f" --serial {self.serial:g}" if self.serial else ""
        return Asked(tuned, path, options)


@dataclass(frozen=True)
class RatingsOptions:
    """What the command line says of a factorization of ratings and its cluster."""

    ratings: Annotated[str, option(_RATINGS, "A stored or synthetic set; `asyncqn data list`.")] = "ml-1m"
    rmse: Annotated[float, option(_RATINGS, "RMSE on these ratings to reach.")] = 0.91
    limit: Annotated[float, option(_RATINGS, "Simulated seconds after which a run is too slow.")] = 0.5
    rho: Annotated[float | None, option(_RATINGS, "Keep rho at this value; else it is searched.")] = None
    timing: Annotated[
        str | None, option(_RATINGS, "Seconds of STEP,COMMIT,MESSAGES. Default: measured here.")
    ] = None

    def check(self) -> None:
        _positive("rmse", self.rmse)
        _positive("limit", self.limit)

    def asked(self, algorithm: str, W: int, runs: dict[str, int], output: Path | None) -> Asked:
        """The study of an algorithm on ratings."""
        from asyncqn_paper.studies import RatingsProblem

        kept = "" if self.rho is None else f"-rho{self.rho:g}"
        path = output or FOLDER / f"{algorithm}-{self.ratings}-W{W}{kept}.json"
        times = _timing(algorithm, self.ratings, self.timing, path)
        goal: dict[str, Any] = {"rmse": self.rmse, "limit": self.limit, "rho": self.rho}
        tuned = RatingsProblem(
            algorithm=algorithm, ratings=self.ratings, workers=W, **times._asdict(), **goal, **runs
        )
        options = f"--ratings {self.ratings} --workers {W} --rmse {self.rmse:g} --limit {self.limit:g}"
        options += f" --timing {','.join(f'{t:g}' for t in times)}"
        options += "" if self.rho is None else f" --rho {self.rho:g}"
        return Asked(tuned, path, options, "simulated seconds")


def tune(
    algorithm: Annotated[str, typer.Argument(help="One of {tunable}.")],
    options: SettingOptions,
    gaussian: GaussianOptions,
    factorization: RatingsOptions,
    out: Output,
    problem: Annotated[
        str | None,
        typer.Option(help="Instead of a job: linear-gaussian, another of Fig. 2, or matrix-factorization."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Trials in all. Default: 20 for each number that is searched.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs per trial.")] = 3,
    processes: Annotated[int, typer.Option(help="Processes.")] = 2,
    output: Annotated[
        Path | None, typer.Option(help="Study file; goes on from it. Default: runs/tuned/NAME.json")
    ] = None,
) -> None:
    """Search parameters by simulated time to a goal; an interrupted study goes on from its file.

    Your own job: its problem and cluster, --target and --metric for the goal, --max-time for what is too
    slow; parameters given with -p are kept, all others are searched. Or a --problem of the paper.
    """
    from asyncqn.lab.tuning.problem import known_algorithm
    from asyncqn.lab.tuning.tuner import tune

    known_algorithm(algorithm)
    for name, count in {"workers": options.workers, "seeds": seeds, "processes": processes}.items():
        require(count is None or count >= 1, f"--{name} must be at least 1, not {count}.")
    gaussian.check()
    factorization.check()
    require(output is None or not output.is_dir(), f"{output} is a folder: name a file with --output.")
    runs = {"seeds": seeds, "seed": options.seed or 0}
    said = _said(options)
    if problem is None and said:
        asked = _job(algorithm, options, runs, output, said)
    else:
        problem, W = problem or "linear-gaussian", options.workers
        require(not said, f"{next(iter(said), '')} says something of a job: leave it out, or --problem.")
        if problem == FACTORIZATION:
            asked = factorization.asked(algorithm, W or 10, runs, output)
        else:
            asked = gaussian.asked(algorithm, problem, W or 40, runs, output)
    budget = asked.problem.budget if budget is None else budget
    which = "" if problem is None else f"--problem {problem} "
    command = f"asyncqn tune {algorithm} {which}{asked.options} --budget {budget} --seeds {seeds} "
    command += f"--seed {runs['seed']}"
    with out.progress(f"tuning {algorithm}", budget) as tell:
        study = tune(asked.problem, budget, path=asked.path, command=command, processes=processes, tell=tell)
    _show(out, study, asked, command)


_ALIKE = ("workers", "seed")
"""Options that a job and a problem of the paper have both."""


def _said(options: SettingOptions) -> dict[str, Any]:
    """What is said of a job, by the words of the command line."""
    return {
        "JOB" if f.name == "job" else f"--{f.name.replace('_', '-')}": value
        for f in fields(options)
        if (value := getattr(options, f.name)) != f.default and f.name not in _ALIKE
    }


def _job(
    algorithm: str, options: SettingOptions, runs: dict[str, int], output: Path | None, said: dict[str, Any]
) -> Asked:
    """The study of an algorithm on a job."""
    from asyncqn.cli.tuned_job import job_problem

    problem = job_problem(algorithm, options, runs)
    path = output or FOLDER / f"{algorithm}-{options.job.stem if options.job else 'job'}.json"
    words: list[str] = []
    for name, value in (said | ({"--workers": options.workers} if options.workers else {})).items():
        values = value if isinstance(value, list) else [value]
        words += [
            w for v in values for w in (() if name == "JOB" else (name,)) + (() if v is True else (str(v),))
        ]
    return Asked(problem, path, shlex.join(words))


def _timing(algorithm: str, ratings: str, given: str | None, path: Path) -> Timing:
    """The times as given; else those of the study that goes on; else measured, to three digits."""
    from asyncqn.lab.tuning.tuner import load_study
    from asyncqn_paper.movielens import Timing, measure_timing, parameters, potential, size_of

    if given is not None:
        try:
            step, commit, messages = (float(word) for word in given.split(","))
        except ValueError:
            raise BadInput(
                f"--timing must be three times in seconds, such as 6e-4,2e-5,1e-3, not '{given}'."
            ) from None
        return Timing(step, commit, messages)
    if path.exists():
        stored = load_study(path).problem
        if set(Timing._fields) <= set(stored):
            return Timing(*(float(stored[name]) for name in Timing._fields))
    table = parameters(size_of(ratings), potential(ratings).n_data)
    if algorithm not in table:
        raise BadInput(f"ratings are tuned for {', '.join(table)}, not for {algorithm}.")
    return Timing(*(float(f"{t:.3g}") for t in measure_timing(ratings, algorithm, table[algorithm])))


def _show(out: Output, study: Study, asked: Asked, command: str) -> None:
    best, (metric, target) = study.best, asked.problem.goal
    if best is None:
        out.show(f"no trial reached {metric} {target:g} on every seed.")
    else:
        for name, value in best["parameters"].items():
            out.show(f"{name:>14} = {value:.4g}" if isinstance(value, float) else f"{name:>14} = {value}")
        times = best["times"]
        needed = f"median {median(times):.4g} {asked.unit} over {len(times)} runs"
        out.show(f"time to {metric} {target:g}: {needed}")
    out.show(f"{len(study.trials)} trials are in {asked.path}")
    words = ("complete", "pruned", "too slow", "diverged")
    counts = {word: sum(trial["status"] == word for trial in study.trials) for word in words}
    found = {"algorithm": asked.problem.algorithm, "best": best, "trials": counts, "file": str(asked.path)}
    out.result({**found, "command": command})
