"""Clusters: the log-normal law of their times, and impossible ones refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from oracles import one_sentence
from scipy import stats

from asyncqn.cluster.cluster import Cluster
from asyncqn.cluster.laws import Constant, Exponential, LogNormal, Pareto, Trace
from asyncqn.errors import BadInput
from asyncqn.parameters import from_json
from asyncqn.storage.serialise import to_json


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


def test_workers_have_times_of_their_own_that_do_not_depend_on_how_many_are_drawn():
    cluster = Cluster(3, 2.0, 1.0)
    a, b = cluster.compute_times(0, 0, 500), cluster.compute_times(0, 1, 500)
    assert abs(np.corrcoef(np.log(a), np.log(b))[0, 1]) < 4 / np.sqrt(500)
    assert cluster.compute_times(0, 0, 130).tobytes() == a[:130].tobytes()


@pytest.mark.parametrize(
    ("law", "quantile"),
    [
        (Exponential(3.0), lambda u: -3.0 * np.log(u)),
        (Pareto(3.0, 1.5), lambda u: 1.0 * u ** (-1 / 1.5)),
        (LogNormal(70.0, 14.0), None),
        (Constant(2.0), None),
    ],
)
def test_laws_have_their_quantiles_and_their_means(law, quantile):
    z = stats.norm.isf(u := np.array([0.9, 0.5, 0.1, 1e-3, 1e-9]))
    if quantile is not None:
        np.testing.assert_allclose(law.times(z), quantile(u), rtol=1e-9)
    assert (np.diff(law.times(z)) >= 0).all(), "long together"
    if not isinstance(law, Pareto):  # whose sample means converge slowly
        times = Cluster(1, times=law).compute_times(0, 0, 100_000)
        assert times.mean() == pytest.approx(
            law.mean, abs=5 * times.std() / np.sqrt(1e5) + 1e-12
        )


def test_a_trace_plays_in_its_order_from_a_place_of_each_worker():
    recorded = [1.0, 2.0, 3.0, 4.0, 5.0]
    cluster = Cluster(20, times=Trace(recorded))
    begins = set()
    for worker in range(20):
        times = cluster.compute_times(3, worker, 12)
        begins.add(begin := recorded.index(times[0]))
        np.testing.assert_array_equal(
            times, np.roll(recorded, -begin)[np.arange(12) % 5]
        )
    assert len(begins) > 2


def test_a_longer_cluster_has_longer_times_of_the_same_draws():
    laws = [
        Exponential(3.0),
        Pareto(3.0, 1.5),
        LogNormal(7.0, 1.0),
        Constant(2.0),
        Trace([1.0, 2.0]),
        Odd(),
    ]
    for cluster in (Cluster(6, times=laws), Cluster(6, 3.0, 2.0)):
        for worker in range(6):
            times, longer = (
                c.compute_times(0, worker, 50) for c in (cluster, cluster.scaled(2.5))
            )
            np.testing.assert_allclose(longer, 2.5 * times, rtol=1e-12)
        np.testing.assert_allclose(cluster.scaled(2.5).means(), 2.5 * cluster.means())


class Odd:
    def times(self, z):
        return 1.0 + np.arange(z.size) % 2


def test_a_cluster_goes_to_plain_data_and_back():
    laws = [
        Exponential(3.0),
        Pareto(3.0, 1.5),
        LogNormal(7.0, 1.0),
        Constant(2.0),
        Trace([1.0, 2.0]),
    ]
    deaths, recoveries = {1: 2.0}, {1: 3.0}
    for cluster in (
        Cluster(3, (1.0, 2.0, 3.0), 0.5, 1.0, 0.1, deaths={1: 5.0}, joins={2: 3.0}),
        Cluster(5, times=laws, deaths=deaths, recoveries=recoveries, link=0.5, rows=10),
        Cluster(5, times=laws[1]),
    ):
        plain = json.loads(json.dumps(to_json(cluster)))
        assert from_json(Cluster, plain, "cluster") == cluster
    assert {"times", "link", "recoveries", "rows"}.isdisjoint(to_json(Cluster(3))), (
        "as before"
    )
    assert to_json(Cluster(1, times=Odd()))["times"] == {
        "kind": f"{Odd.__module__}:Odd"
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "workers must be an integer of at least 1"),
        ({"workers": 2, "worker_mean": [1.0, 2.0, 3.0]}, "one per worker"),
        (
            {"workers": 2, "worker_mean": -1.0},
            "worker_mean must be one finite number of at least 0",
        ),
        (
            {"workers": 2, "worker_mean": 0.0, "worker_std": 1.0},
            "worker_mean must be positive where",
        ),
        (
            {"workers": 2, "message": -0.1},
            "message must be a finite number of at least 0",
        ),
        ({"workers": 2, "worker_mean": [0.0, 1.0]}, "must take some time"),
        ({"workers": 2, "deaths": {2: 1.0}}, "deaths names worker 2"),
        (
            {"workers": 2, "joins": {-1: 1.0}},
            "joins must be a mapping from an integer of at least 0",
        ),
        ({"workers": 2, "deaths": {0: -1.0}}, "deaths must be a mapping"),
        ({"workers": 2, "joins": {0: 1.0, 1: 2.0}}, "there from the start"),
        ({"workers": 2, "joins": {1: np.inf}}, "to a finite number"),
        ({"workers": 2, "rows": 0}, "rows must be a positive finite number"),
        ({"workers": 2, "deaths": {1: 5.0}, "recoveries": {1: 5.0}}, "must die before"),
        ({"workers": 2, "times": 3.0}, "times must be a law such as"),
        ({"workers": 2, "times": Exponential}, "times must be a law such as"),
        ({"workers": 2, "times": [Constant(1.0)]}, "one law or one per worker"),
        (
            {"workers": 2, "times": Constant(1.0), "worker_mean": 3.0},
            "times, or worker_mean and worker_std, not both",
        ),
        ({"workers": 2, "times": {"kind": "levy"}}, "no law of kind 'levy'"),
        (
            {"workers": 2, "times": {"kind": "pareto", "mean": 1.0}},
            "lacks the parameter shape",
        ),
        (
            {"workers": 2, "times": {"kind": "pareto", "mean": 1.0, "shape": 1.0}},
            "a finite number above 1",
        ),
        (
            {"workers": 2, "times": {"kind": "trace", "recorded": []}},
            "at least one time",
        ),
        ({"workers": 2, "times": {"kind": "mine:Law"}}, "your own class"),
    ],
)
def test_an_impossible_cluster_is_refused_in_one_sentence(arguments, words):
    with pytest.raises(BadInput, match=words) as caught:
        Cluster(**arguments)
    assert one_sentence(caught.value)


def test_a_law_whose_times_are_none_is_refused_when_they_are_drawn():
    class Wrong:
        def __init__(self, value):
            self.value = value

        def times(self, z):
            return self.value

    for value, words in (
        (np.ones(3), "one time per normal"),
        (np.full(5, -1.0), "finite times of at least 0"),
    ):
        with pytest.raises(BadInput, match=words) as caught:
            Cluster(1, times=Wrong(value)).compute_times(0, 0, 5)
        assert one_sentence(caught.value)
