"""Figure 2: time to epsilon against sigma_w^2 at W = 40, over all that the paper leaves open."""

from __future__ import annotations

from typing import NamedTuple

from asyncqn_paper.consistency import candidates
from asyncqn_paper.controls import without_pairs
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures.fig2_after import STAYING_AT, long_runs
from asyncqn_paper.figures.fig2_cases import CASES, TUNED_CASES, study_name
from asyncqn_paper.figures.fig2_drawing import draw
from asyncqn_paper.figures.fig2_headline import headline
from asyncqn_paper.figures.fig2_outcomes import outcomes
from asyncqn_paper.figures.times import measure_staying, run_labelled, run_named
from asyncqn_paper.settings import NAMES

LIMIT = 9000.0


class Size(NamedTuple):
    """How often each point is measured, and where; how often without pairs."""

    repetitions: int
    variances: tuple[float, ...]
    controls: int


QUICK = Size(6, (1.0, 200.0, 900.0), 3)
FULL = Size(60, (1.0, 25.0, 50.0, 100.0, 200.0, 400.0, 600.0, 900.0), 12)
FOLLOWED = 4
"""Of the runs of a point, those that are looked at after they have arrived."""


def compute(context: Context) -> Tables:
    """Tables `times`, `controls` (M = 0), `staying` (with both), `after`,
    `candidates` (the rule) and `parameters`."""
    size = FULL if context.full else QUICK
    seeds = range(context.seed, context.seed + size.repetitions)
    cases = dict(CASES)
    origin = {("base", kind): "the paper's table and the settings" for kind in NAMES}
    for name, case in TUNED_CASES.items():
        studies = {kind: context.tuned(study_name(kind, case.problem, case.serial)) for kind in NAMES}
        cases[name] = case._replace(parameters={k: s["best"]["parameters"] for k, s in studies.items()})
        origin |= {(name, kind): study["command"] for kind, study in studies.items()}
    used = [
        {"setting": name, "algorithm": kind, "found by": how, "parameters": str(cases[name].parameters[kind])}
        for (name, kind), how in origin.items()
    ]
    times, controls, staying = [], [], []
    for name, case in cases.items():
        plain = without_pairs(case.parameters["as-lbfgs"])
        for kind, own, pairs in [*((k, case.parameters[k], True) for k in NAMES), ("as-lbfgs", plain, False)]:
            some = seeds if pairs else seeds[: size.controls]
            jobs = [(name, job) for job in case.jobs(kind, own, size.variances, some, LIMIT)]
            times += jobs if pairs else []
            controls += [] if pairs else jobs
            labels = {"setting": name, "control": not pairs}
            followed = case.jobs(kind, own, [STAYING_AT], seeds[:FOLLOWED], LIMIT)
            staying += [(labels, job) for job in followed]
    return {
        "times": run_named(context, "Fig. 2, three algorithms", times),
        "controls": run_named(context, "Fig. 2, as-L-BFGS without pairs", controls),
        "staying": run_labelled(context, "Fig. 2, what comes after ε", staying, measure_staying),
        "after": long_runs(context),
        "candidates": candidates(),
        "parameters": used,
    }


EXPERIMENT = Experiment(
    "fig2",
    "Time to ε against the spread of the workers' speed",
    "Simulated time until (U − U*)/U* ≤ ε at W = 40; lines are means, shades 10 to 90 % of the runs. "
    "Problems were chosen by a rule that looks at no time (src/asyncqn_paper/consistency.py).",
    compute,
    draw,
    outcomes,
    quick="6 repetitions at 3 values of σ_w²",
    full="60 repetitions at 8 values of σ_w²",
    minutes=(2.0, 31.0),
    headline=headline,
)
