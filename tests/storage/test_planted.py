"""Links, named pipes and sockets where asyncqn keeps its files: refused, and nothing outside is touched.

`python -m benchmarks.studies.storage.planted` runs all cases, each in a process of its own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli.calls import call

import asyncqn as aq
from asyncqn.errors import BadInput
from asyncqn.runs.checkpoint import Checkpoints, CheckpointWarning
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.storage import write_whole
from benchmarks.studies.storage import planted

CASES = (*planted.CASES[::3], *planted.CASES[-2:])
"""A third of the cases of the study, and those with a forged log and an endless job file."""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    planted.make_templates(folder)
    return folder


@pytest.mark.filterwarnings("ignore::asyncqn.runs.checkpoint.CheckpointWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.split(" -")[0])
def test_what_was_planted_is_refused_in_a_sentence_and_nothing_outside_is_touched(
    case: planted.Case,
    templates: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    inside, outside = planted.prepare(case, templates, tmp_path)
    before, files = planted.state_of(outside), {p.name for p in inside.rglob("*")}
    monkeypatch.chdir(inside)
    code, _, err = call(capfd, *case.command)
    assert planted.state_of(outside) == before
    assert "Traceback" not in err
    # A damaged generation is passed over for the other one, and a model is replaced as a whole.
    assert code == 2 or case.place.startswith(("A/", "M/"))
    names = {p.name for p in inside.rglob("*")}
    assert code == 0 or names <= {*files, "lock"}, "nothing is half-written"


@pytest.mark.parametrize("kind", ["symlink", "named pipe", "socket"])
def test_a_damaged_generation_is_passed_over_for_the_whole_one(
    kind: str, templates: Path, tmp_path: Path
) -> None:
    case = planted.Case(kind, "A/b/checkpoint.json", ())
    inside, outside = planted.prepare(case, templates, tmp_path)
    before = planted.state_of(outside)
    with pytest.warns(CheckpointWarning, match="where asyncqn keeps a regular file"):
        assert load_checkpoint(inside / "A").commit > 0
    assert planted.state_of(outside) == before


def test_a_generation_that_becomes_a_link_during_the_run_is_not_followed(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    checkpoints = tmp_path / "c"

    def swap(progress: object) -> None:
        if (checkpoints / "b").is_dir() and not (checkpoints / "b").is_symlink():
            os.rename(checkpoints / "b", tmp_path / "away")
            (checkpoints / "b").symlink_to(outside)

    problem = aq.LinearGaussian.random(8, 24, seed=1)
    with pytest.warns(CheckpointWarning, match="b is a symbolic link"):
        aq.minimize(
            problem,
            aq.AsyncSGD(h=1e-5, batch=2),
            engine=aq.Simulator(aq.Cluster(2)),
            commits=100,
            evaluate=5,
            checkpoint=checkpoints,
            checkpoint_every=10,
            callback=swap,
        )
    assert (tmp_path / "away").is_dir()
    assert list(outside.iterdir()) == []


def test_inputs_and_outputs_of_the_library_must_be_regular_files(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "rows").write_text("1 1:0.5\n-1 2:1\n")
    (tmp_path / "link").symlink_to(tmp_path / "rows")
    with pytest.raises(BadInput, match="is a named pipe: name a regular file"):
        aq.LeastSquares.from_file(tmp_path / "pipe", format="libsvm")
    linked = aq.LeastSquares.from_file(tmp_path / "link", format="libsvm")
    assert linked.X.shape == (2, 2), "a user's own link is followed"
    for place in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(
            BadInput, match=r"is a (named pipe|device): name a regular file to write to"
        ):
            write_whole(place, "text")
    assert not os.path.isfile("/dev/null")


def test_who_holds_a_lock_is_told_in_printable_letters(tmp_path: Path) -> None:
    first, second = Checkpoints(tmp_path / "c"), Checkpoints(tmp_path / "c")
    first.prepare()
    (tmp_path / "c" / "lock").write_text(
        '{"pid": 1, "host": "\\u001b[31m\\nx", "run": "r", "since": 0}'
    )
    with pytest.raises(BadInput, match=r"process 1 on \?\[31m\?x \(run r") as caught:
        second.prepare()
    assert "\n" not in str(caught.value)
    first.close()
