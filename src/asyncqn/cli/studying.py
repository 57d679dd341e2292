"""Run a search for parameters and print its result; shared by all commands that tune."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from asyncqn.cli.output import Output
from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn.lab.tuning.problem import TuningProblem
    from asyncqn.lab.tuning.tuner import Study

STUDIES = Path("runs/tuned")
"""Folder of studies, unless the user names a file."""


class StudyRequest(NamedTuple):
    """The problem to tune, the file of the study, and how messages name it."""

    problem: TuningProblem
    path: Path
    command: str
    """The command line of the study, without --budget, --seeds and --seed."""
    unit: str = "units"
    """Unit of the times to the goal."""


def check_study(workers: int | None, seeds: int, processes: int, output: Path | None) -> None:
    """Raise `BadInput` for counts below one, or if the study file is a folder."""
    for name, count in {"workers": workers, "seeds": seeds, "processes": processes}.items():
        require(count is None or count >= 1, f"--{name} must be at least 1, not {count}.")
    require(output is None or not output.is_dir(), f"{output} is a folder: name a file with --output.")


def run_study(request: StudyRequest, out: Output, *, budget: int | None, processes: int) -> None:
    """Tune, continuing from the study file if there is one, and show the best parameters.

    Parameters
    ----------
    request : StudyRequest
        The problem to tune, the file of the study, and its command line.
    out : Output
        Output of the command.
    budget : int or None
        Total number of trials; None: 20 for each parameter that is searched.
    processes : int
        Number of processes that compute trials.
    """
    from asyncqn.lab.tuning.tuner import tune

    problem = request.problem
    budget = problem.budget if budget is None else budget
    # The study stores the complete command, with the defaults of today, so that anyone can repeat it.
    command = f"{request.command} --budget {budget} --seeds {problem.seeds} --seed {problem.seed}"
    with out.progress(f"tuning {problem.algorithm}", budget) as tell:
        study = tune(problem, budget, path=request.path, command=command, processes=processes, tell=tell)
    _show(out, study, request, command)


def _show(out: Output, study: Study, request: StudyRequest, command: str) -> None:
    best, (metric, target) = study.best, request.problem.goal
    # Even a failed study tells something: the parameters that came closest.
    shown = best if best is not None else study.nearest
    for name, value in {} if shown is None else shown["parameters"].items():
        out.show(f"{name:>14} = {value:.4g}" if isinstance(value, float) else f"{name:>14} = {value}")
    if best is None:
        out.show(f"no trial reached {metric} {target:g} on every seed.")
        if shown is not None:
            lowest, seeds = shown["lowest"], request.problem.seeds
            reached = f"{metric} {max(lowest):.4g} ({len(lowest)} of {seeds} seeds, {shown['status']})"
            out.show(f"the nearest trial, with the parameters above, reached {reached}.")
    else:
        times = best["times"]
        needed = f"median {median(times):.4g} {request.unit} over {len(times)} runs"
        out.show(f"time to {metric} {target:g}: {needed}")
    out.show(f"{len(study.trials)} trials are in {request.path}")
    # All four, so that scripts find a zero where none ended that way.
    words = ("complete", "pruned", "too slow", "diverged")
    counts = {word: sum(trial["status"] == word for trial in study.trials) for word in words}
    found = {
        "algorithm": request.problem.algorithm,
        "best": best,
        "nearest": study.nearest,
        "trials": counts,
        "file": str(request.path),
    }
    out.result({**found, "command": command})
