"""Clusters: the log-normal law of their times, and impossible ones refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import one_sentence
from scipy import stats

from asyncqn.core.cluster import Cluster
from asyncqn.core.serialise import from_json, to_json
from asyncqn.errors import BadInput


@pytest.mark.parametrize(("mean", "std"), [(70.0, 14.0), (1.0, 3.0), (5.0, 0.1)])
def test_times_are_log_normal_with_the_mean_and_deviation_asked_for(mean, std):
    n = 200_000
    t = Cluster(3, mean, std).compute_times(1, 2, n)
    assert abs(t.mean() - mean) < 5 * std / np.sqrt(n)
    s = math.sqrt(math.log1p((std / mean) ** 2))
    m = math.log(mean) - s * s / 2
    # ln t is normal: its mean and variance have standard errors s/sqrt(n) and s^2 sqrt(2/n).
    assert abs(np.log(t).mean() - m) < 4 * s / np.sqrt(n)
    assert abs(np.log(t).var() - s * s) < 4 * s * s * np.sqrt(2 / n)
    assert stats.kstest(np.log(t[:50_000]), stats.norm(m, s).cdf).pvalue > 1e-3
    # The two parameters above make exactly this mean and deviation.
    assert math.exp(m + s * s / 2) == pytest.approx(mean, rel=1e-12)
    assert mean * math.sqrt(math.expm1(s * s)) == pytest.approx(std, rel=1e-9)


def test_times_without_deviation_are_constant():
    assert (Cluster(2, [3.0, 7.7]).compute_times(0, 1, 10) == 7.7).all()
    assert (Cluster(1, 0.0, message=1.0).compute_times(0, 0, 5) == 0.0).all()


def test_workers_have_times_of_their_own_that_do_not_depend_on_how_many_are_drawn():
    cluster = Cluster(3, 2.0, 1.0)
    a, b = cluster.compute_times(0, 0, 500), cluster.compute_times(0, 1, 500)
    assert abs(np.corrcoef(np.log(a), np.log(b))[0, 1]) < 4 / np.sqrt(500)
    assert cluster.compute_times(0, 0, 130).tobytes() == a[:130].tobytes()


def test_speeds_of_unequal_workers_are_their_own():
    cluster = Cluster(2, (1.0, 100.0), (0.0, 10.0))
    assert cluster.means().tolist() == [1.0, 100.0]
    assert cluster.stds().tolist() == [0.0, 10.0]


def test_a_cluster_goes_to_plain_data_and_back():
    cluster = Cluster(3, (1.0, 2.0, 3.0), 0.5, 1.0, 0.1, deaths={1: 5.0}, joins={2: 3.0})
    assert from_json(Cluster, to_json(cluster), "cluster") == cluster


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "at least one worker"),
        ({"workers": -3}, "at least one worker"),
        ({"workers": 2.0}, "at least one worker"),
        ({"workers": True}, "at least one worker"),
        ({"workers": 2, "worker_mean": [1.0, 2.0, 3.0]}, "one per worker"),
        ({"workers": 2, "worker_std": [[1.0, 2.0]]}, "one per worker"),
        ({"workers": 2, "worker_mean": -1.0}, "worker_mean must be finite and not negative"),
        ({"workers": 2, "worker_mean": np.nan}, "worker_mean must be finite"),
        ({"workers": 2, "worker_std": np.inf}, "worker_std must be finite"),
        ({"workers": 2, "worker_mean": 0.0, "worker_std": 1.0}, "worker_mean must be positive where"),
        ({"workers": 2, "message": -0.1}, "message must be finite"),
        ({"workers": 2, "master": np.nan}, "master must be finite"),
        ({"workers": 2, "master": np.inf}, "master must be finite"),
        ({"workers": 2, "worker_mean": 0.0}, "must take some time"),
        ({"workers": 2, "worker_mean": [0.0, 1.0]}, "must take some time"),
        ({"workers": 2, "deaths": {2: 1.0}}, "deaths names worker 2"),
        ({"workers": 2, "joins": {-1: 1.0}}, "joins names worker -1"),
        ({"workers": 2, "deaths": {0: -1.0}}, "must not be negative"),
        ({"workers": 2, "deaths": {0: np.nan}}, "must not be negative"),
        ({"workers": 2, "joins": {0: 1.0, 1: 2.0}}, "there from the start"),
        ({"workers": 2, "joins": {1: np.inf}}, "must be finite"),
    ],
)
def test_an_impossible_cluster_is_refused_in_one_sentence(arguments, words):
    with pytest.raises(BadInput, match=words) as caught:
        Cluster(**arguments)
    assert one_sentence(caught.value)
