"""Kill random MPI workers with kill -9 at random times and count how the runs end.

    python -m benchmarks.faults.mpi_faults [KILLS] [SEED]

Every trial starts a job of 5 ranks under OpenMPI's ULFM, kills one worker at a random time after
the run began (or, every fifth trial, two), and wants: the job ends by itself with exit code 0, all commits
made, the losses counted, and the run replayed to the bit.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import asyncqn as aq
from asyncqn.types import Progress
from benchmarks.mpi_start import start

RANKS, COMMITS, PATIENCE = 5, 600, 40.0


def job(folder: Path) -> None:
    """What every rank runs: announce itself, minimise with slowed workers, replay, report."""
    from mpi4py import MPI

    faulthandler.register(signal.SIGUSR1)
    engine = aq.MPI(slow=aq.Cluster(workers=RANKS - 1, worker_mean=5.0, worker_std=2.0), time_unit=1e-3)
    (folder / f"pid.{MPI.COMM_WORLD.rank}").write_text(str(os.getpid()))

    def begun(progress: Progress) -> None:
        if progress.commit >= 1:
            (folder / "begun").touch()

    run = aq.minimize(
        aq.LinearGaussian.random(dim=50, n_data=300),
        aq.ASLBFGS(h=1e-4, gamma=0.05, beta=500.0, memory=3, batch=60, overlap=40, initial_scale=0.02),
        engine=engine, commits=COMMITS, seed=1, evaluate=1, callback=begun,
    )  # fmt: skip
    if run is not None:
        aq.replay(run)
        print(json.dumps({"commits": run.nit, "lost": run.manifest["engine"]["workers_lost"]}), flush=True)


def trial(number: int, chance: random.Random) -> str:
    """One job with its kills; how it ended, in a word or two."""
    kills = 2 if number % 5 == 4 else 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = start(RANKS, ["-m", "benchmarks.faults.mpi_faults", "--job", name], ["--with-ft", "ulfm"])
        until = time.monotonic() + PATIENCE
        while not (folder / "begun").exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        for rank in chance.sample(range(1, RANKS), kills):
            time.sleep(chance.uniform(0.0, 0.9 / kills))
            try:
                os.kill(int((folder / f"pid.{rank}").read_text()), signal.SIGKILL)
            except (ProcessLookupError, FileNotFoundError):
                kills -= 1
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            for file in folder.glob("pid.*"):  # every rank that is left shows where it waits
                with suppress(ProcessLookupError):
                    os.kill(int(file.read_text()), signal.SIGUSR1)
            time.sleep(1.0)
            os.killpg(process.pid, signal.SIGKILL)
            print(process.communicate()[1][-6000:], file=sys.stderr)
            return "hung"
    if process.returncode != 0:
        print(err[-2000:], file=sys.stderr)
        return f"exit code {process.returncode}"
    report = json.loads(out.strip().splitlines()[-1])
    if report["commits"] != COMMITS:
        return "ended early"
    return f"completed and replayed, {report['lost']} of {kills} lost"


def main(kills: int, seed: int) -> int:
    chance = random.Random(seed)
    counts: dict[str, int] = {}
    done = number = 0
    while done < kills:
        outcome = trial(number, chance)
        counts[outcome] = counts.get(outcome, 0) + 1
        done += 2 if number % 5 == 4 else 1
        number += 1
        print(f"trial {number}: {outcome}", flush=True)
    print(json.dumps({"trials": number, "kills": done, **counts}))
    return 0 if all(outcome.startswith("completed") for outcome in counts) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        job(Path(sys.argv[2]))
    else:
        sys.exit(main(*(int(x) for x in (sys.argv[1:] + ["20", "0"][len(sys.argv) - 1 :]))))
