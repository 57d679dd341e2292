"""Ray: what actors compute replays to the bit, and a Ray that fails is one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from engines.runs import (
    PATTERNS,
    assert_made_all_commits,
    assert_replays,
    run_of,
)

import asyncqn as aq


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_a_run_on_actors_equals_its_replay_bitwise(ray_local: Any, name: str) -> None:
    run = run_of(name, aq.Ray(2), 80, seed=1, evaluate=37, tol=None)
    assert_made_all_commits(name, run.status, run.schedule.commits, 80)
    assert run.manifest["engine"]["workers_lost"] == 0
    assert_replays(run)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no raylet"),
        AssertionError(),
        "GetTimeoutError",
    ],
    ids=repr,
)
def test_a_ray_that_cannot_start_is_one_sentence_whatever_it_raises(
    error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    raised = getattr(ray.exceptions, error)("busy") if isinstance(error, str) else error

    def init(**options: Any) -> None:
        raise raised

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    words = r"^a local Ray cannot be started \(.+\): try again when .*\.$"
    with pytest.raises(aq.BadInput, match=words):
        run_of("async-sgd", aq.Ray(1), 10)
