"""Before a run a problem's functions are compared: usual mistakes are named in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from checks.user_models import DTYPES, Model, WithRows
from oracles import one_sentence

import asyncqn as aq
from asyncqn.checks.first_calls import check_first_calls
from asyncqn.errors import BadInput


def mean(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + self.slope(theta, rows) / len(rows)


def sign(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = -self.prior * theta - self.n_data / len(rows) * self.slope(theta, rows)


def without_prior(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.n_data / len(rows) * self.slope(theta, rows)


def unscaled(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + self.slope(theta, rows)


def scaled_prior(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.n_data / len(rows) * (self.prior * theta + self.slope(theta, rows))


def repeats_once(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out[:] = self.prior * theta + self.n_data / len(rows) * self.slope(
        theta, np.unique(rows)
    )


def one_entry(self: Any, theta: Any, rows: Any, out: Any) -> None:
    Model.grad(self, theta, rows, out)
    out[0] *= 1.2


def doubled(self: Any, theta: Any, rows: Any, out: Any) -> None:
    Model.grad(self, theta, rows, out)
    out *= 2


def adding(self: Any, theta: Any, rows: Any, out: Any) -> None:
    out += self.prior * theta + self.n_data / len(rows) * self.slope(theta, rows)


def a_hole(self: Any, theta: Any, rows: Any, out: Any) -> None:
    kept = out[-1]
    Model.grad(self, theta, rows, out)
    out[-1] = kept


def changing_theta(self: Any, theta: Any, rows: Any, out: Any) -> None:
    Model.grad(self, theta, rows, out)
    theta += 1


def stopping(self: Any, *arguments: Any) -> Any:
    raise StopIteration


def value_is_a_mean(self: Any, theta: Any) -> float:
    return Model.value(self, theta) / self.n_data


def value_without_prior(self: Any, theta: Any) -> float:
    return self.loss(theta, slice(None))


def value_counting(self: Any, theta: Any) -> float:
    return Model.value(self, theta) * (1 + 1e-6 * self.calls["value"])


def rows_without_prior(self: Any, theta: Any, rows: Any) -> float:
    return self.n_data / len(rows) * self.loss(theta, rows)


def rows_mean(self: Any, theta: Any, rows: Any) -> float:
    return WithRows.value_rows(self, theta, rows) / self.n_data


def returns_nothing(self: Any, theta: Any, rows: Any, out: Any) -> None:
    self.grad(theta, rows, out)


def other_value(self: Any, theta: Any, rows: Any, out: Any) -> float:
    return WithRows.grad_with_value(self, theta, rows, out) / 2


def other_gradient(self: Any, theta: Any, rows: Any, out: Any) -> float:
    value = WithRows.grad_with_value(self, theta, rows, out)
    out *= 2
    return value


WEIGHTS = "weights rows wrongly"
OTHER = "is not the gradient of"
GRAD = {
    mean: OTHER, sign: "grad is -1 times the gradient", without_prior: OTHER, unscaled: WEIGHTS, scaled_prior: WEIGHTS,
    repeats_once: WEIGHTS, one_entry: OTHER, doubled: "grad is 2 times the gradient", adding: "reads out",
    a_hole: "reads out", changing_theta: "grad changes theta", stopping: "grad raises StopIteration",
}  # fmt: skip
VALUE = {
    value_is_a_mean: "times the gradient", value_without_prior: OTHER, value_counting: "value is not pure",
}  # fmt: skip
EXTRAS = {
    ("value_rows", rows_without_prior): "prior", ("value_rows", rows_mean): "the sum",
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


@pytest.mark.parametrize(
    ("kind", "n", "dim", "dtype"),
    [("linear", 30, 4, np.float64), ("logistic", 400, 20, np.float32)],
    ids=["small", "large"],
)
@pytest.mark.parametrize(
    ("base", "method", "bug", "words"),
    TABLE,
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_mistake_is_named_in_one_sentence(
    base: Any,
    method: str,
    bug: Any,
    words: str,
    n: int,
    dim: int,
    kind: str,
    dtype: Any,
) -> None:
    wrong = type("Wrong", (base,), {method: bug})(kind, n, dim, dtype)
    with pytest.raises(BadInput, match=words) as caught:
        aq.minimize(wrong, commits=3)
    assert one_sentence(caught.value)
    assert "Wrong." in str(caught.value)


@pytest.mark.parametrize("factor", [2.0, 0.5, -2.0])
def test_a_gradient_of_another_size_is_named_where_it_is_along_theta(
    factor: float,
) -> None:
    # A prior, whose slope is along theta as well, would explain a wrong sign here.
    class Bowl:
        dim, n_data = 4, 10

        def value(self, theta: Any) -> float:
            return 0.5 * float(theta @ theta)

        def grad(self, theta: Any, rows: Any, out: Any) -> None:
            out[:] = factor * theta

    with pytest.raises(
        BadInput, match=rf"Bowl.grad is {factor:g} times the gradient of Bowl.value"
    ):
        check_first_calls(Bowl(), np.ones(4))


def test_a_wrong_value_is_compared_with_value_rows() -> None:
    for bug in (value_is_a_mean, value_without_prior):
        make = type("Wrong", (WithRows,), {"value": bug})
        with pytest.raises(BadInput, match="both must be the sum"):
            check_first_calls(make("logistic", 300, 4, np.float64), np.zeros(4))


def test_the_checks_can_be_left_out_and_are_not_made_of_our_own(
    monkeypatch: Any,
) -> None:
    wrong = type("Wrong", (Model,), {"grad": mean})("linear", 30, 3, np.float64)
    run = aq.minimize(
        wrong,
        aq.AsyncSGD(h=1e-6, batch=3),
        engine=aq.Threads(1),
        commits=3,
        check=False,
    )
    assert run.nit == 3
    ours = aq.LinearGaussian.random(4, 20)
    monkeypatch.setattr(aq.LinearGaussian, "value", stopping)
    check_first_calls(ours, np.zeros(4))
    with pytest.raises(BadInput):
        check_first_calls(wrong, np.zeros(3))


class FastCosines:
    """SCOSINE of CUTEst: cos(p_i^2 x_i^2 - p_j x_j / 2), j = i + 1, with scales p from 1 to exp(12)."""

    dim, n_data = 10, 9

    def __init__(self, factor: float = 1.0) -> None:
        self.p, self.factor = np.exp(12.0 * np.arange(10) / 9), factor

    def angle(self, theta: Any, rows: Any) -> Any:
        x = self.p * theta
        return x[rows] ** 2 - 0.5 * x[rows + 1]

    def value(self, theta: Any) -> float:
        return float(np.cos(self.angle(theta, np.arange(9))).sum())

    def grad(self, theta: Any, rows: Any, out: Any) -> None:
        out[:] = 0.0
        slope = -self.factor * np.sin(self.angle(theta, rows)) * self.n_data / len(rows)
        np.add.at(out, rows, slope * 2 * self.p[rows] ** 2 * theta[rows])
        np.add.at(out, rows + 1, -0.5 * slope * self.p[rows + 1])


def test_values_that_oscillate_fast_are_compared_over_short_steps() -> None:
    problem = FastCosines()
    check_first_calls(problem, 1.0 / problem.p)


@pytest.mark.parametrize("factor", [-1.0, 0.5, 2.0])
def test_a_wrong_gradient_of_fast_oscillations_is_still_refused(factor):
    problem = FastCosines(factor)
    with pytest.raises(BadInput, match="grad"):
        check_first_calls(problem, 1.0 / problem.p)


class Steps(Model):
    """Counts errors: its values jump, and its gradient is zero as far as it exists."""

    def value(self, theta: np.ndarray) -> float:
        return float((np.sign(self.X @ theta) != self.y).sum())

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        out[:] = 0.0


def test_values_that_jump_are_refused() -> None:
    with pytest.raises(aq.BadInput, match="no slope to follow") as raised:
        check_first_calls(Steps("logistic", 60, 3, np.float64), np.full(3, 0.3))
    assert one_sentence(raised.value)


class Clipped(Model):
    """Its gradient is zero too early: near the minimum, and after many calls."""

    def __init__(self, *arguments: Any, small: float = 0.0, calls: int = 10**9) -> None:
        super().__init__(*arguments)
        self.small, self.most = small, calls

    def grad(self, theta: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        super().grad(theta, rows, out)
        if np.abs(out).max() < self.small or self.calls["grad"] > self.most:
            out[:] = 0.0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [({}, "converged"), ({"small": 5.0}, "stalled"), ({"calls": 14}, "stalled")],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_is_no_success_where_its_gradient_was_zero_too_early(
    arguments: dict[str, Any], status: str, dtype: Any
) -> None:
    problem = Clipped("logistic", 50, 3, dtype, **arguments)
    run = aq.minimize(
        problem,
        aq.ExactLBFGS(blocks=2),
        engine=aq.Simulator(aq.Cluster(2)),
        theta0=np.full(3, 3.0, dtype),
    )
    assert (run.status, run.success) == (status, status == "converged")
    if status == "stalled":
        assert "Clipped.grad is zero where Clipped.value changes" in run.message
    if "small" in arguments:  # the other is not pure
        assert aq.replay(run).status == "stalled"
