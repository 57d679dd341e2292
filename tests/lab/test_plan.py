"""plan: from short real runs to predicted times, which workers pay, and how a mistake is reported."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pytest
from cli.calls import call
from oracles import one_sentence

import asyncqn as aq
from asyncqn.cli.commands.plan import counts
from asyncqn.errors import BadInput
from asyncqn.lab.plan import _Goal

PROBLEM = aq.LinearGaussian.random(dim=6, n_data=120, seed=0)
TARGET = PROBLEM.optimum + 1e-3 * abs(PROBLEM.optimum)
BLOCKS = {"blocks": lambda problem, workers: aq.ExactLBFGS(blocks=workers)}
QUICK = {"record": 0.05, "seeds": 2, "recorded_workers": 1}


def test_a_prediction_is_the_mean_time_to_the_target_on_the_cluster():
    cluster = aq.Cluster(3, 2.0, 0.5, message=0.3)
    goal = _Goal(PROBLEM, TARGET, "fun", commits=None)
    algorithm = BLOCKS["blocks"](PROBLEM, 3)
    prediction = goal.predict("blocks", algorithm, cluster, range(5, 7))
    runs = [
        aq.minimize(PROBLEM, aq.ExactLBFGS(blocks=3), engine=aq.Simulator(cluster), seed=s, target=TARGET,
                    evaluate=1)
        for s in (5, 6)
    ]  # fmt: skip
    assert prediction.time == pytest.approx((runs[0].time + runs[1].time) / 2)
    assert prediction.low <= prediction.time <= prediction.high
    hopeless = dataclasses.replace(goal, target=PROBLEM.optimum - 1.0)
    assert hopeless.predict("blocks", algorithm, cluster, range(5, 7)).time == math.inf


def test_a_plan_from_a_real_run_is_checked_for_real():
    plan = aq.plan(
        PROBLEM, target=TARGET, algorithms=BLOCKS, workers=(1, 4), check=True, **QUICK
    )
    assert [(p.algorithm, p.workers) for p in plan.predictions] == [
        ("blocks", 1),
        ("blocks", 4),
    ]
    assert plan.best.time == min(p.time for p in plan.predictions) < math.inf
    assert (plan.checked.algorithm, plan.checked.workers) == ("blocks", 1)
    assert plan.checked.ratio == plan.checked.predicted / plan.checked.real > 0
    # What was recorded is what is simulated: the block of one worker is all rows.
    assert plan.clusters["blocks"].rows == 120.0


def test_a_run_made_before_is_planned_from():
    run = aq.minimize(
        PROBLEM, aq.ExactLBFGS(1), engine=aq.Threads(1), commits=20, tol=None
    )
    plan = aq.plan(
        PROBLEM, target=TARGET, recorded={"exact-lbfgs": run}, workers=(1, 2), seeds=2
    )
    assert {p.algorithm for p in plan.predictions} == {"exact-lbfgs"}
    assert plan.clusters["exact-lbfgs"] == aq.Cluster.from_run(run)


def test_the_command_prints_the_plan(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    job = tmp_path / "job.toml"
    job.write_text(f"[problem]\ndim = 6\nn_data = 120\n[run]\ntarget = {TARGET}\n")
    short = ("--record", 0.1, "--workers", "1..2", "--seeds", 2)
    plan = ("plan", job, *short, "--algorithms", "exact-lbfgs", "--json", "-q")
    code, out, _ = call(capfd, *plan)
    numbers = json.loads(out)
    assert (code, numbers["checked"]) == (0, None)
    assert [p["workers"] for p in numbers["predictions"]] == [1, 2]
    for option, value, words in (
        ("--algorithms", "newton", "there is no 'newton'"),
        ("--engine", "mpi", "threads or processes"),
        ("--seeds", 1, "at least 2"),
    ):
        code, _, err = call(capfd, "plan", job, option, value)
        assert code == 2
        assert words in err


def test_numbers_of_workers_are_read():
    assert counts("1..6") == [1, 2, 4, 6]
    assert counts("3,5") == [3, 5]
    for text in ("6..1", "0..4", "a"):
        with pytest.raises(BadInput, match="--workers must be like"):
            counts(text)


def test_a_target_that_nobody_reaches_is_told():
    sentences: list[str] = []
    with pytest.raises(BadInput, match="is below its minimum") as caught:
        aq.plan(
            PROBLEM,
            target=PROBLEM.optimum - 1.0,
            algorithms=BLOCKS,
            tell=sentences.append,
            **QUICK,
        )
    assert one_sentence(caught.value)
    assert sentences == [], "nothing was recorded"


def test_a_target_that_cannot_be_reached_is_told_before_all_numbers_of_workers_are_simulated():
    class Unknown:
        """The same problem, of which nobody knows the minimum."""

        dim, n_data, value, grad = (
            PROBLEM.dim,
            PROBLEM.n_data,
            PROBLEM.value,
            PROBLEM.grad,
        )

    sentences: list[str] = []
    lowest = re.escape(f"(the lowest value seen is {PROBLEM.optimum:.6g})")
    with pytest.raises(BadInput, match=f"no algorithm reached.*{lowest}") as caught:
        aq.plan(
            Unknown(),
            target=PROBLEM.optimum - 1.0,
            algorithms=BLOCKS,
            tell=sentences.append,
            **QUICK,
        )
    assert one_sentence(caught.value)
    assert sentences[1:] == ["simulating blocks on 1 worker"]
