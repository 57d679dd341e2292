"""Recommender: matrix factorization of ratings or clicks with scikit-learn's conventions, on worker threads.

The item rows minimise the profiled problem V (users eliminated exactly) with the ridge lambda + alpha n_row;
see `problems`.  `model` defines predictions, also for unknown users and items.  The defaults come from the
experiment in docs/results/factorization.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from asyncqn.errors import BadInput, NotFitted, require
from asyncqn.parameters import (
    Precision,
    Seed,
    Workers,
    checked,
    parameter,
    parameters_of,
)
from asyncqn.types import Array, Progress, Table
from asyncqn_recommender.data import Ratings, as_ratings
from asyncqn_recommender.feedback import FEEDBACKS, LIST
from asyncqn_recommender.files import SavedModel, load_model, save_model
from asyncqn_recommender.learning import learn, matched
from asyncqn_recommender.metrics import rank_quality
from asyncqn_recommender.model import FactorModel, Recommendation
from asyncqn_recommender.problems.parameters import (
    Alpha,
    Confidence,
    ListLength,
    Policy,
    Rank,
    Ridge,
)
from asyncqn_recommender.ranking import tables
from asyncqn_recommender.updating import fold_in, partial_fit

Self = TypeVar("Self", bound="Recommender")


@dataclass(eq=False, repr=False)
class Recommender:
    """Predict ratings and recommend items, by matrix factorization.

    Parameters
    ----------
    rank : int, default 10
        K: number of factors of a user or an item.
    feedback : "explicit" or "implicit", default "explicit"
        "explicit" for ratings; "implicit" for clicks, where a missing pair is weak evidence against the
        item.
    workers : int, default 2
        Number of threads; it changes no bit of the model.
    seed : int, default 0
        Seed of the start, the shuffling and the validation split.
    prior : float, optional
        Constant part of the ridge of a row, prior + alpha * (number of its ratings); by default 3, and for
        clicks a value that depends on their number.
    alpha : float, optional
        Part of the ridge that is proportional to the number of ratings of a row; by default 0.035. Clicks
        have none.
    confidence : float, default 1.5
        A click of strength r counts 1 + confidence * r.
    plain_columns : int or None, default 5
        Columns with the plain ridge; the items' ridge of column k is larger by a power of max(1, k /
        plain_columns). None: all columns have the plain ridge.
    trust : float, default 5.0
        Number of ratings at which factors and baseline count equally in a prediction.
    clip : bool, default True
        Whether predictions are kept within the range of the ratings seen.
    passes : int, default 15
        Largest number of passes over the ratings.
    tol : float, optional
        The fit ends when `patience` successive passes improve the loss sqrt(2 U / n) by
        less than `tol`; by default 1e-4, for clicks 3e-5.
    early_stopping : bool, default False
        Whether a held-out share of the ratings ends the fit instead, by its RMSE, or by the NDCG at 10 of
        clicks; the best iterate is kept.
    validation_fraction : float, default 0.1
        Share of the ratings that is held out for `early_stopping`.
    patience : int, default 2
        Number of successive passes without a gain that end the fit.
    warm_start : bool, default False
        Whether `fit` continues from the item factors of the last fit.
    dtype : dtype, default "float32"
        Type of the factors, float32 or float64.
    verbose : bool, default False
        Whether to print the loss while fitting.

    Attributes
    ----------
    item_factors_ : ndarray of shape (n_items, rank)
        Factors of the items, one row per id.
    user_factors_ : ndarray of shape (n_users, rank)
        Factors of the users, one row per id.
    item_ids_ : ndarray
        Ids of the items, in the order of the rows.
    user_ids_ : ndarray
        Ids of the users, in the order of the rows.
    mean_ : float
        Mean rating.
    n_iter_ : int
        Number of commits.
    history_ : Table
        One row per pass: commit, passes, time, fun, loss = sqrt(2 fun / n), the RMSE with its penalty, and
        others.
    status_ : Outcome
        How the fit ended.
    fun_ : float
        U at the end.
    seconds_ : float
        Duration of the fit in seconds.

    Examples
    --------
    >>> from asyncqn_recommender import Recommender, synthetic_ratings
    >>> train, test = synthetic_ratings(300, 200, 12_000, seed=1).split(0.1, seed=0)
    >>> model = Recommender(rank=5, seed=0).fit(train)
    >>> model.rmse(test) < 1.1
    True
    >>> len(model.recommend(train.user_ids[0], n=3))
    3
    """

    rank: Rank = 10
    _: KW_ONLY
    feedback: Literal["explicit", "implicit"] = "explicit"
    workers: Workers = 2
    seed: Seed = 0
    prior: Ridge | None = None
    alpha: Alpha | None = None
    confidence: Confidence = 1.5
    plain_columns: Annotated[int | None, parameter(ge=1)] = 5
    trust: Annotated[float, parameter(ge=0.0)] = 5.0
    clip: bool = True
    passes: Annotated[int, parameter(ge=1)] = 15
    tol: Annotated[float | None, parameter(ge=0.0)] = None
    early_stopping: bool = False
    validation_fraction: Annotated[float, parameter(gt=0.0, lt=1.0)] = 0.1
    patience: Annotated[int, parameter(ge=1)] = 2
    warm_start: bool = False
    dtype: Precision = "float32"
    verbose: bool = False

    # -- parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self: Self, **parameters: Any) -> Self:
        """Set parameters by name."""
        known = self.get_params()
        for name, value in parameters.items():
            require(
                name in known,
                f"Recommender has no parameter {name!r}; it has {', '.join(known)}.",
            )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        values = self.get_params()
        default = {field.name: field.default for field in fields(self)} | {"rank": None}
        own = (f"{k}={v!r}" for k, v in values.items() if v != default[k])
        return f"Recommender({', '.join(own)})"

    def __sklearn_tags__(self) -> Any:
        """Return the tags that scikit-learn reads before cross-validation."""
        # Only scikit-learn calls this method, so that it is installed.
        from sklearn.utils import RegressorTags, Tags, TargetTags

        targets = TargetTags(required=False)
        return Tags("regressor", targets, regressor_tags=RegressorTags())

    def check(self) -> None:
        """Raise `BadInput` for an invalid parameter; `fit` calls it."""
        # Here and not in __init__, as in scikit-learn.
        for name, about in parameters_of(Recommender).items():
            about.checked(name, getattr(self, name))
        FEEDBACKS[self.feedback].check(self)

    # -- learning

    @checked
    def fit(
        self: Self,
        ratings: Any,
        y: Any = None,
        *,
        validation: Any = None,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        duplicates: Policy = None,
        callback: Callable[[Progress], Any] | None = None,
    ) -> Self:
        """Learn from ratings in any form that `as_ratings` takes, or from pairs and ratings `y`.

        Parameters
        ----------
        ratings : any form that `as_ratings` takes, or array of shape (n, 2)
            The ratings, or pairs of user and item.
        y : array-like of shape (n,), optional
            The ratings of the pairs.
        validation : any form that `as_ratings` takes, optional
            Ratings whose RMSE (clicks: NDCG at 10) is watched instead of a held-out share; it ends the fit
            where `early_stopping` is set.
        user, item, rating : str, optional
            Names of columns of a data frame or a file; by default columns with common names are chosen.
            Other methods use the same names for frames that have these columns.
        duplicates : "error", "last", "first", "mean" or "sum", optional
            How several ratings of one item by one user are resolved; clicks add up by default.
        callback : callable, optional
            Called with a `Progress` after every evaluation; it may raise StopIteration to end the fit.

        Returns
        -------
        Recommender
            The estimator itself.
        """
        self.check()
        begun = time.perf_counter()
        # Stored, so that `rmse(frame)` reads a frame as `fit` did.
        given = {"user": user, "item": item, "rating": rating}
        self.columns_ = {role: name for role, name in given.items() if name is not None}
        train = self._read(ratings, y, self.columns_, duplicates)
        held = None
        if validation is not None:
            # In the tables of `train`: ratings of unknown users and items cannot be predicted by factors.
            held = matched(self._table(validation), train)
        elif self.early_stopping:
            train, held = train.split(self.validation_fraction, self.seed)
        old = getattr(self, "model_", None) if self.warm_start else None
        learned = learn(self, train, held, old, callback)
        self.model_ = learned.model
        self.history_ = learned.history
        self.n_iter_ = learned.commits
        self.status_ = learned.status
        self.fun_ = learned.fun
        self.seconds_ = time.perf_counter() - begun
        return self

    @property
    def _of_clicks(self) -> bool:
        return self.feedback == "implicit"

    def _table(self, ratings: Any, y: Any = None) -> Ratings:
        """Return ratings of any form; a frame that has the columns given to `fit` is read by them."""
        names = getattr(self, "columns_", {})
        # pandas and polars have `columns`; pyarrow has `column_names`, and columns of another kind.
        columns = getattr(ratings, "column_names", getattr(ratings, "columns", ()))
        known = y is None and set(names.values()) <= set(columns)
        return self._read(ratings, y, names if known else {}, None)

    def _read(
        self, ratings: Any, y: Any, names: dict[str, str], duplicates: str | None
    ) -> Ratings:
        clicks = self._of_clicks
        if y is not None:
            # scikit-learn's cross-validation passes X as pairs and y as ratings.
            ratings = (*_pairs(ratings), y)
        elif clicks and isinstance(ratings, np.ndarray):
            ratings = _pairs(ratings)
        table = as_ratings(ratings, duplicates=duplicates, clicks=clicks, **names)
        require(len(table) > 0, "there are no ratings: give at least one.")
        return table

    # -- the learned model

    def _learned(self) -> FactorModel:
        if not hasattr(self, "model_"):
            raise _not_fitted("this Recommender is not fitted: call fit first.")
        return self.model_

    @property
    def item_factors_(self) -> Array:
        return self._learned().item_factors

    @property
    def user_factors_(self) -> Array:
        return self._learned().user_factors

    @property
    def item_ids_(self) -> npt.NDArray[Any]:
        return self._learned().item_ids

    @property
    def user_ids_(self) -> npt.NDArray[Any]:
        return self._learned().user_ids

    @property
    def mean_(self) -> float:
        return self._learned().offsets.mean

    def predict(self, users: Any, items: Any = None) -> npt.NDArray[np.float64]:
        """Predict ratings for users and items of one shape (one may be a scalar), or for n x 2 pairs.

        Unknown ids are allowed; see `model` for their predictions.
        """
        model = self._learned()
        if items is None:
            users, items = _pairs(users)
        u = model.user_index(users)
        m = model.item_index(items)
        try:
            # One user with many items, or the other way round.
            u, m = np.broadcast_arrays(u, m)
        except ValueError:
            raise BadInput(
                f"users and items differ in shape: {u.shape} and {m.shape}."
            ) from None
        return model.predict(u.ravel(), m.ravel()).reshape(u.shape)

    def rmse(self, ratings: Any, y: Any = None) -> float:
        """Return the root mean square error of the predictions of these ratings."""
        require(
            not self._of_clicks,
            "a model of clicks predicts no ratings: judge its lists with evaluate.",
        )
        return self.evaluate(ratings, y)["rmse"]

    def score(self, ratings: Any, y: Any = None) -> float:
        """Return minus the RMSE, or the NDCG at 10 of clicks: scikit-learn regards a higher score as
        better."""
        if self._of_clicks:
            return self.evaluate(ratings, y)["ndcg"]
        return -self.rmse(ratings, y)

    @checked
    def evaluate(
        self,
        ratings: Any,
        y: Any = None,
        *,
        k: Annotated[int | None, parameter(ge=1)] = None,
        threshold: Annotated[float | None, parameter()] = None,
    ) -> dict[str, float]:
        """Return `rmse`, `mae` and `n`, the number of ratings; with `k`, the quality of lists as well.

        `precision`, `recall`, `ndcg`, `map`, `hit_rate` and `coverage` refer to the k best items of each of
        `users` users; `metrics` defines them.  All items of `ratings` are relevant, or those rated at least
        `threshold`.  A model of clicks has only lists, of 10 items without a k.
        """
        model = self._learned()
        test = self._table(ratings, y)
        require(
            k is not None or threshold is None or self._of_clicks,
            "threshold needs lists: give their length as k.",
        )
        numbers: dict[str, float] = {"n": len(test)}
        if not self._of_clicks:
            numbers |= model.measure(test)
        length = LIST if k is None and self._of_clicks else k
        if length is None:
            return numbers
        return numbers | rank_quality(model, test, length, threshold, self.workers)

    @checked
    def recommend(
        self, user: Any, n: ListLength = 10, *, exclude_seen: bool = True
    ) -> list[Recommendation]:
        """Return the n best items for a user; scores are not clipped, so that they still distinguish items.

        A user without ratings in the model receives the items with the highest baseline: the damped mean of
        their ratings, or the share of users who clicked them.  `basis` of each recommendation says which.
        """
        return self._learned().recommend(user, n, exclude_seen)

    @checked
    def recommend_many(
        self,
        users: Any = None,
        n: ListLength = 20,
        *,
        exclude_seen: bool = True,
        progress: Callable[[int], Any] | None = None,
    ) -> Table:
        """Return a table user, rank, item, score, basis with the n best items of each user in a list, or of
        all.

        Each user gets the same list as from `recommend`.  `progress` is called with the number of users done.
        """
        parts = []
        done = 0
        chunks = tables(self._learned(), users, n, exclude_seen, self.workers)
        for count, part in chunks:
            parts.append(part)
            done += count
            if progress is not None:
                progress(done)
        names = list(parts[0])
        return Table(
            {name: np.concatenate([part[name] for part in parts]) for name in names}
        )

    @checked
    def similar(self, item: Any, n: ListLength = 10) -> list[Recommendation]:
        """Return the n items whose predicted ratings correlate best with those of `item` over the users."""
        return self._learned().similar(item, n)

    def fold_in(self, ratings: Any, y: Any = None) -> Recommender:
        """Return a copy that includes these ratings of its users: user rows are solved, item rows stay.

        Known users keep their ratings except those given again; ratings of unknown items affect only the
        user's mean.  Clicks of a pair add up, and those of unknown items are ignored.
        """
        # A shallow copy shares the item factors, which do not change.
        other = copy(self)
        other.model_ = fold_in(self._learned(), self._table(ratings, y))
        return other

    @checked
    def partial_fit(
        self: Self,
        ratings: Any,
        y: Any = None,
        *,
        rounds: Annotated[int, parameter(ge=1)] = 2,
    ) -> Self:
        """Learn from further ratings, also of new users and items, without fitting the rest again.

        Rows of users and items with new ratings are solved exactly, in turn, `rounds` times; see `updating`.
        A new rating of a known pair replaces the old one; clicks add up.  Without a model, this is `fit`.
        """
        if not hasattr(self, "model_"):
            return self.fit(ratings, y)
        self.model_ = partial_fit(self.model_, self._table(ratings, y), rounds)
        return self

    def save(self, path: str | Path) -> Path:
        """Write the model to the folder `path`, completely or not at all; an older model there is
        replaced."""
        facts = {name: getattr(self, name) for name in _FACTS if hasattr(self, name)}
        model = self._learned()
        return save_model(
            path, SavedModel(model, self.history_, self.get_params(), facts)
        )

    @classmethod
    def load(cls, path: str | Path) -> Recommender:
        """Load a saved model, after checks; nothing in the folder is executed."""
        model, history, parameters, facts = load_model(path)
        loaded = cls(**parameters)
        loaded.model_ = model
        loaded.history_ = history
        for name in _FACTS:
            setattr(loaded, name, facts.get(name))
        return loaded


def _pairs(table: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return users and items of an n x 2 array."""
    table = np.asarray(table)
    require(
        table.ndim == 2 and table.shape[1] == 2,
        f"pairs must be an n x 2 array of users and items, not of shape {table.shape}.",
    )
    return table[:, 0], table[:, 1]


def _not_fitted(sentence: str) -> NotFitted:
    """Return an error that is also scikit-learn's NotFittedError, if scikit-learn is in use."""
    # Looked up, not imported: scikit-learn is optional, and its tools catch only its own error.
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return NotFitted(sentence)
    both: type[NotFitted] = type(
        "NotFitted", (NotFitted, exceptions.NotFittedError), {}
    )
    return both(sentence)


_FACTS = ("n_iter_", "status_", "fun_", "seconds_")
