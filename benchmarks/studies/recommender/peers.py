"""Other recommenders on a split written by quality.py; run by an interpreter that has them.

    PYTHON peers.py SPLIT.npz SEED RANK...

Prints one JSON object per peer and rank.  Peers run with their own defaults, where not said otherwise.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Split = dict[str, np.ndarray]


def surprise_svd(split: Split, rank: int, seed: int) -> np.ndarray:
    import pandas
    from surprise import SVD, Dataset, Reader

    frame = pandas.DataFrame({name: split[f"train_{name}"] for name in ("users", "items", "values")})
    data = Dataset.load_from_df(frame, Reader(rating_scale=(1, 5))).build_full_trainset()
    model = SVD(n_factors=rank, random_state=seed).fit(data)
    pairs = zip(split["test_users"].tolist(), split["test_items"].tolist())
    return np.array([model.predict(user, item).est for user, item in pairs])


def cmfrec_als(split: Split, rank: int, seed: int) -> np.ndarray:
    """Explicit-feedback ALS with biases and a ridge per rating; lambda is our one guess, not tuned."""
    import pandas
    from cmfrec import CMF

    frame = pandas.DataFrame(
        {
            "UserId": split["train_users"],
            "ItemId": split["train_items"],
            "Rating": split["train_values"],
        }
    )
    model = CMF(
        k=rank, lambda_=0.05, scale_lam=True, use_float=True, nthreads=2, random_state=seed, verbose=False
    )
    model.fit(frame)
    return np.clip(model.predict(split["test_users"], split["test_items"]), 1.0, 5.0)


def lenskit_als(split: Split, rank: int, seed: int) -> np.ndarray:
    """Its defaults; one thread, so that processor time compares."""
    import pandas
    import torch
    from lenskit.als import BiasedMFScorer
    from lenskit.data import ItemList, RecQuery, from_interactions_df
    from lenskit.training import TrainingOptions

    torch.set_num_threads(1)
    columns = {"user_id": "users", "item_id": "items", "rating": "values"}
    data = from_interactions_df(pandas.DataFrame({k: split[f"train_{v}"] for k, v in columns.items()}))
    model = BiasedMFScorer(embedding_size=rank)
    begun = time.process_time()
    model.train(data, TrainingOptions(rng=seed))
    print(f"lenskit, rank {rank}: fit in {time.process_time() - begun:.2f} processor s", file=sys.stderr)
    predicted = np.full(len(split["test_users"]), split["train_values"].mean(), np.float64)
    order = np.argsort(split["test_users"], kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(split["test_users"][order])) + 1):
        items = ItemList(item_ids=split["test_items"][rows])
        scores = model(RecQuery(user_id=split["test_users"][rows[0]]), items).scores()
        found = np.isfinite(scores)
        predicted[rows[found]] = scores[found]
    return np.clip(predicted, 1.0, 5.0)


PEERS: dict[str, Callable[[Split, int, int], np.ndarray]] = {
    "scikit-surprise SVD": surprise_svd,
    "cmfrec CMF (ALS)": cmfrec_als,
    "lenskit BiasedMF (ALS)": lenskit_als,
}


def main(file: str, seed: int, ranks: list[int]) -> None:
    with np.load(file, allow_pickle=False) as stored:
        split = {name: stored[name] for name in stored.files}
    for rank in ranks:
        for name, peer in PEERS.items():
            begun = time.perf_counter()
            try:
                predicted = peer(split, rank, seed)
            except ImportError as error:
                print(f"{name} is not installed: {error}", file=sys.stderr)
                continue
            found: dict[str, Any] = {
                "what": name,
                "rank": rank,
                "test_rmse": round(float(np.sqrt(np.mean((predicted - split["test_values"]) ** 2))), 4),
                "seconds": round(time.perf_counter() - begun, 1),
            }
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), [int(rank) for rank in sys.argv[3:]])
