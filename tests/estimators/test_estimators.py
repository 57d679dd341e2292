"""asyncqn.sklearn: scikit-learn's own checks, its solutions, its tools, and our runs."""

from __future__ import annotations

import doctest
import pickle
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pytest
import sklearn.linear_model as theirs
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import check_estimator

import asyncqn as aq
import asyncqn.sklearn as ours
from asyncqn.parameters import descriptions_of

REGRESSORS = [ours.Ridge, ours.PoissonRegressor]
ESTIMATORS = [ours.LogisticRegression, *REGRESSORS]


@pytest.mark.timeout(
    400
)  # sixty checks, and all kernels are compiled for both storages
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learns_own_checks_pass(kind):
    results = check_estimator(kind(), on_skip=None)  # a check that fails raises
    skipped = [each["check_name"] for each in results if each["status"] != "passed"]
    assert skipped == [
        "check_array_api_input"
    ]  # needs SCIPY_ARRAY_API, and we take NumPy's arrays alone
    assert any("sparse" in each["check_name"] for each in results)


# -- the same objective, so the same coefficients


def some_rows(n=400, d=5):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.7, rng.standard_normal((n, d)), 0.0)
    z = X @ np.linspace(-1.0, 1.0, d) + 0.5
    return X, z, rng.random(n) + 0.1, rng


TIGHT = {"tol": 1e-12, "max_iter": 10_000}


LOGISTIC = {"solver": "newton-cholesky", **TIGHT}
MODELS = {
    "logistic": (ours.LogisticRegression(0.3), theirs.LogisticRegression(C=0.3, **LOGISTIC)),
    "free": (ours.LogisticRegression(np.inf), theirs.LogisticRegression(C=np.inf, **LOGISTIC)),
    "ridge": (ours.Ridge(2.0), theirs.Ridge(2.0, solver="svd")),
    "counts": (ours.PoissonRegressor(alpha=0.1), theirs.PoissonRegressor(alpha=0.1, **LOGISTIC)),
}  # fmt: skip


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_coefficients_are_those_of_scikit_learn(name, weighted, intercept):
    X, z, weights, rng = some_rows()
    labels = [np.digitize(z + rng.logistic(size=len(z)), cuts) for cuts in ([0.0], [-0.5, 1.0])]  # fmt: skip
    responses = {"ridge": [z + rng.standard_t(1.5, len(z))], "counts": [rng.poisson(np.exp(z))]}  # fmt: skip
    own, other = map(clone, MODELS[name])
    sample_weight = weights if weighted else None
    for y in responses.get(name, labels):
        with warnings.catch_warnings():
            # Without a penalty theirs asks for another spelling of it.
            warnings.simplefilter("ignore")
            other.set_params(fit_intercept=intercept).fit(X, y, sample_weight)
        for rows in (X, sparse.csr_matrix(X)):
            own.set_params(fit_intercept=intercept, tol=1e-12)
            own.fit(rows, y, sample_weight)
            # A gradient of 1e-10 over curvatures above 1e-3 of the data's own, with a wide margin.
            np.testing.assert_allclose(own.coef_, other.coef_, atol=1e-5)
            np.testing.assert_allclose(own.intercept_, other.intercept_, atol=1e-5)
            assert own.score(X, y) == pytest.approx(other.score(X, y), abs=1e-5)
    # A gradient of 1e-4 of the mean loss over a curvature of about 0.1 is 1e-3 of a coefficient.
    usual = clone(MODELS[name][0]).set_params(fit_intercept=intercept)
    np.testing.assert_allclose(usual.fit(X, y, sample_weight).coef_, other.coef_, atol=2e-3)  # fmt: skip


def test_class_weights_are_those_of_scikit_learn():
    X, z, weights, _ = some_rows()
    y = np.where(z > 1.0, "many", "few")
    for class_weight in ("balanced", {"many": 3.0, "few": 0.5}):
        own = ours.LogisticRegression(class_weight=class_weight, tol=1e-12).fit(
            X, y, weights
        )
        other = theirs.LogisticRegression(class_weight=class_weight, **TIGHT).fit(
            X, y, weights
        )
        np.testing.assert_allclose(own.coef_, other.coef_, atol=1e-5)


# -- labels


@pytest.mark.parametrize(
    "labels",
    [("no", "yes"), (1, 2), (False, True), (-1.0, 1.0), ("a", "b", "c"), (3, 5, 9)],
)
def test_labels_of_any_kind_come_back(labels):
    X, z, _, _ = some_rows()
    y = np.array(labels)[np.digitize(z, np.linspace(0.0, 1.0, len(labels) - 1))]
    model = ours.LogisticRegression(C=100.0).fit(X, y)
    np.testing.assert_array_equal(model.classes_, labels)
    assert model.predict(X).dtype == y.dtype
    assert model.score(X, y) > 0.8
    chances = model.predict_proba(X)
    assert chances.shape == (len(X), len(labels))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), chances)


def test_one_class_is_refused_in_a_sentence():
    X, _, _, _ = some_rows()
    with pytest.raises(
        aq.BadInput, match=r"^y has only one class, spam: .* at least two classes\.$"
    ):
        ours.LogisticRegression().fit(X, np.full(len(X), "spam"))
    with pytest.raises(
        aq.BadInput, match=r"^all rows with a positive weight belong to one class"
    ):
        ours.LogisticRegression().fit(X, np.arange(len(X)) % 2, np.arange(len(X)) % 2)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"C": 0.0}, "C must be a positive number or infinity, not 0.0."),
        ({"tol": -1.0}, "tol must be a positive finite number, not -1.0."),
        (
            {"engine": 3},
            "engine must be an engine, such as Threads(2), or None, not 3.",
        ),
        ({"n_jobs": 0}, "n_jobs must be positive, or negative as in joblib."),
        ({"penalty": "l1"}, "penalty must be 'l2' or None, not 'l1'."),
        (
            {"n_jobs": 1, "engine": aq.Threads(1)},
            "give an engine or n_jobs, not both, because an engine has its own workers.",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_when_it_is_used(parameters, sentence):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InvalidParameterError) as error:
        ours.LogisticRegression(**parameters).fit(X, y)
    assert isinstance(error.value, aq.BadInput)
    assert str(error.value) == sentence


def test_parameters_of_scikit_learn_s_estimators_are_taken():
    X, y = load_iris(return_X_y=True)
    plain = ours.LogisticRegression().fit(X, y)
    model = ours.LogisticRegression(random_state=0, n_jobs=-1, penalty="l2")
    assert np.allclose(model.fit(X, y).coef_, plain.coef_, atol=1e-3)
    free = ours.LogisticRegression(penalty=None, tol=1e-2).fit(X, y)
    assert np.linalg.norm(free.coef_) > 3.0 * np.linalg.norm(plain.coef_)
    drawn = ours.Ridge(random_state=np.random.RandomState(7)).fit(X, y)
    assert drawn._seed > 0
    for kind in ESTIMATORS:
        with pytest.warns(UserWarning, match="solver='lbfgs' has no effect") as told:
            kind(solver="lbfgs").fit(X, y)
        assert len(told) == 1


# -- scikit-learn's tools


def test_pipelines_frames_and_grid_searches_in_other_processes():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(StandardScaler(), ours.LogisticRegression()).set_output(
        transform="pandas"
    )
    pipeline.fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == list(X.columns)
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.95
    search = GridSearchCV(
        pipeline, {"logisticregression__C": [1e-4, 1.0]}, cv=3, n_jobs=2
    ).fit(X, y)
    assert search.best_params_ == {"logisticregression__C": 1.0}
    assert search.predict(X).shape == y.shape


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_models_are_cloned_pickled_and_dumped_without_their_data(kind, tmp_path):
    X, y = load_iris(return_X_y=True)
    model = kind(random_state=3, engine=aq.Simulator(aq.Cluster(workers=2))).fit(X, y)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(X)
    joblib.dump(model, tmp_path / "model.joblib")
    for back in (
        pickle.loads(pickle.dumps(model)),
        joblib.load(tmp_path / "model.joblib"),
    ):
        assert back.predict(X).tobytes() == model.predict(X).tobytes()
        assert back.run_.problem is None
        assert (
            aq.replay(back.run_, model.run_.problem).theta.tobytes()
            == model.run_.theta.tobytes()
        )
    assert (
        len(pickle.dumps(model)) < X.nbytes + 20_000
    )  # what a run itself takes, whatever the data


@pytest.mark.parametrize(
    "engine", [None, aq.Threads(2), aq.Simulator(aq.Cluster(workers=3))]
)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_the_run_of_a_fit_replays_to_the_bit(kind, engine):
    X, y = load_iris(return_X_y=True)
    model = kind(engine=engine).fit(X, y)
    assert model.run_.success
    assert aq.replay(model.run_).theta.tobytes() == model.run_.theta.tobytes()
    assert np.max(model.n_iter_) == model.run_.nit


def test_a_warm_start_needs_fewer_iterations_and_an_early_end_is_a_warning():
    X, y = load_diabetes(return_X_y=True)
    for kind in REGRESSORS:
        model = kind(warm_start=True, max_iter=1)
        with pytest.warns(ConvergenceWarning, match="increase max_iter"):
            model.fit(X, y)
        assert model.n_iter_ == 1
        first = clone(model).set_params(max_iter=None).fit(X, y).n_iter_
        again = model.set_params(max_iter=None).fit(X, y).fit(X, y).n_iter_
        assert again < first or again <= 2  # a quadratic is done in two from anywhere
    X, y = load_iris(return_X_y=True)
    model = ours.LogisticRegression(warm_start=True).fit(X, y)
    assert model.n_iter_[0] > model.fit(X, y).n_iter_[0]
    assert model.fit(X[:, :2], y).coef_.shape == (
        3,
        2,
    )  # other columns: from the beginning


def test_importing_asyncqn_does_not_import_scikit_learn_and_its_lack_is_a_sentence():
    program = (
        "import sys, asyncqn\n"
        "assert 'sklearn' not in sys.modules\n"
        "sys.modules['sklearn'] = None\n"
        "try:\n    import asyncqn.sklearn\n"
        "except asyncqn.AsyncqnError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    wanted = "asyncqn.sklearn needs the package 'scikit-learn': install it with pip install 'asyncqn[sklearn]'.\n"
    assert (done.stdout, done.stderr) == (wanted, "")


@pytest.mark.parametrize("name", ours.__all__)
def test_the_example_of_an_estimator_runs(name):
    kind = getattr(ours, name)
    (test,) = doctest.DocTestFinder(recurse=False).find(kind, name, globs={})
    assert test.examples
    report = []
    doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert "".join(report) == ""
    assert kind().get_params().keys() <= descriptions_of(kind).keys()
