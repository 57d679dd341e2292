"""The rows of 360 simulated cells against those of an earlier simulator, with every difference and its reason."""

from __future__ import annotations

import numpy as np
import pytest
from cluster import golden

import asyncqn as aq
from asyncqn.core.stages import Stage

ROUNDING = 1e-11
AT_ONCE = {"in turn", "by age", "by age, few parts", "by age, growing", "at random"}
BLOCKS = {
    "blocks",
    "blocks, eager backups",
    "blocks in pieces",
    "many blocks",
    "growing blocks",
}
TIMEOUTS = {"rounds, half", "rounds, most", "rounds, no wait"}
DYING = {"deaths", "all die", "recoveries", "die and follow", "link and deaths"}
LINKS = {"link", "link, tree", "link, free sending", "link and deaths"}


def reason(cluster: str, stage: str) -> str | None:
    """Return why a cell may have other rows, or None if it must have the same."""
    if stage == "batches, then blocks":
        return "one stream of times; the warm-up had one and the blocks another"
    if stage == "growing blocks":
        return "a late update of the sample before is recorded when it arrives"
    if stage in AT_ONCE and (cluster in DYING or cluster == "joins at a busy master"):
        return (
            "a part is assigned when a worker joins, and free when one dies, not after the commit that keeps "
            "the master busy then"
        )
    if stage in BLOCKS and cluster in DYING:
        return "the death of a worker is noticed, and its block assigned at once"
    if stage in BLOCKS and cluster == "link, free sending":
        return "a free message does not wait for the link"
    if stage in TIMEOUTS and cluster in LINKS:
        return "a timeout counts from the version, not from the end of its broadcast"
    if stage == "rounds, half" and cluster == "ties with messages":
        return "an update that arrives with the timeout is in time"
    return None


def cells() -> list[tuple[str, str]]:
    one = aq.Cluster(1)
    return [(c, s) for c in golden.clusters() for s in golden.stages(one)]


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], dict[str, np.ndarray]]:
    with np.load(golden.FILE) as stored:
        columns = dict(stored)
    bounds = np.cumsum(columns.pop("rows"))[:-1]
    parts = {name: np.split(column, bounds) for name, column in columns.items()}
    return {
        cell: {name: part[i] for name, part in parts.items()}
        for i, cell in enumerate(cells())
    }


def up_to_the_last_commit(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    end = int(np.flatnonzero(columns["commit"])[-1]) + 1
    return {name: column[:end] for name, column in columns.items()}


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    if a["worker"].size != b["worker"].size:
        return False
    same = all(np.array_equal(a[n], b[n]) for n in a if n != "time")
    return same and np.allclose(a["time"], b["time"], rtol=ROUNDING, atol=0.0)


@pytest.mark.parametrize("cluster", golden.clusters())
def test_rows_are_those_of_the_earlier_simulator_but_for_known_reasons(
    cluster: str, rows: dict[tuple[str, str], dict[str, np.ndarray]]
) -> None:
    model = golden.clusters()[cluster]
    for name, stages in golden.stages(model, reach=model.message / 2).items():
        schedule = aq.simulate(model, stages, golden.COMMITS, golden.SEED)
        uncut = np.full(len(schedule), -1)
        new = up_to_the_last_commit({"part": uncut, **schedule.arrays()})
        old = up_to_the_last_commit(rows[cluster, name])
        if reason(cluster, name) is None:
            assert equal(new, old), name
        elif schedule.commits == golden.COMMITS:
            # Other rows, and still the stage's own number of updates in every commit.
            check(schedule, stages if isinstance(stages, tuple) else (stages,), name)


def check(schedule: aq.Schedule, stages: tuple[Stage, ...], name: str) -> None:
    counts = np.bincount(schedule.commit)[1:]
    if name in BLOCKS:
        assert (counts == stages[-1].rows).all()
        assert schedule.staleness.max() == 0
    elif name in AT_ONCE:
        assert (counts == 1).all()
