"""The first minute: processor seconds of first calls with an empty cache on one core, and of imports.

Each measurement is a process of its own; what is compiled goes to a folder that is thrown away.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

FIRST_CALLS = {
    "first aq.minimize, logistic regression": (
        "import numpy as np, asyncqn as aq\n"
        "x = np.random.default_rng(0).standard_normal((2000, 20))\n"
        "aq.minimize(aq.LogisticRegression(x, (x[:, 0] > 0) * 1.0), engine=aq.Threads(1))\n",
        6.0,
    ),
    "first Recommender.fit, rank 5": (
        "import numpy as np\n"
        "from asyncqn_recommender import Recommender\n"
        "rng = np.random.default_rng(1)\n"
        "pairs = rng.permutation(300 * 200)[:12_000]\n"
        "users, items = pairs // 200, pairs % 200\n"
        "stars = rng.integers(1, 6, pairs.size).astype(float)\n"
        "Recommender(rank=5, workers=1, seed=0).fit((users, items, stars))\n",
        6.0,
    ),
    "first asyncqn simulate": (
        "from asyncqn.cli.main import main\n"
        "try:\n    main(['simulate', '--json', '-q'])\nexcept SystemExit:\n    pass\n",
        8.0,
    ),
}
WARM = {
    "asyncqn --help": (
        "from asyncqn.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n",
        0.35,
    ),
    "import asyncqn, beyond NumPy": ("import asyncqn\n", 0.25),
}
CLOCK = (
    "import time, sys\n{before}began = time.process_time()\n{work}"
    "print(time.process_time() - began, file=sys.stderr)\n"
)


def seconds(work: str, cache: str, before: str = "") -> float:
    """Processor seconds of a program in a new process on one core, without the interpreter's own start."""
    # One core, because numba and BLAS may otherwise start threads whose time would be counted.
    cores = os.sched_getaffinity(0)
    done = subprocess.run(
        [sys.executable, "-c", CLOCK.format(before=before, work=work)],
        env={**os.environ, "NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: os.sched_setaffinity(0, {min(cores)}),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stderr.splitlines()[-1])


def record(name: str, value: float, target: float) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": "processor s",
        "ratio": None,
        "target": f"<= {target:g}",
        "met": value <= target,
    }


def bench_first_calls() -> list[dict[str, Any]]:
    """With nothing compiled, each once; and the same again with the cache that it left."""
    records = []
    for name, (work, target) in FIRST_CALLS.items():
        with tempfile.TemporaryDirectory() as cache:
            records.append(record(name, seconds(work, cache), target))
            # The second call finds what the first has compiled.
            again = seconds(work, cache)
        records.append(
            {
                **record(name.replace("first", "second"), again, target),
                "target": "",
                "met": True,
            }
        )
    return records


def bench_imports() -> list[dict[str, Any]]:
    """Measure imports and the help, each as the median of five processes."""
    records = []
    with tempfile.TemporaryDirectory() as cache:
        for name, (work, target) in WARM.items():
            # Imported before the clock starts: what remains is the package's own part.
            before = "import numpy\n" if "NumPy" in name else ""
            median = statistics.median(seconds(work, cache, before) for _ in range(5))
            records.append(record(name, median, target))
    return records


BENCHMARKS = (bench_first_calls, bench_imports)
