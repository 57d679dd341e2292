"""Compare the numbers of this tree with those of another checkout, bit by bit, on one machine.

    git worktree add --detach /tmp/before COMMIT
    python -m benchmarks.against /tmp/before bits [simulator] [threads] [processes] [ray] [mpi]

The other checkout runs every algorithm on every problem on the simulator, and every algorithm on every real
engine, and saves its runs.  This tree loads them, computes the simulated runs again from their algorithm,
and replays the real ones.  Iterates, schedules, fingerprints, metrics, counters and outcomes must be equal.
Floating-point numbers hold on one processor only, so nothing of this is committed.

The script runs in both trees: what `record` uses existed at version 0.2, what `check` uses exists today.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
DTYPES = ("float64", "float32")
COMMITS, EVALUATE, SEED, TIME_LIMIT = 40, 10, 5, 1800.0
ENGINES = ("threads", "processes", "ray", "mpi")

# Parameters other than those of an algorithm's example that lead through other code.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "as-lbfgs diagonal": ("as-lbfgs", {"rho": 0.1, "initial_scale": "diagonal"}),
    "as-lbfgs shuffled": (
        "as-lbfgs",
        {"beta": float("inf"), "sampling": "shuffled", "cosine_floor": 0.3},
    ),
    "async-sgd blocks": ("async-sgd", {"sampling": "blocks"}),
    "mb-lbfgs timeout": ("mb-lbfgs", {"timeout": 1.5, "quorum": 0.3}),
    "exact-lbfgs pieces": ("exact-lbfgs", {"blocks": 3, "pieces": 4}),
    "staged-lbfgs no warm-up": ("staged-lbfgs", {"batches": 1, "warmup": 0}),
    "staged-lbfgs in step": (
        "staged-lbfgs",
        {"batches": 4, "warmup": 4, "delay": 0, "in_step": True},
    ),
}


def _classes(module: str, name: str) -> dict[str, Any]:
    """Return a registry of either tree, its "module:Class" entries imported."""
    found = {}
    for kind, entry in dict(getattr(importlib.import_module(module), name)).items():
        if isinstance(entry, str):
            where, _, cls = entry.partition(":")
            entry = getattr(importlib.import_module(where), cls)
        found[kind] = entry
    return found


def algorithms() -> dict[str, Any]:
    return _classes("asyncqn.algorithms", "ALGORITHMS")


def problems() -> dict[str, Any]:
    try:
        return _classes("asyncqn.models", "PROBLEMS")
    except ModuleNotFoundError:  # as version 0.2 called it
        return _classes("asyncqn.potentials", "POTENTIALS")


def fits(algorithm: Any, problem: Any) -> bool:
    """Return whether the algorithm accepts the problem: its required extras exist, its own check passes."""
    if any(
        getattr(problem, name, None) is None
        for name in getattr(algorithm, "requires", None) or ()
    ):
        return False
    try:
        # Algorithms without a check of their own accept any problem.
        getattr(algorithm, "check", lambda _: None)(problem)
    except ValueError:
        return False
    return True


def cases() -> Iterator[tuple[str, str, str, Any, Any]]:
    """(algorithm, problem, dtype, the objects) of every pair that fits; float32 once per algorithm."""
    classes, models = algorithms(), problems()
    for dtype in DTYPES:
        examples = {}
        for kind, model in models.items():
            try:
                examples[kind] = model.example(dtype)
            except ValueError:
                # Some problems exist in one precision only.
                assert dtype != "float64", f"{kind} has no example in float64"
        for name in [*classes, *VARIANTS]:
            kind, changes = VARIANTS.get(name, (name, {}))
            for of, problem in examples.items():
                try:
                    algorithm = replace(classes[kind].example(problem), **changes)
                except ValueError:
                    continue
                if fits(algorithm, problem):
                    yield name, of, dtype, algorithm, problem
                    # One problem per algorithm is enough in float32: the kernels are the same, compiled for
                    # another type.
                    if dtype == "float32":
                        break


def _cluster(algorithm: Any) -> Any:
    import asyncqn as aq

    if getattr(algorithm, "max_workers", None) == 1:
        return aq.Cluster(workers=1)
    return aq.Cluster(
        workers=4, worker_mean=1.0, worker_std=0.3, message=0.1, master=0.01
    )


def _pattern(algorithm: Any) -> tuple[Any, ...]:
    """Return what an engine sees of an algorithm: the fields of its stages that are set, how each closes."""
    return tuple(
        (
            type(stage).__name__,
            *(getattr(stage, field.name) != field.default for field in fields(stage)),
        )
        for stage in algorithm.stages
    )


def _for_engine(engine: str) -> Iterator[tuple[str, str, str, Any, Any]]:
    """Every algorithm once; on Ray, where a run takes seconds to start, one for each pattern of messages."""
    seen: set[Any] = set()
    for case in cases():
        name, _, dtype, algorithm, _ = case
        if name == "mb-lbfgs timeout":  # seconds on a real engine
            case = (*case[:3], replace(algorithm, timeout=2e-4, quorum=0.5), case[4])
        mark = (dtype, _pattern(algorithm)) if engine == "ray" else (dtype, name)
        if mark not in seen and not (engine == "ray" and dtype == "float32"):
            seen.add(mark)
            yield case


def record(what: str, folder: Path) -> None:
    """Make the runs of the simulator or of one engine and save them; of MPI, rank 0 saves."""
    import asyncqn as aq

    def save(run: Any, *case: str) -> None:
        if run is not None:
            place = run.save(folder / what / " ".join(case).replace(" ", "_"))
            (folder / what / f"{place.name}.json").write_text(json.dumps(case))

    def one(
        engine: Any, case: tuple[str, str, str, Any, Any], tol: float | None = None
    ) -> None:
        name, kind, dtype, algorithm, problem = case
        run = aq.minimize(
            problem, algorithm, engine=engine, commits=COMMITS, evaluate=EVALUATE, seed=SEED, tol=tol,
            check=False,
        )  # fmt: skip
        save(run, name, kind, dtype)

    if what == "simulator":
        for case in cases():
            one(aq.Simulator(_cluster(case[3])), case)
        for kind, model in problems().items():
            problem = model.example("float64")
            algorithm = aq.default_algorithm(problem, 4)
            run = aq.minimize(
                problem,
                algorithm,
                engine=aq.Simulator(_cluster(algorithm)),
                commits=200,
                evaluate=20,
            )
            save(run, "default", kind, "float64")
        return
    make = {
        "threads": aq.Threads,
        "processes": aq.Processes,
        "ray": aq.Ray,
        "mpi": lambda _: aq.MPI(),
    }[what]
    if what == "ray":
        _start_ray()
    for case in _for_engine(what):
        serial = getattr(case[3], "max_workers", None) == 1
        if not (serial and what == "mpi"):  # the ranks of the job are all workers
            one(make(1 if serial else 2), case)


def _start_ray() -> None:
    import ray

    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0"
    )
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200 * 2**20,
        _node_ip_address="127.0.0.2" if sys.platform == "linux" else "127.0.0.1",
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
    )


def differences(old: Any, new: Any) -> list[str]:
    """The names of what differs between two runs; of the metrics, in the rows of commits that both have."""
    found = [
        name
        for name, a, b in (
            ("theta", old.theta.tobytes(), new.theta.tobytes()),
            ("schedule", old.schedule, new.schedule),
            ("fingerprints", old.fingerprints.tobytes(), new.fingerprints.tobytes()),
            ("counters", old.counters, new.counters),
            ("columns", sorted(old.metrics), sorted(new.metrics)),
        )
        if a != b
    ]
    if (_word(old.status), old.success) != (
        _word(new.status),
        new.success,
    ) and not _has_risen(old, new):
        found.append("outcome")
    # Versions may evaluate at different commits; what both have must be equal.
    (_, here, there) = np.intersect1d(
        old.metrics["commit"], new.metrics["commit"], return_indices=True
    )
    return found + sorted(
        name
        for name in set(old.metrics) & set(new.metrics)
        if old.metrics[name][here].tobytes() != new.metrics[name][there].tobytes()
    )


def _has_risen(old: Any, new: Any) -> bool:
    """Return whether only the rule for outcomes changed: since 0.2, a run above its start has diverged."""
    words = _word(old.status), _word(new.status)
    return words == ("completed", "diverged") and not new.fun <= new.metrics["fun"][0]


def _word(status: Any) -> str:
    return str(getattr(status, "value", status))


def check(what: str, folder: Path) -> None:
    """In this tree: compute the saved runs again; print a JSON line for each, with what differs."""
    import asyncqn as aq

    models = problems()
    for told in sorted((folder / what).glob("*.json")):
        name, kind, dtype = json.loads(told.read_text())
        try:
            problem = models[kind].example(dtype)
            old = aq.load_run(told.with_suffix(""), problem=problem)
            if what == "simulator":
                about = old.manifest
                new = aq.minimize(
                    problem, old.algorithm, engine=aq.Simulator(_cluster(old.algorithm)), check=False,
                    commits=about["commits"], evaluate=about["evaluate"], seed=about["seed"],
                    tol=about["stopping"]["tol"],
                )  # fmt: skip
            else:
                new = aq.replay(old, problem)
            wrong = differences(old, new)
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}"]
        print(
            json.dumps({"case": f"{name}, {kind}, {dtype}", "wrong": wrong}), flush=True
        )


def _command(
    tree: Path, mode: str, what: str, folder: Path
) -> tuple[list[str], dict[str, str]]:
    # Variables of an MPI job around this program would make its own job believe that it is part of the other.
    ambient = ("OMPI_", "PMIX_", "PRTE_", "PMI_")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(ambient)
    }
    environment |= {"PYTHONPATH": str(tree / "src"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), mode, what, str(folder)]
    if mode == "record" and what == "mpi":
        allow = ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT")
        environment |= {name + end: "1" for name in allow for end in ("", "_CONFIRM")}
        environment |= {"OMPI_MCA_btl": "self,sm", "OMPI_MCA_mpi_yield_when_idle": "1"}
        launcher = Path(sys.executable).parent / "mpiexec"
        command = [
            str(launcher),
            "--oversubscribe",
            "--bind-to",
            "none",
            "-n",
            "3",
            *command,
        ]
    return command, environment


def _side_by_side(
    tree: Path, mode: str, groups: list[list[str]], folder: Path
) -> dict[str, str]:
    """The standard output of each part; the groups run at the same time, the parts of a group in turn."""
    outputs: dict[str, str] = {}
    running: list[tuple[str, list[str], subprocess.Popen[str]]] = []

    def begin(group: list[str]) -> None:
        command, environment = _command(tree, mode, group[0], folder)
        # In the scratch folder, so that neither tree is on the path by accident.
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        running.append((group[0], group[1:], process))

    for group in groups:
        begin(group)
    ends = time.monotonic() + TIME_LIMIT
    try:
        while running:
            what, rest, process = running[0]
            outputs[what], _ = process.communicate(
                timeout=max(0.1, ends - time.monotonic())
            )
            running.pop(0)
            if process.returncode:
                raise SystemExit(
                    f"{tree}: {mode} {what} ended with code {process.returncode}."
                )
            if rest:
                begin(rest)
    finally:
        for _, _, process in running:
            process.terminate()
            process.wait()
    return outputs


def main(other: Path, chosen: Sequence[str] = ()) -> int:
    """Print the table; 1 where anything differs.  chosen: the parts that are compared, all if none is."""
    began = time.monotonic()
    unknown = set(chosen) - {"simulator", *ENGINES}
    if unknown:
        raise SystemExit(
            f"there is no part {', '.join(unknown)}; there are simulator, {', '.join(ENGINES)}."
        )
    wanted = [
        [part for part in group if not chosen or part in chosen]
        for group in (["simulator"], ENGINES)
    ]
    groups = [group for group in wanted if group]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _side_by_side(other, "record", groups, folder)
        outputs = _side_by_side(ROOT, "check", groups, folder)
    print(f"{'runs of the other checkout':30} {'equal':>6} {'differ':>7}")
    bad = 0
    for what, text in outputs.items():
        records = [
            json.loads(line) for line in text.splitlines() if line.startswith("{")
        ]
        wrong = [record for record in records if record["wrong"]]
        # A part without a single record counts as a failure.
        bad += len(wrong) or not records
        how = "computed again" if what == "simulator" else "replayed"
        print(f"{what + ', ' + how:30} {len(records) - len(wrong):6} {len(wrong):7}")
        for record in wrong:
            print(f"    {record['case']}: {', '.join(record['wrong'])}"[:400])
    print(
        f"{'no difference' if not bad else 'DIFFERENT'}, {time.monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    {"record": record, "check": check}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
