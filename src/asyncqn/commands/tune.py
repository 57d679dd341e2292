"""`asyncqn tune ALGORITHM`: parameters by simulated time to epsilon, with a stated budget."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from asyncqn.commands.output import Json, Output, Quiet


def register(app: typer.Typer) -> None:
    """Add the command `tune`."""

    @app.command()
    def tune(
        algorithm: Annotated[str, typer.Argument(help="as-lbfgs, mb-lbfgs or async-sgd.")],
        problem: Annotated[
            str, typer.Option(help="linear-gaussian or linear-gaussian-stiff.")
        ] = "linear-gaussian",
        workers: Annotated[int, typer.Option(help="Simulated workers W.")] = 40,
        variance: Annotated[float, typer.Option(help="sigma_w^2 of the workers' times.")] = 200.0,
        budget: Annotated[int, typer.Option(help="Trials in all, the same for every algorithm.")] = 60,
        epsilon: Annotated[float, typer.Option(help="Relative error to reach.")] = 0.05,
        seeds: Annotated[int, typer.Option(help="Runs per trial.")] = 3,
        seed: Annotated[int, typer.Option(help="Seed of the study.")] = 0,
        processes: Annotated[int, typer.Option(help="Processes.")] = 2,
        output: Annotated[
            Path | None, typer.Option(help="Study file; goes on from it. Default: runs/tuned/NAME.json")
        ] = None,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Search parameters by simulated time to epsilon; an interrupted study goes on from its file."""
        from asyncqn.errors import require
        from asyncqn.experiments.problems import PROBLEMS
        from asyncqn.experiments.tuner import Question, tune

        out = Output(json, quiet)
        require(
            problem in PROBLEMS, f"there is no problem '{problem}' to tune; there are {', '.join(PROBLEMS)}."
        )
        question = Question(
            algorithm, workers, variance, PROBLEMS[problem], epsilon=epsilon, seeds=seeds, seed=seed
        )
        path = output or Path("runs/tuned") / f"{algorithm}-{problem}-W{workers}-var{variance:g}.json"
        command = f"asyncqn tune {algorithm} --problem {problem} --workers {workers} --variance {variance:g} "
        command += f"--budget {budget} --epsilon {epsilon:g} --seeds {seeds} --seed {seed}"
        with out.progress(f"tuning {algorithm}", budget) as tell:
            study = tune(question, budget, path=path, command=command, processes=processes, tell=tell)
        best = study.best
        if best is None:
            out.show(f"no trial reached error {epsilon:g} on every seed.")
        else:
            for name, value in best["parameters"].items():
                out.show(f"{name:>14} = {value:.4g}" if isinstance(value, float) else f"{name:>14} = {value}")
            out.show(f"time to {epsilon:g}: median {median(best['times']):.0f} units over {seeds} runs")
        out.show(f"{len(study.trials)} trials are in {path}")
        counts = {s: sum(t["status"] == s for t in study.trials)
                  for s in ("complete", "pruned", "too slow", "diverged")}  # fmt: skip
        found = {"algorithm": algorithm, "best": best, "trials": counts, "file": str(path)}
        out.result({**found, "command": command})
