"""Checkpoints: whole or passed over, and a resumed run goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from engines.runs import (
    EVERY,
    assert_made_all_commits,
    assert_replays,
    make_problem,
    run_of,
)
from examples import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sealed import data_file

import asyncqn as aq
from asyncqn.runs.checkpoint import (
    Checkpoints,
    CheckpointWarning,
    Saved,
    flatten,
    unflatten,
)
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.storage.writing import check_of

PROBLEM = make_problem()


class Broken(Exception):
    pass


def begun(folder: Path, **options: Any) -> aq.Run:
    """A short run with checkpoints."""
    return aq.minimize(
        PROBLEM,
        EVERY["sgd"],
        engine=aq.Threads(1),
        commits=5,
        checkpoint=folder,
        **options,
    )


def breaks_at(commit: int) -> Any:
    def callback(progress: Any) -> None:
        if progress.commit >= commit:
            raise Broken

    return callback


def broken_off(
    folder: Path, algorithm: Any, engine: Any, problem: Any = PROBLEM, **options: Any
) -> None:
    """A run whose callback fails at commit 150 of 240, with a checkpoint every 20 commits and at that one."""
    with pytest.raises(Broken):
        aq.minimize(
            problem,
            algorithm,
            engine=engine,
            commits=240,
            seed=5,
            evaluate=25,
            callback=breaks_at(150),
            checkpoint=folder,
            checkpoint_every=20,
            tol=None,
            **options,
        )


@pytest.mark.parametrize(
    "engine",
    [aq.Simulator(aq.Cluster(5, 1.0, 0.6)), aq.Threads(1)],
    ids=["simulator", "thread"],
)
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_a_resumed_run_equals_the_uninterrupted_one_bitwise(
    name: str, engine: Any, tmp_path: Path
) -> None:
    algorithm, problem = EXAMPLES[name], make_problem(name)
    whole = aq.minimize(
        problem, algorithm, engine=engine, commits=240, seed=5, evaluate=25, tol=None
    )
    broken_off(tmp_path / "c", algorithm, engine, problem)
    assert load_checkpoint(tmp_path / "c").commit == 150
    resumed = aq.resume(tmp_path / "c", problem)
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    assert np.array_equal(resumed.fingerprints, whole.fingerprints)
    assert resumed.counters == whole.counters
    assert np.array_equal(resumed.metrics["fun"], whole.metrics["fun"])
    assert resumed.metrics["commit"].tolist() == whole.metrics["commit"].tolist()
    assert resumed.schedule == whole.schedule or isinstance(engine, aq.Threads)
    assert_replays(resumed)


@pytest.mark.parametrize("name", list(EVERY))
def test_a_resumed_run_of_many_threads_replays_from_its_start_as_a_whole(
    name: str, tmp_path: Path
) -> None:
    engine = aq.Threads(timing_model=aq.Cluster(4, 1.0, 0.3), time_unit=1e-3)
    broken_off(tmp_path / "c", EVERY[name], engine, make_problem(name))
    saved = load_checkpoint(tmp_path / "c")
    resumed = aq.resume(tmp_path / "c", make_problem(name))
    assert_made_all_commits(name, resumed.status, resumed.nit, 240)
    assert resumed.manifest["engine"]["resumed_from"] == saved.commit > 0
    assert np.array_equal(
        resumed.fingerprints[: saved.commit], saved.arrays["fingerprints"]
    )
    assert_replays(resumed)


def test_a_run_goes_on_with_more_or_fewer_threads(tmp_path: Path) -> None:
    for workers in (1, 5):
        folder = tmp_path / str(workers)
        broken_off(
            folder,
            EVERY["as-lbfgs"],
            aq.Threads(timing_model=aq.Cluster(3), time_unit=1e-3),
        )
        run = aq.resume(folder, engine=aq.Threads(workers))
        assert run.schedule.commits == 240
        assert aq.replay(run).theta.tobytes() == run.theta.tobytes()


@pytest.mark.parametrize(
    "harm",
    ["flipped", "no document", "foreign document", "no arrays"],
)
def test_a_damaged_newest_generation_falls_back_to_the_older_with_a_warning(
    harm: str, tmp_path: Path
) -> None:
    broken_off(tmp_path / "c", EVERY["as-lbfgs"], aq.Simulator(aq.Cluster(2)))
    newest = load_checkpoint(tmp_path / "c")
    place = tmp_path / "c" / newest.document["generation"]
    arrays = data_file(place)
    data = arrays.read_bytes()
    if harm == "flipped":
        arrays.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])
    elif harm == "no document":
        (place / "checkpoint.json").unlink()
    elif harm == "foreign document":
        (place / "checkpoint.json").write_text("[1, 2]")
    else:
        arrays.unlink()
    with pytest.warns(CheckpointWarning, match="continues from commit 140"):
        older = load_checkpoint(tmp_path / "c")
    assert older.commit == 140
    whole = run_of("as-lbfgs", aq.Simulator(aq.Cluster(2)), 240, seed=5)
    with pytest.warns(CheckpointWarning):
        resumed = aq.resume(tmp_path / "c")
    assert resumed.theta.tobytes() == whole.theta.tobytes()
    for generation in "ab":
        (tmp_path / "c" / generation / "checkpoint.json").write_text("{")
    with pytest.raises(aq.DamagedFile, match="no checkpoint in"):
        load_checkpoint(tmp_path / "c")


def test_a_folder_of_another_run_or_of_other_files_is_refused(tmp_path: Path) -> None:
    broken_off(tmp_path / "c", EVERY["sgd"], aq.Threads(1))
    with pytest.raises(aq.BadInput, match="holds the checkpoints of another run"):
        begun(tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "thesis.tex").write_text("x")
    with pytest.raises(aq.BadInput, match=r"other files \(thesis.tex\)"):
        begun(tmp_path / "d")
    with pytest.raises(aq.BadInput, match="holds no checkpoint"):
        aq.resume(tmp_path / "nowhere")
    with pytest.raises(aq.BadInput, match="checkpoint_every"):
        begun(tmp_path / "e", checkpoint_every=0)


def test_a_checkpoint_that_cannot_be_written_warns_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    keeper = Checkpoints(tmp_path / "c")
    keeper.prepare()
    (tmp_path / "c" / "lock").unlink()
    (tmp_path / "c").rmdir()
    (tmp_path / "c").write_text("in the way")
    with pytest.warns(CheckpointWarning, match="could not be written"):
        keeper.write(Saved({"commit": 3}, {}))


class Nested(NamedTuple):
    values: np.ndarray
    pair: tuple[np.ndarray, np.ndarray]
    count: int
    scale: float
    flag: bool
    members: frozenset[int]
    nothing: None


@given(
    hnp.arrays(np.float32, (2, 3)),
    hnp.arrays(np.int64, 4),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.booleans(),
    st.frozensets(st.integers(0, 99)),
)
def test_any_state_survives_as_named_arrays(
    a: np.ndarray, b: np.ndarray, n: int, x: float, flag: bool, members: frozenset[int]
) -> None:
    state = Nested(a, (b, b * 0), n, x, flag, members, None)
    blank = Nested(np.zeros_like(a), (b * 0, b * 0), 0, 0.0, False, frozenset(), None)
    back = unflatten("s", blank, flatten("s", state))
    assert back.values.tobytes() == a.tobytes()
    assert back.values is blank.values
    assert np.array_equal(back.pair[0], b)
    assert back[2:] == state[2:]
    assert [type(v) for v in back] == [type(v) for v in state]


def test_a_state_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(aq.BadInput, match=r"'s.1' is of type dict"):
        flatten("s", (1, {}))


CHILD = """
import sys
import asyncqn as aq
from asyncqn.runs.checkpoint import Checkpoints

folder, log, every, workers = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
write = Checkpoints.write

def noted(self, saved):
    write(self, saved)
    with open(log, "a") as file:
        file.write(f"{saved.commit}\\n")

Checkpoints.write = noted
problem = aq.LinearGaussian.random(12, 60, seed=3)
algorithm = aq.ASLBFGS(h=1e-4, gamma=0.05, beta=100.0, memory=3, batch=10, overlap=4, initial_scale=0.01)
options = dict(checkpoint_every=every)
print("begun", flush=True)
run = aq.minimize(problem, algorithm, engine=aq.Threads(workers), commits=10**7, seed=5, evaluate=10**6,
                  checkpoint=folder, **options)
print(run.status, run.message)
"""


def start_child(tmp_path: Path, every: float, workers: int) -> subprocess.Popen[str]:
    arguments = [
        sys.executable,
        "-c",
        CHILD,
        tmp_path / "c",
        tmp_path / "log",
        str(every),
        str(workers),
    ]
    child = subprocess.Popen(
        [str(a) for a in arguments], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    while not (tmp_path / "log").exists():
        assert child.poll() is None
        time.sleep(0.01)
    return child


@pytest.mark.parametrize("pause", [0.05, 0.21, 0.13])
def test_a_killed_run_loses_nothing_from_before_its_last_checkpoint(
    pause: float, tmp_path: Path
) -> None:
    child = start_child(tmp_path, 0.02, 2)
    time.sleep(pause)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    noted = [int(line) for line in (tmp_path / "log").read_text().split()]
    saved = load_checkpoint(tmp_path / "c")
    assert saved.commit >= noted[-1]
    saved.document["manifest"]["commits"] = saved.commit + 100
    saved.document["check"] = check_of(saved.document)
    place = tmp_path / "c" / saved.document["generation"] / "checkpoint.json"
    place.write_text(json.dumps(saved.document))
    run = aq.resume(tmp_path / "c")
    assert run.schedule.commits == saved.commit + 100
    assert np.array_equal(
        run.fingerprints[: saved.commit], saved.arrays["fingerprints"]
    )
    assert_replays(run)
