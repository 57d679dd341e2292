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


def write_rows(
    ratings: Ratings, file: Path, columns: tuple[str, ...], delimiter: str, header: bool
) -> None:
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    stamps = pa.repeat(978300760, len(users))
    table = pa.table(
        dict(zip(columns, (users, items, ratings.values.astype(float), stamps)))
    )
    options = pyarrow.csv.WriteOptions(
        include_header=header, delimiter=delimiter, quoting_style="none"
    )
    pyarrow.csv.write_csv(table, file, options)


def double_colon_file() -> list[dict[str, Any]]:
    """Time the reading of a file of the size and form of MovieLens 1M's ratings.dat."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.dat"
        write_rows(
            synthetic_ratings(*PRESETS["synthetic-1m"]),
            file,
            ("u", "i", "r", "t"),
            "\t",
            False,
        )
        file.write_bytes(file.read_bytes().replace(b"\t", b"::"))
        read_ratings(file)
        took = median(seconds(lambda: read_ratings(file)) for _ in range(REPEATS))
    return [
        record(
            "read 1,000,209 rows of ratings.dat", took, "s", None, "<= 1.5", took <= 1.5
        )
    ]


def csv_file() -> list[dict[str, Any]]:
    """Rows per second out of a CSV file like 20M's, with pandas' C reader (no ids mapped) beside it."""
    shape = PRESETS["synthetic-20m"] if FULL else (27_700, 20_000, 4_000_000)
    columns = ("userId", "movieId", "rating", "timestamp")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ratings.csv"
        write_rows(synthetic_ratings(*shape), file, columns, ",", True)
        pairs = [
            (
                seconds(lambda: read_ratings(file)),
                seconds(lambda: pd.read_csv(file, usecols=columns[:3])),
            )
            for _ in range(REPEATS)
        ]
    ours, theirs = (median(times) for times in zip(*pairs))
    speed = shape[2] / ours / 1e6
    name = f"read {shape[2]:,} CSV rows"
    return [
        record(name, speed, "million rows/s", None, ">= 3", speed >= 3),
        record(
            f"{name}, pandas' time / ours",
            ours,
            "s",
            theirs / ours,
            ">= 1",
            theirs >= ours,
        ),
    ]


def stored_form() -> list[dict[str, Any]]:
    """Opening a stored set of a million ratings, every checksum compared."""
    with tempfile.TemporaryDirectory() as folder:
        path = save_ratings(
            synthetic_ratings(*PRESETS["synthetic-1m"]), Path(folder) / "set"
        )
        took = median(seconds(lambda: open_ratings(path)) for _ in range(REPEATS))
    return [
        record(
            "open a stored set of 1,000,209 ratings",
            took,
            "s",
            None,
            "<= 0.1",
            took <= 0.1,
        )
    ]


def synthetic() -> list[dict[str, Any]]:
    """Making 20M ratings in a process of its own, to see its time and peak memory."""
    code = (
        "import resource, time; from asyncqn_recommender.data import PRESETS, synthetic_ratings\n"
        "synthetic_ratings(*PRESETS['synthetic-demo']); start = time.perf_counter()\n"
        "synthetic_ratings(*PRESETS['synthetic-20m']); took = time.perf_counter() - start\n"
        "print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    took, peak = map(float, done.stdout.split())
    return [
        record("generate synthetic-20m", took, "s", None, "<= 15", took <= 15),
        record(
            "generate synthetic-20m, peak memory", peak, "GiB", None, "<= 2", peak <= 2
        ),
    ]


def record(
    name: str, value: float, unit: str, ratio: float | None, target: str, met: bool
) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "ratio": ratio,
        "target": target,
        "met": met,
    }


BENCHMARKS = (double_colon_file, csv_file, stored_form, synthetic)
