"""Reading and making ratings: rows per second, seconds, peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from asyncqn_recommender.data import (
    PRESETS,
    Ratings,
    open_ratings,
    read_ratings,
    save_ratings,
    synthetic_ratings,
)
from benchmarks.timing import seconds

FULL = os.environ.get("ASYNCQN_BENCH_FULL") == "1"
REPEATS = 3


def record(name: str, value: float, unit: str, target: str) -> dict[str, Any]:
    """Return a measurement with its target, such as "<= 2"."""
    sign, bound = target.split()
    met = value <= float(bound) if sign == "<=" else value >= float(bound)
    return {"name": name, "value": value, "unit": unit, "ratio": None,
            "target": target, "met": met}  # fmt: skip


def table_of(ratings: Ratings, names: tuple[str, ...]) -> pa.Table:
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    times = pa.repeat(978300760, len(users))
    columns = users, items, ratings.values.astype(float), times
    return pa.table(dict(zip(names, columns)))


def double_colon_file() -> list[dict[str, Any]]:
    """Time the reading of a file of the size and form of MovieLens 1M's ratings.dat."""
    table = table_of(synthetic_ratings(*PRESETS["synthetic-1m"]), ("u", "i", "r", "t"))
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="\t", quoting_style="none"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.dat"
        pyarrow.csv.write_csv(table, file, options)
        file.write_bytes(file.read_bytes().replace(b"\t", b"::"))
        read_ratings(file)
        time = median(seconds(lambda: read_ratings(file)) for _ in range(REPEATS))
    return [record("read 1,000,209 rows of ratings.dat", time, "s", "<= 1.5")]


def csv_file() -> list[dict[str, Any]]:
    """Read a CSV file like 20M's, and beside it with pandas' C reader, which maps no ids."""
    shape = PRESETS["synthetic-20m"] if FULL else (27_700, 20_000, 4_000_000)
    columns = ("userId", "movieId", "rating", "timestamp")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.csv"
        pyarrow.csv.write_csv(table_of(synthetic_ratings(*shape), columns), file)
        ours, theirs = [], []
        for _ in range(REPEATS):
            ours.append(seconds(lambda: read_ratings(file)))
            theirs.append(seconds(lambda: pd.read_csv(file, usecols=columns[:3])))
    time = median(ours)
    name = f"read {shape[2]:,} CSV rows"
    return [
        record(name, shape[2] / time / 1e6, "million rows/s", ">= 3"),
        record(f"{name}, pandas' time / ours", median(theirs) / time, "", ">= 1"),
    ]


def stored_form() -> list[dict[str, Any]]:
    """Open a stored set of a million ratings, with every checksum compared."""
    ratings = synthetic_ratings(*PRESETS["synthetic-1m"])
    with tempfile.TemporaryDirectory() as folder:
        path = save_ratings(ratings, Path(folder) / "set")
        time = median(seconds(lambda: open_ratings(path)) for _ in range(REPEATS))
    return [record("open a stored set of 1,000,209 ratings", time, "s", "<= 0.1")]


def synthetic() -> list[dict[str, Any]]:
    """Make 20M ratings in a process of its own, to see its time and peak memory."""
    code = (
        "import resource, time; from asyncqn_recommender.data import PRESETS, synthetic_ratings\n"
        "synthetic_ratings(*PRESETS['synthetic-demo']); start = time.perf_counter()\n"
        "synthetic_ratings(*PRESETS['synthetic-20m']); print(time.perf_counter() - start)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    time, peak = map(float, done.stdout.split())
    return [
        record("generate synthetic-20m", time, "s", "<= 15"),
        record("generate synthetic-20m, peak memory", peak, "GiB", "<= 2"),
    ]


BENCHMARKS = (double_colon_file, csv_file, stored_form, synthetic)
