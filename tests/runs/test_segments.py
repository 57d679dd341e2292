"""A run goes on with what it began with, or says from which commit on it did not; and replays either way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import Quadratic, one_sentence

import asyncqn as aq
from asyncqn.errors import BadInput

ENGINES = {
    "simulator": aq.Simulator(aq.Cluster(4, 2.0, 1.0)),
    "one thread": aq.Threads(1),
    "threads": aq.Threads(3),
}
ALGORITHM = aq.ASLBFGS(1e-4, 0.05, 1e3, 3, 12, 4)


def make_problem(
    n_data: int = 60, seed: int = 1, dtype: Any = np.float64
) -> aq.LinearGaussian:
    return aq.LinearGaussian.random(
        10, n_data, 2.0, seed=seed, dominant=2, top=40.0, bulk=(2.0, 9.0), dtype=dtype
    )


def stop_at(commit: int) -> Any:
    def stop(progress: Any) -> None:
        if progress.commit == commit:
            raise StopIteration

    return stop


def begun(
    folder: Path, problem: Any = None, algorithm: Any = ALGORITHM, engine: Any = None
) -> aq.Run:
    """A run that its callback stops at commit 50 of 120."""
    return aq.minimize(
        make_problem() if problem is None else problem,
        algorithm,
        engine=engine or ENGINES["simulator"],
        commits=120,
        seed=3,
        evaluate=10,
        callback=stop_at(50),
        checkpoint=folder,
    )


def refused(folder: Path, *arguments: Any, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        aq.resume(folder, *arguments, **options)
    return str(caught.value)


def test_another_algorithm_or_problem_is_refused_in_words_that_say_what_differs(
    tmp_path: Path,
) -> None:
    begun(tmp_path)
    words = refused(tmp_path, algorithm=replace(ALGORITHM, h=2e-4))
    assert "the algorithm's h was 0.0001, not 0.0002" in words
    assert "change=True" in words
    assert "from commit 50 on" in words
    assert "the algorithm was as-lbfgs, not async-sgd" in refused(
        tmp_path, algorithm=aq.AsyncSGD(1e-4, 6)
    )
    assert "n_data was 60, not 80" in refused(tmp_path, make_problem(80))
    assert aq.resume(tmp_path, make_problem(), ALGORITHM).status == "completed"


def test_other_data_of_the_same_shape_are_noticed_by_u_at_the_start(
    tmp_path: Path,
) -> None:
    p = Quadratic.random()
    begun(tmp_path, p, aq.AsyncSGD(1e-3, 4))
    moved = Quadratic(p.A, p.y + 1e-3)
    assert "U at the start was" in refused(tmp_path, moved)
    run = aq.resume(tmp_path, moved, change=True)
    assert [entry["data"] for entry in run.manifest["segments"]] == [0, 1]
    with pytest.raises(
        BadInput, match=r"problem of segment 0, from commit 0 on, \(Quadratic\)"
    ) as caught:
        aq.replay(run)
    assert one_sentence(caught.value)
    assert aq.replay(run, earlier=[(p, None)]).theta.tobytes() == run.theta.tobytes()
    with pytest.raises(aq.ReplayMismatch, match="commit 1 of 120"):
        aq.replay(run, earlier=[(moved, None)])


@pytest.mark.parametrize("name", ENGINES)
def test_a_changed_run_replays_segment_by_segment(name: str, tmp_path: Path) -> None:
    engine = ENGINES[name]
    begun(tmp_path / "c", engine=engine)
    changed = replace(ALGORITHM, h=5e-5, gamma=0.1)
    aq.resume(
        tmp_path / "c",
        algorithm=changed,
        engine=engine,
        change=True,
        callback=stop_at(80),
    )
    run = aq.resume(tmp_path / "c", make_problem(seed=2), engine=engine, change=True)
    assert (run.status, run.nit) == ("completed", 120)
    assert [entry["from_commit"] for entry in run.manifest["segments"]] == [0, 50, 80]
    assert [
        entry["algorithm"]["parameters"]["h"] for entry in run.manifest["segments"]
    ] == [1e-4, 5e-5, 5e-5]
    again = aq.replay(run)
    assert again.fingerprints.tobytes() == run.fingerprints.tobytes()
    run.save(tmp_path / "r")
    assert aq.replay(tmp_path / "r").theta.tobytes() == run.theta.tobytes()
    plain = {key: value for key, value in run.manifest.items() if key != "segments"}
    with pytest.raises(aq.ReplayMismatch, match=r"first differs at commit \d of 120"):
        aq.replay(replace(run, manifest=plain))


def test_a_run_that_goes_on_unchanged_has_no_segments(tmp_path: Path) -> None:
    begun(tmp_path)
    run = aq.resume(tmp_path, make_problem(), ALGORITHM, change=True)
    whole = aq.minimize(
        make_problem(),
        ALGORITHM,
        engine=ENGINES["simulator"],
        commits=120,
        seed=3,
        evaluate=10,
    )
    assert "segments" not in run.manifest
    assert run.theta.tobytes() == whole.theta.tobytes()


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "memory": ({"algorithm": replace(ALGORITHM, memory=5)}, "resize its states"),
    "kind": ({"algorithm": aq.AsyncSGD(1e-4, 6)}, "an algorithm of the same kind"),
    "rows": ({"problem": make_problem(80)}, "n_data = 80 instead of 60"),
    "dtype": (
        {"problem": make_problem(dtype=np.float32)},
        "a run in float64 cannot continue with a problem in",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_that_the_states_do_not_fit_is_refused(
    case: str, tmp_path: Path
) -> None:
    begun(tmp_path)
    change, words = CHANGES[case]
    assert words in refused(tmp_path, **change, change=True)


def test_a_simulated_run_goes_on_only_on_its_own_cluster(tmp_path: Path) -> None:
    begun(tmp_path)
    words = refused(tmp_path, engine=aq.Simulator(aq.Cluster(5, 2.0, 1.0)))
    assert "only on its own cluster" in words
