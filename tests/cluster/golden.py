"""18 sequences of stages on 20 clusters, and the rows that an earlier simulator drew for them.

`python tests/cluster/golden.py` wrote golden_rows.npz at commit d00b2659, whose simulator had three event queues
compiled by numba and an interpreter; it runs on any commit that has `asyncqn.simulate`.  The cells "at random"
were drawn again at 10587f52, by the machine that agreed with all others, when their growth lost an option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.cluster import laws as times
from asyncqn.core.stages import (
    ASYNCHRONOUS,
    AllParts,
    EachUpdate,
    FreshRound,
    Growth,
    Round,
)

FILE = Path(__file__).with_name("golden_rows.npz")
COMMITS, SEED = 24, 7

ROUNDS = {
    "rounds of all": (np.inf, 1.0),
    "rounds, half": (2.0, 0.5),
    "rounds, most": (1.0, 0.7),
    "rounds, no wait": (0.0, 0.3),
}
"""Timeout, from the moment at which the broadcast has reached the workers, and quorum."""


def stages(cluster: aq.Cluster, *, reach: float = 0.0) -> dict[str, Any]:
    """Return the stages by name; a timeout counts from a broadcast and includes `reach`."""
    by_age = "age"
    growing = Growth(2)
    return {
        "asynchronous": ASYNCHRONOUS,
        "not older than 2": EachUpdate(max_delay=2),
        "fresh rounds of 3": FreshRound(updates=3),
        "in turn": EachUpdate(blocks=5),
        "by age": EachUpdate(blocks=8, order=by_age),
        "by age, few parts": EachUpdate(blocks=2, order=by_age, max_delay=3),
        "by age, growing": EachUpdate(blocks=30, order=by_age, growth=Growth(4)),
        "at random": EachUpdate(blocks=9, order="random", growth=growing, max_delay=1),
        **{
            name: Round(timeout=t + reach, quorum=quorum)
            for name, (t, quorum) in ROUNDS.items()
        },
        "blocks": AllParts(blocks=5, backup_after=2.0),
        "blocks, eager backups": AllParts(blocks=3, backup_after=0.4),
        "blocks in pieces": AllParts(blocks=4, backup_after=1.5, pieces=3),
        "many blocks": AllParts(blocks=12, backup_after=1e9),
        "growing blocks": (
            AllParts(blocks=4, backup_after=3.0, share=0.25, commits=6),
            AllParts(blocks=4, backup_after=3.0),
        ),
        "batches, then blocks": (
            EachUpdate(blocks=6, commits=12),
            AllParts(blocks=4, backup_after=2.0),
        ),
    }


def clusters() -> dict[str, aq.Cluster]:
    """Return the clusters by name."""
    C = aq.Cluster
    laws = [
        times.Exponential(2.0),
        times.Pareto(2.0, 1.3),
        times.Constant(1.5),
        times.LogNormal(2.0, 1.0),
        times.Trace([1.0, 5.0, 0.5]),
    ]
    late = {w: 7.7 * w for w in range(2, 7)}
    deaths = {0: 9.0, 2: 3.0, 3: 5.0}
    return {
        "one worker": C(1, 3.0, 1.0, message=0.5, master=0.2),
        "only computing": C(5, 2.0, 1.0),
        "messages": C(5, 2.0, 1.0, message=3.0),
        "busy master": C(6, 2.0, 1.0, message=0.4, master=1.1),
        "wild times": C(6, 2.0, 20.0, message=0.1, master=0.05),
        "unequal": C(4, [1.0, 2.0, 10.0, 0.3], [0.1, 1.0, 5.0, 0.3], 0.2, 0.1),
        "deaths": C(5, 2.0, 0.7, 0.3, 0.4, deaths={0: 20.0, 3: 5.0, 4: 0.1}),
        "joins": C(5, 2.0, 0.7, 0.3, 0.4, joins={1: 10.0, 3: 33.3, 4: 0.01}),
        "joins at a busy master": C(7, 2.0, 0.7, master=1.0, joins=late),
        "all die": C(3, 2.0, 0.5, master=0.1, deaths={0: 30.0, 1: 40.0, 2: 35.0}),
        "recoveries": C(
            4, 2.0, 0.5, 0.3, 0.1, deaths, recoveries={0: 30.0, 2: 3.1}
        ),
        "laws": C(5, times=laws, message=0.2, master=0.1),
        "die and follow": C(
            4, 1.0, 0.5, master=0.1, deaths={0: 9.0, 1: 15.0}, joins={2: 5.0, 3: 60.0}
        ),
        "ties": C(3, [2.0, 1.0, 1.0]),
        "ties with messages": C(4, [2.0, 1.0, 1.0, 0.5], message=1.0, master=0.5),
        "fixed": C(4, 1.0, 0.6, message=0.2, master=0.1, fixed=0.7),
        "link": C(5, 4.0, 1.0, message=0.4, master=0.2, link=0.15),
        "link, tree": C(6, 4.0, 1.0, 0.4, 0.2, link=0.15, sending="tree"),
        "link, free sending": C(5, 4.0, 1.0, 0.4, link=0.3, sending="free"),
        "link and deaths": C(
            5, 4.0, 1.0, 0.4, 0.2, {1: 12.0, 3: 0.5}, {4: 6.0}, link=0.15
        ),
    }  # fmt: skip


def main() -> None:
    """Write the rows of every cell, one after the other, and how many there are of each."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("worker", "read", "commit", "time", "part", "rows")
    }
    for cluster in clusters().values():
        for stage in stages(cluster).values():
            schedule = aq.simulate(cluster, stage, COMMITS, SEED)
            kept = {
                "part": np.full(len(schedule), -1, np.int32),
                **schedule.arrays(),
                "rows": [len(schedule)],
            }
            for name, column in kept.items():
                columns[name].append(column)
    packed = {
        name: np.concatenate(parts).astype(np.float64 if name == "time" else np.int16)
        for name, parts in columns.items()
    }
    np.savez_compressed(FILE, allow_pickle=False, **packed)


if __name__ == "__main__":
    main()
