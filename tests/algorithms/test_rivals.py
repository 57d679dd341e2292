"""The rivals' updates, each against a plain loop over the schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import gradient, one_sentence, thetas_of

from asyncqn import (
    AsyncSAGA,
    Cluster,
    DelayAdaptiveSGD,
    LinearGaussian,
    Rennala,
    Ringmaster,
    Simulator,
)
from asyncqn.core.streams import Stream
from asyncqn.errors import BadInput

P = LinearGaussian.random(9, 50, 2.0, seed=1, dominant=2, top=40.0, bulk=(2.0, 9.0))
THETA0 = np.linspace(-1, 1, 9)
ENGINE = Simulator(Cluster(5, [1.0, 1.0, 1.0, 2.0, 9.0], 0.3, message=0.1, master=0.02))
SEED, BATCH, H = 6, 4, 1e-3
# A kernel may fuse a multiplication with an addition: one rounding of a step less per coordinate and commit.
ROUNDING = 1e-13


def computed(algorithm: Any, commits: int = 80) -> tuple[Any, list[Any], list[Any]]:
    """The run, its iterates, and of every row of the schedule the gradient on the rows its worker drew."""
    run, thetas = thetas_of(P, algorithm, ENGINE, commits, theta0=THETA0, seed=SEED)
    steps = dict.fromkeys(range(5), 0)
    gradients = []
    for w, read in zip(run.schedule.worker.tolist(), run.schedule.read.tolist()):
        drawn = Stream(SEED, w, steps[w]).rows(50, np.empty(BATCH, np.int64))
        steps[w] += 1  # one that was dropped moved its worker's stream on, too
        gradients.append(gradient(P, thetas[read], drawn))
    return run, thetas, gradients


def test_delay_adaptive_sgd_shortens_late_steps_by_their_age() -> None:
    run, thetas, gradients = computed(DelayAdaptiveSGD(H, BATCH, tau=3))
    late = 0
    for n, (staleness, g) in enumerate(zip(run.schedule.staleness.tolist(), gradients)):
        shorter = min(1.0, 3 / max(staleness, 1))
        late += shorter < 1
        np.testing.assert_allclose(
            thetas[n + 1], thetas[n] - H * shorter * g, rtol=ROUNDING, atol=ROUNDING
        )
    assert late > 10


def test_ringmaster_adds_what_is_young_enough_and_drops_the_rest() -> None:
    run, thetas, gradients = computed(Ringmaster(H, BATCH, max_delay=4))
    assert run.schedule.staleness.max() == 4
    assert run.schedule.dropped > 3
    for commit, g in zip(run.schedule.commit.tolist(), gradients):
        if commit:
            expected = thetas[commit - 1] - H * g
            np.testing.assert_allclose(
                thetas[commit], expected, rtol=ROUNDING, atol=ROUNDING
            )


def test_rennala_takes_the_mean_of_updates_at_the_present_iterate() -> None:
    run, thetas, gradients = computed(Rennala(H, BATCH, collect=6), 30)
    assert run.schedule.staleness.max() == 0
    for commit in range(1, 31):
        rows = np.flatnonzero(run.schedule.commit == commit)
        assert rows.size == 6
        mean = np.mean([gradients[row] for row in rows], axis=0)
        np.testing.assert_allclose(
            thetas[commit], thetas[commit - 1] - H * mean, rtol=1e-12, atol=ROUNDING
        )


def test_saga_corrects_each_part_by_its_table() -> None:
    algorithm = AsyncSAGA(1e-4, parts=12)
    run, thetas = thetas_of(P, algorithm, ENGINE, 80, theta0=THETA0, seed=SEED)
    table = np.zeros((12, 9))
    schedule = run.schedule
    # The rows after the last commit were under way when the run ended.
    reads, parts = schedule.read[:80].tolist(), schedule.part[:80].tolist()
    for n, (read, part) in enumerate(zip(reads, parts)):
        rows = np.arange(part * 50 // 12, (part + 1) * 50 // 12)
        g = 12 * rows.size / 50 * gradient(P, thetas[read], rows)
        expected = thetas[n] - 1e-4 * (g - table[part] + table.mean(axis=0))
        np.testing.assert_allclose(thetas[n + 1], expected, rtol=1e-12, atol=ROUNDING)
        table[part] = g


def test_saga_converges_to_the_optimum_where_sgd_keeps_its_noise() -> None:
    errors = {}
    for name, algorithm in {
        "sgd": DelayAdaptiveSGD(1e-3, 5, tau=9),
        "saga": AsyncSAGA(1e-3, 10),
    }.items():
        run, _ = thetas_of(P, algorithm, ENGINE, 4000, seed=SEED)
        errors[name] = (run.fun - P.optimum) / P.optimum
    assert errors["saga"] < 1e-9
    assert errors["sgd"] > 1e-4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DelayAdaptiveSGD(1e-3, 4, tau=0), "tau"),
        (lambda: Ringmaster(1e-3, 4, max_delay=-1), "max_delay"),
        (lambda: Rennala(1e-3, 4, collect=0), "collect"),
        (lambda: AsyncSAGA(1e-3, parts=0), "part"),
        (lambda: AsyncSAGA(1e-3, parts=51).check(P), "cannot be cut"),
    ],
)
def test_parameters_without_meaning_are_refused_in_one_sentence(
    make: Any, words: str
) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        make()
    assert one_sentence(caught.value)
