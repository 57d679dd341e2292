"""Jobs: pure functions of frozen parameters, computed once, on two processes, and kept.

A job's key is the hash of its parameters, of the source files of the packages and of their versions.
Finished jobs are lines of one JSON file per experiment, so that an interrupted experiment goes on
where it stopped.  After a change of the code every job is computed again.  A line also says what the
job cost, so that an experiment knows how long it took to compute, however often it was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import nullcontext
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from asyncqn.errors import BadInput
from asyncqn.lab import SharedPool, Tell, pool
from asyncqn.storage import LONGEST_DOCUMENT, own_handle, read_own, to_json
from asyncqn_paper.records import Record

J = TypeVar("J")


class Spent(NamedTuple):
    """What jobs took: seconds by the clock in their own process, and processor seconds with those of the
    processes they started."""

    clock: float
    processor: float


class Kept(NamedTuple):
    """A finished job."""

    records: list[Record]
    spent: Spent


SOURCES = ("asyncqn", "asyncqn_recommender", "asyncqn_paper")
VERSIONS = ("asyncqn", "numpy", "numba", "llvmlite")
"""Packages whose source files, and those whose versions, may change a number."""


@cache
def code_digest() -> str:
    """sha256 of the source files and data of the packages, of the versions in use and of Python's."""
    digest = hashlib.sha256(platform.python_version().encode())
    for package in SOURCES:
        spec = find_spec(package)
        for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
            for path in sorted(path for kind in ("*.py", "*.json") for path in root.rglob(kind)):
                digest.update(f"{package} {path.relative_to(root).as_posix()}\n".encode())
                digest.update(path.read_bytes())
    for package in VERSIONS:
        digest.update(f"{package} {version(package)}\n".encode())
    return digest.hexdigest()


def keys_of(function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[str]:
    """The keys under which the jobs' records are kept."""
    source = [function.__module__, function.__name__, code_digest()]
    texts = (json.dumps([*source, to_json(job)], sort_keys=True, allow_nan=False) for job in jobs)
    return [hashlib.sha256(text.encode()).hexdigest()[:24] for text in texts]


def kept_jobs(path: Path) -> dict[str, Kept]:
    """Finished jobs by key; a line cut off by an interruption is passed over."""
    kept = {}
    if path.is_file():
        for line in read_own(path, LONGEST_DOCUMENT).decode(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                kept[entry["key"]] = Kept(entry["records"], Spent(*entry["spent"]))
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
    spend: Callable[[Spent], None] = lambda spent: None,
    shared: SharedPool | None = None,
) -> list[Record]:
    """The records of all jobs, in order; those in `path` are not computed again.

    spend: is told what all of them took together, also those that were kept; shared: processes to use
    instead of new ones.
    """
    keys = keys_of(function, jobs)
    kept = kept_jobs(path)
    todo = {key: job for key, job in zip(keys, jobs, strict=True) if key not in kept}
    done = len(set(keys) - set(todo))
    tell(done)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = own_handle(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            if path.stat().st_size:
                file.write("\n")  # ends a line that an interruption may have cut off
            began = time.monotonic()
            for finished, (key, job) in enumerate(_computed(function, todo, processes, shared), 1):
                kept[key] = job
                file.write(json.dumps({"key": key, **job._asdict()}, allow_nan=False) + "\n")
                file.flush()
                left = (time.monotonic() - began) / finished * (len(todo) - finished)
                tell(done + finished, f"about {_duration(left)} left" if finished < len(todo) else "")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from None
    costs = [kept[key].spent for key in dict.fromkeys(keys)]
    spend(Spent(sum(cost.clock for cost in costs), sum(cost.processor for cost in costs)))
    return [record for key in keys for record in kept[key].records]


def _timed(function: Callable[[J], list[Record]], job: J) -> Kept:
    """The records of a job, and what it took."""
    clock, processor = time.monotonic(), sum(os.times()[:4])
    records = function(job)
    return Kept(records, Spent(round(time.monotonic() - clock, 3), round(sum(os.times()[:4]) - processor, 3)))


def _computed(
    function: Callable[[J], list[Record]], todo: dict[str, J], processes: int, shared: SharedPool | None
) -> Any:
    """(key, finished job) as they come; in this process where a pool would not pay."""
    if processes <= 1 or len(todo) <= 1:
        for key, job in todo.items():
            yield key, _timed(function, job)
        return
    with pool(processes) if shared is None else nullcontext(shared.executor()) as executor:
        waiting = {executor.submit(_timed, function, job): key for key, job in todo.items()}
        try:
            while waiting:
                ready, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield waiting.pop(future), future.result()
        finally:
            for future in waiting:
                future.cancel()


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
