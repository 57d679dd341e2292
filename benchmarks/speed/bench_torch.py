"""A pass of `from_torch` against the loop that a user of torch would write: one process, one thread.

Both compute the gradient and the value of every batch; the loop also zeroes the gradients and steps with SGD.
Times are those of the thread, in turns, so that other programs disturb both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

import asyncqn as aq

Record = dict[str, Any]
ROWS, BATCH, TURNS = 4000, 40, 15


def _passes(inputs: int, *layers: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a pass of the problem, and one of the loop, over the same rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, inputs)).astype(np.float32)
    y = rng.integers(0, 10, ROWS)
    module, loss = torch.nn.Sequential(*layers), torch.nn.CrossEntropyLoss()
    problem = aq.from_torch(module, loss, X, y)
    theta = aq.starting_point(problem)
    out = np.empty_like(theta)
    tensors = torch.from_numpy(X), torch.from_numpy(y)
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-9)

    def ours() -> None:
        for first in range(0, ROWS, BATCH):
            problem.grad_with_value(theta, np.arange(first, first + BATCH), out)

    def loop() -> None:
        for first in range(0, ROWS, BATCH):
            rows, labels = (data[first : first + BATCH] for data in tensors)
            optimizer.zero_grad()
            value = loss(module(rows), labels)
            value.backward()
            optimizer.step()
            value.item()

    return ours, loop


def torch_loop() -> list[Record]:
    """A small and a larger network, in batches of 40 rows."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    small = 2, torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10)
    large = 196, torch.nn.Linear(196, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    records = []
    for name, network in (("2-16-10", small), ("196-32-10", large)):
        both = _passes(*network)
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(TURNS + 1):
            for run, taken in zip(both, times, strict=True):
                begun = time.thread_time()
                run()
                taken.append(time.thread_time() - begun)
        # The first turn allocates.
        ours, loop = (median(taken[1:]) for taken in times)
        records.append(
            {
                "name": f"from_torch, {name}, {BATCH} rows, to the loop of a torch user",
                "value": 1e6 * ours * BATCH / ROWS,
                "unit": "us",
                "ratio": ours / loop,
                "target": "<= 1.0",
                "met": ours <= loop,
            }
        )
    torch.set_num_threads(before)
    return records


BENCHMARKS = (torch_loop,)
