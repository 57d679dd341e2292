"""The logs of other systems as schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncqn as aq
from asyncqn.errors import BadInput


def as_log(schedule: aq.Schedule) -> dict[str, Any]:
    """An asynchronous schedule without messages, as another system would log it."""
    ends = np.concatenate([[0.0], schedule.commit_times()])
    return {
        "worker": schedule.worker,
        "start": ends[schedule.read],
        "end": schedule.time,
    }


@given(seed=st.integers(0, 99), workers=st.integers(1, 6), shuffle=st.randoms())
def test_a_simulated_run_is_reconstructed_from_its_log(
    seed: int, workers: int, shuffle: Any
) -> None:
    cluster = aq.Cluster(workers=workers, worker_mean=1.0, worker_std=0.5)
    schedule = aq.simulate(cluster, aq.AsyncSGD(h=1.0, batch=1).stages, 60, seed=seed)
    log = pd.DataFrame(as_log(schedule))
    order = list(range(len(log)))
    shuffle.shuffle(order)
    again = aq.Schedule.from_table(log.iloc[order])
    assert again.read.tolist() == schedule.read.tolist()
    assert again.commit.tolist() == schedule.commit.tolist()
    assert np.allclose(again.time, schedule.time)


def test_frames_tables_dates_and_names_of_columns_are_alike() -> None:
    log = {"node": ["b", "a", "b"], "begin": [0.0, 1.0, 2.5], "done": [2.0, 3.0, 4.0]}
    names = {"worker": "node", "start": "begin", "end": "done"}
    one = aq.Schedule.from_table(log, **names)
    assert one.worker.tolist() == [1, 0, 1]
    assert one.read.tolist() == [0, 0, 1]
    frame = pd.DataFrame(log)
    dated = frame.assign(
        begin=pd.Timestamp("2026-01-01") + pd.to_timedelta(frame["begin"], "s"),
        done=pd.Timestamp("2026-01-01") + pd.to_timedelta(frame["done"], "s"),
    )
    for table in (frame, dated, pl.DataFrame(log), pa.table(log)):
        other = aq.Schedule.from_table(table, **names)
        assert other.read.tolist() == one.read.tolist()
        assert np.allclose(other.time, one.time)


def test_versions_and_commits_are_taken_where_the_log_has_them() -> None:
    log = {
        "worker": [0, 1, 2, 0, 1],
        "start": [0.0, 0.0, 0.0, 2.0, 2.0],
        "end": [1.0, 2.0, 3.0, 4.0, 5.0],
        "version": [0, 0, 0, 1, 1],
        "commit": [7, 7, 0, 9, 9],
    }
    schedule = aq.Schedule.from_table(log)
    assert schedule.commit.tolist() == [1, 1, 0, 2, 2]
    assert schedule.read.tolist() == [0, 0, 0, 1, 1]
    assert schedule.dropped == 1


def test_roundings_are_no_overlap() -> None:
    spent = np.random.default_rng(0).exponential(size=1000)
    spent[10] = 1e-10
    end = np.cumsum(spent)
    log = {"worker": ["a"] * 1000, "start": end - spent, "end": end}
    assert (end[:-1] > (end - spent)[1:]).any()
    schedule = aq.Schedule.from_table(log)
    assert (schedule.workers, schedule.staleness.max()) == (1, 0)


def test_a_worker_whose_computations_overlap_is_several_workers() -> None:
    log = {"worker": ["a"] * 4, "start": [0, 1, 3, 3], "end": [2, 3, 5, 6]}
    schedule = aq.Schedule.from_table(log)
    assert schedule.worker.tolist() == [0, 1, 0, 1]


GOOD: dict[str, Any] = {"worker": [0, 1], "start": [0.0, 0.0], "end": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"end": [1.0, -2.0]}, "row 2 of the log ends before it starts"),
        ({"end": [1.0, np.nan]}, "row 2 of the log has no finite end"),
        ({"start": ["x", 0.0]}, "column 'start' must hold times"),
        ({"worker": ["a", None]}, "row 2 of the log has no worker"),
        ({"worker": None}, "must have one entry per row"),
        ({"version": [0, 2]}, "row 2 of the log read version 2, but it is update num"),
        ({"version": [0, 0.5]}, "row 2 of the log has a version that is not a whole"),
        ({"commit": [2, 1]}, "row 2 of the log belongs to commit 1"),
        ({"end": [1.0]}, "column 'end' has 1 rows, but 'start' has 2"),
        ({"start": [], "end": [], "worker": []}, "has no rows"),
    ],
)
def test_bad_rows_are_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        aq.Schedule.from_table({**GOOD, **change})


@pytest.mark.parametrize("table", [3, None, "log.csv", {"worker": [0]}])
def test_something_else_than_a_log_is_refused(table: Any) -> None:
    with pytest.raises(BadInput, match="the log has no column 'start'"):
        aq.Schedule.from_table(table)


def test_a_run_under_the_delays_of_a_schedule_is_that_run() -> None:
    problem = aq.LinearGaussian.random(dim=5, n_data=100, seed=0)
    sgd = aq.AsyncSGD(h=1e-3, batch=10)
    engine = aq.Simulator(aq.Cluster(workers=4, worker_std=0.5))
    run = aq.minimize(problem, sgd, engine=engine, commits=200, seed=3)
    recorded = aq.Recorded(run.schedule)
    again = aq.minimize(problem, sgd, engine=recorded, commits=200, seed=3)
    assert (again.theta == run.theta).all()
    assert (aq.replay(again).theta == run.theta).all()
    half = aq.minimize(problem, sgd, engine=recorded, commits=100, seed=3)
    assert half.nit == 100
    fresh = again.what_if(fresh=True)
    assert (fresh.schedule.staleness == 0).all()


def test_what_a_recorded_schedule_cannot_do_is_said(tmp_path: Any) -> None:
    problem = aq.LinearGaussian.random(dim=5, n_data=100, seed=0)
    engine = aq.Recorded(aq.Schedule.from_table(GOOD))
    with pytest.raises(BadInput, match="assigns parts of the data"):
        aq.minimize(problem, engine=engine)
    sgd = aq.AsyncSGD(h=1e-3, batch=10)
    with pytest.raises(BadInput, match="takes no checkpoints"):
        aq.minimize(problem, sgd, engine=engine, commits=2, checkpoint=tmp_path / "c")


def test_a_cluster_repeats_the_times_of_a_schedule() -> None:
    cluster = aq.Cluster(workers=3, worker_mean=[1.0, 2.0, 4.0], worker_std=0.1)
    stages = aq.AsyncSGD(h=1.0, batch=1).stages
    schedule = aq.simulate(cluster, stages, 300, seed=1)
    again = aq.Cluster.from_schedule(schedule)
    laws = again.laws()
    assert laws is not None
    assert [round(law.mean, 1) for law in laws] == [1.0, 2.0, 4.0]
    simulated = aq.simulate(again, stages, 300, seed=0)
    assert abs(simulated.time[-1] / schedule.time[-1] - 1.0) < 0.05
    assert aq.Cluster.from_schedule(schedule, workers=5, per_worker=False).workers == 5
