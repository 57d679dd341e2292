"""Jobs: pure functions of frozen parameters, computed once, on two processes, and kept.

A job's key is the hash of its parameters and of the code that its function can run (`reachable_code`).
Finished jobs are lines of one JSON file per experiment, so that an interrupted experiment goes on
where it stopped.  A line also says what the job cost, so that an experiment knows how long it took to
compute, however often it was interrupted and whoever computed a part of it before.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from asyncqn.errors import BadInput
from asyncqn.lab.tuning.processes import SharedPool, Tell, pool
from asyncqn.storage.serialise import to_json
from asyncqn_paper.reachable_code import code_hash
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


def keys_of(function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[str]:
    """The keys under which the jobs' records are kept."""
    source = [function.__module__, function.__name__, code_hash(function)]
    texts = (json.dumps([*source, to_json(job)], sort_keys=True, allow_nan=False) for job in jobs)
    return [hashlib.sha256(text.encode()).hexdigest()[:24] for text in texts]


def kept_jobs(path: Path) -> dict[str, Kept]:
    """Finished jobs by key; a line cut off by an interruption is passed over."""
    kept = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
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
        with path.open("a", encoding="utf-8") as file:
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
