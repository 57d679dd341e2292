"""The sweep of benchmarks.studies.outcomes, in small: no.run.success above the start."""

from __future__ import annotations

import pytest

from benchmarks.studies.outcomes.sweep import problems, sweep


@pytest.mark.filterwarnings("ignore::asyncqn.StabilityWarning")
def test_no_step_from_safe_to_absurd_makes_a_rise_a_success():
    found = list(
        sweep((0.1, 1.0, 100.0), commits=60, names=("async-sgd", "sgld", "mb-lbfgs"))
    )
    assert len(found) == 9 * len(problems())
    assert [o for o in found if o.false_success] == []
    plain = [
        o for o in found if o.factor == 0.1 and o.algorithm != "mb-lbfgs"
    ]  # whose pairs may be wild
    assert all(o.run.success for o in plain), "safe steps are a success"
    assert sum(o.run.status == "diverged" for o in found if o.factor == 100.0) >= 15
