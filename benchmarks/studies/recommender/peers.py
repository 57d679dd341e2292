"""Other recommenders on a split written by table.py; run by an interpreter that has them.

    PYTHON peers.py SPLIT.npz LISTS.npy LIBRARY RANK

Prints one JSON object; lists of ten of all users, as indices of items, go to LISTS.npy.  Libraries run with
their own defaults, where not said otherwise.  Times are those of the fastest of REPEATS fits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Split = dict[str, np.ndarray]
N, SEED, REPEATS = 10, 0, 3
SLOW = 2.0
"""Seconds beyond which lists are made once."""


class Fitted(NamedTuple):
    """Predictions of the test ratings, and lists of the users asked for; None where the library has none."""

    predicted: np.ndarray | None
    lists: Callable[[], np.ndarray] | None
    seconds: float


def timed(call: Callable[[], Any]) -> float:
    """Processor seconds of the fastest call."""
    taken = []
    for _ in range(REPEATS):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return min(taken)


def surprise_svd(split: Split, rank: int, seed: int) -> Fitted:
    import pandas
    from surprise import SVD, Dataset, Reader

    frame = pandas.DataFrame({name: split[f"train_{name}"] for name in ("users", "items", "values")})
    data = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
    model = SVD(n_factors=rank, random_state=seed)
    seconds = timed(lambda: model.fit(data))
    pairs = zip(split["test_users"].tolist(), split["test_items"].tolist())
    return Fitted(np.array([model.predict(user, item).est for user, item in pairs]), None, seconds)


def cmfrec_als(split: Split, rank: int, seed: int) -> Fitted:
    """Explicit-feedback ALS with biases and a ridge per rating; lambda is our one guess, not tuned."""
    import pandas
    from cmfrec import CMF

    names = {"UserId": "users", "ItemId": "items", "Rating": "values"}
    frame = pandas.DataFrame({name: split[f"train_{column}"] for name, column in names.items()})
    model = CMF(
        k=rank, lambda_=0.05, scale_lam=True, use_float=True, nthreads=1, random_state=seed, verbose=False
    )
    seconds = timed(lambda: model.fit(frame))
    predicted = np.clip(model.predict(split["test_users"], split["test_items"]), 1.0, 5.0)
    return Fitted(predicted, None, seconds)


def _lenskit(scorer: Any, split: Split, seed: int, rated: bool) -> Fitted:
    import pandas
    import torch
    from lenskit.data import ItemList, RecQuery, from_interactions_df
    from lenskit.training import TrainingOptions

    torch.set_num_threads(1)
    columns = {"user_id": "users", "item_id": "items"} | ({"rating": "values"} if rated else {})
    data = from_interactions_df(pandas.DataFrame({k: split[f"train_{v}"] for k, v in columns.items()}))
    seconds = timed(lambda: scorer.train(data, TrainingOptions(rng=seed)))
    predicted = None
    if rated:
        predicted = np.full(len(split["test_users"]), split["train_values"].mean(), np.float64)
        order = np.argsort(split["test_users"], kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(split["test_users"][order])) + 1):
            items = ItemList(item_ids=split["test_items"][rows])
            scores = scorer(RecQuery(user_id=split["test_users"][rows[0]]), items).scores()
            found = np.isfinite(scores)
            predicted[rows[found]] = scores[found]
        predicted = np.clip(predicted, 1.0, 5.0)

    def lists() -> np.ndarray:
        """Each user's unseen items, scored by the library, the ten best."""
        out = np.full((int(split["n_users"]), N), -1)
        known = np.unique(split["train_items"])
        for user, seen in _groups(split["train_users"], split["train_items"]):
            rest = np.setdiff1d(known, seen, assume_unique=True)
            scores = scorer(RecQuery(user_id=user), ItemList(item_ids=rest)).scores()
            best = np.argpartition(-scores, N)[:N]
            out[user] = rest[best[np.argsort(-scores[best])]]
        return out

    return Fitted(predicted, lists, seconds)


def _groups(users: np.ndarray, items: np.ndarray) -> Any:
    order = np.argsort(users, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(users[order])) + 1):
        yield int(users[rows[0]]), np.unique(items[rows])


def lenskit_biased(split: Split, rank: int, seed: int) -> Fitted:
    from lenskit.als import BiasedMFScorer

    return _lenskit(BiasedMFScorer(embedding_size=rank), split, seed, True)


def lenskit_implicit(split: Split, rank: int, seed: int) -> Fitted:
    from lenskit.als import ImplicitMFScorer

    return _lenskit(ImplicitMFScorer(embedding_size=rank), split, seed, False)


def implicit_als(split: Split, rank: int, seed: int) -> Fitted:
    """alpha and regularization are those that clicks.py chose for ranks 20 and 64."""
    import scipy.sparse
    from implicit.als import AlternatingLeastSquares

    shape = int(split["n_users"]), int(split["n_items"])
    entries = split["train_values"], (split["train_users"], split["train_items"])
    clicks = scipy.sparse.csr_matrix(entries, shape=shape)
    alpha, ridge = split["implicit"].tolist()
    models: list[Any] = []

    def fit() -> None:
        """Fit a new model each time, because `fit` would continue from an old one."""
        models[:] = [
            AlternatingLeastSquares(
                factors=rank, alpha=alpha, regularization=ridge, num_threads=1, random_state=seed,
                use_gpu=False,
            )
        ]  # fmt: skip
        models[0].fit(clicks, show_progress=False)

    seconds = timed(fit)
    return Fitted(None, lambda: models[0].recommend(np.arange(shape[0]), clicks, N=N)[0], seconds)


PEERS: dict[str, dict[str, Callable[[Split, int, int], Fitted]]] = {
    "ratings": {
        "lenskit BiasedMF": lenskit_biased,
        "cmfrec CMF": cmfrec_als,
        "scikit-surprise SVD": surprise_svd,
    },
    "clicks": {"implicit ALS": implicit_als, "lenskit ImplicitMF": lenskit_implicit},
}
"""By the kind of data, with the name of the distribution first."""


def record(split: Split, name: str, rank: int, file: str) -> dict[str, Any]:
    from importlib.metadata import version

    try:
        fitted = {**PEERS["ratings"], **PEERS["clicks"]}[name](split, rank, SEED)
    except ImportError as error:
        return {"missing": str(error)}
    found: dict[str, Any] = {"version": version(name.split()[0]), "fit_seconds": round(fitted.seconds, 3)}
    if fitted.predicted is not None:
        errors = fitted.predicted - split["test_values"]
        found["rmse"] = round(float(np.sqrt(np.mean(np.square(errors)))), 4)
    if fitted.lists is not None:
        begun = time.process_time()
        lists = fitted.lists()
        taken = time.process_time() - begun
        taken = taken if taken > SLOW else timed(fitted.lists)
        found["lists_per_second"] = round(len(lists) / taken)
        np.save(file, lists)
    return found


def main(file: str, lists: str, name: str, rank: str) -> None:
    with np.load(file, allow_pickle=False) as stored:
        split = {name: stored[name] for name in stored.files}
    print(json.dumps(record(split, name, int(rank), lists)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
