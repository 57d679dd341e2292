"""Time to a train RMSE on the paper's MAP objective (prior = 1), all methods in one run, by rounds.

    python -m benchmarks.studies.factorization.comparison [--ratings ml-1m] [--rank 5] [--rounds 5]
                                              [--target 0.816] [--starts 4] [--peers PYTHON]
                                              [--seconds 60] [--cpu]

Counted for everyone: preparing the raw columns, the start and all steps until the target is reached.
Not counted: reading the file, compilation, evaluation.  How many steps that takes is found before,
untimed; the round then runs just these.  Methods take turns, so that a busy machine disturbs all of
them; the table shows minima, and medians of the ratios to ours of the same round.  Ours and ALS run from
the starts of seeds 0, 1, ... in every round, and their mean counts; the others from one.  PYTHON is an
interpreter with cmfrec and LIBMF, which are left out where it has none.  With --cpu, processor time is
compared instead, of methods on one thread: that is what remains on a machine that others keep busy.
Set OPENBLAS_NUM_THREADS=1, without which SciPy waits for threads that do nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from asyncqn.algorithms.paper.async_sgd import AsyncSGD
from asyncqn.algorithms.quasi_newton.staged_lbfgs import default_factorization_algorithm
from asyncqn.engines.threads import Threads
from asyncqn.minimize import minimize, starting_point
from asyncqn_recommender.data import load
from asyncqn_recommender.kernels import als as sides
from asyncqn_recommender.kernels import factorization
from asyncqn_recommender.problems import matrix_factorization as joint
from asyncqn_recommender.problems.matrix_factorization import MatrixFactorization
from asyncqn_recommender.problems.profiled_factorization import ProfiledFactorization

# Commits between two evaluations: more than any run makes.
NEVER = 10**9
CLOCK: Callable[[], float] = time.perf_counter
Method = Callable[[], float]


class Problem:
    """Raw columns, and what all methods share."""

    def __init__(self, name: str, rank: int) -> None:
        ratings = load(name)
        self.users, self.items = np.array(ratings.users), np.array(ratings.items)
        self.values, self.rank = np.array(ratings.values), rank
        self.shape = {"n_users": ratings.n_users, "n_items": ratings.n_items}

    def profiled(self) -> ProfiledFactorization:
        return ProfiledFactorization(
            self.users, self.items, self.values, **self.shape, rank=self.rank, dtype=np.float32
        )

    def joint(self, dtype: Any, seed: int | None) -> MatrixFactorization:
        return MatrixFactorization(
            self.users, self.items, self.values, **self.shape, rank=self.rank, dtype=dtype, seed=seed
        )


def duration(run: Callable[[], Any], model: Any) -> tuple[float, Any]:
    """Seconds of a run until its last commit, without what it spent on evaluation."""
    spent = reached = 0.0
    # The run's own axis is wall-clock time without evaluations; for processor time they are subtracted here.
    if CLOCK is time.perf_counter:
        found = run()
        return float(found.metrics["time"][-1]), found

    def without(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed(theta: Any) -> Any:
            nonlocal spent, reached
            arrived = CLOCK()
            # The last call of `metrics` marks the end of the last commit.
            reached = arrived - begin - spent if call is metrics else reached
            result = call(theta)
            spent += CLOCK() - arrived
            return result

        return timed

    metrics = model.metrics
    model.value, model.metrics = without(model.value), without(metrics)
    begin = CLOCK()
    found = run()
    return reached, found


def over_starts(build: Callable[[int], tuple[Method, str]], starts: int) -> tuple[Method, str]:
    """Return the mean over starts as one method."""
    methods = [build(seed) for seed in range(starts)]
    notes = [note.split()[0] for _, note in methods]
    unit = methods[0][1].split()[1]
    return lambda: sum(method() for method, _ in methods) / starts, f"{' / '.join(notes)} {unit}"


def staged(problem: Problem, workers: int, target: float, seed: int = 0) -> tuple[Method, str]:
    """Our method on threads; a run that misses the target by the luck of its schedule gets a pass more."""
    model = problem.profiled()
    algorithm = default_factorization_algorithm(model, workers)

    def run(model: ProfiledFactorization, commits: int, evaluate: int) -> Any:
        start = starting_point(model, None, seed)
        return minimize(
            model, algorithm, engine=Threads(workers), theta0=start, commits=commits, evaluate=evaluate
        )

    # Once with an evaluation after every commit, to find the commit that reaches the target.
    trial = run(model, algorithm.commits_for(12), algorithm.warmup and 1)
    good = np.flatnonzero(np.asarray(trial.metrics["rmse"]) <= target)
    commits = int(trial.metrics["commit"][good[0]]) if good.size else algorithm.commits_for(12)

    def method() -> float:
        nonlocal commits
        while True:
            begin = CLOCK()
            model = problem.profiled()
            starting_point(model, None, seed)
            prepared = CLOCK() - begin
            seconds, found = duration(lambda: run(model, commits, NEVER), model)  # noqa: B023
            rmse = model.metrics(found.theta)["rmse"]  # of what a user is given
            if rmse <= target or commits >= algorithm.commits_for(12):
                return prepared + seconds
            # On two threads another schedule may need one commit more; the next round starts from there.
            commits += 1

    passes = min(commits, algorithm.warmup) / algorithm.batches + max(0, commits - algorithm.warmup)
    return method, f"{passes:.2f} passes"


def alternating(problem: Problem, threads: int, target: float, seed: int = 0) -> tuple[Method, str]:
    """ALS in half-sweeps from the same start; both sides are grouped straight from the columns."""
    both = problem.joint(np.float32, None)
    start = starting_point(problem.profiled(), None, seed)
    rank, n_users, n_items = problem.rank, problem.shape["n_users"], problem.shape["n_items"]
    one = {n: np.ones(n, np.float32) for n in (n_users, n_items)}

    def run(halves: int, check: Callable[[Any, Any], bool] | None = None) -> int:
        # The checks and the grouping belong to the time of ALS, as they belong to ours.
        columns = joint.check_ratings(problem.users, problem.items, problem.values, n_users, n_items, "")
        by_user = sides.grouped(columns.users, columns.items, columns.values, n_users)
        by_item = sides.grouped(columns.items, columns.users, columns.values, n_items)
        F, G = start.copy(), np.empty(n_users * rank, np.float32)
        for half in range(halves):
            if half % 2 == 0:
                sides.solve_side(by_user, F, one[n_users], rank, G, threads)
            else:
                sides.solve_side(by_item, G, one[n_items], rank, F, threads)
            if check is not None and check(F, G):
                return half + 1
        return halves

    def reached(F: Any, G: Any) -> bool:
        return both.metrics(np.concatenate([F, G]))["rmse"] <= target

    halves = run(60, reached)

    def method() -> float:
        begin = CLOCK()
        run(halves)
        return CLOCK() - begin

    return method, f"{halves / 2} sweeps"


def scipy_lbfgs(problem: Problem, target: float, limit: float) -> tuple[Method, str]:
    """SciPy's L-BFGS-B on U with our kernel: value and gradient in one sweep over the ratings."""
    from scipy.optimize import minimize as scipy_minimize

    note = ["not reached"]

    def method() -> float:
        begin = CLOCK()
        model = problem.joint(np.float64, None)
        cut, width, n = problem.rank * model.n_items, factorization.width(problem.rank), model.n_data
        calls = 0

        def both(theta: Any) -> tuple[float, Any]:
            nonlocal calls
            calls += 1
            out = theta.copy()
            squares = factorization.gradient_range(model.ratings, 0, n, theta, cut, 1.0, out, width)
            # SciPy's own callback comes once per iteration, later than the gradient that reaches the target.
            if np.sqrt(squares / n) <= target or CLOCK() - begin > limit:
                note[0] = f"{calls} gradients" if np.sqrt(squares / n) <= target else "not reached"
                raise StopIteration
            return 0.5 * (squares + float(theta @ theta)), out

        try:
            start = model.initial(np.random.default_rng(0))
            scipy_minimize(
                both, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000}
            )
        except StopIteration:
            pass
        return CLOCK() - begin

    method()
    return method, note[0]


def async_sgd(problem: Problem, workers: int, target: float, limit: float) -> tuple[Method, str]:
    """a-SGD on U, batches of N_Y / 100 from shuffled blocks, h the best of nine."""
    model = problem.joint(np.float32, 0)
    batch, commits = model.n_data // 100, 6000

    def run(h: float, model: Any = model) -> tuple[float, float]:
        end = CLOCK() + limit / 9

        def watch(progress: Any) -> None:
            if progress.metrics["rmse"] <= target or CLOCK() > end:
                raise StopIteration

        def call() -> Any:
            return minimize(
                model,
                AsyncSGD(h=h, batch=batch, sampling="blocks"),
                engine=Threads(workers),
                commits=commits,
                evaluate=50,
                callback=watch,
            )

        seconds, found = duration(call, model)
        return (seconds if found.metrics["rmse"][-1] <= target else np.inf), h

    # The rates are for a million ratings; U is a sum, so that the stable step falls with their number.
    per_rating = 1e6 / model.n_data
    rates = (2e-6, 5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4, 3.2e-4, 6.4e-4)
    seconds, best = min(run(h * per_rating) for h in rates)

    def method() -> float:
        begin = CLOCK()
        fresh = problem.joint(np.float32, 0)
        prepared = CLOCK() - begin
        return prepared + (run(best, fresh)[0] if np.isfinite(seconds) else np.inf)

    return method, f"h = {best:.1e}"


def peer(problem: Problem, python: str, name: str, threads: int, target: float, folder: Path) -> Any:
    """Run a fit by another library in its own interpreter; return None if it is not installed."""
    data = folder / "ratings.npz"
    if not data.exists():
        np.savez(data, users=problem.users, items=problem.items, values=problem.values)
    job = {"data": str(data), "peer": name, "rank": problem.rank, "threads": threads, "target": target}
    job["cpu"] = CLOCK is time.process_time

    # LIBMF minimises another objective, so that its ridge and rate are tuned for time to the target.
    settings = [None] if name == "cmfrec" else [(r, e) for r in (0.0, 0.003, 0.01) for e in (0.05, 0.1, 0.2)]

    def fit(passes: list[int], settings: list[Any]) -> dict[str, Any] | None:
        script = str(Path(__file__).with_name("peers.py"))
        command = [python, script, json.dumps({**job, "passes": passes, "settings": settings})]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None

    first = fit(
        [4, 6, 7, 8, 9, 10, 12, 15, 20] if name == "cmfrec" else [10, 15, 20, 30, 40, 60, 80], settings
    )
    if first is None:
        return None
    reached = "" if first["rmse"] <= target else f", only {first['rmse']:.3f}"
    chosen = "" if first["setting"] is None else f", ridge {first['setting'][0]}, rate {first['setting'][1]}"

    def method() -> float:
        again = fit([first["passes"]], [first["setting"]])
        return again["seconds"] if again is not None else np.inf

    return method, f"{first['passes']} passes{chosen}{reached}"


def measure(methods: dict[str, tuple[Method, str]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in methods}
    for method, _ in methods.values():
        method()  # compiled and warm
    for _ in range(rounds):
        for name, (method, _) in methods.items():
            times[name].append(method())
    return times


def show(
    title: str, methods: dict[str, tuple[Method, str]], times: dict[str, list[float]], ours: str
) -> None:
    table = Table("method", "least ms", "median ms", f"ratio to {ours}", "needed", title=title)
    for name, seconds in times.items():
        # Of the ratios of each round, not the ratio of the medians: a slow minute falls on both.
        ratio = median(t / o for t, o in zip(seconds, times[ours]))
        row = (f"{1e3 * min(seconds):.1f}", f"{1e3 * median(seconds):.1f}", f"{ratio:.2f}")
        table.add_row(name, *row, methods[name][1])
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ratings", default="ml-1m")
    parser.add_argument("--rank", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", type=float, default=0.816)
    parser.add_argument("--rough", type=float, default=0.85, help="the target of the comparison with a-SGD")
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for SciPy and for tuning a-SGD")
    parser.add_argument("--cpu", action="store_true", help="processor time of single threads")
    parser.add_argument("--without", default="", help="rivals to leave out, such as cmfrec,LIBMF,SciPy")
    given = parser.parse_args()
    global CLOCK
    CLOCK = time.process_time if given.cpu else time.perf_counter
    counts, out = (1,) if given.cpu else (1, 2), given.without.split(",")
    problem = Problem(given.ratings, given.rank)
    with tempfile.TemporaryDirectory() as folder:
        fine = {}
        for n in counts:
            build = partial(staged, problem, n, given.target)
            fine[f"staged W = {n}"] = over_starts(build, given.starts)
        for n in counts:
            build = partial(alternating, problem, n, given.target)
            fine[f"ALS, {n} threads"] = over_starts(build, given.starts)
        if "SciPy" not in out:
            fine["SciPy L-BFGS-B"] = scipy_lbfgs(problem, given.target, given.seconds)
        for name in {"cmfrec", "LIBMF"} - set(out):
            for threads in counts:
                found = peer(problem, given.peers, name, threads, given.target, Path(folder))
                if found is None:
                    print(f"{name} is not installed in {Path(given.peers).name}: left out.")
                    break
                fine[f"{name}, {threads} threads"] = found
        title = (
            f"{given.ratings}, K = {given.rank}: {'processor' if given.cpu else 'wall'} time to train RMSE"
        )
        times = measure(fine, given.rounds)
        for W in counts:
            show(f"{title} {given.target}", fine, times, f"staged W = {W}")
        if "a-SGD" in out:
            return
        rough = {f"staged W = {W}": staged(problem, W, given.rough) for W in counts}
        rough |= {f"a-SGD W = {W}": async_sgd(problem, W, given.rough, given.seconds) for W in counts}
        show(f"{title} {given.rough}", rough, measure(rough, given.rounds), f"staged W = {counts[-1]}")


if __name__ == "__main__":
    main()
