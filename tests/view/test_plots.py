from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.colors import to_rgba

import asyncqn as aq
from asyncqn.columns import Table
from asyncqn.core.schedule import Schedule
from asyncqn.errors import BadInput, MissingExtra
from asyncqn.view import plots as plotting
from asyncqn.view.axes import LABELS
from asyncqn.view.trace import write_trace


@pytest.fixture(scope="module")
def run() -> aq.Run:
    problem = aq.LinearGaussian.random(dim=6, n_data=18, dominant=1)
    cluster = aq.Cluster(workers=5, worker_std=0.5, joins={4: 3.0}, deaths={0: 20.0})
    algorithm = aq.MBLBFGS(h=0.1, memory=2, batch=4, overlap=2, timeout=1.0, quorum=0.4)
    return aq.minimize(
        problem, algorithm, engine=aq.Simulator(cluster), commits=60, seed=1
    )


def test_several_runs_share_axes_and_can_be_told_apart_without_colour() -> None:
    x = np.arange(1, 41)
    tables = {n: Table({"time": 2.0 * x, "error": (i + 1.0) / x**2, "fun": 1.0 / x})
              for i, n in enumerate("abc")}  # fmt: skip
    axes = plotting.convergence(tables).axes[0]
    assert axes.get_xlabel() == plotting.SIMULATED
    assert axes.get_ylabel() == LABELS["error"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*"abc"]
    styles = {(line.get_linestyle(), line.get_marker()) for line in axes.lines}
    assert len(styles) == 3


def test_staleness_bars_add_up_to_the_deliveries(run: aq.Run) -> None:
    cluster = aq.Cluster(workers=200, worker_std=0.5)
    wide = aq.simulate(cluster, aq.AsyncSGD(1.0, 1).stages, 3000, 0)
    for schedule in (run.schedule, wide):
        axes = plotting.new_figure().add_subplot()
        plotting.draw_staleness(axes, schedule)
        heights = [patch.get_height() for patch in axes.patches]
        assert sum(heights) == schedule.staleness.size
        assert len(heights) <= 80


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_equal_figures_are_equal_files(
    run: aq.Run, tmp_path: Path, ending: str
) -> None:
    paths = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for path in paths:
        plotting.save_picture(plotting.overview(run), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first[:5] in (b"\x89PNG\r", b"<?xml")


def test_what_cannot_be_drawn_or_written_is_refused_in_a_sentence(
    run: aq.Run, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="no column 'rmse'"):
        plotting.convergence({"a": run.metrics}, metric="rmse")
    with pytest.raises(BadInput, match="no run"):
        plotting.convergence({})
    with pytest.raises(BadInput, match=r"png or \.svg"):
        plotting.save_picture(plotting.overview(run), tmp_path / "a.gif")
    assert not any(tmp_path.iterdir())


def test_without_matplotlib_the_sentence_names_the_extra(
    run: aq.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"pip install 'asyncqn\[plot\]'\.$"):
        run.plot()


def test_the_slices_of_a_trace_tile_each_workers_time_and_carry_the_schedule(
    run: aq.Run, tmp_path: Path
) -> None:
    schedule, born = run.schedule, plotting.births(run)
    path = write_trace(tmp_path / "t.json", schedule, 1000.0, born)
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == len(schedule)
    for worker in set(schedule.worker.tolist()):
        mine = [event for event in slices if event["tid"] == worker]
        assert mine[0]["ts"] == 1000.0 * born.get(worker, 0.0)
        for before, after in itertools.pairwise(mine):
            # ts + dur is a difference plus what was subtracted: equal to a few roundings.
            assert before["ts"] + before["dur"] == pytest.approx(after["ts"], rel=1e-12)
    delivered = [event["args"] for event in slices if event["name"] != "dropped"]
    assert [a["staleness"] for a in delivered] == schedule.staleness.tolist()


def test_forged_times_and_joins_are_no_traceback(tmp_path: Path) -> None:
    huge = Schedule([0], [0], [1], [1.7e308])
    with pytest.raises(aq.DamagedFile, match="too large for a trace"):
        write_trace(tmp_path / "t.json", huge, 1e6, {})
    for cluster in ({"joins": True}, None, {}):
        run = SimpleNamespace(manifest={"engine": {"cluster": cluster}})
        assert plotting.births(run) == {}


def test_a_timeline_has_a_box_for_each_computation_and_marks_the_slow_worker() -> None:
    cluster = aq.Cluster(workers=3, worker_mean=[1.0, 1.0, 5.0], worker_std=0.1)
    schedule = aq.simulate(cluster, aq.stages.ASYNCHRONOUS, commits=40, seed=0)
    axes = plotting.draw_log(schedule).axes[1]
    boxes = [box for bars in axes.containers for box in bars]
    assert len(boxes) == len(schedule)
    ends = sorted(box.get_x() + box.get_width() for box in boxes)
    assert np.allclose(ends, np.sort(schedule.time))
    orange = [box for box in boxes if box.get_facecolor() == to_rgba(plotting.ORANGE)]
    assert {round(box.get_y() + 0.4) for box in orange} == {2}
