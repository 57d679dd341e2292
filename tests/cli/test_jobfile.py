from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.calls import call
from hypothesis import given
from hypothesis import strategies as st

import asyncqn as aq
from asyncqn.algorithms import ALGORITHMS
from asyncqn.cli.jobfile import DEFAULT_PARAMETERS, load_job
from asyncqn.errors import BadInput

FULL = """
[problem]
kind = "linear-gaussian"
dim = 4
n_data = 12
dominant = 1
bulk = [2, 3]
seed = 5

[algorithm]
kind = "as-lbfgs"
h = 1e-3
gamma = 0.1
beta = inf
memory = 2
batch = 4
overlap = 2
initial_scale = 1

[cluster]
workers = 3
worker_mean = [1, 2, 3]
deaths = {2 = 50.0}
joins = {1 = 4}

[run]
commits = 20
seed = 7
evaluate = 5
"""


@pytest.fixture
def write(tmp_path: Path):
    def job(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text)
        return path

    return job


def test_a_job_file_becomes_the_objects_it_describes(write) -> None:
    job = load_job(write(FULL))
    assert (job.problem.dim, job.problem.n_data) == (4, 12)
    assert job.problem.reference()["seed"] == 5
    assert job.algorithm == aq.ASLBFGS(1e-3, 0.1, math.inf, 2, 4, 2, initial_scale=1.0)
    assert isinstance(job.algorithm.initial_scale, float), (
        "1 and 1.0 must compile one kernel"
    )
    assert job.cluster == aq.Cluster(
        3, worker_mean=[1, 2, 3], deaths={2: 50.0}, joins={1: 4.0}
    )
    assert (job.run.commits, job.run.seed, job.run.evaluate) == (20, 7, 5)


def test_overrides_go_over_the_file_key_by_key(write) -> None:
    job = load_job(
        write(FULL),
        {
            "run": {"commits": 9},
            "algorithm": {"gamma": 0.2},
            "cluster": {"master": 2.0},
        },
    )
    assert (job.run.commits, job.run.seed) == (9, 7)
    assert (job.algorithm.gamma, job.algorithm.h) == (0.2, 1e-3)
    assert (job.cluster.master, job.cluster.workers) == (2.0, 3)


def test_another_algorithm_drops_the_parameters_that_were_not_meant_for_it(
    write,
) -> None:
    job = load_job(write(FULL), {"algorithm": {"kind": "async-sgd", "batch": 3}})
    assert job.algorithm == aq.AsyncSGD(h=DEFAULT_PARAMETERS["async-sgd"]["h"], batch=3)


OWN = '[problem]\nkind = "logistic-regression"\nn_data = 300\ndim = 4\n'


def test_a_problem_without_an_algorithm_gets_what_minimize_chooses(
    write, capfd: pytest.CaptureFixture[str]
) -> None:
    default: dict[str, Any] = {"kind": "default"}
    assert load_job(write(FULL), {"algorithm": default}).algorithm is None
    assert load_job(write(OWN + '[algorithm]\nkind = "default"\n')).algorithm is None
    with pytest.raises(BadInput, match="'default' has no parameters: leave out batch"):
        load_job(write(FULL), {"algorithm": {**default, "batch": 3}})
    with pytest.raises(BadInput, match="'default' has no parameters: leave out h"):
        load_job(write(OWN + '[algorithm]\nkind = "default"\nh = 0.1\n'))
    job = load_job(write(OWN))
    assert job.algorithm is None
    for command in (["simulate", "--workers", "3"], ["run", "--workers", "2"]):
        code, out, err = call(capfd, command[0], write(OWN), *command[1:], "--json")
        assert (code, json.loads(out)["status"]) == (0, "converged")
        assert str(aq.default_algorithm(job.problem, int(command[2]))) in err
    assert isinstance(
        load_job(write(OWN), {"algorithm": {"h": 0.1}}).algorithm, aq.ASLBFGS
    )


@pytest.mark.parametrize("kind", DEFAULT_PARAMETERS)
def test_the_defaults_of_every_algorithm_run_with_the_default_cluster(
    kind: str,
) -> None:
    job = load_job(None, {"algorithm": {"kind": kind}})
    run = aq.minimize(
        job.problem, job.algorithm, engine=aq.Simulator(job.cluster), commits=60, seed=0
    )
    assert run.status in ("completed", "converged")
    assert kind in ALGORITHMS


BAD = {
    "unknown section": ("[clutser]\nworkers = 3\n", "clutser"),
    "a key outside": ("commits = 3\n", "commits"),
    "not TOML": ("[run\n", "TOML"),
    "unknown problem": ("[problem]\nkind = 'banana'\n", "banana"),
    "wrong spectrum": ("[problem]\nspectrum = 'flat'\n", "spectrum"),
    "no algorithm kind": ("[algorithm]\nh = 1.0\n", "kind"),
    "unknown parameter": (
        "[algorithm]\nkind = 'async-sgd'\nh = 1.0\nbatch = 3\nrate = 1\n",
        "rate",
    ),
    "missing parameter": ("[algorithm]\nkind = 'async-sgd'\nh = 1.0\n", "batch"),
    "boolean for a number": (
        "[algorithm]\nkind = 'async-sgd'\nh = true\nbatch = 3\n",
        "h must be a positive finite number",
    ),
    "deaths as a list": ("[cluster]\nworkers = 2\ndeaths = [1.0]\n", "deaths"),
    "unknown run key": ("[run]\ncomits = 3\n", "comits"),
}


@pytest.mark.parametrize(("text", "word"), BAD.values(), ids=BAD)
def test_a_mistake_is_one_sentence_that_names_file_and_culprit(
    write, text: str, word: str
) -> None:
    with pytest.raises(BadInput) as caught:
        load_job(write(text))
    sentence = str(caught.value)
    assert "job.toml" in sentence
    assert word in sentence
    assert "\n" not in sentence
    assert sentence.endswith(".")


plain = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
)


@given(
    section=st.sampled_from(["algorithm", "cluster", "run"]),
    key=st.sampled_from(
        ["kind", "h", "gamma", "batch", "overlap", "memory", "initial_scale", "beta", "workers",
         "worker_mean", "worker_std", "message", "deaths", "commits", "seed", "evaluate"]
    ),
    value=plain,
)  # fmt: skip
def test_no_value_anywhere_raises_anything_but_bad_input(
    section: str, key: str, value: object
) -> None:
    try:
        load_job(
            None,
            {section: {key: value}, "problem": {"dim": 2, "n_data": 3, "dominant": 1}},
        )
    except BadInput as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_a_factorization_without_ratings_says_what_is_missing(
    write: Callable[[str], Path],
) -> None:
    with pytest.raises(aq.BadInput, match="no stored set"):
        load_job(write("[problem]\nkind = 'profiled-factorization'\nrank = 2\n"))
