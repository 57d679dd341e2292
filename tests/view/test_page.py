"""The page of a run; `.ci/browser.py` looks at it in a real browser."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from asyncqn.columns import Table
from asyncqn.core.schedule import Schedule
from asyncqn.view.page import page
from asyncqn.view.seen import Seen

TABLE = Table(
    {
        "commit": np.array([0, 2]),
        "time": np.array([0.0, 5.0]),
        "fun": np.array([3.0, np.nan]),
    }
)


def seen(
    schedule: Schedule,
    message: str = "done.",
    *,
    kind: str = "async-sgd",
    problem: str = "Mean",
    table: Table = TABLE,
) -> Seen:
    about = {
        "problem": {"name": problem, "dim": 1, "n_data": 3},
        "algorithm": {"kind": kind, "parameters": {"h": 0.5}},
        "engine": {"kind": "threads"},
        "seed": 0,
        "versions": {"asyncqn": "1"},
    }
    fun = float(table["fun"][0])
    return Seen("completed", message, fun, schedule, table, {}, about, {})


def data(text: str) -> list[dict[str, object]]:
    start = text.index('<script id="data"')
    return json.loads(text[text.index(">", start) + 1 : text.index("</script>", start)])


def test_the_page_needs_no_network_and_no_word_of_a_run_ends_its_script() -> None:
    one = Schedule.serial(3)
    text = page({"a": seen(one, "</script><b>&"), "b": seen(one)})
    assert not re.search(r"https?://|src=|@import|url\(", text)
    assert "</script><b>" not in text
    first, second = data(text)
    assert (first["message"], second["label"]) == ("</script><b>&", "b")
    assert first["metrics"]["fun"] == [3.0, None]


def test_stragglers_dropped_updates_and_overtaking_are_those_of_the_schedule() -> None:
    schedule = Schedule(
        worker=[0, 0, 1, 0, 1],
        read=[0, 1, 0, 2, 3],
        commit=[1, 2, 3, 4, 0],
        time=[1.0, 2.0, 5.0, 5.5, 6.0],
    )
    (run,) = data(page({"a": seen(schedule)}))
    line = run["schedule"]
    assert line["start"] == [0.0, 1.0, 0.0, 2.0, 5.0]
    assert line["commit"] == [1, 2, 3, 4, 0]
    assert line["median"] == 1.0
    assert run["staleness"] == {
        "table": [[2, 1, 0], [0, 0, 1]],
        "columns": ["0", "1", "2-3"],
    }
    assert run["waiting"] == {"rounds": False, "table": [[0, 1], [2, 0]]}


@pytest.mark.parametrize("workers", [1, 41, 90])
def test_many_workers_share_lines_and_none_is_lost(workers: int) -> None:
    n = np.arange(1, workers + 1)
    schedule = Schedule(n - 1, np.zeros(workers, int), n, n.astype(float))
    (run,) = data(page({"a": seen(schedule)}))
    assert len(run["groups"]) <= 40
    assert sum(map(sum, run["staleness"]["table"])) == workers
    assert sum(map(sum, run["waiting"]["table"])) == workers * (workers - 1) // 2
