"""Figure 4: RMSE and gradient norm over time on MovieLens, W = 10, three algorithms.

The paper's parameters, from both starts; then, one at a time, what it leaves open: the cautious constant, H0,
whether messages keep the master's link; and tuned parameters.  All runs of a set last the same simulated
time.  The sets of the 10M and 20M shapes are synthetic, and no claim is judged on them: they are run with the
paper's parameters, and with those of a search on themselves where there is one (`--tuned FOLDER`).
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncqn import Run, Simulator
from asyncqn.lab import accepted_share, commits_within
from asyncqn.types import Progress, Request
from asyncqn_paper import settings
from asyncqn_paper.controls import without_pairs
from asyncqn_paper.experiment import Context, Experiment, Tables
from asyncqn_paper.figures import fig4_claims
from asyncqn_paper.figures.fig4_claims import BASE, CONTROL, LENGTHS, REAL, SETTINGS, TUNED, WORKERS
from asyncqn_paper.figures.fig4_drawing import draw
from asyncqn_paper.movielens import (
    PRINTED_TIMEOUT,
    STARTS,
    Timing,
    label,
    measure_timing,
    measured_cluster,
    model,
    parameters,
    slowed,
    source,
    start,
    with_timeout,
)
from asyncqn_paper.real_runs import RealRun, processors_in_use, run_real
from asyncqn_paper.records import Record, along, where
from asyncqn_paper.settings import NAMES, Given, algorithm
from asyncqn_paper.studies import carried

POINTS = 40
"""Rows of metrics along a curve, about."""
SETTLING = ("epsilon", "fixed")
"""Settings that are also run until mb-L-BFGS has settled: what bears on where it ends."""
NOTHING = 1e-9
"""c of H0 = c I where rho I shall act alone."""


@dataclass(frozen=True)
class TimingJob:
    """Measure an algorithm's steps on a set of ratings."""

    name: str
    size: str
    kind: str


@dataclass(frozen=True)
class Job:
    """One run for some simulated time, on the measured times."""

    setting: str
    start: str
    name: str
    kind: str
    parameters: Given
    timing: Timing
    link: bool
    steps: int
    """Steps of a-SGD in whose time the run ends, each lasting `step` seconds."""
    step: float
    seed: int

    @property
    def duration(self) -> float:
        return self.steps * self.step


@dataclass(frozen=True)
class RealJob:
    """All algorithms on W real workers, not slowed."""

    name: str
    workers: int
    commits: int
    start: str
    seeds: tuple[int, ...]


def timing(job: TimingJob) -> list[Record]:
    """Seconds per step, with the parameters they belong to."""
    given = parameters(job.size, model(job.name).n_data)[job.kind]
    seconds = measure_timing(job.name, job.kind, given)
    return [{"ratings": job.name, "size": job.size, "algorithm": job.kind, **seconds._asdict()}]


def measure(job: Job) -> list[Record]:
    """The metrics along one run."""
    problem, method = model(job.name), algorithm(job.kind, job.parameters)
    workers = measured_cluster(job.timing, WORKERS, kind=job.kind, link=job.link)

    def stop(progress: Progress) -> None:
        if progress.time > job.duration:
            raise StopIteration

    pace = _interval(job.timing, job.kind, job.link)
    request = Request(
        problem,
        method,
        theta0=start(problem, job.start, job.seed),
        seed=job.seed,
        callback=stop,
        commits=commits_within(method, workers, job.duration),
        evaluate=max(1, int(job.duration / pace / POINTS)),
    )
    shared = {"setting": job.setting, "start": job.start, "ratings": job.name, "algorithm": job.kind}
    return _records(Simulator(workers).minimize(request), {**shared, "steps": job.steps, "seed": job.seed})


def _interval(timing: Timing, kind: str, link: bool) -> float:
    """About the time from one commit to the next."""
    if kind == "mb-lbfgs":
        return timing.worker + timing.master + timing.message * (WORKERS if link else 1)
    return max(sum(timing) / WORKERS, timing.master, timing.message / 2.0 if link else 0.0)


def _records(run: Run, shared: Record) -> list[Record]:
    shared = {**shared, "diverged": run.status == "diverged", "pairs": accepted_share(run)}
    return [{**shared, **row} for row in along(run, "rmse", "grad_norm")]


def measure_real(job: RealJob) -> list[Record]:
    """The metrics along real runs of the three algorithms with the paper's parameters, and what else the
    machine was doing before them."""
    printed = parameters("1m", model(job.name).n_data)
    rounds = {"async-sgd": job.commits, "as-lbfgs": job.commits, "mb-lbfgs": job.commits // job.workers}
    jobs = [
        RealRun(
            *(job.name, kind, settings.given(printed[kind]), job.workers, rounds[kind], seed),
            evaluate=max(1, rounds[kind] // POINTS),
            start=job.start,
        )
        for kind in NAMES
        for seed in job.seeds
    ]
    load = processors_in_use()
    real = run_real(jobs)
    shared = {"setting": REAL, "start": job.start, "ratings": job.name, "workers": job.workers}
    shared |= {"engine": real.engine, "because": real.because, "load": load}
    return [
        row
        for asked, run in zip(jobs, real.runs, strict=True)
        for row in _records(run, {**shared, "algorithm": asked.kind, "seed": asked.seed})
    ]


def compute(context: Context) -> Tables:
    """Tables `timings`, `curves` (with the control M = 0), `real` and `parameters`."""
    sizes = ("1m", "10m", "20m") if context.full else ("1m",)
    names = {size: source(size) for size in sizes}
    alone = context.alone
    timings = alone.jobs(
        "Fig. 4, timings", timing, [TimingJob(names[s], s, kind) for s in sizes for kind in NAMES]
    )
    jobs, used = [], []
    for size in sizes:
        rows = where(timings, size=size)
        times = {r["algorithm"]: Timing(r["worker"], r["master"], r["message"]) for r in rows}
        own, words = _jobs(context, size, names[size], times)
        jobs += own
        used += words
    seeds = tuple(range(context.seed, context.seed + (5 if context.full else 2)))
    real = [RealJob(names["1m"], W, 800 if context.full else 300, "mean", seeds) for W in (1, 2)]
    return {
        "timings": timings,
        "curves": context.jobs("Fig. 4, runs", measure, jobs),
        "real": alone.jobs("Fig. 4, real runs", measure_real, real),
        "parameters": used,
    }


def _jobs(context: Context, size: str, name: str, times: dict[str, Timing]) -> tuple[list[Job], list[Record]]:
    """The runs on one set, and the parameters they have: on the larger ones the paper's, and tuned ones where
    all three algorithms have a study of that size."""
    jobs, used = [], []
    larger = [BASE, TUNED] if all(context.has_study(study_name(kind, size)) for kind in NAMES) else [BASE]
    tried = list(SETTINGS) if size == "1m" else larger
    slow = {kind: slowed(kind, seconds) for kind, seconds in times.items()}
    for kind, quick in times.items():
        printed = parameters(size, model(name).n_data)[kind]
        printed = with_timeout(printed, algorithm(kind, printed), quick)
        for setting, chosen in SETTINGS.items():
            if kind not in chosen.algorithms or setting not in tried:
                continue
            values, origin = {**printed, **chosen.changes}, "the paper's table"
            if chosen.slow and "timeout" in values:
                values["timeout"] = PRINTED_TIMEOUT
            if setting == TUNED:
                study = context.tuned(study_name(kind, size))
                values, origin = carried(study, name, quick), study["command"]
            if setting == CONTROL:
                values = {**without_pairs(values), "initial_scale": NOTHING}
            seconds, of_sgd = (slow[kind], slow) if chosen.slow else (quick, times)
            step = _interval(of_sgd["async-sgd"], "async-sgd", True)
            own = settings.given(values)
            jobs += [
                Job(setting, at, name, kind, own, seconds, chosen.link, steps, step, context.seed + k)
                for steps, seeds in _lengths(context.full, size, setting).items()
                for at in STARTS
                for k in range(seeds)
            ]
            words = {"setting": chosen.words, "ratings": label(name), "algorithm": kind}
            used.append({**words, "parameters": str(values), "found by": origin})
    return jobs, used


def study_name(kind: str, size: str) -> str:
    """The file of a study of ratings: those of the 1M set bear no size."""
    return f"{kind}-matrix-factorization" + ("" if size == "1m" else f"-{size}")


def _lengths(full: bool, size: str, setting: str) -> dict[int, int]:
    """How long runs are, in steps of a-SGD, and how many seeds each length has."""
    short, middle, long = LENGTHS
    if size != "1m":
        return {short: 1}
    if not full:
        return dict.fromkeys((short, middle), 3) if setting == BASE else {short: 2, middle: 1}
    longest_too = {long: 2} if setting in (BASE, CONTROL) else {long: 1} if setting in SETTLING else {}
    return {short: 5, middle: 5, **longest_too}


EXPERIMENT = Experiment(
    "fig4",
    "Matrix factorization: error over time",
    "Lines are medians over the seeds, bands go from the 10th to the 90th percentile. The numbers are real; "
    "the time axis is that of a simulated cluster of 10 workers: steps and commits as measured on this "
    "machine by processor time, a link of 10 Gbit/s at the master that each message keeps, a spread "
    "of 30 % (our own choices). Sets of the 10M and 20M shapes are synthetic and judge no claim; they run "
    "with the paper's numbers for these sizes, and tuned on themselves: 6 trials of one run for each number "
    "that is searched, near the mean rating, for the time to the RMSE that a-SGD with the paper's numbers "
    "has after 1200 steps, in at most the time of these. (On 10M half that time was tried first; no trial "
    "of mb-L-BFGS arrived in it.)",
    compute,
    draw,
    fig4_claims.outcomes,
    quick="the 1M set, as long as 600 and 4800 steps of a-SGD take, 3 seeds (off the base case 2 and 1)",
    full="the 1M set, as long as 600 and 4800 steps of a-SGD take (5 seeds) and 48,000 (2; 1); the shapes of "
    "10M and 20M for 600 steps",
    minutes=(1.9, 13.0),
    headline=fig4_claims.headline,
)
