"""Jobs: pure functions of frozen parameters, computed once, on two processes, and kept.

A job's key is the hash of its function's name, its parameters, and the source text it depends on:
all of asyncqn but the commands, the drawing and the other experiments.  Finished jobs are lines of
one JSON file per experiment, so that an interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncqn
from asyncqn.errors import BadInput
from asyncqn.experiments.records import Record
from asyncqn.plain import to_plain

J = TypeVar("J")

SHARED = ("experiments/measure.py", "experiments/problems.py", "experiments/settings.py")
SINGLE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Tell(Protocol):
    """How progress is shown: jobs done, and a few words."""

    def __call__(self, done: int, note: str = "") -> None: ...


@cache
def source_hash(module: str) -> str:
    """Hash of the source that the numbers of an experiment in `module` depend on."""
    root = Path(asyncqn.__file__).parent
    own = getattr(sys.modules.get(module), "__file__", None)
    apart = ("commands", "experiments")
    files = [p for p in sorted(root.rglob("*.py")) if p.relative_to(root).parts[0] not in apart]
    files += [root / name for name in SHARED if (root / name).exists()] + ([Path(own)] if own else [])
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def key_of(function: Callable[[Any], Any], job: Any) -> str:
    """The key under which a job's records are kept."""
    what = [function.__module__, function.__qualname__, source_hash(function.__module__), type(job).__name__]
    text = json.dumps([*what, to_plain(job)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def kept_jobs(path: Path) -> dict[str, list[Record]]:
    """Finished jobs by key; a line cut off by an interruption is passed over."""
    kept = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
                kept[entry["key"]] = entry["records"]
            except (ValueError, KeyError, TypeError):
                continue
    return kept


def run_jobs(
    function: Callable[[J], list[Record]],
    jobs: Sequence[J],
    path: Path,
    *,
    processes: int = 2,
    tell: Tell = lambda done, note="": None,
) -> list[Record]:
    """The records of all jobs, in order; those in `path` are not computed again."""
    keys = [key_of(function, job) for job in jobs]
    kept = kept_jobs(path)
    todo = {key: job for key, job in zip(keys, jobs, strict=True) if key not in kept}
    done = len(set(keys) - set(todo))
    tell(done)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            if path.stat().st_size:
                file.write("\n")  # ends a line that an interruption may have cut off
            began = time.monotonic()
            for finished, (key, records) in enumerate(_computed(function, todo, processes), 1):
                kept[key] = records
                file.write(json.dumps({"key": key, "records": records}, allow_nan=False) + "\n")
                file.flush()
                left = (time.monotonic() - began) / finished * (len(todo) - finished)
                tell(done + finished, f"about {_duration(left)} left" if finished < len(todo) else "")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from None
    return [record for key in keys for record in kept[key]]


def _computed(function: Callable[[J], list[Record]], todo: dict[str, J], processes: int) -> Any:
    """(key, records) as they are finished; in this process where a pool would not pay."""
    if processes <= 1 or len(todo) <= 1:
        for key, job in todo.items():
            yield key, function(job)
        return
    with pool(processes) as executor:
        waiting = {executor.submit(function, job): key for key, job in todo.items()}
        try:
            while waiting:
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield waiting.pop(future), future.result()
        finally:
            for future in waiting:
                future.cancel()


def pool(processes: int) -> ProcessPoolExecutor:
    """Processes that share nothing and use one thread each."""
    for name in SINGLE_THREAD:
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
