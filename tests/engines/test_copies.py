"""Numbers in states and messages stay what they are on every engine, also within nested tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays, make_problem
from engines.typed_states import Iterate, Size, TypedSGD, assert_types
from hypothesis import given
from hypothesis import strategies as st

import asyncqn as aq
from asyncqn.core.worker import rounded
from asyncqn.engines.copies import copied, leaves
from asyncqn.engines.wire import Frame, Layout

TYPED = TypedSGD(h=1e-6)


def replays(run: aq.Run) -> None:
    assert run.counters["commits_counted"] == run.nit
    assert_replays(run, make_problem())


@pytest.mark.parametrize(
    "engine", [aq.Threads(1), aq.Threads(3), aq.Processes(2)], ids=repr
)
def test_numbers_stay_numbers_on_an_engine(engine: Any) -> None:
    replays(aq.minimize(make_problem(), TYPED, engine=engine, commits=60))


def test_numbers_stay_numbers_from_a_checkpoint(tmp_path: Path) -> None:
    def enough(progress: Any) -> None:
        if progress.commit == 40:
            raise StopIteration

    aq.minimize(
        make_problem(),
        TYPED,
        engine=aq.Threads(2),
        commits=60,
        evaluate=20,
        checkpoint=tmp_path / "c",
        checkpoint_every=15,
        callback=enough,
    )
    replays(aq.resume(tmp_path / "c", algorithm=TYPED))


def state(numbers: list[float]) -> Iterate:
    a, b, c, d = numbers
    return Iterate(
        np.array([a, b]), int(c), Size(c, np.array([d])), np.float32(b), c > d
    )


REAL = st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4)


@given(REAL, st.booleans())
def test_a_frame_carries_nested_tuples(numbers: list[float], narrow: bool) -> None:
    sent = state(numbers)
    frame = Frame(Layout(sent, narrow))
    frame.pack(copied(sent))
    arrived = frame.unpack()
    assert_types(arrived)
    expected = rounded(sent) if narrow else sent
    assert [np.asarray(leaf).tobytes() for leaf in leaves(arrived)] == [
        np.asarray(leaf).tobytes() for leaf in leaves(expected)
    ]
