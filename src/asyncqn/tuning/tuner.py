"""The tuner: parameters of an algorithm for a problem and a cluster, by simulated time to a goal.

The goal is a relative error epsilon (linear Gaussian problems) or an RMSE (ratings).  Every algorithm
gets the same number of trials, from the same sampler (Optuna's TPE), on the same seeds.  A trial's
score is the mean logarithm of the time to the goal over the seeds; a run that does
not get there counts as e times the limit, one that diverges as e^3 times.  After each seed a trial
whose run took more than `PRUNE` times the best median so far is given up.  The first trial is the
paper's setting.  Trials are saved after each pair, divergent ones included, and a study goes on
from its file.
"""

from __future__ import annotations

import json
import math
import warnings
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from asyncqn.core.plain import to_plain
from asyncqn.errors import BadInput, DamagedFile, MissingExtra, require
from asyncqn.paper.records import replace
from asyncqn.paper.result_cache import Tell, pool
from asyncqn.tuning.problems import (
    Asked,
    Question,
    RatingsQuestion,
    curvature_of,
    known_algorithm,
    question_from,
)

PRUNE = 1.5
FORMAT = 1


@dataclass
class Study:
    """The trials so far; `best` is the fastest among those that reached the goal on every seed."""

    question: Question | RatingsQuestion
    trials: list[dict[str, Any]] = field(default_factory=list)

    @property
    def best(self) -> dict[str, Any] | None:
        complete = [t for t in self.trials if t["status"] == "complete"]
        return min(complete, key=lambda t: float(t["score"])) if complete else None

    def document(self, command: str) -> dict[str, Any]:
        return {
            "kind": "asyncqn tuning", "format": FORMAT, "command": command,
            "question": to_plain(self.question), "budget": len(self.trials), "best": self.best,
            "trials": self.trials,
        }  # fmt: skip

    def save(self, path: Path, command: str) -> None:
        document = to_plain(self.document(command))
        lines = ",\n  ".join(json.dumps(trial, allow_nan=False) for trial in document.pop("trials"))
        head = json.dumps(document, indent=1, allow_nan=False).removesuffix("\n}")
        text = f'{head},\n "trials": [\n  {lines}\n ]\n}}\n'
        replace(path, lambda scratch: scratch.write_text(text, encoding="utf-8"))


def load_study(path: Path) -> Study:
    """Read a saved study."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["kind"] != "asyncqn tuning" or document["format"] != FORMAT:
            raise DamagedFile(f"{path} is not a study of this version's tuner: choose another file.")
        return Study(question_from(document["question"]), document["trials"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is damaged ({type(error).__name__}: {error}): delete it.") from None


def evaluate(question: Asked, parameters: dict[str, Any], best: float) -> dict[str, Any]:
    """One trial: its times on the seeds, with a word on how it ended."""
    times: list[float | None] = []
    costs: list[float] = []
    status = "complete"
    for k in range(question.seeds):
        outcome = question.outcome(parameters, min(question.limit, 4.0 * best), k)
        times.append(outcome.time)
        worst = {"too slow": 1.0, "diverged": 3.0}
        costs.append(
            math.log(outcome.time)
            if outcome.time is not None
            else math.log(question.limit) + worst[outcome.status]
        )
        if outcome.time is None:
            status = outcome.status
            break
        if outcome.time > PRUNE * best:
            status = "pruned" if k + 1 < question.seeds else status
            break
    return {"parameters": parameters, "times": times, "score": sum(costs) / len(costs), "status": status}


def tune(
    question: Question | RatingsQuestion,
    budget: int,
    *,
    path: Path | None = None,
    command: str = "",
    processes: int = 2,
    tell: Tell = lambda done, note="": None,
) -> Study:
    """Bring the study to `budget` trials, from `path` if it is there; trials run in pairs."""
    known_algorithm(question.algorithm)
    require(budget >= 1, f"budget must be an integer of at least 1, not {budget!r}.")
    study = load_study(path) if path is not None and path.exists() else Study(question)
    if study.question != question:
        raise BadInput(f"{path} holds the study of another question: name another file or delete it.")
    sampler = _optuna_study(question, study)
    curvature = curvature_of(question)
    tell(len(study.trials))
    with pool(processes) if processes > 1 else nullcontext() as executor:
        while len(study.trials) < budget:
            asked: list[tuple[Any, dict[str, Any]]] = []
            for _ in range(min(2, budget - len(study.trials))):
                first = not study.trials and not asked
                trial = None if first else sampler.ask()
                given = question.first() if trial is None else question.suggest(trial, curvature)
                asked.append((trial, given))
            for (trial, _), result in zip(asked, _results(executor, question, study, asked), strict=True):
                if trial is not None:
                    sampler.tell(trial, result["score"])
                    result["point"] = dict(trial.params)
                study.trials.append(result)
            if path is not None:
                study.save(path, command)
            best = study.best
            note = f"best {median(best['times']):.3g}" if best else "none has reached the goal yet"
            tell(len(study.trials), note)
    return study


def _results(
    executor: Executor | None, question: Asked, study: Study, asked: list[tuple[Any, dict[str, Any]]]
) -> list[dict[str, Any]]:
    best = median(study.best["times"]) if study.best else math.inf
    if executor is None:
        return [evaluate(question, parameters, best) for _, parameters in asked]
    waiting = [executor.submit(evaluate, question, parameters, best) for _, parameters in asked]
    return [future.result() for future in waiting]


def _optuna_study(question: Asked, study: Study) -> Any:
    """An Optuna study in memory that knows the trials so far."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("optuna", "tune", "tuning") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TPE's options are marked experimental
        sampler = optuna.samplers.TPESampler(
            seed=question.seed + len(study.trials), n_startup_trials=12, multivariate=True, group=True
        )
    told = optuna.create_study(sampler=sampler)
    kept = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for result in study.trials:
        if "point" in result:
            # Suggesting on a fixed trial rebuilds the distributions that belong to the saved values.
            kept.enqueue_trial(result["point"])
            trial = kept.ask()
            question.suggest(trial, 1.0)
            kept.tell(trial, result["score"])
    told.add_trials([t for t in kept.trials if t.value is not None])
    return told
