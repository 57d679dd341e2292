"""Networks, where curvature is not convex: passes to given losses, beside Adam and torch's L-BFGS.

    python -m benchmarks.studies.models.network [tanh] [digits] [rule]

tanh: labels of 100,000 rows by a small network, learned by one of 64 tanh units, d = 3328, in NumPy.  The
losses to reach are those of our previous default, Block L-BFGS, after 10, 20 and 40 passes, of Growing L-BFGS
(five growths, 50 pairs) after 3.3 and of Adam after one.
digits: scikit-learn's digits by a torch module of 64, 32 and 10 units, d = 2410, and a prior of 0.1, from
eight starts of the module, seeds 0 to 7 (constants were chosen on seeds from 100 on).  The losses are those
of torch's L-BFGS (100 pairs) after 20, 50 and 100 closure calls, the lower of two runs for each: with its
search for strong Wolfe conditions and with full steps.
rule: U / n after 4 passes of growing samples by how often they grow, for n / d of 7.5, 30 and 120.

Adam is tuned: for each loss the best of six settings, rates of 0.001, 0.003 and 0.01 with batches of 64 and
256 rows, over at most 4 passes (digits: 100).  A pass is n rows whose gradient was computed; looking at U
costs nothing.  Tables go to docs/results/models/.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np

import asyncqn as aq
from asyncqn.types import Progress
from benchmarks.studies.large_data.models import TanhNetwork
from benchmarks.studies.models.ours import previous_default, share_of_version
from benchmarks.studies.tables import write
from benchmarks.timing import one_blas_thread

Curve = list[tuple[float, float]]
"""(passes, U)."""
STARTS, CALLS = range(8), (20, 50, 100)
SETTINGS = [(rate, batch) for rate in (0.001, 0.003, 0.01) for batch in (64, 256)]


def ours(problem: Any, algorithm: Any, most: float, every: int, lowest: float = -math.inf) -> Curve:
    """U of a run with one worker, at every so many commits, until it is `lowest`."""
    curve: Curve = []
    passes, seen = 0.0, 0

    def look(progress: Progress) -> None:
        nonlocal passes, seen
        while seen < progress.commit:
            passes, seen = passes + share_of_version(algorithm, problem.n_data, seen), seen + 1
        curve.append((passes, progress.metrics["fun"]))
        if passes >= most or curve[-1][1] <= lowest:
            raise StopIteration

    aq.minimize(
        problem, algorithm, engine=aq.Threads(1), commits=3000, evaluate=every, callback=look, tol=None,
        check=False,
    )  # fmt: skip
    return curve


def adam(problem: Any, rate: float, batch: int, most: float, looks: int = 4) -> Curve:
    """Adam as its authors state it (Kingma and Ba 2015), on shuffled batches of the same gradient."""
    rng, n = np.random.default_rng(0), problem.n_data
    theta = np.asarray(start_of(problem), np.float64)
    m, v, g = np.zeros_like(theta), np.zeros_like(theta), np.empty(theta.size, theta_type(problem))
    curve: Curve = []
    step, passes, due = 0, 0.0, 1.0 / looks
    while passes < most:
        order = rng.permutation(n)
        for first in range(0, n - batch + 1, batch):
            problem.grad(theta.astype(g.dtype), np.sort(order[first : first + batch]), g)
            step, passes = step + 1, passes + batch / n
            mean = g / n
            m += 0.1 * (mean - m)
            v += 0.001 * (mean * mean - v)
            theta -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
            if passes >= due:
                curve.append((passes, problem.value(theta.astype(g.dtype))))
                due += 1.0 / looks
                if not math.isfinite(curve[-1][1]) or passes >= most:
                    break
    return curve


def start_of(problem: Any) -> np.ndarray:
    """Return the start that `minimize` takes by default."""
    return aq.minimize(problem, aq.BlockLBFGS(1), engine=aq.Threads(1), commits=1, tol=None).theta0


def theta_type(problem: Any) -> Any:
    return getattr(problem, "dtype", np.float64)


def torch_lbfgs(problem: Any, most: int, search: str | None = "strong_wolfe") -> Curve:
    """torch.optim.LBFGS on the problem's own sums: a call of its closure is a pass.

    search: how step lengths are found; None: they are 1.
    """
    import torch

    theta = torch.tensor(start_of(problem), requires_grad=True)
    every, curve = np.arange(problem.n_data), []
    g = np.empty(problem.dim, theta_type(problem))

    def closure() -> Any:
        value = problem.grad_with_value(theta.detach().numpy().copy(), every, g)
        curve.append((len(curve) + 1.0, float(value)))
        if len(curve) >= most or not math.isfinite(value):
            raise StopIteration
        theta.grad = torch.tensor(g / problem.n_data)
        return torch.tensor(value / problem.n_data)

    optimizer = torch.optim.LBFGS(
        [theta], lr=1.0, max_iter=10 * most, history_size=100, line_search_fn=search,
        tolerance_grad=0.0, tolerance_change=0.0,
    )  # fmt: skip
    with suppress(StopIteration):
        optimizer.step(closure)
    return curve


def passes_to(curve: Curve, level: float) -> float:
    return next((passes for passes, U in curve if level >= U), math.inf)


def lowest_by(curve: Curve, passes: float) -> float:
    return min(U for at, U in curve if at <= passes)


def report(table: str, levels: dict[str, float], methods: Sequence[tuple[str, Sequence[Curve]]]) -> None:
    """A row per method: passes to each loss, the best of its curves for each."""
    records = []
    for name, curves in methods:
        record: dict[str, Any] = {"method": name}
        for label, level in levels.items():
            record[f"passes to {label}"] = min(passes_to(curve, level) for curve in curves)
        records.append(record)
        print(record, flush=True)
    write(f"models/{table}", records, 4)


def tanh() -> None:
    problem = TanhNetwork.random(100_000, 50, 64)
    block = ours(problem, previous_default(problem), 40.0, 2)
    growing = ours(problem, aq.GrowingLBFGS(1, 5, memory=50), 30.0, 3)
    tuned = [adam(problem, rate, batch, 4.0) for rate, batch in SETTINGS]
    levels = {f"Block L-BFGS's loss after {k}": lowest_by(block, k) for k in (10, 20, 40)}
    levels["Growing L-BFGS's after 3.3"] = lowest_by(growing, 3.3)
    levels["Adam's after 1"] = min(lowest_by(curve, 1.0 + 256 / problem.n_data) for curve in tuned)
    default = aq.default_algorithm(problem, 1)
    print(default, {label: level / problem.n_data for label, level in levels.items()}, flush=True)
    report(
        "network",
        levels,
        [
            ("default", [ours(problem, default, 30.0, 3)]),
            ("previous default, Block L-BFGS", [block]),
            ("Growing L-BFGS, 5 growths, 50 pairs", [growing]),
            ("torch L-BFGS, 100 pairs", [torch_lbfgs(problem, 60)]),
            ("Adam, tuned", tuned),
        ],
    )


def digits_from(seed: int, units: Sequence[int] = (64, 32, 10), activation: str = "Tanh") -> Any:
    """Return the digits as a problem of a module of these layers, which torch draws with this seed."""
    import torch
    from sklearn.datasets import load_digits

    torch.manual_seed(seed)
    X, y = load_digits(return_X_y=True)
    nn = torch.nn
    layers: list[Any] = []
    for width, following in pairwise(units):
        layers += [nn.Linear(width, following), getattr(nn, activation)()]
    module = nn.Sequential(*layers[:-1]).double()
    return aq.from_torch(module, nn.CrossEntropyLoss(), X / 16.0, y, prior=0.1)


def digits() -> None:
    records: list[dict[str, Any]] = []
    for seed in STARTS:
        problem = digits_from(seed)
        curves = {
            "default": [ours(problem, aq.default_algorithm(problem, 1), 200.0, 1)],
            "torch L-BFGS, strong Wolfe": [torch_lbfgs(problem, max(CALLS))],
            "torch L-BFGS, full steps": [torch_lbfgs(problem, max(CALLS), None)],
            "Adam, tuned": [adam(problem, rate, batch, 100.0, 1) for rate, batch in SETTINGS],
        }
        theirs = [curve for name in curves if "torch" in name for curve in curves[name]]
        for calls in CALLS:
            level = min(lowest_by(curve, calls) for curve in theirs)
            passes = {
                name: min(passes_to(curve, level) for curve in several) for name, several in curves.items()
            }
            ratio = passes["default"] / min(passes_to(curve, level) for curve in theirs)
            records.append({"start": seed, "torch's loss after": calls, **passes, "default / torch": ratio})
            print(records[-1], flush=True)
    for calls in CALLS:
        ratios = [row["default / torch"] for row in records if row["torch's loss after"] == calls]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"after {calls}: geometric mean {mean:.3f}, worst {max(ratios):.3f}", flush=True)
    write("models/digits", records, 4)


def rule() -> None:
    records = []
    for n, hidden in ((25_000, 64), (25_000, 16), (50_000, 8)):
        problem = TanhNetwork.random(n, 50, hidden)
        record: dict[str, Any] = {"n / d": n / problem.dim, "n": n, "d": problem.dim}
        for levels in range(5):
            algorithm = aq.GrowingLBFGS(1, levels, memory=20) if levels else aq.BlockLBFGS(1, 20)
            rows = n / 4**levels / problem.dim
            curve = ours(problem, algorithm, 4.0, 3)
            record[f"grown {levels} times: rows per number"] = rows
            record[f"grown {levels} times: U / n"] = lowest_by(curve, 4.0) / n
        records.append(record)
        print(record, flush=True)
    write("models/rule", records, 4)


PARTS: dict[str, Callable[[], None]] = {"tanh": tanh, "digits": digits, "rule": rule}


def chosen(names: Sequence[str]) -> Iterator[Callable[[], None]]:
    for name in names or PARTS:
        yield PARTS[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all if none is named")
    with one_blas_thread():
        for part in chosen(parser.parse_args().parts):
            part()


if __name__ == "__main__":
    main()
