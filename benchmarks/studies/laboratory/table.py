"""Who wins where: algorithms x problems x laws of delay x W, every rival tuned, every line replayable.

    python -m benchmarks.studies.laboratory.table [--problems ...] [--laws ...] [--workers ...] [--draw 1]
    python -m benchmarks.studies.laboratory.table --replay 17           computes line 17 again and compares

Lines go to docs/results/laboratory/cells.jsonl, one for each run; what is there is not measured again.
Rivals are tuned on draw 0 of the data with seed 0; draw k is measured with seed k + 1.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import asyncqn as aq
from asyncqn.algorithms import algorithm_from_json, algorithm_to_json
from asyncqn.algorithms.defaults import default_algorithm, pieces_of_a_block
from asyncqn.runs.run import Run
from benchmarks.studies.laboratory.cells import (
    CONVEX,
    FINE,
    FINER,
    LAWS,
    MASTER,
    MESSAGE,
    PROBLEMS,
    problem,
    times_to,
)
from benchmarks.studies.laboratory.tuned import RIVALS, longest, make, trials
from benchmarks.studies.tables import RESULTS

LINES = RESULTS / "laboratory" / "cells.jsonl"
Line = dict[str, Any]
HERE = ("problem", "law", "workers", "method", "draw")


def ours(name: str, workers: int, draw: int) -> dict[str, Any]:
    """Our methods with the parameters that their rules choose."""
    told = problem(name, draw)
    model = told.model
    pieces = pieces_of_a_block(model.dim, model.n_data, workers)
    least = max(1000, 10 * model.dim, 100 * workers)
    levels = max(1, min(4, int(math.log(max(model.n_data / least, 4.0), 4))))
    memory = 100 if model.dim <= 1000 else 20
    few = max(1, min(pieces, model.n_data // 4**levels // workers // 3))
    found = {
        "table": aq.table_algorithm(model, workers, MESSAGE / told.row, MASTER / told.row),
        "growing": aq.GrowingLBFGS(workers, levels, memory=memory, pieces=few),
        "growing by scatter": aq.GrowingLBFGS(workers, levels, pieces=few, initial_scale="scatter"),
        "block": aq.BlockLBFGS(workers, memory, pieces=pieces),
    }
    chosen = default_algorithm(model, workers)
    if isinstance(chosen, aq.DifferenceLBFGS):
        found["difference"] = chosen
    elif isinstance(chosen, aq.MetricLBFGS | aq.StagedLBFGS):
        found["metric"] = chosen
    return found


def line(name: str, law: str, workers: int, method: str, algorithm: Any, draw: int, most: float) -> Line:
    looks = FINE if name in CONVEX else FINER
    times, run = times_to(name, law, workers, algorithm, draw + 1, most, looks, draw)
    return {
        "problem": name, "law": law, "workers": workers, "method": method, "draw": draw, "most": most,
        "algorithm": algorithm_to_json(algorithm), "passes": [None if math.isinf(t) else t for t in times],
        "status": run.status, "commits": run.schedule.commits, "fingerprint": _fingerprint(run),
    }  # fmt: skip


def _fingerprint(run: Run) -> int:
    return int(run.fingerprints[-1]) if len(run.fingerprints) else 0


def tune(name: str, workers: int, kind: str) -> tuple[dict[str, Any], float, int]:
    """The best point under log-normal times, the passes it needs, and how many trials there were."""
    most = longest("rivals", name)
    best, least, count = None, most, 0
    partial = math.inf
    search = trials(kind, name, workers)
    point = next(search)
    while True:
        count += 1
        times, _ = times_to(name, "lognormal", workers, make(kind, point), 0, least)
        # Where none has arrived at the last gap yet, the nearest to it counts.
        short = sum(min(t, most) for t in times)
        if times[-1] < least or (math.isinf(times[-1]) and least == most and short < partial):
            best, partial = point, short
            least = min(least, times[-1])
        try:
            point = search.send(best)
        except StopIteration:
            assert best is not None
            return best, least, count


def cells(given: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    for name in given.problems:
        for workers in given.workers:
            for law in given.laws:
                if name != "profiled" or workers <= 100:  # of 300 users, three for each worker
                    yield name, law, workers


def measured() -> list[Line]:
    return [json.loads(text) for text in LINES.read_text().splitlines()] if LINES.exists() else []


def measure(given: argparse.Namespace) -> None:
    LINES.parent.mkdir(parents=True, exist_ok=True)
    lines = measured()

    def keep(record: Line) -> None:
        lines.append(record)
        with LINES.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print({k: v for k, v in record.items() if k not in ("algorithm", "fingerprint")}, flush=True)

    def known(name: str, law: str, workers: int, method: str, draw: int) -> list[Line]:
        here = (name, law, workers, method, draw)
        return [r for r in lines if tuple(r[key] for key in HERE) == here]

    until = time.monotonic() + given.seconds
    for name, law, workers in cells(given):
        here = (name, law, workers)
        methods: dict[str, Callable[[], tuple[Any, float]]] = {}
        for method, algorithm in ours(name, workers, given.draw).items():
            kind = "table" if method == "table" else "ours"
            if kind in given.methods:
                methods[method] = partial(_given, algorithm, longest(kind, name))
        if "rivals" in given.methods:
            methods |= {kind: partial(_tuned_for, *here, kind, known, keep) for kind in RIVALS}
        for method, chosen in methods.items():
            if time.monotonic() > until:
                return
            if not known(*here, method, given.draw):
                algorithm, most = chosen()
                keep(line(*here, method, algorithm, given.draw, most))


def _given(algorithm: Any, most: float) -> tuple[Any, float]:
    return algorithm, most


def _tuned_for(name: str, law: str, workers: int, kind: str, known: Any, keep: Any) -> tuple[Any, float]:
    """The rival for a law, and how long it is given: tuned under log-normal times, then h by law.

    What was measured on draw 0 is taken as it is.
    """
    if before := known(name, law, workers, kind, 0):
        return algorithm_from_json(before[0]["algorithm"]), before[0]["most"]
    tuned = known(name, "lognormal", workers, f"tuning {kind}", 0)
    if not tuned:
        point, least, count = tune(name, workers, kind)
        keep({
            "problem": name, "law": "lognormal", "workers": workers, "method": f"tuning {kind}", "draw": 0,
            "algorithm": algorithm_to_json(make(kind, point)), "passes": [None, None, least], "trials": count,
        })  # fmt: skip
        tuned = known(name, "lognormal", workers, f"tuning {kind}", 0)
    most = longest("rivals", name)
    point, least = tuned[0]["algorithm"]["parameters"], tuned[0]["passes"][-1]
    if law == "lognormal":
        return make(kind, point), min(most, 3.0 * least)
    best, least = point, min(most, 5.0 * least)
    for factor in (1.0, 0.5, 2.0):
        tried = {**point, "h": factor * point["h"]}
        times, _ = times_to(name, law, workers, make(kind, tried), 0, least)
        if times[-1] < least:
            best, least = tried, times[-1]
    return make(kind, best), min(most, 3.0 * least)


def replay(number: int) -> int:
    """Compute a line again; 1 where it differs."""
    record = measured()[number - 1]
    algorithm = algorithm_from_json(record["algorithm"])
    again = line(
        *(record[k] for k in ("problem", "law", "workers", "method")),
        algorithm,
        record["draw"],
        record["most"],
    )
    other = [key for key in record if again[key] != record[key]]
    said = f"differs in {', '.join(other)}" if other else "the same"
    if other == ["fingerprint"]:  # arithmetic of another processor, or of another version of the code
        said = "the same times and commits, other bits in theta"
    print(f"line {number}, {record['method']} on {record['problem']}: {said}.")
    return 1 if other else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--laws", nargs="+", choices=LAWS, default=list(LAWS))
    parser.add_argument("--workers", nargs="+", type=int, default=[40, 400])
    parts = ["table", "ours", "rivals"]
    parser.add_argument("--methods", nargs="+", choices=parts, default=parts, help="ours: without the table")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further cell after these")
    parser.add_argument("--draw", type=int, default=1, help="of the data; the page shows draw 1")
    parser.add_argument("--replay", type=int, metavar="LINE")
    given = parser.parse_args()
    if given.replay is not None:
        return replay(given.replay)
    measure(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
