"""The tuner: parameters of an algorithm for a problem and a cluster, by simulated time to epsilon.

Every algorithm gets the same number of trials, from the same sampler (Optuna's TPE), on the same
seeds.  A trial's score is the mean logarithm of the time to epsilon over the seeds; a run that does
not get there counts as e times the limit, one that diverges as e^3 times.  After each seed a trial
whose run took more than `PRUNE` times the best median so far is given up.  The first trial is the
paper's setting.  Trials are saved after each pair, divergent ones included, and a study goes on
from its file.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from asyncqn.algorithms.stability import largest_curvature
from asyncqn.cluster import Cluster
from asyncqn.errors import BadInput, DamagedFile, MissingExtra, require
from asyncqn.experiments.jobs import Tell, pool
from asyncqn.experiments.measure import time_to
from asyncqn.experiments.problems import STANDARD, Spectrum
from asyncqn.experiments.records import replace
from asyncqn.experiments.settings import BATCH, MEMORY, PAPER, algorithm, cluster
from asyncqn.minimize import starting_point
from asyncqn.plain import to_plain

PRUNE = 1.5
FORMAT = 1
TUNING_SEED = 1_000_000
"""Seeds of tuning runs start here, far from those of the figures."""


@dataclass(frozen=True)
class Question:
    """What is asked: everything that determines the study but its length."""

    algorithm: str
    workers: int = 40
    variance: float = 200.0
    problem: Spectrum = STANDARD
    epsilon: float = 0.05
    limit: float = 9000.0
    seeds: int = 3
    seed: int = 0

    def cluster(self) -> Cluster:
        return cluster(self.algorithm, self.workers, self.variance)


@dataclass
class Study:
    """The trials so far; `best` is the fastest among those that reached epsilon on every seed."""

    question: Question
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
        plain = dict(document["question"])
        plain["problem"] = Spectrum(**plain["problem"])
        return Study(Question(**plain), document["trials"])
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"{path} is damaged ({type(error).__name__}: {error}): delete it.") from None


Suggest = Callable[[Any, float, int], dict[str, Any]]


def _async_sgd(trial: Any, curvature: float, workers: int) -> dict[str, Any]:
    """h = r / (curvature W): r near 1.6 is the limit of stability under equal delays."""
    return {"h": trial.suggest_float("r", 0.002, 8.0, log=True) / (curvature * workers), **BATCH}


def _mb_lbfgs(trial: Any, curvature: float, workers: int) -> dict[str, Any]:
    return {
        "h": trial.suggest_float("h", 5e-3, 2.0, log=True),
        "timeout": trial.suggest_float("timeout", 1.0, 100.0, log=True),
        "quorum": trial.suggest_float("quorum", 0.1, 1.0),
        "cosine_floor": trial.suggest_categorical("cosine_floor", [0.0, 0.3]),
        **MEMORY,
    }


def _as_lbfgs(trial: Any, curvature: float, workers: int) -> dict[str, Any]:
    """H0 = c I, c between the largest curvature's inverse and the prior's, or by pairs; h through
    r = 2 W h c / gamma, which is of order one at the limit where c matches the bulk of the curvature."""
    gamma = trial.suggest_float("gamma_share", 0.05, 2.0, log=True) / workers
    fixed = trial.suggest_categorical("H0", ["fixed", "pair"]) == "fixed"
    power = trial.suggest_float("power", 0.0, 1.1) if fixed else 1.0
    c = curvature**-power
    r = trial.suggest_float("r", 0.003, 5.0, log=True)
    return {
        "h": r * gamma / (2 * workers * c),
        "gamma": gamma,
        "beta": PAPER["as-lbfgs"]["beta"],
        "initial_scale": c if fixed else "pair",
        "cosine_floor": trial.suggest_categorical("cosine_floor", [0.0, 0.3, 0.5]),
        **MEMORY,
    }


SPACES: dict[str, Suggest] = {"async-sgd": _async_sgd, "mb-lbfgs": _mb_lbfgs, "as-lbfgs": _as_lbfgs}


def evaluate(question: Question, parameters: dict[str, Any], best: float) -> dict[str, Any]:
    """One trial: its times on the seeds, with a word on how it ended."""
    times: list[float | None] = []
    costs: list[float] = []
    status = "complete"
    for k in range(question.seeds):
        outcome = time_to(
            question.problem.potential(), algorithm(question.algorithm, parameters), question.cluster(),
            target=question.epsilon, limit=min(question.limit, 4.0 * best),
            seed=TUNING_SEED + 1000 * question.seed + k,
        )  # fmt: skip
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
    question: Question,
    budget: int,
    *,
    path: Path | None = None,
    command: str = "",
    processes: int = 2,
    tell: Tell = lambda done, note="": None,
) -> Study:
    """Bring the study to `budget` trials, from `path` if it is there; trials run in pairs."""
    require(question.algorithm in SPACES, f"the tuner knows {', '.join(SPACES)}, not {question.algorithm!r}.")
    require(budget >= 1, f"budget must be an integer of at least 1, not {budget!r}.")
    study = load_study(path) if path is not None and path.exists() else Study(question)
    if study.question != question:
        raise BadInput(f"{path} holds the study of another question: name another file or delete it.")
    sampler = _optuna_study(question, study)
    potential = question.problem.potential()
    curvature = largest_curvature(potential, starting_point(potential, None, TUNING_SEED))
    tell(len(study.trials))
    with pool(processes) if processes > 1 else nullcontext() as executor:
        while len(study.trials) < budget:
            asked: list[tuple[Any, dict[str, Any]]] = []
            for _ in range(min(2, budget - len(study.trials))):
                first = not study.trials and not asked
                trial = None if first else sampler.ask()
                suggest = SPACES[question.algorithm]
                asked.append((trial, dict(PAPER[question.algorithm]) if trial is None
                              else suggest(trial, curvature, question.workers)))  # fmt: skip
            for (trial, _), result in zip(asked, _results(executor, question, study, asked), strict=True):
                if trial is not None:
                    sampler.tell(trial, result["score"])
                    result["point"] = dict(trial.params)
                study.trials.append(result)
            if path is not None:
                study.save(path, command)
            best = study.best
            note = f"best {median(best['times']):.0f}" if best else "none has reached epsilon yet"
            tell(len(study.trials), note)
    return study


def _results(
    executor: Executor | None, question: Question, study: Study, asked: list[tuple[Any, dict[str, Any]]]
) -> list[dict[str, Any]]:
    best = median(study.best["times"]) if study.best else math.inf
    if executor is None:
        return [evaluate(question, parameters, best) for _, parameters in asked]
    waiting = [executor.submit(evaluate, question, parameters, best) for _, parameters in asked]
    return [future.result() for future in waiting]


def _optuna_study(question: Question, study: Study) -> Any:
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
            SPACES[question.algorithm](trial, 1.0, question.workers)
            kept.tell(trial, result["score"])
    told.add_trials([t for t in kept.trials if t.value is not None])
    return told
