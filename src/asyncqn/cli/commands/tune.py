"""`asyncqn tune ALGORITHM`: parameters by simulated time to a goal, by a budget that grows with them."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from asyncqn.cli.output import Json, Output, Quiet

if TYPE_CHECKING:
    from asyncqn.paper.movielens import Timing
    from asyncqn.tuning.problem import TuningProblem
    from asyncqn.tuning.tuner import Study

FACTORIZATION = "matrix-factorization"


class Asked(NamedTuple):
    """What is tuned, where the study is kept, and the words for it."""

    problem: TuningProblem
    path: Path
    options: str
    goal: str
    unit: str


def register(app: typer.Typer) -> None:
    """Add the command `tune`."""

    @app.command()
    def tune(
        algorithm: Annotated[
            str,
            typer.Argument(
                help="as-lbfgs, mb-lbfgs, momentum-lbfgs, async-sgd, delay-adaptive-sgd, ringmaster, rennala "
                "or async-saga."
            ),
        ],
        problem: Annotated[
            str, typer.Option(help="linear-gaussian, another problem of Fig. 2, or matrix-factorization.")
        ] = "linear-gaussian",
        workers: Annotated[
            int | None, typer.Option(help="Simulated workers W. Default: 40, or 10 for ratings.")
        ] = None,
        variance: Annotated[
            float, typer.Option(help="Linear Gaussian: sigma_w^2 of the workers' times.")
        ] = 200.0,
        epsilon: Annotated[float, typer.Option(help="Linear Gaussian: relative error to reach.")] = 0.05,
        ratings: Annotated[
            str, typer.Option(help="Factorization: a stored or synthetic set; `asyncqn data list`.")
        ] = "ml-1m",
        rmse: Annotated[float, typer.Option(help="Factorization: RMSE on these ratings to reach.")] = 0.91,
        limit: Annotated[
            float, typer.Option(help="Factorization: simulated seconds after which a run is too slow.")
        ] = 0.5,
        rho: Annotated[
            float | None, typer.Option(help="Factorization: keep rho at this value; else it is searched.")
        ] = None,
        timing: Annotated[
            str | None,
            typer.Option(help="Factorization: seconds of STEP,COMMIT,MESSAGES. Default: measured here."),
        ] = None,
        serial: Annotated[
            float,
            typer.Option(help="Linear Gaussian: of a message's 10 units, what occupies the master."),
        ] = 0.0,
        budget: Annotated[
            int | None, typer.Option(help="Trials in all. Default: 20 for each number that is searched.")
        ] = None,
        seeds: Annotated[int, typer.Option(help="Runs per trial.")] = 3,
        seed: Annotated[int, typer.Option(help="Seed of the study.")] = 0,
        processes: Annotated[int, typer.Option(help="Processes.")] = 2,
        output: Annotated[
            Path | None, typer.Option(help="Study file; goes on from it. Default: runs/tuned/NAME.json")
        ] = None,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Search parameters by simulated time to a goal; an interrupted study goes on from its file."""
        from asyncqn.errors import require
        from asyncqn.tuning.problem import known_algorithm
        from asyncqn.tuning.tuner import tune

        known_algorithm(algorithm)
        counts = {"workers": 1 if workers is None else workers, "seeds": seeds, "processes": processes}
        for name, count in counts.items():
            require(count >= 1, f"--{name} must be at least 1, not {count}.")
        for name, number in {"epsilon": epsilon, "rmse": rmse, "limit": limit}.items():
            require(0.0 < number < math.inf, f"--{name} must be positive and finite, not {number}.")
        require(0.0 <= variance < math.inf, f"--variance must be finite and not negative, not {variance}.")
        require(output is None or not output.is_dir(), f"{output} is a folder: name a file with --output.")
        if problem == FACTORIZATION:
            W, runs = workers or 10, (seeds, seed)
            asked = _ratings(algorithm, ratings, W, (rmse, limit, rho), timing, runs, output)
        else:
            require(0.0 <= serial <= 10.0, f"--serial must lie between 0 and 10, not {serial}.")
            times = (variance, serial)
            asked = _gaussian(algorithm, problem, workers or 40, times, epsilon, (seeds, seed), output)
        budget = asked.problem.budget if budget is None else budget
        command = (
            f"asyncqn tune {algorithm} --problem {problem} {asked.options} --budget {budget} "
            f"--seeds {seeds} --seed {seed}"
        )
        out = Output(json, quiet)
        with out.progress(f"tuning {algorithm}", budget) as tell:
            study = tune(
                asked.problem, budget, path=asked.path, command=command, processes=processes, tell=tell
            )
        _show(out, study, asked, command)


def _gaussian(
    algorithm: str,
    problem: str,
    W: int,
    times: tuple[float, float],
    epsilon: float,
    runs: tuple[int, int],
    output: Path | None,
) -> Asked:
    from asyncqn.errors import require
    from asyncqn.paper.problems import PROBLEMS
    from asyncqn.paper.studies import GaussianProblem

    known = (*PROBLEMS, FACTORIZATION)
    require(problem in known, f"there is no problem '{problem}' to tune; there are {', '.join(known)}.")
    (variance, serial), (seeds, seed) = times, runs
    tuned = GaussianProblem(
        algorithm=algorithm,
        workers=W,
        variance=variance,
        problem=PROBLEMS[problem],
        epsilon=epsilon,
        serial=serial,
        seeds=seeds,
        seed=seed,
    )
    link = f"-b{serial:g}" if serial else ""
    path = output or Path("runs/tuned") / f"{algorithm}-{problem}-W{W}-var{variance:g}{link}.json"
    options = f"--workers {W} --variance {variance:g} --epsilon {epsilon:g}"
    options += f" --serial {serial:g}" if serial else ""
    return Asked(tuned, path, options, f"error {epsilon:g}", "units")


def _ratings(
    algorithm: str,
    ratings: str,
    W: int,
    goal: tuple[float, float, float | None],
    timing: str | None,
    runs: tuple[int, int],
    output: Path | None,
) -> Asked:
    from asyncqn.paper.studies import RatingsProblem

    (rmse, limit, rho), (seeds, seed) = goal, runs
    kept = "" if rho is None else f"-rho{rho:g}"
    path = output or Path("runs/tuned") / f"{algorithm}-{ratings}-W{W}{kept}.json"
    times = _timing(algorithm, ratings, timing, path)
    tuned = RatingsProblem(
        algorithm=algorithm,
        ratings=ratings,
        **times._asdict(),
        workers=W,
        rmse=rmse,
        limit=limit,
        rho=rho,
        seeds=seeds,
        seed=seed,
    )
    options = f"--ratings {ratings} --workers {W} --rmse {rmse:g} --limit {limit:g}"
    options += f" --timing {','.join(f'{t:g}' for t in times)}"
    options += "" if rho is None else f" --rho {rho:g}"
    return Asked(tuned, path, options, f"RMSE {rmse:g}", "simulated seconds")


def _timing(algorithm: str, ratings: str, given: str | None, path: Path) -> Timing:
    """The times as given; else those of the study that goes on; else measured, to three digits."""
    from asyncqn.errors import BadInput
    from asyncqn.paper.movielens import Timing, measure_timing, parameters, potential, size_of
    from asyncqn.tuning.tuner import load_study

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
    best = study.best
    if best is None:
        out.show(f"no trial reached {asked.goal} on every seed.")
    else:
        for name, value in best["parameters"].items():
            out.show(f"{name:>14} = {value:.4g}" if isinstance(value, float) else f"{name:>14} = {value}")
        times = best["times"]
        out.show(f"time to {asked.goal}: median {median(times):.4g} {asked.unit} over {len(times)} runs")
    out.show(f"{len(study.trials)} trials are in {asked.path}")
    words = ("complete", "pruned", "too slow", "diverged")
    counts = {word: sum(trial["status"] == word for trial in study.trials) for word in words}
    found = {"algorithm": asked.problem.algorithm, "best": best, "trials": counts, "file": str(asked.path)}
    out.result({**found, "command": command})
