"""The tuner: parameters of an algorithm for a problem and a cluster, by simulated time to a goal.

Every algorithm gets its trials from the same sampler (Optuna's TPE), on the same seeds.  The score of a trial
is the mean logarithm of the time to the goal over the seeds; a run that does not reach it counts as e times
the limit, and one that diverges as e^3 times.  After each seed, a trial whose run took more than `PRUNE`
times the best median so far is abandoned.  Trials are saved after each pair, including divergent ones, and a
study continues from its file.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from asyncqn.errors import BadInput, DamagedFile, MissingExtra, require
from asyncqn.lab.tuning.problem import TuningProblem, known_algorithm
from asyncqn.lab.tuning.processes import Tell, pool
from asyncqn.storage import LONGEST_DOCUMENT, read_input, write_whole
from asyncqn.storage.serialise import to_json

PRUNE = 1.5
"""Factor on the best median time beyond which the other seeds of a trial are not run."""
FORMAT = 2
"""Format of saved studies; others are refused."""
_STARTUP_TRIALS = 12
"""Random trials before TPE models the scores."""
Trial = dict[str, Any]


@dataclass
class Study:
    """The trials so far, and the problem as plain data."""

    problem: dict[str, Any]
    trials: list[Trial] = field(default_factory=list)

    @property
    def ranked(self) -> list[Trial]:
        """The trials that reached the goal on every seed, fastest first."""
        complete = [trial for trial in self.trials if trial["status"] == "complete"]
        return sorted(complete, key=lambda trial: float(trial["score"]))

    @property
    def best(self) -> Trial | None:
        return next(iter(self.ranked), None)

    @property
    def nearest(self) -> Trial | None:
        """The trial closest to the goal, by the lowest metric of its worst seed.

        None if no trial had a finite metric, or if an older version saved the study without it.
        """
        # A missing or None entry: the run was never finite, or the field did not exist yet.
        known = [t for t in self.trials if t.get("lowest") and all(v is not None for v in t["lowest"])]
        return min(known, key=lambda trial: max(trial["lowest"]), default=None)

    @property
    def best_time(self) -> float:
        """The median time of the best trial; infinite if there is none."""
        return median(self.best["times"]) if self.best else math.inf

    def save(self, path: Path, command: str) -> None:
        """Write the study, with one line per trial."""
        head = {
            "kind": "asyncqn tuning",
            "format": FORMAT,
            "command": command,
            "problem": self.problem,
            "budget": len(self.trials),
            "best": to_json(self.best),
        }
        # One line per trial keeps diffs of a study readable.
        lines = ",\n  ".join(json.dumps(to_json(trial), allow_nan=False) for trial in self.trials)
        text = json.dumps(head, indent=1, allow_nan=False).removesuffix("\n}")
        write_whole(path, f'{text},\n "trials": [\n  {lines}\n ]\n}}\n')


def load_study(path: Path) -> Study:
    """Read a saved study."""
    document = read_study(path)
    return Study(document["problem"], document["trials"])


def read_study(path: Path) -> dict[str, Any]:
    """Return the whole document of a saved study."""
    try:
        document: dict[str, Any] = json.loads(read_input(path, LONGEST_DOCUMENT).decode())
        if document["kind"] != "asyncqn tuning" or document["format"] != FORMAT:
            raise DamagedFile(f"{path} is not a study of this version: choose another file.")
        if not {"command", "problem", "budget", "best", "trials"} <= set(document):
            raise KeyError("an entry is missing")
    except BadInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged ({type(error).__name__}: {error}): delete it.") from None
    return document


def evaluate(problem: TuningProblem, parameters: dict[str, Any], best: float) -> Trial:
    """Run one trial: return its times on the seeds, its score and its status."""
    times: list[float | None] = []
    costs: list[float] = []
    lowest: list[float | None] = []
    status = "complete"
    for k in range(problem.seeds):
        # A run four times slower than the best cannot win, so it need not run to the limit.
        outcome = problem.outcome(parameters, min(problem.limit, 4.0 * best), k)
        times.append(outcome.time)
        lowest.append(outcome.lowest)
        if outcome.time is None:
            status = outcome.status
            costs.append(math.log(problem.limit) + (3.0 if status == "diverged" else 1.0))
            break
        costs.append(math.log(outcome.time))
        # A trial that is already slower than the best need not run on the other seeds.
        if outcome.time > PRUNE * best:
            status = "pruned" if k + 1 < problem.seeds else status
            break
    score = sum(costs) / len(costs)
    return {"parameters": parameters, "times": times, "score": score, "status": status, "lowest": lowest}


def tune(
    problem: TuningProblem,
    budget: int,
    *,
    path: Path | None = None,
    command: str = "",
    processes: int = 2,
    known: Sequence[Mapping[str, Any]] = (),
    tell: Tell = lambda done, note="": None,
) -> Study:
    """Extend the study to `budget` trials, starting from `path` if it exists; trials run in pairs.

    A new study tries the problem's `first` parameters and then the `known` points of the search space.
    """
    known_algorithm(problem.algorithm)
    require(budget >= 1, f"budget must be an integer of at least 1, not {budget!r}.")
    # As it would be read from a file, so that it can be compared with a saved study.
    plain = to_json(problem)
    study = load_study(path) if path is not None and path.exists() else Study(plain)
    if study.problem != plain:
        raise BadInput(f"{path} holds the study of another problem: choose another file, or delete it.")
    sampler = _optuna_study(problem, study)
    # A study that continues has tried these already.
    for point in () if study.trials else known:
        sampler.enqueue_trial(dict(point))
    first = None if study.trials else problem.first()
    curvature = problem.curvature()
    tell(len(study.trials))
    with pool(processes) if processes > 1 else nullcontext() as executor:
        while len(study.trials) < budget:
            # Always pairs, whatever the number of processes: the sampler's suggestions must not depend on it.
            asked: list[tuple[Any, dict[str, Any]]] = [] if first is None else [(None, first)]
            first = None
            while len(asked) < min(2, budget - len(study.trials)):
                trial = sampler.ask()
                asked.append((trial, problem.suggest(trial, curvature)))
            tried = partial(evaluate, problem, best=study.best_time)
            given = [parameters for _, parameters in asked]
            results = list((map if executor is None else executor.map)(tried, given))
            for (trial, _), result in zip(asked, results, strict=True):
                if trial is not None:
                    sampler.tell(trial, result["score"])
                    result["point"] = dict(trial.params)
                study.trials.append(result)
            if path is not None:
                study.save(path, command)
            note = f"best {study.best_time:.3g}" if study.best else "none has reached the goal yet"
            tell(len(study.trials), note)
    return study


def _optuna_study(problem: TuningProblem, study: Study) -> Any:
    """Return an Optuna study in memory that contains the trials so far."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "tune", "tuning") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TPE's options are experimental in Optuna
        sampler = optuna.samplers.TPESampler(
            # A resumed study has another seed, or it would suggest the same points again.
            seed=problem.seed + len(study.trials),
            n_startup_trials=_STARTUP_TRIALS,
            multivariate=True,
            group=True,
        )
    told = optuna.create_study(sampler=sampler)
    # A second study, whose sampler is never used: enqueued points fix every suggestion.
    kept = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for result in study.trials:
        if "point" in result:
            # Suggesting on a fixed trial rebuilds the distributions that belong to the saved values.
            kept.enqueue_trial(result["point"])
            trial = kept.ask()
            problem.suggest(trial, 1.0)
            kept.tell(trial, result["score"])
    told.add_trials([t for t in kept.trials if t.value is not None])
    return told
