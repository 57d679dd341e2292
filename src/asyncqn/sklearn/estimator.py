"""The base of the estimators: checks of parameters and data, one call of `minimize`, predictions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from joblib import cpu_count
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from asyncqn.algorithms.defaults import TOLERANCE
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.algorithm import Standing
from asyncqn.core.request import Progress
from asyncqn.engines.simulator import Simulator
from asyncqn.engines.threads import Threads
from asyncqn.errors import require
from asyncqn.minimize import minimize
from asyncqn.models.feature_rows import SparseRows
from asyncqn.models.linear_model import LinearModel
from asyncqn.parameters import parameter, parameters_of
from asyncqn.runs.run import Run
from asyncqn.types import Array, Engine

Estimator = TypeVar("Estimator", bound="LinearEstimator")
Numbers = npt.NDArray[Any]

Penalty = Annotated[float, parameter(ge=0.0)]
GradientTolerance = Annotated[float, parameter(gt=0.0)]
MaxIter = Annotated[int | None, parameter(ge=1)]
Verbose = Annotated[int, parameter(ge=0)]
EngineOrNone = Annotated[
    Engine | None, parameter(words="an engine, such as Threads(2), or None")
]
WorkersOrNone = Annotated[int | None, parameter(ge=1, le=1_000_000)]

_ENTRIES_PER_THREAD = 1_000_000
"""Entries of X from which a second thread saves more than its start and its messages cost."""
_NO_EVALUATIONS = 2**62
"""Commits between two evaluations of U; so large that there are none.  Versions with a known U are
recorded."""


class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model that scikit-learn's tools can clone, search and pickle; a subclass defines the model."""

    fit_intercept: bool
    tol: float
    max_iter: int | None
    warm_start: bool
    verbose: int
    engine: Engine | None
    workers: int | None
    seed: int
    run_: Run
    coef_: Numbers
    intercept_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks then test the estimator with sparse matrices as well.
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes except the data in the run; `replay` needs the problem after unpickling."""
        state = dict(super().__getstate__())
        # A pickled estimator would otherwise contain its training data.
        if "run_" in state:
            state["run_"] = replace(state["run_"], problem=None)
        return state

    # -- a fit

    def _check_parameters(self) -> None:
        """Raise `BadInput` where a parameter is wrong; `fit` does so, not `__init__`, as in scikit-learn."""
        own: Any = type(self)
        for name, about in parameters_of(own).items():
            # The checked value is not stored: `get_params` must return what the user passed.
            about.checked(name, getattr(self, name))
        require(
            self.engine is None or self.workers is None,
            "give an engine or a number of workers, not both, because an engine has its own workers.",
        )

    def _training_data(
        self, X: Any, y: Any, sample_weight: Any, **options: Any
    ) -> tuple[Any, Numbers, Numbers | None]:
        """Return X, y and the weights as arrays, checked by scikit-learn, and store the feature names."""
        # scikit-learn's own validation gives its usual messages and sets `n_features_in_`.
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            **options,
        )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        return X, y, sample_weight

    def _minimise(
        self, problem: LinearModel, theta0: Array | None, limit: float | None
    ) -> Run:
        """Minimise until the norm of the gradient is at most `limit`; None: `tol` times the first norm."""

        def arrived(standing: Standing) -> str | None:
            most = self.tol * standing.first_grad_norm if limit is None else limit
            return (
                f"the gradient is {standing.grad_norm:.1e}."
                if standing.grad_norm <= most
                else None
            )

        def tell(progress: Progress) -> None:
            print(
                f"[{type(self).__name__}] iteration {progress.commit}, U = {progress.metrics['fun']:.8g}"
            )

        run = minimize(
            problem,
            engine=self._engine_for(problem),
            theta0=theta0,
            commits=self.max_iter,
            seed=self.seed,
            # The stopping rule below decides; `tol` only keeps a run from continuing beyond it.
            tol=min(TOLERANCE, self.tol),
            stop=arrived,
            # An evaluation is a further pass over the data, and the exact method knows U at every version
            # anyway.
            evaluate=_NO_EVALUATIONS,
            callback=tell if self.verbose else None,
            # The model has checked its data, so the test of a user's problem would only cost time.
            check=False,
            progress=False,
        )
        if not run.success:
            warnings.warn(
                f"{type(self).__name__} has not converged ({run.message.rstrip('.')}): scale the features or "
                f"increase max_iter.",
                ConvergenceWarning,
                # The warning points at the user's call of `fit`: `_minimise` is called by `fit`.
                stacklevel=3,
            )
        return run

    def _engine_for(self, problem: LinearModel) -> Engine:
        if self.engine is not None:
            return self.engine
        workers = self.workers
        if workers is None:
            X: Any = problem.X
            # Work per pass: entries that are stored, times the numbers that are predicted per row.
            entries = (
                int(np.size(X.data if isinstance(X, SparseRows) else X))
                * problem._outputs
            )
            # joblib's count respects processor affinity and the limits of containers; `os.cpu_count` does
            # not.
            workers = max(1, min(cpu_count(), entries // _ENTRIES_PER_THREAD))
        # One worker needs no thread of its own: a simulated cluster of one computes the same in this thread.
        return Threads(workers) if workers > 1 else Simulator(Cluster(1))

    # -- predictions

    def _scores(self, X: Any) -> Numbers:
        """Return X @ coef_.T + intercept_."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", reset=False)
        scores: Numbers = (
            safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_
        )
        return scores
