"""The base of the estimators: checks of parameters and data, and one call of `minimize`."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from joblib import cpu_count, effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import _check_sample_weight, validate_data

from asyncqn.algorithms.defaults import TOLERANCE
from asyncqn.cluster.cluster import Cluster
from asyncqn.core.algorithm import Standing
from asyncqn.core.request import Progress
from asyncqn.engines.simulator import Simulator
from asyncqn.engines.threads import Threads
from asyncqn.errors import BadInput, require
from asyncqn.minimize import minimize
from asyncqn.models.feature_rows import SparseRows
from asyncqn.models.linear_model import LinearModel
from asyncqn.parameters import parameter, parameters_of
from asyncqn.runs.run import Run
from asyncqn.types import Array, Engine

Numbers = npt.NDArray[Any]

GradientTolerance = Annotated[float, parameter(gt=0.0)]
MaxIter = Annotated[int | None, parameter(ge=1)]
Verbose = bool | Annotated[int, parameter(ge=0)]
EngineOrNone = Annotated[
    Engine | None, parameter(words="an engine, such as Threads(2), or None")
]
Jobs = Annotated[int | None, parameter(ge=-1_000_000, le=1_000_000)]
RandomState = int | np.random.RandomState | None

_ENTRIES_PER_THREAD = 1_000_000
"""Entries of X from which a second thread saves more than its start and its messages cost."""
_NO_EVALUATIONS = 2**62
"""Commits between two evaluations of U; so large that there are none.  Versions with a known U are
recorded."""


class InvalidParameter(BadInput, InvalidParameterError):  # type: ignore[misc]
    """A wrong parameter of an estimator, as an error of asyncqn and of scikit-learn."""


class LinearEstimator(BaseEstimator):  # type: ignore[misc]
    """A linear model that scikit-learn's tools can clone, search and pickle; a subclass defines the model.

    Parameters
    ----------
    fit_intercept : bool, default True
        Whether to fit an intercept, which is not penalised.
    solver : str, optional
        No effect: asyncqn has one method, with the same minimum as any solver. A fit warns where it is given.
    max_iter : int, default 1000
        Largest number of versions of the coefficients; None: until the fit has converged.
    warm_start : bool, default False
        Whether to start from the coefficients of the last fit, where they have the same shape.
    verbose : int or bool, default 0
        Whether to print a line per iteration, if positive.
    random_state : int or RandomState, optional
        Seed of the run; None: 0.
    n_jobs : int, optional
        Number of threads, where -1 means all processors; None: one for small data, else one per processor.
    engine : asyncqn engine, optional
        Where the workers run; None: threads of this process, or for one worker the calling thread.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of shape (n_features_in_,)
        Names of the columns, where X was a data frame.
    run_ : asyncqn.Run
        The run; `asyncqn.replay(model.run_)` computes it again, bit for bit.
    """

    fit_intercept: bool
    solver: str | None
    tol: float | None
    max_iter: int | None
    warm_start: bool
    verbose: int
    random_state: RandomState
    n_jobs: int | None
    engine: Engine | None
    run_: Run
    coef_: Numbers
    intercept_: Any
    _usual_tol = 1e-4
    _numeric_y = True

    def _store(self, arguments: dict[str, Any]) -> None:
        """Store the arguments of `__init__` unchanged under their names, as scikit-learn requires."""
        del arguments["self"]
        self.__dict__.update(arguments)

    def _problem(self, X: Any, y: Numbers, weights: Numbers | None) -> LinearModel:
        """Return what a fit minimises."""
        raise NotImplementedError

    def _take(self, coef: Numbers, intercept: Numbers) -> None:
        """Set the attributes of a fitted model, from a row and an intercept for each output."""
        raise NotImplementedError

    def _limit(self, total: float) -> float | None:
        """Return the norm of the gradient at which a fit ends; None: `tol` times the first norm.

        `total` is the sum of the weights: scikit-learn's `tol` refers to the mean loss, and U is a sum.
        """
        return self._tol * total

    def _first(self, problem: LinearModel) -> Array | None:
        """Return the starting point of a fit; None: the problem's own."""
        return None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : matrix of shape (n_samples, n_features), dense or sparse, or a data frame
            The features.
        y : array of n_samples responses
            Numbers, or labels of any type for a classifier.
        sample_weight : array of n_samples numbers, optional
            Weight of each row; None: all rows weigh the same.

        Returns
        -------
        object
            The estimator itself.
        """
        self._check_parameters()
        # scikit-learn's own validation gives its usual messages and sets `n_features_in_`.
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            y_numeric=self._numeric_y,
        )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
        problem = self._problem(X, y, sample_weight)
        weights = problem.weights
        total = len(y) if weights is None else float(weights.sum())
        self.run_ = self._minimise(problem, self._start(problem), self._limit(total))
        if not self.run_.success:
            warnings.warn(
                f"{type(self).__name__} has not converged ({self.run_.message.rstrip('.')}): scale the "
                "features or increase max_iter.",
                ConvergenceWarning,
                stacklevel=2,
            )
        theta = self.run_.theta.reshape(-1, problem._columns)
        coef, intercept = theta[:, : X.shape[1]].copy(), theta[:, X.shape[1] :].copy()
        if not self.fit_intercept:
            intercept = np.zeros((len(theta), 1), theta.dtype)
        self._take(coef, intercept[:, 0])
        return self

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

    @property
    def _tol(self) -> float:
        """The tolerance of a fit."""
        return self._usual_tol if self.tol is None else self.tol

    @property
    def _seed(self) -> int:
        """The seed of a fit; a RandomState draws one."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return self.random_state or 0

    def _check_parameters(self) -> None:
        """Raise `InvalidParameter` where a parameter is wrong; `fit` does so, not `__init__`."""
        own: Any = type(self)
        try:
            for name, about in parameters_of(own).items():
                # The checked value is not stored: `get_params` must return what the user passed.
                about.checked(name, getattr(self, name))
            require(
                self.engine is None or self.n_jobs is None,
                "give an engine or n_jobs, not both, because an engine has its own workers.",
            )
            require(
                self.n_jobs != 0, "n_jobs must be positive, or negative as in joblib."
            )
        except BadInput as error:
            raise InvalidParameter(str(error)) from None
        if self.solver is not None:
            warnings.warn(
                f"solver={self.solver!r} has no effect: asyncqn has one method of its own.",
                UserWarning,
                stacklevel=3,
            )

    def _start(self, problem: LinearModel) -> Array | None:
        """Return the coefficients of the last fit for a warm start, if they fit the data."""
        if self.warm_start and hasattr(self, "coef_"):
            theta = np.atleast_2d(self.coef_)
            if self.fit_intercept:
                # theta has one row per output, the intercept behind the coefficients.
                theta = np.column_stack([theta, np.atleast_1d(self.intercept_)])
            if theta.size == problem.dim:
                return theta.reshape(-1).astype(problem.dtype)
        return self._first(problem)

    def _minimise(
        self, problem: LinearModel, theta0: Array | None, limit: float | None
    ) -> Run:
        """Minimise until the norm of the gradient is at most `limit`; None: `tol` times the first norm."""
        tol = self._tol

        def stop(standing: Standing) -> str | None:
            most = tol * standing.first_grad_norm if limit is None else limit
            if standing.grad_norm > most:
                return None
            return f"the gradient is {standing.grad_norm:.1e}"

        def show(progress: Progress) -> None:
            print(
                f"[{type(self).__name__}] iteration {progress.commit}, U = {progress.metrics['fun']:.8g}"
            )

        return minimize(
            problem,
            engine=self._engine_for(problem),
            theta0=theta0,
            commits=self.max_iter,
            seed=self._seed,
            # The stopping rule above decides; `tol` only keeps a run from continuing beyond it.
            tol=min(TOLERANCE, tol),
            stop=stop,
            # An evaluation is a further pass over the data, and the exact method knows U at every version
            # anyway.
            evaluate=_NO_EVALUATIONS,
            callback=show if self.verbose else None,
            # The model has checked its data, so the test of a user's problem would only cost time.
            check=False,
            progress=False,
        )

    def _engine_for(self, problem: LinearModel) -> Engine:
        if self.engine is not None:
            return self.engine
        if self.n_jobs is not None:
            workers = effective_n_jobs(self.n_jobs)
        else:
            X: Any = problem.X
            # Work per pass: entries that are stored, times the numbers that are predicted per row.
            entries = X.matrix.nnz if isinstance(X, SparseRows) else X.size
            entries *= problem._outputs
            # joblib's count respects processor affinity and the limits of containers; `os.cpu_count` does
            # not.
            workers = max(1, min(cpu_count(), entries // _ENTRIES_PER_THREAD))
        # One worker needs no thread of its own: a simulated cluster of one computes the same in this thread.
        return Threads(workers) if workers > 1 else Simulator(Cluster(1))
