"""Variants of growing samples, by passes over the data: timetables, a test, memories, corrections.

    python -m benchmarks.studies.large_data.variants

A plain loop on one worker over Block L-BFGS, 65,536 rows, d = 50 (network: 220), mean of two seeds of the
samples.  Passes count every row whose gradient was computed; `inf`: not within 60.
"test c": a sample grows when its gradient is shorter than c times its sampling error, from the scatter of
16 parts (Byrd, Chin, Nocedal and Wu 2012), and after 40 versions at the latest; the scatter's cost is not
counted.  "corrected": when the sample has grown to 1/16, U is minimised by turns of one pass over all rows
and 16 versions on that sample plus a linear term that makes its gradient exact at the point of the pass; a
point where U has not fallen is moved three quarters back.
The table goes to docs/results/large_data/variants.csv; rows that are there are not computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.algorithms.quasi_newton.initial_inverse import InverseHessian, share_of
from asyncqn.algorithms.quasi_newton.samples import Update
from asyncqn.algorithms.safeguard import rebase
from asyncqn.kernels.shuffling import fill_strata
from asyncqn.types import Commit
from benchmarks.studies.large_data.models import Robust, TanhNetwork
from benchmarks.studies.tables import read, write
from benchmarks.timing import one_blas_thread

ROWS, MOST = 65_536, 60.0
TARGETS = (1e-2, 1e-4)
PROBLEMS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: aq.LogisticRegression.random(ROWS, 50, 10.0, 0.5),
    "logistic ill": lambda: aq.LogisticRegression.random(ROWS, 50, 100.0, 0.9),
    "robust": lambda: Robust.random(ROWS),
    "tanh network": lambda: TanhNetwork.random(ROWS),
}


class Variant(NamedTuple):
    """factor: growth; versions: of the largest sample; doublings: how often they double; test: see above."""

    factor: int = 4
    versions: int = 10
    doublings: int = 2
    memory: int = 100
    forget: bool = False
    test: float = 0.0
    corrected: bool = False


VARIANTS = {
    "as it is": Variant(),
    "M = 5": Variant(memory=5),
    "M = 20": Variant(memory=20),
    "M = 50": Variant(memory=50),
    "pairs forgotten at a growth": Variant(forget=True),
    "10 versions on every sample": Variant(doublings=0),
    "5, 10, 20 versions": Variant(versions=5),
    "20 versions on every sample": Variant(versions=20, doublings=0),
    "twofold growth, 5, 10, 20": Variant(factor=2, versions=5),
    "test 1": Variant(test=1.0),
    "test 0.5": Variant(test=0.5),
    "corrected": Variant(corrected=True),
    "exact blocks, M = 5": Variant(factor=0, memory=5),
    "exact blocks, M = 100": Variant(factor=0),
}


class Loop:
    """One worker's Block L-BFGS on whatever rows it is given."""

    def __init__(self, model: Any, theta0: np.ndarray, variant: Variant, seed: int) -> None:
        self.model, self.variant, self.seed, self.passes = model, variant, seed, 0.0
        self.method = aq.BlockLBFGS(1, variant.memory)
        self.iterate = self.method.init(theta0)

    def rows(self, stride: int) -> np.ndarray:
        rows = np.arange(-(-self.model.n_data // stride))
        if stride > 1:
            fill_strata(self.seed, stride, 0, self.model.n_data, rows)
        return rows

    def ask(self, rows: np.ndarray) -> Update:
        self.passes += rows.size / self.model.n_data
        g, value, finite = share_of(self.model, self.iterate.theta, rows, 1.0)
        return Update(g, value, 0, finite, 0, np.empty(0))

    def apply(self, update: Update) -> None:
        self.iterate = self.method.apply(self.iterate, [update], Commit(1, [0], self.model.value))

    def rebase(self, g: np.ndarray, value: float) -> None:
        """Continue from theta with another sample's value and gradient."""
        initial = self.method.initial_inverse(self.iterate.initial)
        pairs = InverseHessian(self.iterate.memory, initial, self.method.rule)
        if self.variant.forget:
            pairs.forget()
        trial = rebase(self.iterate, pairs, g[None], value, self.model.value)
        self.iterate = self.iterate._replace(trial=trial)

    def grown(self, rows: np.ndarray) -> bool:
        """Return whether the gradient at the last accepted point is below its sampling error."""
        parts = np.array_split(rows, 16)
        G = np.stack([share_of(self.model, self.iterate.base, part, 1.0)[0] for part in parts])
        error = G.var(axis=0, ddof=1).sum() / 16 * (1 - rows.size / self.model.n_data)
        return bool(np.sum(self.iterate.at_base[0] ** 2) < self.variant.test**2 * error)

    def most(self, level: int) -> int:
        """Return the largest number of versions on a sample."""
        if level == 0:
            return 10**9
        return 40 if self.variant.test else self.variant.versions << min(level - 1, self.variant.doublings)

    def run(self) -> Iterator[tuple[float, np.ndarray]]:
        """Yield (passes, accepted point) after every version, without end."""
        factor, iterate = self.variant.factor, self.iterate
        levels = int(math.log(self.model.n_data / (10 * iterate.theta.size), factor)) if factor else 0
        for level in range(levels, -1, -1):
            if self.variant.corrected and factor**level < 16:
                yield from self.corrections()
            rows = self.rows(factor**level)
            for version in range(self.most(level)):
                first = version == 0 and level < levels
                if first:
                    iterate.theta[...] = iterate.base
                update = self.ask(rows)
                if first:
                    self.rebase(update.g, update.value)
                else:
                    self.apply(update)
                yield self.passes, iterate.base
                if self.variant.test and level and version >= 2 and self.grown(rows):
                    break

    def corrections(self) -> Iterator[tuple[float, np.ndarray]]:
        iterate, sample, everything = self.iterate, self.rows(16), self.rows(1)
        anchor, lowest = iterate.base.copy(), math.inf
        iterate.theta[...] = anchor
        while True:
            whole = self.ask(everything)
            if not (whole.finite and whole.value < lowest):
                iterate.theta[...] = 0.75 * anchor + 0.25 * iterate.theta
                yield self.passes, anchor
                continue
            anchor[...], lowest = iterate.theta, whole.value
            yield self.passes, anchor
            there = self.ask(sample)
            tilt = whole.g - there.g
            self.rebase(whole.g, whole.value)
            for _ in range(16):
                update = self.ask(sample)
                value = update.value + (whole.value - there.value) + tilt @ (iterate.theta - anchor)
                self.apply(update._replace(g=update.g + tilt * update.finite, value=value))
            iterate.theta[...] = iterate.base


def passes_to(loop: Loop, levels: list[float]) -> list[float]:
    """Return the passes at which U over all rows is at most each level, over the accepted points."""
    found = [math.inf] * len(levels)
    for passes, theta in loop.run():
        if passes > MOST or found[-1] < math.inf:
            break
        U = loop.model.value(theta)
        found = [passes if known == math.inf and level >= U else known for known, level in zip(found, levels)]
    return found


def main() -> None:
    records = read("large_data/variants")
    known = {(row["problem"], row["variant"]) for row in records}
    with one_blas_thread():
        for problem, make in PROBLEMS.items():
            if all((problem, name) in known for name in VARIANTS):
                continue
            model = make()
            run = aq.minimize(
                model, aq.GrowingLBFGS(1, 3, memory=100), engine=aq.Threads(1), commits=400, evaluate=400
            )
            start, lowest = model.value(run.theta0), run.fun
            levels = [lowest + target * (start - lowest) for target in TARGETS]
            for name, variant in VARIANTS.items():
                if (problem, name) in known:
                    continue
                seeds = range(2 if variant.factor else 1)
                found = [passes_to(Loop(model, run.theta0, variant, seed), levels) for seed in seeds]
                means = np.mean(found, axis=0)
                figures = {f"passes to {target:g}": float(mean) for target, mean in zip(TARGETS, means)}
                records.append({"problem": problem, "variant": name, **figures})
                print(records[-1], flush=True)
                write("large_data/variants", records, 4)


if __name__ == "__main__":
    main()
