"""Every public parameter is described, and a wrong value for it is refused in one sentence that names it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_wrong_values import FREE, PROBLEM, SOUND, X, Y

import asyncqn as aq
from asyncqn.errors import AsyncqnError
from asyncqn.parameters import Refused, parameters_of
from asyncqn.types import Table
from asyncqn_recommender import Recommender, synthetic_ratings

NOT_CALLED = {
    "protocols, which users implement": {"Algorithm", "Engine", "Problem"},
    "errors and warnings, which asyncqn itself makes": {
        name for name in aq.__all__ if name.endswith(("Error", "Warning"))
    }
    | {"BadInput", "DamagedFile", "ReplayMismatch"},
    "results, which asyncqn itself makes": {"Outcome", "Progress", "Run", "Samples"},
    "a module of public names": {"stages"},
    "checks of users' classes, with tests of their own": {"check_algorithm", "check_problem"},
    "a server, whose own tests try wrong tables and tokens": {"DataServer"},
    "engines and adapters with tests of their own": {"MPI", "from_jax", "from_torch"},
    "a choice that default_algorithm makes, too": {"exact_algorithm"},
}  # fmt: skip
"""Public names that are not walked through, by the reason."""


@pytest.mark.parametrize("call", [n for n in SOUND if not n.startswith("sklearn")])
def test_every_public_parameter_says_what_it_takes(call: str) -> None:
    make, arguments = SOUND[call]
    parameters = parameters_of(make)
    assert set(arguments) <= set(parameters)
    for name in parameters.keys() - FREE - {"self"}:
        assert parameters[name].kind.words != ("anything",), name


def test_every_public_name_is_walked_through_or_has_a_reason_not_to_be() -> None:
    walked = {name.partition(".")[0] for name in SOUND}
    excused = set().union(*NOT_CALLED.values())
    assert walked & excused == set()
    assert set(aq.__all__) - walked == excused


@pytest.mark.parametrize("value", [True, None, "1", 1j, math.nan, [1.0], object()])
def test_no_description_of_a_number_takes_what_is_none(value: Any) -> None:
    """The description itself is judged, by the phrase of its kind."""
    for make, _ in SOUND.values():
        for about in parameters_of(make).values():
            words = about.kind.words
            if all(word.startswith(("a number", "an integer")) for word in words):
                with pytest.raises(Refused):
                    about.kind.convert(value)


def test_numpy_s_scalars_are_the_numbers_that_they_hold() -> None:
    algorithm = aq.AsyncSGD(h=np.float32(0.5), batch=np.int8(3))
    assert repr(algorithm) == "AsyncSGD(h=0.5, batch=3, sampling='replacement')"
    assert type(algorithm.h) is float
    assert type(algorithm.batch) is int
    assert aq.Cluster(np.int64(3)).workers == 3


FITTED = Recommender(2, passes=1).fit(synthetic_ratings(20, 15, 120, seed=0))
MASKED = np.ma.masked_equal(X, X[0, 0])
MISTAKES: dict[str, Callable[[], Any]] = {
    "no friction": lambda: aq.ASLBFGS(h=0.1, gamma=None, beta=1.0, memory=3, batch=4, overlap=2),
    "a list of deaths": lambda: aq.Cluster(2, deaths=[1]),
    "too many workers": lambda: aq.Cluster(2**31),
    "complex data": lambda: aq.LeastSquares(X + 1j, Y, intercept=False),
    "masked data": lambda: aq.LogisticRegression(MASKED, Y),
    "a complex matrix": lambda: aq.LinearGaussian(X * 1j, Y, 1.0),
    "a masked start": lambda: aq.minimize(PROBLEM, theta0=np.ma.masked_equal([0.0, 2.0], 2.0)),
    "a start of truth values": lambda: aq.minimize(PROBLEM, theta0=[True, False]),
    "no time between checkpoints": lambda: aq.minimize(PROBLEM, checkpoint="c", checkpoint_every=0.0),
    "columns of two lengths": lambda: Table({"a": [1.0], "b": [1.0, 2.0]}),
    "no module": lambda: aq.from_torch(3, len, X, Y),
    "nothing to learn": lambda: aq.from_jax(len, {}, X),
    "complex ratings": lambda: Recommender(2).fit(([0, 1], [0, 1], np.array([1j, 2.0]))),
    "no ratings": lambda: Recommender(2).fit(None),
    "a list of users": lambda: FITTED.recommend([1, 2]),
    "a mapping as a user": lambda: FITTED.recommend({"x": 1}),
    "a complex number as an item": lambda: FITTED.similar(1j),
    "users and items of two shapes": lambda: FITTED.predict([1, 2], [1, 2, 3]),
    "a ragged list of users": lambda: FITTED.recommend_many([[1], [1, 2]]),
    "a step that is no float": lambda: aq.AsyncSGD(h=10**400, batch=1),
}  # fmt: skip


@pytest.mark.parametrize("call", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_that_no_walk_meets_is_one_sentence(
    call: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AsyncqnError) as caught:
        call()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_warning_names_the_line_of_the_caller() -> None:
    unstable = aq.ASLBFGS(h=1e-6, gamma=1.0, beta=500.0, memory=3, batch=2, overlap=1)
    with pytest.warns(aq.StabilityWarning) as caught:
        aq.minimize(PROBLEM, unstable, engine=aq.Simulator(aq.Cluster(4)), commits=5)
    assert {warning.filename for warning in caught} == {__file__}
