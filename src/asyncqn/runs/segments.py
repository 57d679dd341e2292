"""Segments: the parts of a run that was resumed with another algorithm, problem or wire format.

A new segment takes over theta and the rest of the master's state, every worker's state, number and count of
steps, and the metric table.  The two algorithms must therefore be of one kind, with states of equal shapes,
and the problems must have equal `dim`, `n_data` and dtype; `check_change` tests this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncqn.algorithms import algorithm_to_json
from asyncqn.errors import BadInput, require
from asyncqn.runs.checkpoint import Arrays, Saved, with_prefix
from asyncqn.runs.data_digest import data_digest, is_reliable
from asyncqn.table import Table
from asyncqn.types import Algorithm, Array, Problem, extra

Entry = dict[str, Any]


def segments_after(
    start: Saved, now: Mapping[str, Any], from_commit: int, from_row: int | None
) -> list[Entry]:
    """Return the segments of a run that continues from `start` with the manifest `now`; [] if unchanged."""
    before = start.document["manifest"]
    # A run without changes stores no segments; its whole past is the first one.
    segments: list[Entry] = list(before.get("segments") or [_entry(before, 0, 0, 0)])
    data = segments[-1]["data"] + bool(start.document.get("other data"))
    new = _entry(now, from_commit, from_row, data)
    if any(
        new[part] != segments[-1][part]
        for part in ("problem", "algorithm", "wire", "data")
    ):
        segments.append(new)
    # A manifest without segments is one that older versions can read.
    return segments if len(segments) > 1 else []


def _entry(
    manifest: Mapping[str, Any], from_commit: int, from_row: int | None, data: int
) -> Entry:
    """Return a segment; `data` counts how often the same description came with other data."""
    return {
        "from_commit": from_commit,
        "from_row": from_row,
        "problem": manifest["problem"],
        "algorithm": manifest["algorithm"],
        "wire": manifest["engine"].get("wire") or "exact",
        "data": data,
    }


def differences(
    saved: Saved, problem: Entry, algorithm: Entry, theta0: Array, given: Problem | None
) -> list[str]:
    """Return sentences about how the checkpoint's inputs differ from those it shall continue with.

    For a problem that the user passed, U at the start is compared, up to the rounding of other processors.
    """
    manifest = saved.document["manifest"]
    found = [
        f"the problem's {name} was {manifest['problem'].get(name)!r}, not {problem[name]!r}"
        for name in ("name", "dim", "n_data", "reference")
        if manifest["problem"].get(name) != problem[name]
    ]
    old, new = manifest["algorithm"], algorithm
    # Parameters of another kind of algorithm have other names, so comparing them would only add noise.
    if old["kind"] != new["kind"]:
        found.append(f"the algorithm was {old['kind']}, not {new['kind']}")
    else:
        a, b = old["parameters"] or {}, new["parameters"] or {}
        found += [
            f"the algorithm's {name} was {a.get(name)!r}, not {b.get(name)!r}"
            for name in {**a, **b}
            if a.get(name) != b.get(name)
        ]
    # The digest of a user's class may depend on scratch arrays, so only our own are compared.
    recorded = manifest.get("data")
    if (
        given is not None
        and not found
        and recorded
        and is_reliable(given)
        and data_digest(given) != recorded
    ):
        saved.document["other data"] = True
        found.append("the problem holds other data")
    start = value_at_start(Table(with_prefix("metrics.", saved.arrays)))
    # U at the start is computed last and only if nothing else differs: it costs a pass over the data.
    if given is not None and not found and start is not None:
        value = float(given.value(theta0))
        # Another processor sums in another order; real changes of the data are far larger.
        rounding = 1e-9 if theta0.dtype == np.float64 else 1e-4
        if not math.isclose(value, start, rel_tol=rounding, abs_tol=1e-12):
            saved.document["other data"] = True
            found.append(f"U at the start was {start:.12g}, not {value:.12g}")
    return found


def value_at_start(metrics: Table) -> float | None:
    """Return U at theta0, or None if the run did not evaluate it."""
    known = (
        metrics.rows > 0
        and {"commit", "fun"} <= set(metrics)
        and metrics["commit"][0] == 0
    )
    return float(metrics["fun"][0]) if known else None


def check_change(
    saved: Saved, problem: Problem, algorithm: Algorithm, old: Algorithm | None
) -> None:
    """Raise `BadInput` for a change that would give the stored states another meaning."""
    manifest, theta0 = saved.document["manifest"], saved.arrays["theta0"]
    require(
        int(problem.n_data) == manifest["problem"]["n_data"],
        f"a run cannot continue with a problem of n_data = {problem.n_data} instead of "
        f"{manifest['problem']['n_data']}: its workers remember rows by their numbers.",
    )
    said = extra(problem, "dtype")
    dtype = theta0.dtype if said is None else np.dtype(said)
    require(
        dtype == theta0.dtype,
        f"a run in {theta0.dtype} cannot continue with a problem in {dtype}.",
    )
    # An algorithm that cannot be rebuilt from the checkpoint is known by its name alone.
    if old is None:
        same = algorithm_to_json(algorithm)["kind"] == manifest["algorithm"]["kind"]
    else:
        same = type(algorithm) is type(old) and algorithm.stages == old.stages
    require(
        same,
        "a run can continue only with an algorithm of the same kind and the same stages, because its stored "
        "states mean nothing to another one.",
    )
    # Shapes are compared with those of a fresh state, because kernels rely on them.
    local = algorithm.init_worker(problem, theta0)
    misfit = _misfit("iterate", algorithm.init(theta0), saved.arrays)
    for worker in saved.document["workers"]:
        misfit = misfit or _misfit(f"worker.{worker}", local, saved.arrays)
    if misfit:
        raise BadInput(
            f"a run cannot continue with parameters that resize its states ({misfit})."
        )


def _misfit(name: str, template: Any, arrays: Arrays) -> str:
    """Return a phrase about the first stored array that differs in shape or dtype, or an empty string."""
    if isinstance(template, tuple):
        found = (
            _misfit(f"{name}.{i}", child, arrays) for i, child in enumerate(template)
        )
        return next((words for words in found if words), "")
    if isinstance(template, np.ndarray) and name in arrays:
        stored = arrays[name]
        if (stored.shape, stored.dtype) != (template.shape, template.dtype):
            return f"{stored.dtype}{list(stored.shape)} became {template.dtype}{list(template.shape)}"
    return ""
