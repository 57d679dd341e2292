"""The paper's tables by name: spec section 5."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import asyncqn as aq

TABLE = {  # a-SGD h; mb h and T_mb in seconds; as h, gamma, beta; N_Omega; rho
    "linear-gaussian": (1e-3, (5e-2, 10.0), (4e-4, 3e-2, 5e2), 6, 0.0),
    "ml-1m": (1e-6, (5e-7, 0.4), (2e-8, 1e-1, 1e3), 10_002, 3.0),
    "ml-10m": (2e-7, (1e-8, 3.4), (1e-9, 3e-2, 1e3), 100_000, 3.0),
    "ml-20m": (1e-7, (1e-8, 4.5), (1e-9, 1e-3, 1e3), 200_002, 3.0),
}


@pytest.mark.parametrize("name", TABLE)
def test_algorithms_have_the_numbers_of_the_table(name):
    sgd, mb, own, batch, rho = TABLE[name]
    assert aq.AsyncSGD.from_paper(name) == aq.AsyncSGD(h=sgd, batch=batch)
    shared = {"memory": 3, "batch": batch, "overlap": batch // 3, "rho": rho}
    assert aq.MBLBFGS.from_paper(name) == aq.MBLBFGS(h=mb[0], timeout=mb[1], **shared)
    assert aq.ASLBFGS.from_paper(name) == aq.ASLBFGS(*own, **shared)
    fewer = aq.ASLBFGS.from_paper(name, n_data=30_000)
    assert (fewer.batch, fewer.overlap) == (300, 100)


def test_the_cluster_charges_each_algorithm_its_own_times():
    own = aq.Cluster.from_paper()
    assert own == aq.Cluster(40, 70.0, math.sqrt(200.0), message=10.0)
    assert aq.Cluster.from_paper(algorithm="async-sgd") == replace(
        own, worker_mean=10.0
    )
    assert aq.Cluster.from_paper(algorithm="mb-lbfgs") == replace(
        own, worker_mean=10.0, master=30.0
    )
    assert aq.Cluster.from_paper(workers=3, variance=0.0) == aq.Cluster(
        3, 70.0, message=10.0
    )
    with pytest.raises(aq.BadInput, match="on real machines and prints no times"):
        aq.Cluster.from_paper("ml-1m")
