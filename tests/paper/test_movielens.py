"""Ratings of Figs. 4 and 5: the paper's parameters, and times by who pays for messages."""

from __future__ import annotations

import pytest

from asyncqn_paper.movielens import (
    TABLE,
    Timing,
    measured_cluster,
    parameters,
)
from asyncqn_paper.settings import EVERYONE, NAMES, NOBODY, UPDATES_ONLY, algorithm


@pytest.mark.parametrize("size", list(TABLE))
@pytest.mark.parametrize("kind", list(NAMES))
def test_the_paper_s_parameters_are_valid_with_batches_of_a_hundredth(
    size: str, kind: str
) -> None:
    given = parameters(size, 1_000_209)[kind]
    assert given["batch"] == 10_002
    algorithm(kind, given)


@pytest.mark.parametrize(
    ("payer", "link", "message"),
    [(NOBODY, 0.0, 0.5), (EVERYONE, 0.25, 0.0), (UPDATES_ONLY, 0.25, 0.25)],
)
def test_an_exchange_takes_as_long_whoever_pays_for_it(
    payer: str, link: float, message: float
) -> None:
    cluster = measured_cluster(Timing(2.0, 0.1, 0.5), 3, payer)
    assert (cluster.workers, cluster.worker_mean, cluster.master) == (3, 2.0, 0.1)
    assert (cluster.link, cluster.message) == (link, message)
