"""The job file: a TOML file, overridden by the command line, that describes the objects of a run.

    [problem]    kind = one of `asyncqn.models.PROBLEMS`, and its parameters or a file of data.
    [algorithm]  kind = one of `asyncqn.algorithms.ALGORITHMS`, and its parameters.
    [cluster]    The fields of `Cluster`.
    [engine]     kind = one of `asyncqn.engines.named.REAL_ENGINES`, and the fields of its class.
    [run]        commits, seed, evaluate, tol, max_passes, max_time, target, metric.

A kind "module:Class" is a user's own class; it is imported only with permission.  A missing section takes the
defaults below.  If the file describes its own problem but no algorithm, `minimize` chooses one, as for the
algorithm "default": step sizes that suit one problem are no defaults for another.  For the same reason a
section [algorithm] must be complete.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncqn.algorithms import ALGORITHMS, make_algorithm
from asyncqn.algorithms.defaults import TOLERANCE
from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.laws import law_from_json
from asyncqn.core.stopping import MaxPasses, MaxTime, Target, Tolerance
from asyncqn.engines.named import REAL_ENGINES, engine_class
from asyncqn.errors import BadInput, require
from asyncqn.models import PROBLEMS as MODELS
from asyncqn.models import own_problem
from asyncqn.parameters import (
    Checked,
    Commits,
    Evaluate,
    Seed,
    arguments_from_json,
    from_json,
    suggestion,
)
from asyncqn.storage import open_input
from asyncqn.storage.serialise import is_own
from asyncqn.types import Algorithm, Engine, Problem, extra

if TYPE_CHECKING:
    from asyncqn.minimize import Choice

Section = Mapping[str, Any]
MAX_JOB_BYTES = 1 << 24
"""Largest size of a job file, in bytes."""


DEFAULT_ALGORITHM, DEFAULT_ENGINE, DEFAULT_WORKERS = "as-lbfgs", "threads", 2
"""The default number of workers is for real engines; the default cluster has its own."""

CHOSEN = "default"
"""The name of the algorithm that `minimize` chooses."""

DEFAULT_PARAMETERS: dict[str, dict[str, Any]] = {
    "as-lbfgs": {
        "h": 4e-4,
        "gamma": 0.03,
        "beta": 500.0,
        "memory": 3,
        "batch": 60,
        "overlap": 40,
        "initial_scale": 0.02,
        "cosine_floor": 0.4,
    },
    "async-sgd": {"h": 5e-5, "batch": 6},
    "delay-adaptive-sgd": {"h": 5e-5, "batch": 6, "tau": 40},
    "ringmaster": {"h": 5e-5, "batch": 6, "max_delay": 80},
    "rennala": {"h": 5e-4, "batch": 6, "collect": 40},
    "async-saga": {"h": 5e-5, "parts": 60},
    "mb-lbfgs": {
        "h": 0.2,
        "memory": 3,
        "batch": 6,
        "overlap": 2,
        "timeout": 20.0,
        "quorum": 0.75,
    },
    "sgd": {"h": 2e-5, "batch": 6},
    "sgld": {"h": 2e-5, "beta": 500.0, "batch": 6},
    "exact-lbfgs": {"blocks": 40},
}
"""These parameters suit the default problem with 40 simulated workers and nothing else; the paper's own are
in `asyncqn.published`.  as-lbfgs has h, gamma, beta and M of the paper's table; its batches, overlap, H0 and
floor were chosen from 80 random trials, so that pairs are used.  async-sgd and mb-lbfgs have the best of
three step sizes each; the others were only tested to run."""

DEFAULT_CLUSTER: dict[str, Any] = {
    "workers": 40,
    "worker_mean": 70.0,
    "worker_std": 14.0,
    "message": 10.0,
    "master": 0.0,
}


@dataclass(frozen=True)
class RunOptions(Checked):
    """The section [run]: length, seed and evaluations of a run; `minimize` describes them."""

    commits: Commits = 5_000
    seed: Seed = 0
    evaluate: Evaluate = None
    tol: Tolerance = TOLERANCE
    max_passes: MaxPasses = None
    max_time: MaxTime = None
    target: Target = None
    metric: str = "fun"


@dataclass(frozen=True)
class Job:
    """The objects of a job: arguments of `minimize`, a cluster to simulate, and a real engine's arguments."""

    problem: Problem
    algorithm: Algorithm | None
    """None: `minimize` chooses."""
    cluster: Cluster
    run: RunOptions
    engine: Section

    def choose(self, engine: Engine) -> Choice:
        """Return the algorithm of the job, or the one that `minimize` chooses on this engine."""
        # Imported here: other commands read job files without running anything.
        from asyncqn.minimize import Choice, choose_algorithm

        if self.algorithm is not None:
            return Choice(self.algorithm, compared=False)
        return choose_algorithm(self.problem, engine, seed=self.run.seed)


def load_job(
    path: str | Path | None = None,
    overrides: Mapping[str, Section] | None = None,
    *,
    allow_imports: bool = False,
) -> Job:
    """Build the job that a TOML file describes; without a file, the defaults.

    Parameters
    ----------
    path : path, optional
        The job file.
    overrides : mapping of str to mapping, optional
        Values of the command line, by section.  Another `kind` of algorithm or engine drops the file's
        parameters, which were not meant for it.
    allow_imports : bool, default False
        Whether a user's own classes may be imported.

    Raises
    ------
    BadInput
        For a mistake; the sentence names the file.
    """
    over = overrides or {}
    if path is None:
        return _build({}, over, allow_imports)
    read = _read(Path(path))
    data = read.get("problem", {}).get("data")
    if isinstance(data, str):  # relative to the job file, not to the current folder
        read["problem"]["data"] = str(Path(path).parent / data)
    try:
        return _build(read, over, allow_imports)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the sections of a job file as plain data."""
    try:
        with open_input(path, MAX_JOB_BYTES) as file:
            sections = tomllib.loads(file.read().decode())
    except BadInput:
        raise
    except OSError as error:
        reason = error.strerror
        raise BadInput(f"the job file {path} cannot be read: {reason}.") from None
    # Invalid TOML, bytes that are not text, numbers of 5,000 digits, or tables nested too deeply.
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0].split(";")[0]
        raise BadInput(f"{path} is not a TOML file: {reason}.") from None
    # The sections of a file are the fields of `Job`, so that a new one is accepted here at once.
    names = [field.name for field in dataclasses.fields(Job)]
    for name, section in sections.items():
        if name not in names:
            hint = suggestion(name, names)
            raise BadInput(f"{path}: unknown section or key '{name}'; {hint}.")
        require(
            isinstance(section, dict),
            f"{path}: '{name}' must be a section: write [{name}] and its keys below it.",
        )
    return sections


def _build(
    sections: Mapping[str, Section], over: Mapping[str, Section], allow_imports: bool
) -> Job:
    algorithm = _algorithm(sections, over.get("algorithm", {}), allow_imports)
    # A section of the file replaces the defaults as a whole; single options then change single keys.
    problem = {**sections.get("problem", {}), **over.get("problem", {})}
    run = {**sections.get("run", {}), **over.get("run", {})}
    # A serial algorithm would refuse the default cluster of 40 workers.
    workers = extra(algorithm, "max_workers") or DEFAULT_CLUSTER["workers"]
    cluster = dict(sections.get("cluster", {**DEFAULT_CLUSTER, "workers": workers}))
    changes = over.get("cluster", {})
    # A law of times replaces mean and standard deviation; `Cluster` refuses both together.
    if "times" in changes:
        cluster.pop("worker_mean", None)
        cluster.pop("worker_std", None)
    return Job(
        problem=make_problem(problem, allow_imports=allow_imports),
        algorithm=algorithm,
        cluster=from_json(
            Cluster, _with_laws({**cluster, **changes}, allow_imports), "[cluster]"
        ),
        run=from_json(RunOptions, run, "[run]"),
        engine=_engine(
            sections.get("engine", {}), over.get("engine", {}), allow_imports
        ),
    )


def _with_laws(cluster: Section, allow_imports: bool) -> Section:
    """Return the values of a cluster with its own laws of times as objects, where imports are allowed."""
    times = cluster.get("times")
    laws = times if isinstance(times, list) else [times]
    own = [isinstance(law, Mapping) and is_own(law.get("kind")) for law in laws]
    if not any(own):
        return cluster
    made = [
        law_from_json(law, allow_imports=allow_imports) if yes else law
        for law, yes in zip(laws, own, strict=True)
    ]
    return {**cluster, "times": made if isinstance(times, list) else made[0]}


def make_problem(section: Section, *, allow_imports: bool = False) -> Problem:
    """Build the problem that a section [problem] describes."""
    # A copy, because the kind is removed from it.
    arguments = dict(section)
    kind = arguments.pop("kind", "linear-gaussian")
    if is_own(kind):
        return own_problem(kind, arguments, allow_imports=allow_imports)
    if not isinstance(kind, str) or kind not in MODELS:
        # The same hint serves parameters of a class, which "knows" them.
        near = suggestion(str(kind), list(MODELS)).replace("it knows", "there are")
        raise BadInput(f"there is no problem {kind!r}; {near}.")
    # From the most specific to the most general: the rows of a file or of a data server, random data of a
    # given size, and a reference to stored data, such as a set of ratings.
    readers = {"data": "from_file", "url": "from_server"}
    names = [reader for key, reader in readers.items() if key in arguments]
    names += ["random", "from_stored"]
    model = MODELS[kind]
    make = next(getattr(model, name) for name in names if hasattr(model, name))
    made: Problem = from_json(make, arguments, f"problem '{kind}'")
    return made


def _algorithm(
    sections: Mapping[str, Section], over: Section, allow_imports: bool
) -> Algorithm | None:
    """Build the algorithm, or return None where `minimize` is to choose."""
    section = sections.get("algorithm", {})
    if section and "kind" not in section:
        raise BadInput(
            f"[algorithm] needs a kind: one of {', '.join(ALGORITHMS)}, or {CHOSEN}."
        )
    # The command line wins over the file.
    kind = over.get("kind", section.get("kind"))
    changes = _without_kind(over)
    # The default parameters may not suit a problem that the file describes.  Parameters without a kind
    # (--set algorithm.h=1e-3) refer to the default algorithm, so that they prevent the choice.
    if kind is None and "problem" in sections and not changes:
        return None
    if kind == CHOSEN:
        mine = section if section.get("kind") == CHOSEN else {}
        unused = ", ".join(_without_kind({**mine, **changes}))
        require(
            not unused,
            f"the algorithm '{CHOSEN}' has no parameters: leave out {unused}.",
        )
        return None
    kind = kind or DEFAULT_ALGORITHM
    # The file's parameters belong to the file's kind; another kind on the command line drops them.
    if section and kind == section["kind"]:
        parameters = _without_kind(section)
    else:
        parameters = DEFAULT_PARAMETERS.get(str(kind), {})
    return make_algorithm(kind, {**parameters, **changes}, allow_imports=allow_imports)


def _without_kind(section: Section) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != "kind"}


def _engine(section: Section, over: Section, allow_imports: bool) -> dict[str, Any]:
    """Return the kind of a real engine and its given arguments; `make_engine` builds it later."""
    names = ", ".join(REAL_ENGINES)
    require(not section or "kind" in section, f"[engine] needs a kind: one of {names}.")
    kind = over.get("kind", section.get("kind", DEFAULT_ENGINE))
    require(kind in REAL_ENGINES, f"there is no engine {kind!r}; there are {names}.")
    # The file's arguments belong to the file's engine.
    mine = section if kind == section.get("kind") else {}
    arguments = _without_kind({**mine, **over})
    # The class is imported for its arguments alone: it may need an optional package.
    if not arguments:
        return {"kind": kind}
    model = arguments.get("timing_model")
    if isinstance(model, Mapping):
        arguments["timing_model"] = _with_laws(model, allow_imports)
    given = arguments_from_json(engine_class(kind), arguments, f"engine '{kind}'")
    return {"kind": kind, **given}
