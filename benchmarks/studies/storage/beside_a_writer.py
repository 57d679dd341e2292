"""Readers beside a process that saves again and again: every reading must succeed.

    python -m benchmarks.studies.storage.beside_a_writer [READINGS]

For each kind of folder (run, model, ratings, checkpoints) one process replaces the folder as fast as it can
while another reads it READINGS times (500 by default).  A reading that reports damage is a false alarm.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.runs.checkpoint import Checkpoints
from asyncqn.runs.checkpoint_reading import load_checkpoint
from asyncqn_recommender import Recommender
from asyncqn_recommender.data import Ratings, open_ratings, save_ratings

RATINGS = Ratings.from_arrays(
    np.arange(40) % 8, np.arange(40) // 8, np.arange(40) % 5 + 1.0
)


def run_saver() -> Callable[[Path], Any]:
    """Saves one run after another."""
    problem = aq.LinearGaussian.random(6, 20, seed=1)
    run = aq.minimize(
        problem, aq.AsyncSGD(1e-4, 5), engine=aq.Simulator(aq.Cluster(2)), commits=20
    )
    return run.save


def checkpoint_saver() -> Callable[[Path], Any]:
    """Write the generations of a folder of checkpoints again and again."""
    problem = aq.LinearGaussian.random(6, 20, seed=1)
    with tempfile.TemporaryDirectory() as name:
        engine = aq.Simulator(aq.Cluster(2))
        aq.minimize(
            problem,
            aq.AsyncSGD(1e-4, 5),
            engine=engine,
            commits=40,
            checkpoint=name,
            checkpoint_every=10,
        )
        first = load_checkpoint(name)
    # The logs are gone with the run, and a checkpoint of version 0 needs none.
    saved = replace(first, document={**first.document, "commit": 0}, files={}, seen={})
    for name in list(saved.arrays):
        if name.startswith(("fingerprints", "schedule.", "metrics.")):
            del saved.arrays[name]
    writers: dict[Path, Checkpoints] = {}

    def write(folder: Path) -> None:
        if folder not in writers:
            writers[folder] = Checkpoints(folder)
            writers[folder].prepare()
        writers[folder].write(saved)

    return write


SAVERS: dict[str, Callable[[], Callable[[Path], Any]]] = {
    "run": run_saver,
    "model": lambda: Recommender(2, workers=1, seed=0).fit(RATINGS).save,
    "ratings": lambda: lambda folder: save_ratings(RATINGS, folder),
    "checkpoints": checkpoint_saver,
}
READERS: dict[str, Callable[[Path], Any]] = {
    "run": aq.load_run,
    "model": Recommender.load,
    "ratings": open_ratings,
    "checkpoints": load_checkpoint,
}


def keep_saving(kind: str, folder: Path, begun: Event, ended: Event) -> None:
    """Save until told to end."""
    warnings.simplefilter("ignore")
    save = SAVERS[kind]()
    save(folder)
    save(folder)
    begun.set()
    while not ended.is_set():
        save(folder)


def false_alarms(kind: str, folder: Path, readings: int) -> list[str]:
    """Return the reports of readings beside a writer."""
    context = multiprocessing.get_context("spawn")
    begun, ended = context.Event(), context.Event()
    writer = context.Process(
        target=keep_saving, args=(kind, folder, begun, ended), daemon=True
    )
    writer.start()
    alarms = []
    try:
        if not begun.wait(120.0):
            raise RuntimeError("the writer has not begun")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(readings):
                try:
                    READERS[kind](folder)
                except (aq.AsyncqnError, UserWarning) as error:
                    alarms.append(str(error))
        if not writer.is_alive():
            raise RuntimeError("the writer has died")
    finally:
        ended.set()
        writer.join(60.0)
        writer.kill()
    return alarms


def main(readings: int = 500) -> int:
    failed = 0
    for kind in READERS:
        with tempfile.TemporaryDirectory(prefix="asyncqn-beside-") as name:
            alarms = false_alarms(kind, Path(name) / kind, readings)
        failed += len(alarms)
        print(
            f"{kind:12} {readings} readings, {len(alarms)} false alarms {alarms[:1] or ''}",
            flush=True,
        )
    print(f"{readings * len(READERS)} readings, {failed} false alarms")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:2])))
