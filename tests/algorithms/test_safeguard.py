"""The safeguard alone: what is kept, what follows a failure, when U is asked for, when it has stalled."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from asyncqn.algorithms.safeguard import SearchState, Trial, advance, standing


class Walk(NamedTuple):
    theta: Any
    base: Any
    at_base: Any
    trial: Trial


class Scale:
    """H = scale I in place of a memory, which notes what happens to it."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.learned, self.forgotten = 0, 0

    def direction(self, at: Any, out: Any) -> bool:
        out[...] = self.scale * at[0]
        return self.learned > 0

    def learn(self, s: Any, change: Any) -> bool:
        self.learned += 1
        return True

    def forget(self) -> None:
        self.learned, self.forgotten = 0, self.forgotten + 1

    def softness(self) -> float:
        return 1.0 if self.learned else math.inf

    def keep(self) -> None:
        pass


def start(theta0: float = 0.0, kept_values: int = 5) -> Walk:
    theta = np.array([theta0])
    nothing = Trial((-math.inf,) * kept_values)
    return Walk(theta, theta.copy(), np.zeros((1, 1)), nothing)


def tell(
    walk: Walk, metric: Any, value: float, g: float | None, ask: Any = None
) -> Walk:
    """Send the updates of the trial under way."""
    at = None if g is None else np.array([[g]])
    return walk._replace(trial=advance(walk, metric, at, value, ask))


@pytest.mark.parametrize(("fall", "kept"), [(1e-5, False), (1e-3, True)])
def test_a_trial_must_lower_u_by_a_share_of_what_its_slope_promised(
    fall: float, kept: bool
) -> None:
    walk = tell(start(), Scale(), 5.0, 4.0)  # promises 1
    walk = tell(walk, Scale(), 5.0 - fall, -1.0)
    assert (walk.trial.kept == 2) == kept


def test_a_trial_may_lie_above_the_last_point_but_not_above_the_last_five() -> None:
    walk = tell(start(), Scale(), 100.0, 1.0)
    for value in (50.0, 20.0, 60.0, 55.0):
        walk = tell(walk, Scale(), value, 1.0)
    assert walk.trial.kept == 5
    assert walk.trial.recent == (100.0, 50.0, 20.0, 60.0, 55.0)
    walk = tell(walk, Scale(), 99.0, 1.0)
    assert walk.trial.kept == 6
    assert tell(walk, Scale(), 99.5, 1.0).trial.failures == 1


def test_where_rounding_drowns_values_slopes_decide_and_elsewhere_values() -> None:
    walk = tell(start(), Scale(), 1e15, 4.0)
    assert tell(walk, Scale(), 1e15 + 1.0, 1.0).trial.kept == 2, "downhill at both ends"
    walk = tell(start(), Scale(), 1e15, 4.0)
    assert tell(walk, Scale(), 1e15 + 1.0, -8.0).trial.failures == 1, (
        "further up than down"
    )
    walk = tell(start(), Scale(), 1e6, 4.0)
    assert tell(walk, Scale(), 1e6 + 1.0, 1.0).trial.failures == 1, (
        "1 is no rounding of a million"
    )


def test_a_pair_from_a_failed_trial_is_learned_only_if_u_was_nearly_quadratic() -> None:
    for value, g, learned in (
        (6.0, -12.0, 1),
        (6e50, -1e52, 0),
    ):  # slopes -1 and 3: 1 more; a cliff
        metric = Scale()
        walk = tell(start(), metric, 5.0, 4.0)
        walk = tell(walk, metric, value, g)
        assert walk.trial.failures == 1
        assert metric.learned == learned


def test_a_direction_that_fails_eight_times_empties_the_memory_and_then_it_stalls() -> (
    None
):
    metric = Scale()
    metric.learned = 1
    walk = tell(start(1.0), metric, 5.0, 4.0)
    for failures in range(1, 8):
        walk = tell(walk, metric, math.nan, None)
        assert (walk.trial.failures, metric.forgotten) == (failures, 0)
    walk = tell(walk, metric, math.nan, None)
    assert metric.forgotten == 1
    assert walk.theta[0] == pytest.approx(0.75), "a scaled gradient step"
    for _ in range(20):  # each a tenth: after 17 no digit of theta moves
        walk = tell(walk, metric, math.nan, None)
    assert walk.trial.state == SearchState.STALLED
    assert standing(walk).stalled
    assert walk.theta[0] == walk.base[0] == 1.0


def test_no_step_is_longer_than_ten_times_the_longest_or_theta() -> None:
    metric = Scale(scale=1e6)
    walk = tell(start(1.0), metric, 5e20, 4.0)  # to 0.75
    walk = tell(walk, metric, 4e20, 3.0)
    assert walk.theta[0] == pytest.approx(0.75 - 3e6), (
        "the first that knows the curvature is free"
    )
    metric.scale = 1e12
    walk = tell(walk, metric, 3e20, 2.0)
    assert walk.base[0] - walk.theta[0] == pytest.approx(3e7)
    metric = Scale(scale=1e100)
    walk = tell(tell(start(1.0), metric, 5e200, 4.0), metric, 4e200, 3.0)
    assert abs(walk.theta[0]) < 1e12, "within what the master allows"


def test_many_trials_without_progress_are_a_stall() -> None:
    metric, trials = Scale(scale=1e-3), 0
    walk = tell(start(1.0), metric, 1e15, 1.0)
    while walk.trial.state != SearchState.STALLED and trials < 200:
        walk = tell(
            walk, metric, 1e15, 0.99
        )  # neither U nor |g| is lower, though both slopes are down
        trials += 1
    assert trials == 80
    walk = tell(start(1.0), metric, 1e15, 1.0)
    for n in range(200):
        walk = tell(walk, metric, 1e15, 0.99**n)
    assert walk.trial.state != SearchState.STALLED, (
        "|g| falls by a tenth every eleven trials"
    )


def test_two_failures_are_answered_by_new_directions_and_the_third_by_a_shorter_step() -> (
    None
):
    metric = Scale(scale=0.01)
    walk = tell(start(), metric, 5.0, 4.0)
    aims = []
    for _ in range(3):
        step = float(walk.theta[0])
        g = (
            4.0 + 400.0 * step
        )  # a quadratic, but for a constant that makes every trial fail
        walk = tell(
            walk,
            metric,
            5.0 + 0.5 * (4.0 + g) * step + 0.2 * (4.0 + abs(g)) * abs(step) + 1e-9,
            g,
        )
        aims.append(float(walk.theta[0]))
        metric.scale *= 0.5
    assert walk.trial.failures == 3
    assert aims[:2] == pytest.approx([-0.04, -0.02]), "base - H g"
    assert -0.01 <= aims[2] <= -0.002, "between a half and a tenth of the last step"
