"""Kill a run with `kill -9` and continue it: python examples/kill_and_resume.py

The program starts itself a second time as the run, waits for its first checkpoint, kills it, resumes it in
this process, and computes the whole run again: the bits are the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncqn as aq

COMMITS = 20_000


def start(folder: Path) -> None:
    """Start the run that will be killed."""
    problem = aq.LinearGaussian.random(dim=20, n_data=200, seed=0)
    sgd = aq.AsyncSGD(h=1e-4, batch=5)
    aq.minimize(
        problem,
        sgd,
        engine=aq.Threads(2),
        commits=COMMITS,
        checkpoint=folder,
        checkpoint_every=500,
    )


def main() -> None:
    """Start, kill, resume, replay."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "checkpoints"
        victim = subprocess.Popen([sys.executable, __file__, str(folder)])
        # The first checkpoint of a run is written to the folder "a".
        while not (folder / "a" / "checkpoint.json").exists() and victim.poll() is None:
            time.sleep(0.01)
        # Unlike Ctrl-C and SIGTERM, this signal gives the run no chance to write anything.
        os.kill(victim.pid, signal.SIGKILL)
        print("killed, exit code", victim.wait())
        run = aq.resume(folder)
        again = aq.replay(run)
        print(
            f"continued from commit {run.manifest['engine']['resumed_from']} to {run.nit}"
        )
        print("identical:", (again.theta == run.theta).all() and run.nit == COMMITS)


if __name__ == "__main__":
    start(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
