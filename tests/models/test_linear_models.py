"""Linear models: storages agree, formulas, weights, intercept, curvature, bad input; by the registry."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from examples import IN_THIS_PROCESS
from scipy import sparse

import asyncqn as aq
from asyncqn.checks.testing import check_problem
from asyncqn.errors import BadInput
from asyncqn.models import PROBLEMS, rebuild
from asyncqn.models.linear_model import LinearModel
from asyncqn.models.sampled_metric import DENSE, metric_of

MODELS = [model for model in PROBLEMS.values() if issubclass(model, LinearModel)]
LOSSES = {
    "logistic-regression": lambda y, z: np.logaddexp(0.0, -y * z),
    "poisson-regression": lambda y, z: (
        np.exp(z) - y * z - y + y * np.log(np.maximum(y, 1e-300))
    ),
    "robust-regression": lambda y, z: np.sqrt(1.0 + (z - y) ** 2) - 1.0,
    "least-squares": lambda y, z: 0.5 * (z - y) ** 2,
}


def thinned(model, dtype=np.float64):
    """(model with dense rows of which most are zero, the same in CSR), with weights and intercept."""
    made = model.random(80, 6, seed=2, dtype=dtype)
    rng = np.random.default_rng(7)
    X = np.where(rng.random(made.X.shape) < 0.4, made.X, 0).astype(dtype)
    options = {"prior": 0.7, "weights": rng.random(80) + 0.1, "intercept": True}
    return model(X, made.y, **options), model(sparse.csr_matrix(X), made.y, **options)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dense_and_sparse_rows_keep_the_rules_of_a_problem(model, dtype):
    for problem in thinned(model, dtype):
        assert problem.dtype == dtype
        check_problem(problem, engines=IN_THIS_PROCESS, travel=False)


@pytest.mark.parametrize("model", [model for model in MODELS if model.kind in LOSSES])
def test_value_and_curvature_are_those_of_the_formula_in_both_storages(model):
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 80, 33)
    dense, csr = thinned(model)
    theta, out = 0.3 * rng.standard_normal(7), np.empty(7)
    z = dense.X[rows] @ theta[:6] + theta[6]
    loss = LOSSES[model.kind](dense.y[rows], z)
    U = 0.35 * theta[:6] @ theta[:6] + 80 / 33 * (dense.weights[rows] * loss).sum()
    # Sums of 33 terms in float64: far below 1e-12 of their size.
    for problem in (dense, csr):
        assert problem.value_rows(theta, rows) == pytest.approx(U, rel=1e-12)
        assert problem.grad_with_value(theta, rows, out) == pytest.approx(U, rel=1e-12)
    # The inverse metric of all rows is the inverse of the Hessian, here by differences of the gradient.
    every, step = np.arange(80), 1e-5
    H = np.array([
        (_grad(dense, theta + step * e, every) - _grad(dense, theta - step * e, every)) / (2 * step)
        for e in np.eye(7)
    ])  # fmt: skip
    if model.kind == "robust-regression":
        return  # outliers are given more weight than the second derivative
    for problem in (dense, csr):
        summary = np.zeros(problem.curvature_size)
        problem.grad_with_curvature(theta, every, out, summary)
        v = np.empty(7)
        problem.inverse_metric_from(summary).apply(H @ theta, v)
        # Differences are right to step^2 times third derivatives, about 1e-8 of H, times H's condition.
        np.testing.assert_allclose(v, theta, atol=1e-8 * np.linalg.cond(H))


def _grad(problem, theta, rows):
    out = np.empty_like(theta)
    problem.grad(theta, rows, out)
    return out


@pytest.mark.parametrize("model", MODELS)
def test_parts_of_the_rows_add_up_to_the_whole_summary(model):
    p = model.random(3000, 4, seed=1)
    theta, out = np.full(p.dim, 0.1), np.empty(p.dim)
    parts, whole = np.zeros((3, p.curvature_size)), np.zeros(p.curvature_size)
    p.grad_with_curvature(theta, np.arange(3000), out, whole, 3000)
    for part, rows in zip(parts, np.array_split(np.arange(3000), 3)):
        p.grad_with_curvature(theta, rows, out, part, 3000)
    summed = parts.mean(axis=0)
    # The diagonal is of all rows, so that it agrees to rounding; the triangle is of a share of the rows.
    np.testing.assert_allclose(summed[-1 - p.dim :], whole[-1 - p.dim :], rtol=1e-12)
    assert summed[-1] == 3000


def test_a_metric_on_all_rows_has_the_exact_diagonal_and_a_sample_holds_what_it_does_not_show():
    X = np.random.default_rng(0).standard_normal((4000, 3))
    X[:, 2] = 0.0
    X[7, 2] = 2.0  # one row of 4000 shows the last feature, and S may miss it
    p = aq.LogisticRegression(X, np.arange(4000) % 2, intercept=False)
    theta, out, e = np.zeros(3), np.empty(3), np.array([0.0, 0.0, 1.0])
    summary = np.zeros(p.curvature_size)
    p.grad_with_curvature(theta, np.arange(4000), out, summary, 4000)
    exact, held = np.empty(3), np.empty(3)
    p.inverse_metric_from(summary).apply(e, exact)
    # Its curvature is 2^2 / 4 + prior = 2, but for what it shares with the other features in that row.
    assert exact[2] == pytest.approx(0.5, rel=0.01)
    p.grad_with_curvature(theta, np.arange(100, 4000, 16), out, summary, 244)
    p.inverse_metric_from(summary).apply(e, held)
    # One row of weight 4000 / 244 that shows it, and the prior.
    assert held[2] == pytest.approx(1.0 / (1.0 + 4000 / 244), rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
def test_the_metric_of_many_sparse_features_is_dense_among_the_frequent_ones_and_else_a_diagonal(
    intercept,
):
    n, d = 50, DENSE + 1
    X = sparse.random(n, d, 0.01, "csr", random_state=0).toarray()
    common = np.arange(5, 400, 20)
    X[:, common] = np.random.default_rng(1).standard_normal((n, len(common)))
    p = aq.LeastSquares(sparse.csr_matrix(X), np.ones(n), intercept=intercept)
    summary, out, got = np.zeros(p.curvature_size), np.empty(p.dim), np.empty(p.dim)
    assert (
        d + 1 < p.curvature_size <= 2 * p.dim
    )  # the block at most doubles what a worker sends
    p.grad_with_curvature(np.zeros(p.dim), np.arange(n), out, summary)
    block = p._block
    assert set(common) <= set(block)
    assert (block[-1] == d) == intercept
    if intercept:
        X = np.column_stack([X, np.ones(n)])
    M = np.diag((X**2).sum(axis=0))
    M[np.ix_(block, block)] = X[:, block].T @ X[:, block]
    M[np.arange(d), np.arange(d)] += 1.0  # the prior, not on the intercept
    v = np.random.default_rng(2).standard_normal(p.dim)
    p.inverse_metric_from(summary).apply(M @ v, got)
    # Of condition below 1e4: the common features have about n, the intercept is one of 80 in n rows.
    np.testing.assert_allclose(got, v, atol=1e-10)


def test_the_metric_of_many_dense_features_is_a_diagonal():
    n, d = 5, DENSE + 1
    X = np.random.default_rng(0).standard_normal((n, d))
    p = aq.LeastSquares(X, np.ones(n), intercept=False)
    summary, out, H0 = np.zeros(p.curvature_size), np.empty(d), np.empty(d)
    assert p.curvature_size == d + 1
    p.grad_with_curvature(np.zeros(d), np.arange(n), out, summary)
    p.inverse_metric_from(summary).apply(np.ones(d), H0)
    np.testing.assert_allclose(H0, 1.0 / (1.0 + (X**2).sum(axis=0)), rtol=1e-12)


def test_a_metric_that_is_not_positive_definite_is_damped_until_it_is():
    ones = np.ones(3 * 4 // 2)  # a matrix of ones, of rank 1, and no prior
    summary = np.concatenate([ones, np.ones(3), [10.0]])
    out = np.empty(3)
    metric_of(summary, np.zeros(3), np.ones(3), 10).apply(
        np.array([1.0, -1.0, 0.0]), out
    )
    assert np.isfinite(out).all()
    assert out[0] > 0 > out[1]


@pytest.mark.parametrize("labels", [(-1, 1), (False, True), ("no", "yes"), (3, 7)])
def test_labels_of_all_usual_kinds_mean_the_same(labels):
    problem = aq.LogisticRegression(np.eye(3), np.array(labels)[[0, 1, 1]])
    assert problem.y.tolist() == [-1.0, 1.0, 1.0]


def test_frames_that_mix_numbers_and_truth_values_are_taken():
    plain = pandas.DataFrame({"a": [0.5, 1.5], "b": [True, False], "c": [3, 4]})
    # Columns of several types, and those that know missing values.
    for X in (plain, plain.convert_dtypes()):
        problem = aq.LogisticRegression(X, X["b"], weights=X["c"], intercept=False)
        assert problem.X.tolist() == [[0.5, 1.0, 3.0], [1.5, 0.0, 4.0]]
        assert problem.y.tolist() == [1.0, -1.0]
        assert problem.weights.tolist() == [3.0, 4.0]
    missing = plain.convert_dtypes().mask(plain["a"] > 1)
    with pytest.raises(BadInput, match="X contains NaN"):
        aq.LogisticRegression(missing, plain["b"])
    with pytest.raises(BadInput, match=r"X must hold numbers.*not object"):
        aq.LogisticRegression(plain.assign(a=["1", "2"]), plain["b"])


@pytest.mark.parametrize("model", MODELS)
def test_a_reference_makes_it_again(model):
    p = model.random(30, 4, seed=5, dtype=np.float32)
    again = rebuild(p.reference())
    assert type(again) is model
    assert again.X.tobytes() == p.X.tobytes()
    assert again.y.tobytes() == p.y.tobytes()


@pytest.mark.parametrize("intercept", [False, True])
def test_U_at_zero_is_that_of_the_gradients_pass(intercept):
    drawn = aq.LogisticRegression.random(101, 5, seed=0)
    p = aq.LogisticRegression(
        drawn.X, drawn.y, intercept=intercept, weights=np.linspace(0.0, 2.0, 101)
    )
    theta = np.zeros(p.dim)
    theta[5:] = 0.7  # the intercept
    assert p.value(theta) == p.grad_with_value(theta, np.arange(101), np.empty(p.dim))


def test_doubled_entries_of_a_sparse_matrix_are_added():
    doubled = sparse.csr_matrix(
        (np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1)
    )
    problem = aq.LeastSquares(doubled, np.zeros(1), prior=0.0, intercept=False)
    # (1 + 1)^2 / 2, and the user's own matrix is as it was.
    assert problem.value(np.ones(1)) == 2.0
    assert doubled.nnz == 2


X, Y = np.ones((3, 2)), np.array([1, 0, 1])
TEXTS = np.array(["a", "a", "a"])


@pytest.mark.parametrize(
    ("model", "X", "y", "options", "words"),
    [
        (aq.LeastSquares, np.ones(3), Y, {}, "it has 1 dimension: reshape it"),
        (aq.LeastSquares, sparse.csr_matrix((0, 2)), Y[:0], {}, "X is empty"),
        (aq.LeastSquares, [[1.0], [1.0, 2.0]], Y[:2], {}, "rows of one length"),
        (aq.LeastSquares, X.astype(str), Y, {}, "must hold numbers"),
        (aq.LeastSquares, sparse.csr_matrix(X * np.inf), Y, {}, "NaN or infinity"),
        (aq.LeastSquares, X, Y[:, None], {}, "one label per row"),
        (aq.LeastSquares, X, Y * np.nan, {}, "y contains NaN"),
        (aq.LeastSquares, X, Y, {"weights": np.ones(2)}, "one entry per row of X"),
        (aq.LeastSquares, X, Y, {"weights": -Y}, "not be negative"),
        (aq.LeastSquares, X, Y, {"weights": 0 * Y}, "all weights are 0"),
        (aq.LeastSquares, X, Y, {"intercept": "yes"}, "intercept must be True"),
        (aq.LeastSquares, X, Y, {"prior": "one"}, "prior must be a finite number"),
        (aq.LogisticRegression, X, TEXTS, {}, "two different values, not 1"),
        (aq.PoissonRegression, X, -Y, {}, "counts must not be negative"),
        (aq.RobustRegression, X, Y, {"width": 0.0}, "width must be a positive"),
        (aq.SoftmaxRegression, X, np.ones(3), {}, "at least two classes"),
        (aq.SoftmaxRegression, X, Y + 0.5, {}, "use LeastSquares"),
        (aq.SoftmaxRegression, X, np.array(["a", None, "b"]), {}, "are neither"),
    ],
)
def test_bad_input_gets_a_sentence(model, X, y, options, words):
    with pytest.raises(BadInput, match=words):
        model(X, y, **options)


@pytest.mark.parametrize("rows", [[3], [-1], []])
def test_rows_that_do_not_exist_are_refused(rows):
    problem = aq.LogisticRegression(X, Y, intercept=False)
    with pytest.raises(BadInput, match="rows must lie between"):
        problem.grad(np.ones(2), np.array(rows, np.int64), np.empty(2))


def test_huge_margins_give_finite_values_and_gradients():
    X = np.array([[1.0], [1.0]])
    problem = aq.LogisticRegression(X, np.array([1, -1]), prior=0.0, intercept=False)
    out = np.empty(1)
    # One row is certain and costs nothing, the other costs its margin and pulls with slope 1.
    assert problem.grad_with_value(np.array([1e5]), np.arange(2), out) == 1e5
    assert out[0] == 1.0


def test_many_rows_in_float32_are_summed_in_float64():
    n = 200_000
    X = np.ones((n, 1), np.float32)
    problem = aq.LogisticRegression(X, np.ones(n), prior=0.0, intercept=False)
    out = np.empty(1, np.float32)
    problem.grad(np.zeros(1, np.float32), np.arange(n), out)
    assert out[0] == -n / 2


def test_random_features_have_the_scale_and_the_correlation_asked_for():
    options = {"condition": 16.0, "correlation": 0.6, "scale": 3.0}
    X = aq.LogisticRegression.random(20_000, 5, **options).X
    # 20,000 draws: standard deviations and correlations are known to about 1 %.
    np.testing.assert_allclose(X.std(axis=0), 3.0 / 2.0 ** np.arange(5), rtol=0.03)
    np.testing.assert_allclose(np.diag(np.corrcoef(X.T), 1), 0.6, atol=0.03)
