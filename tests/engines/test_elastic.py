"""Engines to whose run workers can be added: what holds for all of them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
from engines.runs import make_problem

import asyncqn as aq
from asyncqn.errors import BadInput


def test_an_engine_is_its_parameters_also_while_its_run_is_under_way() -> None:
    engine = aq.Processes(1)
    before, copies = (repr(engine), hash(engine)), []

    def callback(progress: Any) -> None:
        copies[:] = [
            pickle.loads(pickle.dumps(engine)),
            copy.deepcopy(engine),
            replace(engine),
        ]
        for other in (engine, *copies):
            assert (repr(other), hash(other)) == before
            assert other == engine
        for other in copies:
            with pytest.raises(BadInput, match="only while a run is under way"):
                other.add()
        raise StopIteration

    aq.minimize(
        make_problem(),
        aq.AsyncSGD(h=1e-5, batch=10),
        engine=engine,
        commits=9,
        callback=callback,
    )
    assert len(copies) == 3
    with pytest.raises(BadInput, match="only while a run is under way"):
        engine.add()
