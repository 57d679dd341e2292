"""Before a run a potential's functions are compared: usual mistakes are named, nothing sound is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import factorization_oracles
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracles import one_sentence

import asyncqn as aq
from asyncqn.core.first_calls import check_first_calls, compare_functions
from asyncqn.errors import BadInput
from asyncqn.minimize import starting_point
from asyncqn.potentials.factorization.matrix_factorization import MatrixFactorization
from asyncqn.potentials.factorization.profiled_factorization import ProfiledFactorization
from asyncqn.potentials.mixture import Mixture
from asyncqn.potentials.phase_retrieval import PhaseRetrieval

DTYPES = [np.float64, np.float32]


class Model:
    """U = prior |theta|^2/2 + sum_i loss(x_i'theta, y_i) as a user would write it, without `value_rows`."""

    def __init__(self, kind: str, n: int, dim: int, dtype: Any, prior: float = 1.0, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, dim)).astype(dtype)
        self.y = np.sign(self.X @ rng.standard_normal(dim) + rng.standard_normal(n)).astype(dtype)
        self.kind, self.prior, self.dtype = kind, dtype(prior), np.dtype(dtype)
        self.n_data, self.dim = n, dim
        self.calls: Counter[str] = Counter()

    def loss(self, theta: np.ndarray, rows: Any) -> float:
        z = self.X[rows] @ theta
        if self.kind == "linear":
            return float(((z - self.y[rows]) ** 2).sum(dtype=np.float64) / 2)
        return float(np.logaddexp(0, -self.y[rows] * z).sum(dtype=np.float64))

    def slope(self, theta: np.ndarray, rows: Any) -> np.ndarray:
        X, y = self.X[rows], self.y[rows]
        z = X @ theta
        return X.T @ ((z - y) if self.kind == "linear" else -y / (1 + np.exp(y * z)))

    def value(self, theta: np.ndarray) -> float:
        self.calls["value"] += 1
        return self.loss(theta, slice(None)) + float(self.prior * theta @ theta) / 2

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.calls["grad"] += 1
        self.calls["rows"] += len(rows)
        out[:] = self.prior * theta + self.n_data / len(rows) * self.slope(theta, rows)


class WithRows(Model):
    """The same with both extras."""

    def value_rows(self, theta: np.ndarray, rows: np.ndarray) -> float:
        self.calls["value_rows"] += 1
        return self.n_data / len(rows) * self.loss(theta, rows) + float(self.prior * theta @ theta) / 2

    def grad_with_value(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> float:
        self.grad(theta, rows, out)
        return self.value_rows(theta, rows)


# ---------------------------------------------------------------- mistakes, each as a change of one method


def mean(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + self.slope(theta, rows) / len(rows)


def mean_of_everything(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta / self.n_data + self.slope(theta, rows) / len(rows)


def sign(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = -self.prior * theta - self.n_data / len(rows) * self.slope(theta, rows)


def sign_of_the_data(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta - self.n_data / len(rows) * self.slope(theta, rows)


def without_prior(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.n_data / len(rows) * self.slope(theta, rows)


def prior_of_every_row(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.n_data * self.prior * theta + self.n_data / len(rows) * self.slope(theta, rows)


def unscaled(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + self.slope(theta, rows)


def scaled_prior(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.n_data / len(rows) * (self.prior * theta + self.slope(theta, rows))


def root_scaled(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + (self.n_data / len(rows)) ** 0.5 * self.slope(theta, rows)


def repeats_once(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + self.n_data / len(rows) * self.slope(theta, np.unique(rows))


def one_entry(self: Any, theta: Any, rows: Any, out: Any) -> None:
    Model.grad(self, theta, rows, out)
    out[0] *= 1.2


def adding(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out += self.prior * theta + self.n_data / len(rows) * self.slope(theta, rows)


def a_hole(self: Any, theta: Any, rows: Any, out: Any) -> None:
    kept = out[-1]
    Model.grad(self, theta, rows, out)
    out[-1] = kept


def changing_theta(self: Any, theta: Any, rows: Any, out: Any) -> None:
    Model.grad(self, theta, rows, out)
    theta += 1


def sorting_rows(self: Any, theta: Any, rows: Any, out: Any) -> None:
    rows[:] = np.sort(rows)
    Model.grad(self, theta, rows, out)


def counting(self: Any, theta: Any, rows: Any, out: Any) -> None:
    Model.grad(self, theta, rows, out)
    out *= 1 + 1e-6 * self.calls["grad"]


def stopping(self: Any, *arguments: Any) -> Any:
    raise StopIteration


def value_is_a_mean(self: Any, theta: Any) -> float:
    return Model.value(self, theta) / self.n_data


def value_without_prior(self: Any, theta: Any) -> float:
    return self.loss(theta, slice(None))


def value_changing_theta(self: Any, theta: Any) -> float:
    theta[0] = 3
    return Model.value(self, theta)


def value_counting(self: Any, theta: Any) -> float:
    return Model.value(self, theta) * (1 + 1e-6 * self.calls["value"])


def rows_without_prior(self: Any, theta: Any, rows: Any) -> float:
    return self.n_data / len(rows) * self.loss(theta, rows)


def rows_mean(self: Any, theta: Any, rows: Any) -> float:
    return WithRows.value_rows(self, theta, rows) / self.n_data


def rows_unscaled(self: Any, theta: Any, rows: Any) -> float:
    return self.loss(theta, rows) + float(self.prior * theta @ theta) / 2


def returns_nothing(self: Any, theta: Any, rows: Any, out: Any) -> None:
    self.grad(theta, rows, out)


def other_value(self: Any, theta: Any, rows: Any, out: Any) -> float:
    return WithRows.grad_with_value(self, theta, rows, out) / 2


def other_gradient(self: Any, theta: Any, rows: Any, out: Any) -> float:
    value = WithRows.grad_with_value(self, theta, rows, out)
    out *= 2
    return value


GRAD = {
    mean: "mean", mean_of_everything: "mean", sign: "wrong sign", sign_of_the_data: "wrong sign",
    without_prior: "prior is in", prior_of_every_row: "prior is in", unscaled: "does not scale the rows",
    scaled_prior: "scales the prior with the rows", root_scaled: "weights rows wrongly",
    repeats_once: "occurs twice", one_entry: "not the gradient of", adding: "reads out", a_hole: "reads out",
    changing_theta: "grad changes theta", sorting_rows: "changes rows", counting: "grad is not pure",
    stopping: "grad raises StopIteration",
}  # fmt: skip
VALUE = {
    value_is_a_mean: "mean", value_without_prior: "prior is in", value_changing_theta: "value changes theta",
    value_counting: "value is not pure", stopping: "value raises StopIteration",
}  # fmt: skip
EXTRAS = {
    ("value_rows", rows_without_prior): "prior", ("value_rows", rows_mean): "mean",
    ("value_rows", rows_unscaled): "weights rows wrongly",
    ("grad_with_value", returns_nothing): "must return a number",
    ("grad_with_value", other_value): "grad_with_value returns",
    ("grad_with_value", other_gradient): "writes another gradient",
}  # fmt: skip


def named(thing: Any) -> str | None:
    return getattr(thing, "__name__", None)


TABLE = [
    *((Model, "grad", bug, words) for bug, words in GRAD.items()),
    *((WithRows, "grad", bug, words) for bug, words in GRAD.items()),
    *((Model, "value", bug, words) for bug, words in VALUE.items()),
    *((WithRows, method, bug, words) for (method, bug), words in EXTRAS.items()),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize(("n", "dim"), [(30, 4), (400, 20)])
@pytest.mark.parametrize(
    ("base", "method", "bug", "words"), TABLE, ids=lambda x: getattr(x, "__name__", None)
)
def test_a_mistake_is_named_in_one_sentence(
    base: Any, method: str, bug: Any, words: str, n: int, dim: int, kind: str, dtype: Any
) -> None:
    wrong = type("Wrong", (base,), {method: bug})(kind, n, dim, dtype)
    with pytest.raises(BadInput, match=words) as caught:
        aq.minimize(wrong, commits=3)
    assert one_sentence(caught.value)
    assert "Wrong." in str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bug", [mean, sign, unscaled, value_is_a_mean], ids=named)
def test_gross_mistakes_show_on_a_few_rows_of_many(bug: Any, dtype: Any) -> None:
    method = "value" if bug is value_is_a_mean else "grad"
    wrong = type("Wrong", (Model,), {method: bug})("linear", 30_000, 5, dtype)
    with pytest.raises(BadInput, match={**GRAD, **VALUE}[bug]):
        check_first_calls(wrong, np.zeros(5, dtype))


def test_a_wrong_value_is_compared_with_value_rows() -> None:
    for bug, words in ((value_is_a_mean, "mean"), (value_without_prior, "prior")):
        wrong = type("Wrong", (WithRows,), {"value": bug})("logistic", 300, 4, np.float64)
        with pytest.raises(BadInput, match=words):
            check_first_calls(wrong, np.zeros(4))


# ---------------------------------------------------------------- no false alarm


def shipped(dtype: Any) -> list[Any]:
    ratings = factorization_oracles.arguments(factorization_oracles.problem(1))
    found = [
        aq.LinearGaussian.random(6, 40, dominant=1, dtype=dtype),
        aq.LinearGaussian.random(30, 3000, dtype=dtype),
        aq.LogisticRegression.random(300, 10, seed=3, dtype=dtype),
        aq.LogisticRegression.random(30_000, 5, seed=3, dtype=dtype),
        MatrixFactorization(**ratings, rank=3, dtype=dtype),
        ProfiledFactorization(**ratings, rank=3, dtype=dtype),
    ]
    if dtype is np.float64:
        found += [Mixture.random(3, 40, width=10.0, gap=4.0, seed=3), PhaseRetrieval.random(6, 170)]
    return found


class Bare:
    """Another potential with only what a user must write.

    It copies, because our kernels would be compiled again for read-only arrays.
    """

    def __init__(self, whole: Any) -> None:
        self.whole, self.dim, self.n_data = whole, whole.dim, whole.n_data
        self.dtype = getattr(whole, "dtype", np.float64)

    def value(self, theta: np.ndarray) -> float:
        return float(self.whole.value(theta.copy()))

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        self.whole.grad(theta.copy(), rows.copy(), out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_potential_of_ours_is_refused_wherever_it_starts(dtype: Any) -> None:
    for potential in shipped(dtype):
        start = starting_point(potential, None, 0)
        wild = np.random.default_rng(1).standard_normal(potential.dim)
        for theta in [start, *(size * wild for size in (0.0, 1e-8, 1.0, 1e4, 1e8, 1e12, 1e30))]:
            compare_functions(potential, theta.astype(start.dtype))
            compare_functions(Bare(potential), theta.astype(start.dtype))


@given(
    kind=st.sampled_from(["linear", "logistic"]),
    base=st.sampled_from([Model, WithRows]),
    n=st.integers(1, 200),
    dim=st.integers(1, 12),
    dtype=st.sampled_from(DTYPES),
    prior=st.sampled_from([0.0, 1e-6, 1.0, 1e6]),
    size=st.sampled_from([0.0, 1e-6, 1.0, 1e3, 1e9]),
    seed=st.integers(0, 2**30),
)
def test_no_sound_model_is_refused(
    kind: str, base: Any, n: int, dim: int, dtype: Any, prior: float, size: float, seed: int
) -> None:
    model = base(kind, n, dim, dtype, prior, seed)
    theta = (size * np.random.default_rng(seed).standard_normal(dim)).astype(dtype)
    check_first_calls(model, theta)


class Lasso(Model):
    """A prior with kinks, and rows with them: |theta|_1 + sum_i max(0, 1 - y_i x_i'theta)."""

    def value(self, theta: np.ndarray) -> float:
        hinge = np.maximum(0, 1 - self.y * (self.X @ theta))
        return float(np.abs(theta).sum() + hinge.sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        X, y = self.X[rows], self.y[rows]
        active = (1 - y * (X @ theta) > 0).astype(X.dtype)
        out[:] = np.sign(theta) - self.n_data / len(rows) * (X.T @ (y * active))


class Poisson(Model):
    """Counts with rate exp(x'theta): overflows a little way from the start."""

    def value(self, theta: np.ndarray) -> float:
        z = self.X @ theta
        return float((np.exp(z) - abs(self.y) * z).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        X = self.X[rows]
        out[:] = self.n_data / len(rows) * (X.T @ (np.exp(X @ theta) - abs(self.y[rows])))


class Single(Model):
    """Computes in single precision what it is asked for in double."""

    def slope(self, theta: np.ndarray, rows: Any) -> np.ndarray:
        X, y = self.X[rows].astype(np.float32), self.y[rows].astype(np.float32)
        return X.T @ (X @ theta.astype(np.float32) - y)

    def loss(self, theta: np.ndarray, rows: Any) -> float:
        r = self.X[rows].astype(np.float32) @ theta.astype(np.float32) - self.y[rows].astype(np.float32)
        return float((r * r).sum() / 2)


class ByDifferences(Model):
    """A gradient from forward differences of the loss of its rows."""

    def slope(self, theta: np.ndarray, rows: Any) -> np.ndarray:
        here = self.loss(theta, rows)
        a = 1.5e-8 * (1 + np.abs(theta))
        return np.array([(self.loss(theta + d, rows) - here) / a[i] for i, d in enumerate(np.diag(a))])


class OfThePositive(Model):
    """Defined for positive parameters only, and says so elsewhere."""

    def value(self, theta: np.ndarray) -> float:
        if (theta <= 0).any():
            raise ValueError("theta must be positive")
        return float((theta - np.log(theta)).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = 1 - 1 / theta


@pytest.mark.parametrize("kind", [Lasso, Poisson, Single, ByDifferences, OfThePositive])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("dim", [1, 7, 60])
def test_kinks_overflow_rounding_and_domains_are_no_mistakes(kind: Any, size: float, dim: int) -> None:
    model = kind("linear", 500, dim, np.float64)
    for seed in range(5):
        theta = size * np.random.default_rng(seed).standard_normal(dim)
        compare_functions(model, theta if kind is not OfThePositive else abs(theta) + 1e-6)


@given(hnp.arrays(np.float64, 3, elements=st.floats(allow_nan=False, width=64)))
def test_any_start_passes_where_nothing_is_wrong(theta: np.ndarray) -> None:
    compare_functions(Model("logistic", 20, 3, np.float64), theta)


# ---------------------------------------------------------------- what it costs


@pytest.mark.parametrize("kind", ["linear", "logistic"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_checks_cost_a_few_calls_on_a_few_rows(kind: str, dtype: Any) -> None:
    small, rows, many = (
        Model(kind, 500, 5, dtype),
        WithRows(kind, 30_000, 5, dtype),
        Model(kind, 30_000, 5, dtype),
    )
    for model in (small, rows, many):
        check_first_calls(model, np.zeros(5, dtype))
    # grad: twice at the start, two samples of 8 and both together; then all rows, or as the case may be.
    assert (small.calls["grad"], small.calls["rows"]) == (6, 2 * 8 + 8 + 8 + 16 + 500)
    assert (rows.calls["grad"], rows.calls["rows"]) == (6, 2 * 8 + 8 + 8 + 16 + 16)
    assert (many.calls["grad"], many.calls["rows"]) == (10, 2 * 8 + 8 + 8 + 16 + 5 * 64)
    # value: twice at the start, once nearby, four times for each of at most three step lengths.
    assert max(small.calls["value"], many.calls["value"]) <= 15
    assert rows.calls["value"] == 3


def test_the_checks_can_be_left_out_and_are_not_made_of_our_own(monkeypatch: Any) -> None:
    wrong = type("Wrong", (Model,), {"grad": mean})("linear", 30, 3, np.float64)
    run = aq.minimize(wrong, aq.AsyncSGD(h=1e-6, batch=3), engine=aq.Threads(1), commits=3, check=False)
    assert run.nit == 3
    ours = aq.LinearGaussian.random(4, 20)
    monkeypatch.setattr(aq.LinearGaussian, "value", stopping)
    check_first_calls(ours, np.zeros(4))
    with pytest.raises(BadInput):
        check_first_calls(wrong, np.zeros(3))
