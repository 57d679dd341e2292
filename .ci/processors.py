"""Run the numerical tests again with the kernels compiled for other processors than this one.

A result that depends on the order in which this processor's vectors add fails here instead of at a
user's.  Each target has its own folder of compiled kernels and NumPy without its wide loops.

    python .ci/processors.py [TARGET ...] [-- PYTEST ARGUMENTS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMERICAL = (
    *("tests/kernels", "tests/algorithms", "tests/models"),
    *("tests/recommender/kernels", "tests/recommender/problems"),
    *("tests/core/test_divergence.py", "tests/core/test_stopping.py", "tests/runs/test_replay.py"),
)
TARGETS = {"generic": set(), "x86-64-v3": {"avx2", "fma", "bmi2"}, "znver3": {"avx2", "fma", "bmi2"}}
"""Names of LLVM, and the features without which this processor could not run such code."""


def host_features() -> set[str]:
    """What this processor can do, by LLVM's names."""
    from llvmlite import binding

    return {name for name, there in binding.get_host_cpu_features().items() if there}


def wide_loops() -> list[str]:
    """NumPy's dispatched loops that this processor would run; naming others makes NumPy warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numpy._core import _multiarray_umath as internal
    return [name for name in internal.__cpu_dispatch__ if internal.__cpu_features__.get(name)]


def run(target: str, loops: list[str], arguments: list[str]) -> tuple[int, str]:
    """The exit code of pytest for a target, and the last line that it printed."""
    with tempfile.TemporaryDirectory(prefix=f"asyncqn-{target}-") as cache:
        environment = {
            **os.environ,
            "NUMBA_CPU_NAME": target,
            "NUMBA_CPU_FEATURES": "",  # those of the name, not those that this processor has beside
            "NUMBA_CACHE_DIR": cache,
            "NPY_DISABLE_CPU_FEATURES": " ".join(loops),
        }
        command = [sys.executable, "-m", "pytest", "-q", "--dist", "loadgroup", *arguments, *NUMERICAL]
        last = ""
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                last = line.strip() or last
    return process.returncode, last


def main(arguments: list[str]) -> int:
    """The worst exit code of the targets."""
    chosen, rest = arguments, ["-n", "2"]
    if "--" in arguments:
        cut = arguments.index("--")
        chosen, rest = arguments[:cut], arguments[cut + 1 :]
    unknown = [target for target in chosen if target not in TARGETS]
    if unknown:
        print(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
        return 2
    features, loops = host_features(), wide_loops()
    results: list[tuple[int, str]] = []
    for target in chosen or list(TARGETS):
        lacking = TARGETS[target] - features
        if lacking:
            results.append((0, f"{target}: left out, this processor has no {', '.join(sorted(lacking))}"))
            continue
        print(f"== pytest, kernels for {target}, NumPy without {' '.join(loops) or 'nothing'}", flush=True)
        code, last = run(target, loops, rest)
        results.append((code, f"{target}: {last}"))
    print("== processors")
    for _, line in results:
        print(line)
    return max(code for code, _ in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
