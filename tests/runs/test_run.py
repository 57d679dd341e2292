"""Runs on disk: complete or not at all, loaded without running code, damage told in one sentence."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest
from oracles import one_sentence
from sealed import data_file, reseal

from asyncqn import ASLBFGS, Cluster, LinearGaussian, Simulator, minimize
from asyncqn.errors import BadInput, DamagedFile
from asyncqn.runs.archive import load_run


@pytest.fixture(scope="module")
def run():
    p = LinearGaussian.random(5, 30, 2.0, seed=1, dominant=1, top=20.0, bulk=(2.0, 9.0))
    return minimize(
        p,
        ASLBFGS(1e-3, 0.05, 1e3, 2, 6, 2),
        engine=Simulator(Cluster(3, 1.0, 0.5)),
        commits=40,
        seed=3,
    )


@pytest.fixture
def folder(run, tmp_path):
    return run.save(tmp_path / "runs" / "demo")


def resealed(folder, arrays=None, **document):
    """Change a saved run and mend its checksums, as a forger would."""
    if arrays is not None:
        arrays(data_file(folder))
    reseal(folder, lambda text: text.update(document))


def damaged(folder, words=None, error=DamagedFile):
    with pytest.raises(error, match=words) as caught:
        load_run(folder)
    assert one_sentence(caught.value), str(caught.value)
    assert folder.name in str(caught.value)


def test_a_loaded_run_is_the_saved_one(run, folder):
    loaded = load_run(folder)
    for name in ("status", "message", "fun", "counters", "manifest", "algorithm"):
        assert getattr(loaded, name) == getattr(run, name), name
    for name in ("theta", "theta0", "fingerprints"):
        assert getattr(loaded, name).tobytes() == getattr(run, name).tobytes()
        assert getattr(loaded, name).dtype == getattr(run, name).dtype
    assert loaded.schedule == run.schedule
    assert loaded.metrics.columns == run.metrics.columns
    assert loaded.summary() == run.summary()
    assert loaded.problem.A.tobytes() == run.problem.A.tobytes()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_not_a_run_is_never_overwritten(run, tmp_path, kind):
    target = tmp_path / "thesis"
    if kind == "folder":
        target.mkdir()
        (target / "chapter").write_text("years")
    else:
        target.write_text("years")
    with pytest.raises(BadInput, match="exists and is not a run") as caught:
        run.save(target)
    assert one_sentence(caught.value)
    assert os.listdir(tmp_path) == ["thesis"]
    assert (target / "chapter" if kind == "folder" else target).read_text() == "years"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nothing", "there is no such folder"),
        ("empty", "it has no run.json"),
        ("file", "it is a file"),
    ],
)
def test_a_folder_without_a_run_is_named(tmp_path, name, what):
    if name == "empty":
        (tmp_path / name).mkdir()
    if name == "file":
        (tmp_path / name).write_text("")
    damaged(tmp_path / name, f"is not a saved run: {what}", BadInput)


@pytest.mark.parametrize(
    "change", [("seed", 7), ("engine", None), ("commits", "many")], ids=lambda c: c[0]
)
def test_an_altered_run_json_is_damage(folder, change):
    text = json.loads((folder / "run.json").read_text())
    text["manifest"][change[0]] = change[1]
    (folder / "run.json").write_text(json.dumps(text))
    damaged(folder, r"run\.json was altered")


def test_another_format_asks_for_its_own_version(folder):
    resealed(folder, format=99)
    damaged(folder, "has format 99")


class Trap:
    """Unpickling it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_pickled_objects_are_never_loaded(folder, tmp_path):
    sprung = tmp_path / "sprung"

    def forge(path):
        np.savez(path, theta=np.array([Trap(sprung)], dtype=object))

    resealed(folder, forge)
    damaged(folder)

    def raw(path):
        path.write_bytes(pickle.dumps(Trap(sprung)))

    resealed(folder, raw)
    damaged(folder)
    assert not sprung.exists()


def changed(name, change):
    """Return a forger's change of one array."""

    def forge(path):
        with np.load(path) as stored:
            arrays = dict(stored)
        np.savez(path, **{**arrays, name: change(arrays[name])})

    return forge


def test_a_forged_schedule_is_damage(folder):
    resealed(folder, changed("schedule.read", lambda a: a + 1000))
    damaged(folder, "older than its own commit")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("theta", lambda a: a[:-1]),
        ("theta", lambda a: a.astype(np.float32)),
        ("theta0", lambda a: a[:, None]),
        ("fingerprints", lambda a: a[:-1]),
    ],
)
def test_arrays_that_do_not_fit_together_are_damage(folder, name, change):
    resealed(folder, changed(name, change))
    damaged(folder, "do not fit together")


def test_the_result_speaks_scipys_language(run):
    assert run.x is run.theta
    assert run.success
    assert run.nit == 40
    assert "completed" in repr(run)
    summary = run.summary()
    assert {
        "status",
        "commits",
        "time",
        "fun",
        "staleness_mean",
        "staleness_max",
        "pairs_accepted",
        "pairs_rejected",
        "updates_rejected",
        "error",
    } <= set(summary)
    assert summary["error"] == pytest.approx(
        (run.fun - run.problem.optimum) / run.problem.optimum
    )
    json.dumps(summary, allow_nan=False)
