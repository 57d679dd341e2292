"""Doors that others use: picklers, job schedulers, terminals; and folders that hold modules of a stranger."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from conftest import python

import asyncqn as aq

# Classes of a script: what picklers send by value, with the modules that their methods mention.
SCRIPT = """
import numpy as np
import asyncqn as aq

class Bowl:
    dim = 2
    n_data = 8

    def __init__(self, curvature=1.0):
        self.curvature = curvature

    def value(self, theta):
        aq.BadInput
        return 0.5 * self.curvature * float(theta @ theta)

    def grad(self, theta, rows, out):
        aq.BadInput
        np.multiply(theta, self.curvature * len(rows) / 8, out=out)

def run(engine):
    algorithm = aq.AsyncSGD(h=1e-2, batch=4)
    return aq.minimize(Bowl(), algorithm, engine=engine, commits=20, theta0=np.ones(2), check=False)
"""


def script() -> dict[str, Any]:
    """The names of the script, as a process that runs it has them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SCRIPT, names)
    return names


def test_the_package_pickles_by_name() -> None:
    for pickler in (pickle, cloudpickle):
        assert pickle.loads(pickler.dumps(aq)) is aq


def test_a_function_and_the_module_of_its_name_are_not_confused() -> None:
    program = (
        "import asyncqn as aq, asyncqn.minimize, asyncqn.resume\n"
        "from asyncqn import *\n"
        "assert all(map(callable, (aq.minimize, aq.resume, aq.plan, minimize)))\n"
        "assert sorted(dir(aq)) == dir(aq) == aq.__all__\n"
        "try:\n    aq.minimise\n"
        "except AttributeError as error:\n    print(error)\n"
    )
    done = python("-c", program)
    assert (done.stdout, done.stderr) == (
        "module 'asyncqn' has no attribute 'minimise'\n",
        "",
    )


def test_classes_of_a_script_go_through_joblib_and_a_grid_search(
    tmp_path: Path,
) -> None:
    calls = """
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator
from sklearn.model_selection import GridSearchCV

class Smallest(BaseEstimator):
    def __init__(self, workers=1):
        self.workers = workers

    def fit(self, X, y):
        self.cluster_ = aq.Cluster(self.workers)
        return self

    def score(self, X, y):
        return -self.cluster_.workers

def workers(n):
    return aq.Cluster(n).workers

print(Parallel(n_jobs=2)(delayed(workers)(n) for n in (1, 2)))
search = GridSearchCV(Smallest(), {"workers": [2, 1]}, n_jobs=2, cv=2)
print(search.fit(np.zeros((4, 1)), np.zeros(4)).best_params_)
"""
    (tmp_path / "script.py").write_text(SCRIPT + calls)
    done = python("script.py", cwd=tmp_path)
    assert done.stdout == "[1, 2]\n{'workers': 1}\n", done.stderr


def test_classes_of_a_script_go_to_ray(ray_local: Any) -> None:
    run = script()["run"](aq.Ray(2))
    assert (run.nit, run.manifest["engine"]["workers_lost"]) == (20, 0)


# -- terminals


# -- modules of the current folder

NAMES = "socket signal threading random numpy numba json pickle selectors struct"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules leave a file when they are run."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in NAMES.split():
        (folder / f"{name}.py").write_text(
            f"open('{folder}/ran {name}', 'w').close()\n"
        )
    return folder


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program, called in a folder as its script in bin/ calls it."""
    installed = folder.parent / "asyncqn-script"
    installed.write_text(
        "from asyncqn.cli.main import main\nif __name__ == '__main__':\n    main()\n"
    )
    return subprocess.run(
        [sys.executable, str(installed), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "engine",
    [
        "processes --set engine.start_method=spawn",
        pytest.param("ray", marks=pytest.mark.xdist_group("clusters")),
    ],
)
def test_no_module_of_the_current_folder_is_run_by_a_child(
    hostile: Path, engine: str
) -> None:
    run = ("run", "--commits", "5", "-q", "--engine", *engine.split())
    done = program(hostile, *run)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in hostile.glob("ran *")] == []
