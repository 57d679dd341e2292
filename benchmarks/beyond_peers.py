"""One fit of cmfrec or LIBMF, run by an interpreter that has them: `python beyond_peers.py JOB`.

JOB holds a JSON object {data, peer, rank, threads, passes, target, cpu}; data names an .npz of users,
items, values.  Passes are tried in order; printed is {seconds, rmse, passes} of the first that is
good enough, or of the last.  The evaluation is not timed.  This file must not import asyncqn.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def cmfrec(columns: Any, rank: int, threads: int, passes: int) -> tuple[Any, Any]:
    from cmfrec import CMF
    from scipy.sparse import coo_matrix

    users, items, values = columns
    model = CMF(
        k=rank, lambda_=1.0, method="als", use_cg=False, niter=passes, nthreads=threads, user_bias=False,
        item_bias=False, center=False, use_float=True, verbose=False, precompute_for_predictions=False,
    )  # fmt: skip
    model.fit(coo_matrix((values, (users, items))))
    return model.A_, model.B_


def libmf(columns: Any, rank: int, threads: int, passes: int) -> tuple[Any, Any]:
    from libmf import mf

    users, items, values = columns
    # Its ridge counts once per rating: 0.01 is near 1 / (mean ratings of a row) on both sides.
    engine = mf.MF(
        k=rank, lambda_p2=0.01, lambda_q2=0.01, eta=0.1, nr_iters=passes, nr_threads=threads, quiet=True,
        copy_data=False,
    )  # fmt: skip
    engine.fit(np.column_stack([users, items, values]))
    return np.asarray(engine.p_factors()), np.asarray(engine.q_factors())


def main() -> None:
    job = json.loads(sys.argv[1])
    with np.load(job["data"], allow_pickle=False) as data:
        columns = data["users"], data["items"], data["values"]
    users, items, values = columns
    fit = {"cmfrec": cmfrec, "LIBMF": libmf}[job["peer"]]
    fit(tuple(column[:1000] for column in columns), job["rank"], job["threads"], 1)
    for passes in job["passes"]:
        clock = time.process_time if job["cpu"] else time.perf_counter
        start = clock()
        A, B = fit(columns, job["rank"], job["threads"], passes)
        seconds = clock() - start
        errors = np.einsum("nk,nk->n", A[users], B[items]) - values
        rmse = float(np.sqrt(np.mean(np.square(errors, dtype=np.float64))))
        if rmse <= job["target"]:
            break
    print(json.dumps({"seconds": seconds, "rmse": rmse, "passes": passes}))


if __name__ == "__main__":
    main()
