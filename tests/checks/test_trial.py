"""The conformance checks on engines: each that is there is tried, and says who fails on it and why."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
from conftest import child_environment
from oracles import Quadratic

from asyncqn import AsyncSGD
from asyncqn.checks import trial
from asyncqn.checks.testing import IN_THIS_PROCESS, check_algorithm, check_problem
from asyncqn.engines import by_value
from asyncqn.engines.named import ENGINES
from asyncqn.errors import BadInput


class OnlyInTheMainThread(AsyncSGD):
    def step(self, view, local, problem, task):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("this is no place to work.\nlook it up")
        return super().step(view, local, problem, task)


def test_an_algorithm_that_fails_on_an_engine_is_told_which_and_why():
    with pytest.raises(
        BadInput,
        match=r"OnlyInTheMainThread fails on threads: worker \d failed.* no place",
    ) as e:
        check_algorithm(
            OnlyInTheMainThread(1e-6, 4), Quadratic.random(), engines=IN_THIS_PROCESS
        )
    assert "\n" not in str(e.value)


class ElsewhereInAThread(Quadratic):
    def grad(self, theta, rows, out):
        super().grad(theta, rows, out)
        out[0] += threading.current_thread() is not threading.main_thread()


def test_a_problem_that_gives_other_bits_on_an_engine_is_told_so():
    with pytest.raises(
        BadInput, match="ElsewhereInAThread does not replay from a run on threads"
    ):
        check_problem(
            ElsewhereInAThread.random(), travel=False, engines=IN_THIS_PROCESS
        )


def test_an_engine_that_is_not_there_is_said_to_be_not_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(trial, "find_spec", lambda package: None)
    tried = check_algorithm(AsyncSGD(1e-6, 4), Quadratic.random(), commits=10)
    assert tried == {
        "simulator": "passed",
        "threads": "passed",
        "processes": "passed",
        "mpi": "not tried: mpi4py is not installed",
        "ray": "not tried: ray is not installed",
    }
    monkeypatch.undo()
    monkeypatch.setattr(trial.shutil, "which", lambda name, path=None: None)
    tried = check_problem(Quadratic.random(), travel=False, engines=("mpi",))
    assert tried["mpi"].startswith("not tried: there is no mpiexec")
    monkeypatch.setattr(by_value, "import_module", import_error)
    mine = type("Mine", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Mine", mine, raising=False)
    with pytest.raises(trial.NotTried, match="put them into a module"):
        trial._pack({"class": mine}, tmp_path)
    with pytest.raises(BadInput, match="there is no engine 'gossip'"):
        check_problem(Quadratic.random(), travel=False, engines=("gossip",))


def import_error(name):
    raise ModuleNotFoundError(name)


SCRIPT = """
import json
from typing import NamedTuple
import numpy as np
from asyncqn import AsyncSGD
from asyncqn.kernels.vectors import add_one
from asyncqn.checks.testing import check_algorithm, check_problem

class Bowl:
    dim, n_data = 3, 20

    def value(self, theta):
        return 0.5 * float(theta @ theta)

    def grad(self, theta, rows, out):
        out[:] = theta

class Iterate(NamedTuple):
    theta: np.ndarray
    count: int

class Counting(AsyncSGD):
    def init(self, theta0):
        return Iterate(theta0.copy(), 0)

    def apply(self, iterate, updates, commit):
        add_one(iterate.theta, updates[0].d_theta)
        return iterate._replace(count=iterate.count + 1)

    def step(self, view, local, problem, task):
        assert type(view.count) is int
        return super().step(view, local, problem, task)

inside = check_problem(Bowl(), engines=("threads",))  # and in another process
print(json.dumps([inside, check_algorithm(Counting(1e-3, 2), Bowl())]))
"""


@pytest.mark.timeout(240)  # it starts ranks and a local Ray
@pytest.mark.xdist_group("clusters")
def test_a_plain_script_with_its_own_classes_tries_every_engine(tmp_path):
    (tmp_path / "plain.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "plain.py"], cwd=tmp_path, env=child_environment(), capture_output=True, text=True,
        timeout=230, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        {"threads": "passed"},
        dict.fromkeys(ENGINES, "passed"),
    ]
