"""`asyncqn tune ALGORITHM`: parameters by simulated time to a goal, with a stated budget."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from asyncqn.cli.output import Json, Output, Quiet

if TYPE_CHECKING:
    from asyncqn.paper.movielens import Timing

FACTORIZATION = "matrix-factorization"


def register(app: typer.Typer) -> None:
    """Add the command `tune`."""

    @app.command()
    def tune(
        algorithm: Annotated[str, typer.Argument(help="as-lbfgs, mb-lbfgs or async-sgd.")],
        problem: Annotated[
            str, typer.Option(help="linear-gaussian, linear-gaussian-stiff or matrix-factorization.")
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
        budget: Annotated[int, typer.Option(help="Trials in all, the same for every algorithm.")] = 60,
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
        from asyncqn.paper.problems import PROBLEMS
        from asyncqn.tuning.problems import Question, RatingsQuestion, known_algorithm
        from asyncqn.tuning.tuner import tune

        out = Output(json, quiet)
        known_algorithm(algorithm)
        known = (*PROBLEMS, FACTORIZATION)
        require(problem in known, f"there is no problem '{problem}' to tune; there are {', '.join(known)}.")
        for name, count in (
            ("workers", 1 if workers is None else workers),
            ("seeds", seeds),
            ("processes", processes),
        ):
            require(count >= 1, f"--{name} must be at least 1, not {count}.")
        for name, number in (("epsilon", epsilon), ("rmse", rmse), ("limit", limit)):
            require(0.0 < number < math.inf, f"--{name} must be positive and finite, not {number}.")
        require(0.0 <= variance < math.inf, f"--variance must be finite and not negative, not {variance}.")
        require(output is None or not output.is_dir(), f"{output} is a folder: name a file with --output.")
        command = f"asyncqn tune {algorithm} --problem {problem}"
        question: Question | RatingsQuestion
        if problem == FACTORIZATION:
            W = 10 if workers is None else workers
            kept = "" if rho is None else f"-rho{rho:g}"
            path = output or Path("runs/tuned") / f"{algorithm}-{ratings}-W{W}{kept}.json"
            times = _timing(algorithm, ratings, timing, path)
            question = RatingsQuestion(
                algorithm, ratings, *times, workers=W, rmse=rmse, limit=limit, rho=rho, seeds=seeds, seed=seed
            )
            command += (
                f" --ratings {ratings} --workers {W} --budget {budget} --rmse {rmse:g} --limit {limit:g}"
            )
            command += f" --timing {','.join(f'{t:g}' for t in times)}"
            command += "" if rho is None else f" --rho {rho:g}"
            goal, unit = f"RMSE {rmse:g}", "simulated seconds"
        else:
            W = 40 if workers is None else workers
            path = output or Path("runs/tuned") / f"{algorithm}-{problem}-W{W}-var{variance:g}.json"
            question = Question(algorithm, W, variance, PROBLEMS[problem], epsilon, seeds=seeds, seed=seed)
            command += f" --workers {W} --variance {variance:g} --budget {budget} --epsilon {epsilon:g}"
            goal, unit = f"error {epsilon:g}", "units"
        command += f" --seeds {seeds} --seed {seed}"
        with out.progress(f"tuning {algorithm}", budget) as tell:
            study = tune(question, budget, path=path, command=command, processes=processes, tell=tell)
        best = study.best
        if best is None:
            out.show(f"no trial reached {goal} on every seed.")
        else:
            for name, value in best["parameters"].items():
                out.show(f"{name:>14} = {value:.4g}" if isinstance(value, float) else f"{name:>14} = {value}")
            out.show(f"time to {goal}: median {median(best['times']):.4g} {unit} over {seeds} runs")
        out.show(f"{len(study.trials)} trials are in {path}")
        counts = {s: sum(t["status"] == s for t in study.trials)
                  for s in ("complete", "pruned", "too slow", "diverged")}  # fmt: skip
        found = {"algorithm": algorithm, "best": best, "trials": counts, "file": str(path)}
        out.result({**found, "command": command})


def _timing(algorithm: str, ratings: str, given: str | None, path: Path) -> Timing:
    """The times as given; else those of the study that goes on; else measured, to three digits."""
    from asyncqn.errors import BadInput
    from asyncqn.paper.movielens import Timing, measure_timing, parameters, potential, size_of
    from asyncqn.tuning.problems import RatingsQuestion
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
        question = load_study(path).question
        if isinstance(question, RatingsQuestion):
            return question.timing
    first = parameters(size_of(ratings), potential(ratings).n_data)[algorithm]
    return Timing(*(float(f"{t:.3g}") for t in measure_timing(ratings, algorithm, first)))
