"""Kill runs of threads with SIGKILL, go on: `python -m benchmarks.faults.fault_injection [KILLS [WRITING]]`.

First, KILLS (20) kills at random moments, each followed by a resume in a new process that is killed
in turn, until the run ends.  Then WRITING (10) kills while a checkpoint is being written.  After
every kill the newest whole checkpoint must be no older than the last one that was reported
written, and hold the same commits as before; in the end every run must replay to the bit from its
start.  Counts are printed; the exit code is 1 if anything was lost.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import asyncqn as aq
from asyncqn.core.checkpoint import Checkpoints, CheckpointWarning, Saved, load_checkpoint


class Bowl:
    """U = sum_i |theta - y_i|^2 / 2, one number y_i per data point: cheap in any dimension."""

    n_data = 20

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.y = np.linspace(-1.0, 1.0, self.n_data)

    def value(self, theta: np.ndarray) -> float:
        return float(sum(np.sum((theta - y) ** 2) for y in self.y) / 2)

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        np.subtract(theta, self.y[rows].mean(), out=out)
        out *= self.n_data


def child(folder: str, log: str, dim: str, commits: int, every: float) -> None:
    """Run, or go on where there is a checkpoint; note every commit whose checkpoint is written."""
    write = Checkpoints.write

    def noted(self: Checkpoints, saved: Saved) -> None:
        write(self, saved)
        with open(log, "a") as file:
            file.write(f"{saved.commit}\n")

    Checkpoints.write = noted  # type: ignore[method-assign]
    potential = Bowl(int(dim))
    if any((Path(folder) / generation).is_dir() for generation in "ab"):
        run = aq.resume(folder, potential, checkpoint_every=every)
    else:
        run = aq.minimize(
            potential,
            aq.ASLBFGS(h=1e-4, gamma=0.05, beta=1e4, memory=3, batch=6, overlap=2, initial_scale=0.05),
            engine=aq.Threads(slow=aq.Cluster(4, 1.0, 0.5), time_unit=2e-3),
            commits=commits, seed=3, evaluate=1000, checkpoint=folder, checkpoint_every=every,
        )  # fmt: skip
    run.save(Path(folder).with_name("run"))


class Victim:
    """A run in a process of its own, its folder, and what is known to be safe."""

    def __init__(self, place: Path, dim: int, commits: int, every: float) -> None:
        self.place, self.dim = place, dim
        self.folder, self.log = place / "checkpoints", place / "log"
        self.arguments = [str(self.folder), str(self.log), str(dim), str(commits), str(every)]
        self.history = np.empty(0, np.uint32)
        self.faults: list[str] = []

    def start(self) -> subprocess.Popen[bytes]:
        noted = len(self.noted())
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.faults.fault_injection", "child", *self.arguments]
        )
        while process.poll() is None and len(self.noted()) == noted:
            time.sleep(0.005)
        return process

    def noted(self) -> list[int]:
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def check(self) -> int:
        """What the newest whole checkpoint holds; anything that was lost goes into `faults`."""
        last = self.noted()[-1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            saved = load_checkpoint(self.folder)
        prints = saved.arrays["fingerprints"]
        if saved.commit < last:
            self.faults.append(f"commit {last} was written, only {saved.commit} is left")
        shared = min(prints.size, self.history.size)
        if not np.array_equal(prints[:shared], self.history[:shared]):
            self.faults.append(f"the commits up to {shared} changed")
        self.history = prints
        return saved.commit

    def finish(self) -> int:
        """Let it end; its run must replay to the bit and contain all that was checkpointed."""
        process = self.start()
        if process.wait() != 0:
            self.faults.append("the last resume failed")
            return 0
        potential = Bowl(self.dim)
        run = aq.load_run(self.place / "run", potential=potential)
        aq.replay(run)
        if not np.array_equal(run.fingerprints[: self.history.size], self.history):
            self.faults.append("the finished run lacks what was checkpointed")
        return run.schedule.commits


def random_kills(kills: int, place: Path) -> list[str]:
    """Runs of 8,000 commits, killed at random moments until all kills are spent."""
    dice, done, runs, faults = random.Random(0), 0, 0, []
    while done < kills:
        victim = Victim(place / f"random{runs}", 50, 8000, 0.1)
        victim.place.mkdir()
        while done < kills:
            process = victim.start()
            time.sleep(dice.uniform(0.0, 0.6))
            if process.poll() is not None:
                break
            victim.kill(process)
            done += 1
            print(f"kill {done} of {kills}: goes on from commit {victim.check()}", flush=True)
        commits = victim.finish()
        runs += 1
        faults += victim.faults
        print(f"run {runs} ended with {commits} commits and replays to the bit", flush=True)
    print(f"random kills: {done} kills in {runs} runs, {len(faults)} faults")
    return faults


def half_written(folder: Path) -> bool:
    """Whether there are states on disk that no checkpoint names yet."""
    return len([*folder.glob("?/arrays-*.npz")]) > len([*folder.glob("?/checkpoint.json")])


def kills_while_writing(kills: int, place: Path) -> list[str]:
    """One run, killed while a checkpoint is being written."""
    dice, tried, hit = random.Random(1), 0, 0
    victim = Victim(place / "writing", 100_000, 600, 0.001)
    victim.place.mkdir()
    while hit < kills:
        process = victim.start()
        while process.poll() is None and not half_written(victim.folder):
            pass
        time.sleep(dice.uniform(0.0, 0.02))
        if process.poll() is not None:
            victim.faults.append("the run ended before all kills were made")
            break
        victim.kill(process)
        tried += 1
        hit += half_written(victim.folder)
        print(
            f"kill {tried}, {hit} of {kills} while writing: goes on from commit {victim.check()}", flush=True
        )
    commits = victim.finish()
    print(f"kills while writing: {hit} of {tried} kills, {commits} commits, {len(victim.faults)} faults")
    return victim.faults


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["child"]:
        folder, log, dim, commits, every = arguments[1:]
        child(folder, log, dim, int(commits), float(every))
        return 0
    kills, writing = [int(n) for n in arguments] + [20, 10][len(arguments) :]
    with tempfile.TemporaryDirectory() as scratch:
        faults = random_kills(kills, Path(scratch)) + kills_while_writing(writing, Path(scratch))
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
