"""Jobs: a TOML file, with values from the command line laid over it, becomes the objects of a run.

    [problem]    kind = one of `PROBLEMS` and its parameters
    [algorithm]  kind = one of `asyncqn.algorithms.ALGORITHMS` and its parameters
    [cluster]    the fields of `Cluster`
    [run]        commits, seed, evaluate, tol, max_passes, max_time, target, metric

A section that is absent takes the defaults below.  A section [algorithm] that is present must be
complete: step sizes that suit one problem are no defaults for another.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from asyncqn.algorithms import ALGORITHMS, make_algorithm
from asyncqn.algorithms.defaults import TOLERANCE
from asyncqn.core.cluster import Cluster
from asyncqn.core.plain import from_plain
from asyncqn.core.streams import check_seed
from asyncqn.errors import BadInput
from asyncqn.potentials import rebuild
from asyncqn.potentials.linear_gaussian import LinearGaussian
from asyncqn.potentials.logistic import LogisticRegression
from asyncqn.potentials.mixture import Mixture
from asyncqn.potentials.phase_retrieval import PhaseRetrieval
from asyncqn.types import Algorithm, Potential, extra

Section = Mapping[str, Any]
LARGEST = 2**63 - 1
"""Beyond it an integer fits into no array, and no array has that many elements."""


def _factorization(
    kind: str,
    ratings: str = "",
    rank: int = 5,
    prior: float = 1.0,
    alpha: float = 0.0,
    dtype: str = "float64",
    seed: int = 0,
    test_fraction: float = 0.0,
    split_seed: int = 0,
) -> Potential:
    """A factorization of stored ratings, by name or path: every process maps them from disk itself."""
    if not isinstance(ratings, str) or not ratings:
        raise BadInput(f"problem '{kind}' needs ratings: the name of a stored set, or a file of ratings.")
    source = {"ratings": ratings, "test_fraction": test_fraction, "seed": split_seed}
    given = {"rank": rank, "prior": prior, "alpha": alpha, "dtype": dtype, "seed": seed}
    model = rebuild({"kind": kind, "source": source if test_fraction else ratings, **given})
    assert model is not None
    return model


PROBLEMS: dict[str, Callable[..., Potential]] = {
    "linear-gaussian": LinearGaussian.random,
    "logistic-regression": LogisticRegression.random,
    "matrix-factorization": partial(_factorization, "matrix-factorization"),
    "profiled-factorization": partial(_factorization, "profiled-factorization"),
    "phase-retrieval": PhaseRetrieval.random,
    "mixture": Mixture.random,
}

DEFAULT_ALGORITHM = "as-lbfgs"

DEFAULT_PARAMETERS: dict[str, dict[str, Any]] = {
    "as-lbfgs": {
        "h": 4e-4, "gamma": 0.03, "beta": 500.0, "memory": 3, "batch": 60, "overlap": 40,
        "initial_scale": 0.02, "cosine_floor": 0.4,
    },
    "async-sgd": {"h": 5e-5, "batch": 6},
    "mb-lbfgs": {"h": 0.2, "memory": 3, "batch": 6, "overlap": 2, "timeout": 20.0, "quorum": 0.75},
    "sgd": {"h": 2e-5, "batch": 6},
    "sgld": {"h": 2e-5, "beta": 500.0, "batch": 6},
    "lbfgs": {"memory": 10},
    "block-lbfgs": {"blocks": 40},
    "momentum-lbfgs": {
        "h": 4e-4, "gamma": 0.2, "memory": 5, "batch": 15, "overlap": 12, "initial_scale": 0.007,
        "cosine_floor": 0.3,
    },
}  # fmt: skip
"""They suit the default problem with 40 simulated workers and nothing else.  as-lbfgs has h, gamma, beta and
M of the paper's table; its batches, overlap, H0 and floor were chosen from 80 random trials, so that pairs
are used.  async-sgd and mb-lbfgs have the best of three steps each; the others were only seen to run."""

DEFAULT_CLUSTER: dict[str, Any] = {
    "workers": 40, "worker_mean": 70.0, "worker_std": 14.0, "message": 10.0, "master": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How long to run, from which seed, and how many commits lie between two evaluations; see `minimize`."""

    commits: int = 5_000
    seed: int = 0
    evaluate: int | None = None
    tol: float | None = TOLERANCE
    max_passes: float | None = None
    max_time: float | None = None
    target: float | None = None
    metric: str = "fun"

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name in ("commits", "evaluate"):
            value = getattr(self, name)
            if name == "evaluate" and value is None:
                continue
            if not _is_integer(value) or not 1 <= value <= LARGEST:
                raise BadInput(f"{name} must be an integer of at least 1, not {value!r}.")

    def arguments(self) -> dict[str, Any]:
        """These as arguments of `minimize`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclass(frozen=True)
class Job:
    """What `minimize` needs, and the cluster of a simulation."""

    problem: Potential
    algorithm: Algorithm
    cluster: Cluster
    run: Plan


def load_job(path: str | Path | None = None, overrides: Mapping[str, Section] | None = None) -> Job:
    """The job in a TOML file (None: all defaults), with `overrides` by section laid over it.

    Another algorithm's `kind` in the overrides drops the file's parameters, which were not meant
    for it.  A mistake in the file is reported with the file's name.
    """
    over = {name: dict(section) for name, section in (overrides or {}).items()}
    if path is None:
        return _build({}, over)
    sections = _read(Path(path))
    try:
        return _build(sections, over)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        with path.open("rb") as file:
            sections = tomllib.load(file)
    except FileNotFoundError:
        raise BadInput(f"there is no job file {path}.") from None
    except OSError as error:
        raise BadInput(f"the job file {path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise BadInput(f"{path} is not a TOML file: {str(error).splitlines()[0].rstrip('.')}.") from None
    except RecursionError:
        raise BadInput(f"{path} is not a job: its values are nested too deeply.") from None
    known = [field.name for field in dataclasses.fields(Job)]
    for name, section in sections.items():
        if name not in known:
            what = "section" if isinstance(section, dict) else "key outside the sections"
            raise BadInput(f"{path}: unknown {what} '{name}'; a job has {_listed(known, '[{}]')}.")
        if not isinstance(section, dict):
            raise BadInput(f"{path}: '{name}' must be a section: write [{name}] and its keys below it.")
    return sections


def _build(sections: Mapping[str, Section], over: Mapping[str, Section]) -> Job:
    algorithm = _algorithm(dict(sections.get("algorithm", {})), dict(over.get("algorithm", {})))
    usual = {**DEFAULT_CLUSTER, "workers": extra(algorithm, "max_workers") or DEFAULT_CLUSTER["workers"]}
    return Job(
        problem=make_problem({**sections.get("problem", {}), **over.get("problem", {})}),
        algorithm=algorithm,
        cluster=_cluster({**sections.get("cluster", usual), **over.get("cluster", {})}),
        run=from_plain(Plan, {**sections.get("run", {}), **over.get("run", {})}, "[run]"),
    )


def make_problem(section: Section) -> Potential:
    """The potential that a [problem] section describes."""
    arguments = dict(section)
    kind = arguments.pop("kind", "linear-gaussian")
    if not isinstance(kind, str) or kind not in PROBLEMS:
        raise BadInput(f"there is no problem {kind!r}; there are {', '.join(PROBLEMS)}.")
    known = {
        p.name: str(p.annotation)
        for p in inspect.signature(PROBLEMS[kind]).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return PROBLEMS[kind](**_typed(arguments, known, f"problem '{kind}'"))


def _algorithm(given: dict[str, Any], over: dict[str, Any]) -> Algorithm:
    kind = over.pop("kind", given.get("kind"))
    if given and "kind" not in given:
        raise BadInput(f"[algorithm] needs a kind: one of {', '.join(ALGORITHMS)}.")
    if given and kind == given["kind"]:
        parameters = {name: value for name, value in given.items() if name != "kind"}
    else:
        kind = kind or DEFAULT_ALGORITHM
        parameters = DEFAULT_PARAMETERS.get(kind, {}) if isinstance(kind, str) else {}
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        raise BadInput(f"there is no algorithm {kind!r}; there are {', '.join(ALGORITHMS)}.")
    known = {f.name: str(f.type) for f in dataclasses.fields(ALGORITHMS[kind]) if f.init}
    return make_algorithm(kind, _typed({**parameters, **over}, known, f"algorithm '{kind}'"))


def _cluster(section: Section) -> Cluster:
    values = dict(section)
    for name in ("deaths", "joins"):
        if name in values:
            values[name] = _times_by_worker(name, values[name])
    known = {f.name: str(f.type) for f in dataclasses.fields(Cluster)}
    cluster: Cluster = from_plain(Cluster, _typed(values, known, "[cluster]"), "[cluster]")
    return cluster


def _times_by_worker(name: str, table: Any) -> dict[int, float]:
    """A TOML table such as `deaths = {3 = 500.0}`: its keys are texts that must be worker numbers."""
    if isinstance(table, Mapping) and all(str(w).isdecimal() and _is_number(t) for w, t in table.items()):
        return {int(w): float(t) for w, t in table.items()}
    raise BadInput(f"[cluster] {name} must give a time by worker number, as in {name} = {{3 = 500.0}}.")


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, float) and not math.isnan(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_is_number(v) for v in value)


_TYPES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("int", _is_integer, "an integer"),
    ("float | Sequence", lambda v: _is_number(v) or _is_list(v), "a number, or a list with one per worker"),
    ("float", _is_number, "a number"),
    ("tuple[float, float]", lambda v: _is_list(v) and len(v) == 2, "a list of two numbers"),
    ("InitialScale", lambda v: _is_number(v) or isinstance(v, str), "a number or a word"),
    ("npt.ArrayLike", _is_list, "a list of numbers"),
    ("npt.DTypeLike", lambda v: v in ("float64", "float32"), "'float64' or 'float32'"),
)
"""How an annotation begins, what passes for it in a file, and the words for that; first match counts."""


def _typed(values: Section, known: Mapping[str, str], what: str) -> dict[str, Any]:
    """The values, numbers as their annotation asks; unknown names and wrong types give one sentence."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise BadInput(f"{what} has no parameter '{name}'; it knows {', '.join(known)}.")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise BadInput(f"{what}: {name} must not be beyond {LARGEST}, as {value} is.")
        if isinstance(value, str) and value in ("inf", "-inf"):
            value = float(value)
        for beginning, passes, words in _TYPES:
            if known[name].startswith(beginning):
                if not passes(value):
                    raise BadInput(f"{what}: {name} must be {words}, not {value!r}.")
                # Kernels are compiled per type: 1 and 1.0 must not make two of them.
                out[name] = float(value) if beginning != "int" and _is_number(value) else value
                break
        else:
            out[name] = value
    return out


def _listed(names: list[str], pattern: str) -> str:
    shown = [pattern.format(name) for name in names]
    return ", ".join(shown[:-1]) + " and " + shown[-1]
