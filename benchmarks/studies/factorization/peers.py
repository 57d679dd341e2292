"""One fit of cmfrec or LIBMF, run by an interpreter that has them: `python peers.py JOB`.

JOB holds a JSON object {data, peer, rank, threads, passes, settings, target, cpu}; data names an .npz of
users, items, values.  For each of the settings, passes are tried in order until one is good enough;
printed is {seconds, rmse, passes, setting} of the fastest fit that is good enough, or of the best that is
not.  The evaluation is not timed.  This file must not import asyncqn.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def cmfrec(columns: Any, rank: int, threads: int, passes: int, _: Any) -> tuple[Any, Any]:
    from cmfrec import CMF
    from scipy.sparse import coo_matrix

    users, items, values = columns
    model = CMF(
        k=rank,
        lambda_=1.0,
        method="als",
        use_cg=False,
        niter=passes,
        nthreads=threads,
        user_bias=False,
        item_bias=False,
        center=False,
        use_float=True,
        verbose=False,
        precompute_for_predictions=False,
    )
    model.fit(coo_matrix((values, (users, items))))
    return model.A_, model.B_


def libmf(columns: Any, rank: int, threads: int, passes: int, setting: Any) -> tuple[Any, Any]:
    from libmf import mf

    users, items, values = columns
    ridge, rate = setting  # its ridge counts once per rating
    engine = mf.MF(
        k=rank,
        lambda_p2=ridge,
        lambda_q2=ridge,
        eta=rate,
        nr_iters=passes,
        nr_threads=threads,
        quiet=True,
        copy_data=False,
    )
    engine.fit(np.column_stack([users, items, values]))
    return np.asarray(engine.p_factors()), np.asarray(engine.q_factors())


def main() -> None:
    job = json.loads(sys.argv[1])
    with np.load(job["data"], allow_pickle=False) as data:
        columns = data["users"], data["items"], data["values"]
    users, items, values = columns
    fit = {"cmfrec": cmfrec, "LIBMF": libmf}[job["peer"]]
    clock = time.process_time if job["cpu"] else time.perf_counter
    fit(tuple(column[:1000] for column in columns), job["rank"], job["threads"], 1, job["settings"][0])
    found = []
    for setting in job["settings"]:
        for passes in job["passes"]:
            start = clock()
            A, B = fit(columns, job["rank"], job["threads"], passes, setting)
            seconds = clock() - start
            errors = np.einsum("nk,nk->n", A[users], B[items]) - values
            rmse = float(np.sqrt(np.mean(np.square(errors, dtype=np.float64))))
            found.append({"seconds": seconds, "rmse": rmse, "passes": passes, "setting": setting})
            if rmse <= job["target"]:
                break
    good = [one for one in found if one["rmse"] <= job["target"]]
    best = min(good, key=lambda one: one["seconds"]) if good else min(found, key=lambda one: one["rmse"])
    print(json.dumps(best))


if __name__ == "__main__":
    main()
