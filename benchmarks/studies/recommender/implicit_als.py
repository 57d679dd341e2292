"""implicit's ALS on clicks written by clicks.py; run by an interpreter that has it.

    PYTHON implicit_als.py CLICKS.npz RANK ALPHA RIDGE FOLDER

Prints a JSON object after some of 15 iterations, with the processor seconds used so far, and writes the lists
of ten of all users to FOLDER/listsI.npy.  One thread; lists are not timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np
import scipy.sparse

ITERATIONS = 15
TOLD = (2, 3, 5, 8, 10, 12, 15)


def main(file: str, rank: str, alpha: str, ridge: str, folder: str) -> None:
    from implicit.als import AlternatingLeastSquares

    with np.load(file, allow_pickle=False) as stored:
        users, items, shape = (stored[name] for name in ("users", "items", "shape"))
    ones = np.ones(len(users), np.float32)
    clicks = scipy.sparse.csr_matrix((ones, (users, items)), shape=tuple(shape))
    model: Any = AlternatingLeastSquares(
        factors=int(rank), alpha=float(alpha), regularization=float(ridge), iterations=ITERATIONS,
        num_threads=1, random_state=0, use_gpu=False,
    )  # fmt: skip
    used, begun = 0.0, time.process_time()

    def after(iteration: int, *_: Any) -> None:
        nonlocal used, begun
        used += time.process_time() - begun
        if iteration + 1 not in TOLD:
            begun = time.process_time()
            return
        lists, _scores = model.recommend(np.arange(shape[0]), clicks, N=10)
        np.save(Path(folder) / f"lists{iteration + 1}.npy", lists)
        print(json.dumps({"iterations": iteration + 1, "processor_seconds": round(used, 2)}), flush=True)
        begun = time.process_time()

    model.fit(clicks, show_progress=False, callback=after)


if __name__ == "__main__":
    main(*sys.argv[1:])
