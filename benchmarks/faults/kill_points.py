"""Writers that die at every file-system call: is the old version, or the new one, still there?

A process is forked for every point; at its k-th call that changes the file system it is gone (SIGKILL
to itself), without a word to anybody.  Then the folder is read.  Where a writer makes fewer calls than
points are asked for, it dies at each of them in turn, over an older version and over the debris of a
writer that was killed before.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.runs.archive import load_run
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn.storage import write_whole
from asyncqn_recommender.data import Ratings, open_ratings, save_ratings
from asyncqn_recommender.estimator import Recommender
from benchmarks.faults.harness import Tally

POINTS = 100
"""At least so many kill points of every kind."""
CALLS = (
    "replace",
    "rename",
    "fsync",
    "unlink",
    "mkdir",
    "rmdir",
    "pwrite",
    "ftruncate",
    "write",
)


class Kind(NamedTuple):
    """Functions that write an old and a new version to a path, and that read a version."""

    old: Callable[[Path], Any]
    new: Callable[[Path], Any]
    seen: Callable[[Path], bytes]
    between: tuple[bytes, ...] = ()
    """Further versions that the new writer makes on its way."""


def scenarios(scratch: Path, count: int, dice: random.Random) -> Iterator[Tally]:
    for name, kind in _kinds().items():
        yield killed_at_every_call(scratch / name, max(POINTS, count), name, kind)


def killed_at_every_call(scratch: Path, points: int, name: str, kind: Kind) -> Tally:
    """Die at the first call, at the second, and so on, over an older version and over debris."""
    tally = Tally(f"{name}: the writer is killed at a file-system call")
    scratch.mkdir()
    kind.old(scratch / "old")
    # The new version is written over the old one, as users do.
    _copy(scratch / "old", scratch / "new")
    kind.new(scratch / "new")
    old, new = kind.seen(scratch / "old"), kind.seen(scratch / "new")
    assert old != new
    place, last, debris = scratch / "place", 0, False
    while tally.tries < points:
        last += 1
        _remove(place)
        _copy(scratch / "old", place)
        if debris:
            _dies_writing(kind.new, place, max(1, last // 2))
        if not _dies_writing(kind.new, place, last):
            assert last > 1, "the writer makes no call"
            # It made fewer calls: begin again, over what a killed one left.
            last, debris = 0, not debris
            continue
        tally.tries += 1
        try:
            whole = kind.seen(place) in (old, new, *kind.between)
            # The next writer finds its way past what is left.
            _dies_writing(kind.new, place, 0)
            done = kind.seen(place) == new
        except Exception as error:
            whole = done = False
            tally.faults.append(f"call {last}: {type(error).__name__}: {error}")
        tally.checkpoints_lost += not whole
        tally.completed += done
        tally.replayed += whole and done
    return tally


def _dies_writing(write: Callable[[Path], Any], place: Path, last: int) -> bool:
    """Write in a process of its own that is killed at its `last`-th call (0: never); whether it was."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if last:
                _die_at(last)
            write(place)
            code = 0
        finally:
            # Without Python's clean-up, which would flush files that a killed process could not.
            os._exit(code)
    _, status = os.waitpid(child, 0)
    # An exit by itself with a code is an error of the writer, and not a kill.
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError(f"the writer failed before its call {last}")
    return os.WIFSIGNALED(status)


def _die_at(last: int) -> None:
    """From now on count the calls of this process that change the file system, and die at one of them."""
    made = 0

    def counted(
        call: Callable[..., Any], changes: Callable[..., bool]
    ) -> Callable[..., Any]:
        def counting(*arguments: Any, **more: Any) -> Any:
            nonlocal made
            if changes(*arguments, **more):
                made += 1
                if made == last:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **more)

        return counting

    def writes(path: Any, mode: str = "r", *arguments: Any, **more: Any) -> bool:
        return bool(set(mode) & set("wxa+"))

    def opens(path: Any, flags: int, *arguments: Any, **more: Any) -> bool:
        return bool(flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR))

    # Replaced in the child process only, which ends soon in either way.
    io.open = builtins.open = counted(io.open, writes)  # type: ignore[assignment]
    os.open = counted(os.open, opens)
    for name in CALLS:
        setattr(os, name, counted(getattr(os, name), lambda *arguments, **more: True))


def _kinds() -> dict[str, Kind]:
    """Two versions of everything that is written to disk."""
    rng = np.random.default_rng(0)
    problem = aq.LinearGaussian.random(4, 20, seed=1)
    sgd, simulator = aq.AsyncSGD(1e-4, 5), aq.Simulator(aq.Cluster(2))
    runs = [
        aq.minimize(problem, sgd, engine=simulator, commits=12, seed=seed)
        for seed in (1, 2)
    ]
    pairs = rng.permutation(20 * 15)[:150]
    table = pairs // 15, pairs % 15, rng.integers(1, 6, pairs.size).astype(float)
    models = [Recommender(rank, workers=1, seed=0).fit(table) for rank in (1, 2)]
    ratings = [
        Ratings.from_arrays(*table[:2], rng.random(pairs.size)) for _ in range(2)
    ]
    thetas: dict[int, bytes] = {}
    options: dict[str, Any] = {"engine": simulator, "commits": 30, "evaluate": 5}

    def stop_at_ten(progress: Any) -> None:
        if progress.commit == 10:
            raise StopIteration

    def begin(place: Path) -> None:
        aq.minimize(problem, sgd, callback=stop_at_ten, checkpoint=place, **options)

    def go_on(place: Path) -> None:
        aq.resume(place, engine=simulator, checkpoint_every=5)

    def keep(progress: Any) -> None:
        thetas[progress.commit] = progress.theta.tobytes()

    aq.minimize(problem, sgd, callback=keep, **options)

    def factors(place: Path) -> bytes:
        return np.asarray(Recommender.load(place).item_factors_).tobytes()

    def values(place: Path) -> bytes:
        return np.array(open_ratings(place).values).tobytes()

    between = tuple(thetas[commit] for commit in (15, 20, 25, 30))
    return {
        "run": Kind(runs[0].save, runs[1].save, lambda p: load_run(p).theta.tobytes()),
        "model": Kind(models[0].save, models[1].save, factors),
        "ratings": Kind(
            lambda p: save_ratings(ratings[0], p),
            lambda p: save_ratings(ratings[1], p),
            values,
        ),
        "file": Kind(
            lambda p: write_whole(p, "old" * 100),
            lambda p: write_whole(p, "new" * 100),
            Path.read_bytes,
        ),
        "checkpoint": Kind(begin, go_on, _theta_of, between),
    }


def _theta_of(place: Path) -> bytes:
    return load_checkpoint(place).arrays["iterate.0"].tobytes()


def _copy(source: Path, place: Path) -> None:
    (shutil.copytree if source.is_dir() else shutil.copy)(source, place)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    for scratch in place.parent.glob(".*"):
        scratch.unlink()
