"""A rising beta: its values, its use by the algorithms, its way through files."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn import ASLBFGS, SGLD, minimize
from asyncqn.algorithms import algorithm_from_json, algorithm_to_json
from asyncqn.algorithms.annealing import Annealing
from asyncqn.cluster.cluster import Cluster
from asyncqn.engines.simulator import Simulator
from asyncqn.errors import BadInput
from asyncqn.models.linear_gaussian import LinearGaussian
from asyncqn.runs.replay import replay

RISING = Annealing(0.1, 10.0, 20)
METHODS = [
    SGLD(h=1e-5, beta=RISING, batch=4),
    ASLBFGS(
        h=1e-5,
        gamma=0.05,
        beta=RISING,
        memory=2,
        batch=6,
        overlap=3,
        initial_scale=1.0,
        epsilon=100.0,
    ),
]


@given(start=st.floats(1e-3, 1e3), end=st.floats(1e-3, 1e3), steps=st.integers(1, 1000))
def test_beta_goes_from_start_to_end_and_stays_there(start, end, steps):
    schedule = Annealing(start, end, steps)
    # A power and a product: a few roundings, times |log(end / start)| <= 14 in the power.
    assert schedule.at(0) == pytest.approx(start, rel=1e-13)
    assert schedule.at(steps) == pytest.approx(end, rel=1e-13)
    assert schedule.at(10 * steps) == schedule.at(steps)
    low, high = sorted((start, end))
    assert low * (1 - 1e-13) <= schedule.at(steps // 2) <= high * (1 + 1e-13)


def test_noise_is_that_of_the_beta_of_the_step():
    method = METHODS[1]
    for k in (0, 10, 20, 50):
        assert method.noise(k) == math.sqrt(2.0 * 1e-5 * 0.05 / RISING.at(k))


@pytest.mark.parametrize("method", METHODS, ids=["sgld", "as-lbfgs"])
def test_an_annealed_run_with_workers_is_replayed_from_its_file(method, tmp_path):
    p = LinearGaussian.random(5, 15, seed=0)
    run = minimize(
        p, method, engine=Simulator(Cluster(3, worker_std=0.5)), commits=90, seed=4
    )
    assert run.nit == 90
    run.save(tmp_path / "run")
    again = replay(tmp_path / "run")
    assert again.theta.tobytes() == run.theta.tobytes()
    assert again.algorithm == method


@pytest.mark.parametrize("method", METHODS, ids=["sgld", "as-lbfgs"])
def test_an_annealing_that_stays_is_the_constant_beta_to_the_bit(method):
    p = LinearGaussian.random(5, 15, seed=0)
    parameters = algorithm_to_json(method)["parameters"]
    thetas = [
        minimize(
            p,
            type(method)(**{**parameters, "beta": beta}),
            engine=Simulator(Cluster(2)),
            commits=40,
        ).theta
        for beta in (2.0, Annealing(2.0, 2.0, 5))
    ]
    assert thetas[0].tobytes() == thetas[1].tobytes()
    assert np.isfinite(thetas[0]).all()


@pytest.mark.parametrize("method", METHODS, ids=["sgld", "as-lbfgs"])
def test_plain_data_in_json_give_the_same_algorithm(method):
    assert (
        algorithm_from_json(json.loads(json.dumps(algorithm_to_json(method)))) == method
    )


def test_bad_parameters_get_a_sentence():
    for arguments, sentence in (
        ((0.0, 1.0, 5), "start must be a positive finite number"),
        ((1.0, math.inf, 5), "end must be a positive finite number"),
        ((1.0, 2.0, 0), "steps must be an integer"),
    ):
        with pytest.raises(BadInput, match=sentence):
            Annealing(*arguments)
    with pytest.raises(BadInput, match="no parameter 'stop'"):
        SGLD(h=1.0, beta={"start": 1.0, "stop": 2.0}, batch=1)
    with pytest.raises(BadInput, match="beta must be a positive number"):
        SGLD(h=1.0, beta="hot", batch=1)
