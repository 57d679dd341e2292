"""Draws: the iterates that a run keeps, in memory or in a file, saved with it and made again by a replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from oracles import one_sentence

import asyncqn as aq
from asyncqn.errors import BadInput
from asyncqn.storage.growing import GrowingRows

PROBLEM = aq.LinearGaussian.random(dim=5, n_data=50, seed=0)
SGLD = aq.SGLD(h=1e-3, beta=1.0, batch=50)


def chain(
    seed: int = 0, keep: int | None = 4, engine: aq.Engine | None = None
) -> aq.Run:
    engine = engine or aq.Simulator(aq.Cluster(1))
    return aq.minimize(
        PROBLEM, SGLD, engine=engine, commits=42, keep=keep, seed=seed, evaluate=1
    )


def test_every_k_th_iterate_is_kept_on_every_kind_of_engine():
    seen: dict[int, np.ndarray] = {}
    run = aq.minimize(
        PROBLEM,
        SGLD,
        engine=aq.Threads(1),
        commits=42,
        keep=4,
        evaluate=1,
        callback=lambda progress: seen.update({progress.commit: progress.theta}),
    )
    assert run.keep.commit.tolist() == list(range(4, 43, 4))
    for commit, theta in zip(run.keep.commit, run.keep.theta):
        np.testing.assert_array_equal(theta, seen[commit])
    assert chain().keep.theta.tobytes() == run.keep.theta.tobytes()
    assert chain(keep=None).keep is None


def test_a_saved_run_has_its_draws_and_a_replay_makes_them_again(tmp_path: Path):
    run = chain()
    run.save(tmp_path / "run")
    loaded = aq.load_run(tmp_path / "run")
    assert loaded.keep.every == 4
    assert (
        loaded.keep.theta.tobytes()
        == run.keep.theta.tobytes()
        == aq.replay(loaded).keep.theta.tobytes()
    )
    np.testing.assert_array_equal(
        aq.replay(chain(keep=None), keep=8).keep.theta, run.keep.theta[1::2]
    )
    chain(keep=None).save(tmp_path / "run")
    assert aq.load_run(tmp_path / "run").keep is None
    assert len(list((tmp_path / "run").iterdir())) == 2, "the older draws are gone"


@pytest.mark.parametrize("in_memory", [0, 10**6])
def test_rows_beyond_memory_are_mapped_and_the_same(in_memory):
    rows, given = GrowingRows(3, np.float64), np.arange(120.0).reshape(40, 3)
    for row in (*given[:10], given[0], given[0]):
        rows.append(row)
    rows.truncate(10)
    for row in given[10:]:
        rows.append(row)
    table = rows.table(in_memory)
    np.testing.assert_array_equal(table, given)
    np.testing.assert_array_equal(rows.between(4, 8), given.ravel()[4:8])
    assert isinstance(table, np.memmap) == (in_memory < 960)
    del rows
    np.testing.assert_array_equal(table, given)  # the map outlives its maker
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 0.0


def test_chains_over_seeds_become_a_data_tree():
    runs = [chain(seed) for seed in range(3)]
    tree = runs[0].keep.to_arviz(*(run.keep for run in runs[1:]), burn_in=2)
    theta = tree["posterior"]["theta"]
    assert theta.dims == ("chain", "draw", "theta_dim")
    assert theta["draw"].values.tolist() == list(range(12, 43, 4))
    np.testing.assert_array_equal(theta.values[2], runs[2].keep.theta[2:])


def test_kept_iterates_survive_a_checkpoint(tmp_path: Path):
    def stop(progress):
        if progress.commit >= 20:
            raise StopIteration

    engine = aq.Simulator(aq.Cluster(2))
    whole = aq.minimize(PROBLEM, SGLD, engine=engine, commits=60, keep=3, evaluate=10)
    aq.minimize(
        PROBLEM,
        SGLD,
        engine=engine,
        commits=60,
        keep=3,
        evaluate=10,
        callback=stop,
        checkpoint=tmp_path / "c",
        checkpoint_every=7,
    )
    resumed = aq.resume(tmp_path / "c")
    np.testing.assert_array_equal(resumed.keep.theta, whole.keep.theta)


def test_mistakes_get_one_sentence():
    other = aq.minimize(
        aq.LinearGaussian.random(dim=2, n_data=9),
        SGLD.__class__(h=1e-3, beta=1.0, batch=9),
        engine=aq.Simulator(aq.Cluster(1)),
        commits=8,
        keep=2,
    )
    for wrong, words in (
        (lambda: chain(keep=0), "keep must be"),
        (lambda: aq.replay(chain(), keep=0), "keep must be"),
        (lambda: chain().keep.to_arviz(other.keep), "one problem"),
        (lambda: chain().keep.to_arviz(burn_in=10), "burn_in must be at least 0"),
    ):
        with pytest.raises(BadInput, match=words) as caught:
            wrong()
        assert one_sentence(caught.value)
