"""benchmarks.bits: equal runs are equal, and any difference between two runs is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.types import Table
from benchmarks import bits


@pytest.fixture
def one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = bits.problems()["linear-gaussian"].example("float64")
    case = (
        "async-sgd",
        "linear-gaussian",
        "float64",
        aq.AsyncSGD(h=1e-5, batch=10),
        problem,
    )
    monkeypatch.setattr(bits, "cases", lambda: iter([case]))


@pytest.mark.parametrize("what", ["simulator", "threads"])
def test_recorded_runs_are_computed_again_without_a_difference(
    one_case: None, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if what == "threads":
        bits.record(what, tmp_path)
    else:
        name, kind, dtype, algorithm, problem = next(bits.cases())
        run = aq.minimize(
            problem,
            algorithm,
            engine=aq.Simulator(bits._cluster(algorithm)),
            commits=30,
        )
        run.save(tmp_path / what / "run")
        (tmp_path / what / "run.json").write_text(json.dumps([name, kind, dtype]))
    bits.check(what, tmp_path)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found == [{"case": "async-sgd, linear-gaussian, float64", "wrong": []}]


def test_every_kind_of_difference_is_named() -> None:
    problem = aq.LinearGaussian.random(dim=5, n_data=50, seed=0)
    engine = aq.Simulator(aq.Cluster(workers=2))
    run = aq.minimize(problem, aq.AsyncSGD(h=1e-5, batch=10), engine=engine, commits=20)
    assert bits.differences(run, run) == []
    moved = np.nextafter(run.theta, np.inf)
    assert bits.differences(run, replace(run, theta=moved)) == ["theta"]
    assert bits.differences(run, replace(run, counters={})) == ["counters"]
    longer = aq.minimize(
        problem, aq.AsyncSGD(h=1e-5, batch=10), engine=engine, commits=21
    )
    assert {"theta", "schedule", "fingerprints"} <= set(bits.differences(run, longer))
    higher = Table({**run.metrics, "fun": np.nextafter(run.metrics["fun"], np.inf)})
    assert bits.differences(run, replace(run, metrics=higher)) == ["fun"]
    assert bits.differences(run, replace(run, status=aq.Outcome.STOPPED)) == ["outcome"]


def test_every_registered_algorithm_and_problem_is_compared() -> None:
    seen = [
        (name, kind) for name, kind, dtype, _, _ in bits.cases() if dtype == "float64"
    ]
    assert {name for name, _ in seen} == {*bits.algorithms(), *bits.VARIANTS}
    assert {kind for _, kind in seen} == set(bits.problems())
