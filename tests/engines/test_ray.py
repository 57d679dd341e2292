"""Ray: what actors compute replays to the bit; actors die and join, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.runs import EVERY, Slope, assert_replays, problem

import asyncqn as aq
from asyncqn.cli import main
from asyncqn.engines.ray_worker import Reference
from asyncqn.errors import WorkerFailed

POTENTIAL = problem()
TIMEOUT = aq.MBLBFGS(h=0.01, memory=3, batch=10, overlap=4, timeout=0.01, quorum=0.5)


@pytest.mark.parametrize("name", ["as-lbfgs", "async-sgd", "mb-lbfgs with timeout"])
def test_a_run_on_actors_equals_its_replay_bitwise(ray_local: Any, name: str) -> None:
    algorithm = TIMEOUT if "timeout" in name else EVERY[name]
    run = aq.minimize(POTENTIAL, algorithm, engine=aq.Ray(2), commits=80, seed=1, evaluate=37)
    assert (run.status, run.schedule.commits) == ("completed", 80)
    assert_replays(run)
