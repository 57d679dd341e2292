"""Linear models: storages agree, formulas, weights, intercept, curvature, bad input; by the registry."""

from __future__ import annotations

import numpy as np
import pytest
from examples import IN_THIS_PROCESS
from scipy import sparse

import asyncqn as aq
from asyncqn.checks.testing import check_problem
from asyncqn.errors import BadInput
from asyncqn.models import PROBLEMS, rebuild
from asyncqn.models.linear_model import LinearModel
from asyncqn.models.sampled_metric import DENSE, metric_of, rows_for_metric

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


def test_a_metric_on_a_sample_knows_the_rare_features_that_its_rows_show():
    X = np.random.default_rng(0).standard_normal((4000, 3))
    X[:, 2] = 0.0
    rows, labels = np.arange(100, 4000, 16), np.arange(4000) % 2
    missed = np.setdiff1d(
        rows, aq.LogisticRegression(X, labels, intercept=False)._picked(rows, len(rows))
    )
    X[missed[:2], 2] = 2.0  # in two rows of the sample, in none of those that make up C
    p = aq.LogisticRegression(X, labels, intercept=False)
    summary, out, H0 = np.zeros(p.curvature_size), np.empty(3), np.empty(3)
    p.grad_with_curvature(np.zeros(3), rows, out, summary, len(rows))
    p.inverse_metric_from(summary).apply(np.array([0.0, 0.0, 1.0]), H0)
    # Two rows of curvature 2^2 / 4, one more that keeps it near 0, and the prior.
    assert H0[2] == pytest.approx(1.0 / (1.0 + 3 * 4000 / len(rows)), rel=1e-9)


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


@pytest.mark.parametrize(
    ("n", "dim", "sample", "rows"),
    [
        (10**6, 100, 10**6, 30_000),
        (10**6, 100, 10**5, 4000),
        (10**6, 100, 3000, 3000),
        (200_000, 1000, 200_000, 15_000),
        (200_000, 1000, 12_500, 10_000),
    ],
)
def test_how_many_rows_make_a_metric(n, dim, sample, rows):
    assert rows_for_metric(n, dim, sample) == rows


def test_second_moments_of_wide_rows_have_the_digits_of_float32():
    rng, d = np.random.default_rng(3), 301
    problem = aq.LeastSquares(
        rng.standard_normal((400, d)), rng.standard_normal(400), intercept=False
    )
    S = np.zeros((d, d))
    problem._second_moments(np.zeros(d), np.arange(400), S)
    exact = np.triu(problem.X.T @ problem.X)
    # 400 products in float32, each off by a rounding of its factors and one of the sum so far.
    assert (
        np.abs(np.triu(S) - exact).max()
        <= 400 * np.finfo(np.float32).eps * np.abs(problem.X).max() ** 2
    )
    assert not np.array_equal(np.triu(S), exact)


def test_wide_rows_beyond_the_range_of_float32_have_a_metric_all_the_same():
    rng, d = np.random.default_rng(4), 301
    problem = aq.LeastSquares(
        1e25 * rng.standard_normal((400, d)), rng.standard_normal(400), intercept=False
    )
    run = aq.minimize(problem, commits=5)
    assert np.isfinite(run.fun)
    assert run.fun <= problem.value(np.zeros(d))


@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 1, 0],
        [-1, 1, 1, -1],
        [False, True, True, False],
        ["no", "yes", "yes", "no"],
        [3, 7, 7, 3],
    ],
)
def test_labels_of_all_usual_kinds_mean_the_same(labels):
    p = aq.LogisticRegression(np.eye(4), np.array(labels), intercept=False)
    assert p.y.tolist() == [-1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize(
    "storage", ["csc_matrix", "coo_matrix", "csr_array", "lil_matrix"]
)
def test_any_sparse_matrix_is_taken_and_doubled_entries_are_added(storage):
    X = np.array([[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]])
    made = aq.LeastSquares(getattr(sparse, storage)(X), np.ones(3), intercept=False)
    assert made.value(np.ones(2)) == aq.LeastSquares(
        X, np.ones(3), intercept=False
    ).value(np.ones(2))
    doubled = sparse.csr_matrix(
        (np.array([1.0, 1.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1)
    )
    summary, out = np.zeros(3), np.empty(1)
    aq.LeastSquares(doubled, np.zeros(1), intercept=False).grad_with_curvature(
        np.zeros(1), np.arange(1), out, summary
    )
    assert summary[1] == 4.0  # (1 + 1)^2, not 1^2 + 1^2
    assert doubled.nnz == 2  # and the user's own matrix is as it was


def test_frames_that_mix_numbers_and_truth_values_are_taken():
    pandas = pytest.importorskip("pandas")
    plain = pandas.DataFrame(
        {"a": [0.5, 1.5, 2.5], "b": [True, False, True], "c": [3, 4, 5]}
    )
    for X in (
        plain,
        plain.convert_dtypes(),
    ):  # columns of several types, and those that know missing values
        found = aq.LogisticRegression(X, X["b"], weights=X["c"], intercept=False)
        assert found.X.tolist() == [[0.5, 1.0, 3.0], [1.5, 0.0, 4.0], [2.5, 1.0, 5.0]]
        assert (found.y.tolist(), found.weights.tolist()) == (
            [1.0, -1.0, 1.0],
            [3.0, 4.0, 5.0],
        )
    lacking = plain.convert_dtypes().mask(plain["a"] > 2)
    with pytest.raises(BadInput, match="X contains NaN"):
        aq.LogisticRegression(lacking, plain["b"], intercept=False)
    with pytest.raises(BadInput, match="y contains NaN"):
        aq.LogisticRegression(plain, lacking["b"], intercept=False)
    with pytest.raises(BadInput, match=r"X must hold numbers.*not object"):
        aq.LogisticRegression(
            plain.assign(a=["1", "2", "3"]), plain["b"], intercept=False
        )


@pytest.mark.parametrize("model", MODELS)
def test_a_reference_makes_it_again(model):
    p = model.random(30, 4, seed=5, dtype=np.float32)
    again = rebuild(p.reference())
    assert type(again) is model
    assert again.X.tobytes() == p.X.tobytes()
    assert again.y.tobytes() == p.y.tobytes()


X, Y = np.ones((3, 2)), np.array([1, 0, 1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: aq.LogisticRegression(np.ones(3), Y, intercept=False),
            "it has 1 dimension: reshape it",
        ),
        (
            lambda: aq.LogisticRegression(
                sparse.csr_matrix((0, 2)), Y[:0], intercept=False
            ),
            "X is empty",
        ),
        (
            lambda: aq.LogisticRegression([[1.0], [1.0, 2.0]], Y[:2], intercept=False),
            "different lengths",
        ),
        (
            lambda: aq.LogisticRegression(X.astype(str), Y, intercept=False),
            "must hold numbers",
        ),
        (
            lambda: aq.LogisticRegression(
                sparse.csr_matrix(X * np.inf), Y, intercept=False
            ),
            "NaN or infinity",
        ),
        (
            lambda: aq.LogisticRegression(
                X, np.array(["a", "a", "a"]), intercept=False
            ),
            "two different values, not 1",
        ),
        (
            lambda: aq.LogisticRegression(X, Y[:, None], intercept=False),
            "one label per row",
        ),
        (
            lambda: aq.LogisticRegression(X, Y, weights=np.ones(2), intercept=False),
            "weights must have one entry per row of X",
        ),
        (
            lambda: aq.LogisticRegression(X, Y, weights=-Y, intercept=False),
            "not be negative",
        ),
        (
            lambda: aq.LogisticRegression(X, Y, weights=0 * Y, intercept=False),
            "all weights are 0",
        ),
        (
            lambda: aq.LogisticRegression(X, Y, intercept="yes"),
            "intercept must be True or False",
        ),  # type: ignore[arg-type]
        (
            lambda: aq.PoissonRegression(X, -Y, intercept=False),
            "counts must not be negative",
        ),
        (
            lambda: aq.RobustRegression(X, Y, width=0.0, intercept=False),
            "width must be a positive finite number",
        ),
        (lambda: aq.LeastSquares(X, Y * np.nan, intercept=False), "y contains NaN"),
        (
            lambda: aq.LeastSquares(X, Y, prior="one", intercept=False),
            "prior must be a finite number",
        ),  # type: ignore[arg-type]
        (
            lambda: aq.SoftmaxRegression(X, np.ones(3), intercept=False),
            "at least two classes",
        ),
        (lambda: aq.SoftmaxRegression(X, Y + 0.5, intercept=False), "use LeastSquares"),
        (
            lambda: aq.SoftmaxRegression(X, Y * np.nan, intercept=False),
            "y contains NaN",
        ),
        (
            lambda: aq.SoftmaxRegression(
                X, np.array(["a", None, "b"]), intercept=False
            ),
            "some are neither",
        ),
    ],
)
def test_bad_input_gets_a_sentence(make, words):
    with pytest.raises(BadInput, match=words):
        make()


@pytest.mark.parametrize("intercept", [False, True])
def test_U_at_zero_is_that_of_the_gradients_pass(intercept):
    drawn = aq.LogisticRegression.random(101, 5, seed=0)
    p = aq.LogisticRegression(
        drawn.X, drawn.y, intercept=intercept, weights=np.linspace(0.0, 2.0, 101)
    )
    theta = np.zeros(p.dim)
    theta[5:] = 0.7  # the intercept
    assert p.value(theta) == p.grad_with_value(theta, np.arange(101), np.empty(p.dim))
