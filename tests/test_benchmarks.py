"""The tables of benchmarks, and the words that fault scenarios look for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from asyncqn.runs.checkpoint import Checkpoints
from benchmarks.faults.interrupts import PROMISE
from benchmarks.run import checked


@pytest.mark.parametrize(
    ("value", "ratio", "target", "met"),
    [
        (9e5, None, ">= 1e6", False),
        (2e6, None, ">= 1e6", True),
        (
            5.0,
            0.83,
            ">= 1",
            False,
        ),  # what is shown is the ratio, however good the value
        (5.0, None, ">= 3", True),
        (90.0, 7.9, "<= 8", True),
        (61.0, None, "<= 60 us", False),
        (61.0, 1.0, None, None),
    ],
)
def test_a_target_is_judged_by_the_number_that_is_shown(
    value: float, ratio: float | None, target: str | None, met: bool | None
) -> None:
    row: dict[str, Any] = {
        "name": "a",
        "value": value,
        "unit": "us",
        "ratio": ratio,
        "target": target,
    }
    assert checked({**row, "met": not met})["met"] is met, (
        "whatever the benchmark itself says"
    )


def test_the_scenario_of_interrupts_recognises_the_promise_of_a_checkpoint(
    tmp_path: Path,
) -> None:
    _, message = Checkpoints(tmp_path / "checkpoints").ending(commit=7)
    assert PROMISE in message
