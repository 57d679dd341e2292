"""Every public parameter is described, and a wrong value for it is refused in one sentence that names it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms import ALGORITHMS
from asyncqn.algorithms.table.choice import table_algorithm
from asyncqn.engines.named import REAL_ENGINES
from asyncqn.errors import AsyncqnError, BadInput
from asyncqn.parameters import Parameter, Refused, descriptions_of, parameters_of
from asyncqn.types import Table
from asyncqn_recommender import (
    ImplicitFactorization,
    MatrixFactorization,
    ProfiledFactorization,
    Recommender,
    StagedLBFGS,
    synthetic_ratings,
)

PROBLEM = aq.LinearGaussian.random(dim=4, n_data=40, seed=0)
MODELS = (
    *(
        aq.LeastSquares,
        aq.LogisticRegression,
        aq.PoissonRegression,
        aq.RobustRegression,
    ),
    aq.SoftmaxRegression,
)
FACTORIZATIONS = (MatrixFactorization, ProfiledFactorization, ImplicitFactorization)
RATINGS = synthetic_ratings(20, 15, 120, seed=0)
FITTED = Recommender(2, passes=1, seed=0).fit(RATINGS)
X, Y = np.arange(12.0).reshape(6, 2), np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
WRONG: tuple[Any, ...] = (
    *(
        None,
        True,
        np.bool_(False),
        "x",
        "",
        b"x",
        [],
        [None],
        ["x"],
        {},
        {"x": "y"},
        (),
        object(),
        1j,
    ),
    *(
        -1,
        0,
        1.5,
        -2.5,
        math.nan,
        math.inf,
        -math.inf,
        np.float64("nan"),
        np.int64(-7),
        np.float32(-1.5),
    ),
    *(
        10**30,
        10**400,
        -(10**30),
        2**63,
        Fraction(-1, 3),
        np.array([1j]),
        np.array(["a"]),
        int,
        len,
    ),
    *(np.ma.masked_equal([1.0, 2.0], 2.0), {1, 2}, range(0), slice(3), ...),
)
SOME_STAGES = aq.AsyncSGD(0.1, 2).stages


NOT_CALLED = {
    "protocols, which users implement": {"Algorithm", "Engine", "Problem"},
    "errors and warnings, of which asyncqn itself says the words": {
        *(
            "AsyncqnError",
            "BadInput",
            "DamagedFile",
            "ReplayMismatch",
            "SamplingWarning",
            "StabilityWarning",
        ),
    },
    "results, which asyncqn itself makes": {
        "Outcome",
        "Progress",
        "Run",
        "Samples",
    },
    "modules of public names": {"stages", "times"},
    "checks of users' classes, with tests of their own": {
        "check_algorithm",
        "check_problem",
    },
    "a server, whose own tests try wrong tables and tokens": {"DataServer"},
}
"""Public names that are not walked through, by the reason."""
FREE = {
    *(
        "self",
        "ratings",
        "y",
        "validation",
        "user",
        "users",
        "item",
    ),  # of a Recommender: ids are anything
    *("module", "loss", "params", "data"),  # of torch and JAX, whose objects they are
}
"""Parameters that their descriptions leave open; tests below give wrong values for them."""


class Parted:
    """A constructor whose arguments are judged when its object is used, as scikit-learn wants it."""

    __qualname__ = __name__ = "Recommender"
    __signature__ = inspect.signature(Recommender)
    __annotations__ = Recommender.__init__.__annotations__

    def __call__(self, **arguments: Any) -> Any:
        return Recommender(**arguments).fit(RATINGS)


def described(make: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a call but those that are free."""
    found = parameters_of(Recommender if isinstance(make, Parted) else make)
    return {name: about for name, about in found.items() if name not in FREE}


def good() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Every public constructor and function that takes parameters, with arguments that it accepts."""
    for cls in ALGORITHMS.values():
        if cls.__name__ in aq.__all__ and hasattr(cls, "example"):
            example = cls.example(PROBLEM)
            yield cls, {name: getattr(example, name) for name in parameters_of(cls)}
    staged = StagedLBFGS.example(ProfiledFactorization.example())
    yield StagedLBFGS, {n: getattr(staged, n) for n in parameters_of(StagedLBFGS)}
    yield aq.Patience, {}
    yield aq.Annealing, {"start": 1.0, "end": 2.0, "steps": 3}
    yield aq.Cluster, {"workers": 3}
    yield aq.times.LogNormal, {"mean": 1.0, "std": 0.5}
    yield aq.times.Exponential, {"mean": 1.0}
    yield aq.times.Constant, {"mean": 1.0}
    yield aq.times.Pareto, {"mean": 1.0, "shape": 2.0}
    yield aq.times.Trace, {"recorded": [1.0, 2.0]}
    yield aq.Simulator, {"cluster": aq.Cluster(2)}
    yield aq.Recorded, {"schedule": aq.Schedule([0], [0], [1], [1.0])}
    yield aq.Threads, {"workers": 2}
    yield aq.Processes, {"workers": 2}
    yield aq.Ray, {"workers": 2}
    yield aq.MPI, {}
    yield aq.LinearGaussian, {"A": X, "y": Y, "noise_var": 1.0}
    yield aq.LinearGaussian.random, {"dim": 3, "n_data": 9}
    for model in MODELS:
        yield model, {"X": X, "y": Y}
        yield model.random, {"n_data": 20, "dim": 2}
    yield aq.Bounded, {"name": "x"}
    yield (
        aq.Constrained,
        {"problem": PROBLEM, "parameters": [aq.Bounded("x", PROBLEM.dim)]},
    )
    yield aq.from_torch, {"module": None, "loss": None, "X": X, "y": Y}
    yield aq.from_jax, {"loss": len, "params": None, "data": None}
    for factorization in FACTORIZATIONS:
        sizes = {"n_users": 2, "n_items": 2, "rank": 1}
        yield (
            factorization,
            {
                "users": [0, 0, 1],
                "items": [0, 1, 1],
                "values": [5.0, 3.0, 4.0],
                **sizes,
            },
        )
    yield Parted(), {"rank": 2}
    yield FITTED.fit, {"ratings": RATINGS}
    yield FITTED.partial_fit, {"ratings": RATINGS}
    yield FITTED.evaluate, {"ratings": RATINGS}
    yield FITTED.recommend, {"user": RATINGS.user_ids[0]}
    yield FITTED.recommend_many, {}
    yield FITTED.similar, {"item": RATINGS.item_ids[0]}
    yield (
        aq.FiniteSum,
        {"value": lambda t, r: 0.0, "grad": lambda t, r: t, "n_data": 3, "dim": 1},
    )
    yield aq.LogDensity, {"logp_and_grad": lambda t: (0.0, t), "dim": 1}
    yield (
        aq.simulate,
        {"cluster": aq.Cluster(2), "stages": SOME_STAGES, "commits": 3, "seed": 0},
    )
    yield (
        aq.Schedule,
        {"worker": [0, 1], "read": [0, 0], "commit": [1, 2], "time": [1.0, 1.5]},
    )
    yield Table, {"columns": {"a": [1.0]}}
    yield aq.minimize, {"problem": PROBLEM}
    yield aq.starting_point, {"problem": PROBLEM}
    yield aq.sample, {"problem": PROBLEM}
    yield aq.Cluster.from_run, {"run": None}
    yield aq.default_algorithm, {"problem": PROBLEM, "workers": 2}
    yield aq.exact_algorithm, {"problem": PROBLEM, "workers": 2}
    yield table_algorithm, {"problem": PROBLEM, "workers": 2}
    yield aq.load_run, {"folder": "no such folder"}
    yield aq.resume, {"folder": "no such folder"}
    yield aq.replay, {"run": "no such folder"}
    yield aq.blame, {"run": None}
    yield aq.plan, {"problem": PROBLEM, "target": 1.0}


CALLS = list(good())


def cases() -> Iterator[tuple[Callable[..., Any], dict[str, Any], str, Any]]:
    """Every value of the table that the description of a parameter does not allow."""
    for make, arguments in CALLS:
        for name, about in described(make).items():
            for value in WRONG:
                try:
                    about.kind.convert(value)
                except Refused:
                    yield make, arguments, name, value
                except BadInput:
                    pass  # a mapping that is no object of the kind: its own sentence says why


@pytest.mark.parametrize(
    ("make", "arguments"), CALLS, ids=lambda at: getattr(at, "__qualname__", "")
)
def test_every_public_parameter_is_described(
    make: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    call = Recommender if isinstance(make, Parted) else make
    found, sentences = described(make), descriptions_of(call)
    assert set(found) | FREE >= set(arguments)
    for name, about in found.items():
        # Methods of an estimator may describe their arguments in their prose.
        assert (isinstance(make, MethodType) and make.__self__ is FITTED) or sentences[
            name
        ]
        assert about.kind.words != ("anything",), (
            f"{make.__qualname__}: {name} takes anything"
        )


def test_wrong_values_are_refused_in_one_sentence_that_names_the_parameter() -> None:
    count, wrong = 0, []
    for make, arguments, name, value in cases():
        count += 1
        try:
            make(**{**arguments, name: value})
        except AsyncqnError as error:
            text = str(error)
            # Another argument may be refused first where it depends on this one, as with from_run(run=None).
            if (
                not text.endswith(".")
                or "\n" in text
                or not (name in text or None in arguments.values())
            ):
                wrong.append(f"{make.__qualname__}({name}={value!r}): {text}")
        except Exception as error:
            wrong.append(
                f"{make.__qualname__}({name}={value!r}) raised {type(error).__name__}: {error}"
            )
        else:
            wrong.append(f"{make.__qualname__}({name}={value!r}) was accepted")
    assert wrong == [], f"{len(wrong)} of {count}"
    assert count >= 2500


@pytest.mark.parametrize("value", [True, None, "1", 1j, math.nan, [1.0], object()])
def test_no_description_of_a_number_takes_what_is_none(value: Any) -> None:
    """The description itself is judged, by the type that stands in the signature."""
    for make, _ in CALLS:
        for name, about in described(make).items():
            words = about.kind.words
            numbers = all(
                "number" in word or "integer" in word or word == "infinity"
                for word in words
            )
            if numbers and not any(
                "one per worker" in word or "list" in word or "array" in word
                for word in words
            ):
                with pytest.raises(Refused):
                    about.kind.convert(value)
                assert name in inspect.signature(make).parameters


def test_numpy_s_scalars_are_the_numbers_that_they_hold() -> None:
    algorithm = aq.AsyncSGD(h=np.float32(0.5), batch=np.int8(3))
    assert repr(algorithm) == "AsyncSGD(h=0.5, batch=3, sampling='replacement')"
    assert type(algorithm.h) is float
    assert type(algorithm.batch) is int
    assert aq.Cluster(np.int64(3)).workers == 3


@pytest.mark.parametrize("model", MODELS)
def test_complex_numbers_and_masks_are_refused(model: Any) -> None:
    for bad in (X + 1j, np.ma.masked_equal(X, 3.0)):
        with pytest.raises(BadInput, match="X must be an array, not a"):
            model(bad, Y)
    with pytest.raises(
        BadInput, match="y must be an array, not an array of complex numbers"
    ):
        model(X, Y + 1j)


def test_every_public_name_is_walked_through_or_has_a_reason_not_to_be() -> None:
    walked = {make.__name__ for make, _ in CALLS} | {
        make.__self__.__name__
        for make, _ in CALLS
        if isinstance(getattr(make, "__self__", None), type)
    }
    excused = set().union(*NOT_CALLED.values())
    assert walked & excused == set()
    assert set(aq.__all__) - walked == excused
    assert {name.lower() for name in walked} >= set(REAL_ENGINES)


JUDGES: tuple[tuple[Callable[[str, Any], bool], tuple[Any, ...]], ...] = (
    (
        lambda name, default: type(default) is bool,
        (None, 0, 1, "x", "True", [True], 1.0, object()),
    ),
    (
        lambda name, default: name in COUNTS,
        (
            True,
            1.5,
            2.0,
            -1,
            "3",
            [3],
            1j,
            math.nan,
            math.inf,
            10**30,
            np.float64(2.0),
            object(),
        ),
    ),
    (
        lambda name, default: (
            name
            in ("wire", "dtype", "start_method", "feedback", "duplicates", "metric")
        ),
        (True, 3, 1.5, [], b"x", object(), 1j),
    ),
    (
        lambda name, default: (
            name in ("X", "A", "y", "theta0", "centres", "signal", "recorded", "users")
        ),
        (
            3j,
            "x",
            {},
            {"a": 1},
            np.array([[1j]]),
            [1j, 2.0],
            len,
            int,
            np.ma.masked_equal([1.0, 2.0], 2.0),
        ),
    ),
    (
        lambda name, default: name in ("callback", "progress", "stop"),
        (3, "x", [], {}, 1.5, 1j, object()),
    ),
    (
        lambda name, default: name in ("folder", "path", "checkpoint"),
        (3, True, 1.5, b"x", [], {}, object(), len, "a\0b"),
    ),
)
"""Wrong values by the name of a parameter or the type of its default, whatever its description says."""
COUNTS = {
    *(
        "workers",
        "batch",
        "memory",
        "n_data",
        "dim",
        "commits",
        "keep",
        "draws",
        "chains",
        "parts",
        "rank",
    ),
    *(
        "collect",
        "blocks",
        "passes",
        "patience",
        "n",
        "k",
        "rounds",
        "components",
        "seed",
        "n_users",
        "steps",
    ),
}

LISTS = {("blame", "workers"), ("plan", "workers"), ("plan", "recorded")}
"""Parameters that share a name with others, but are lists or mappings."""


def test_what_is_wrong_by_the_name_of_a_parameter_is_refused_by_its_description() -> (
    None
):
    judged, wrong = 0, []
    for make, _ in CALLS:
        for name, about in described(make).items():
            for applies, values in JUDGES:
                if not applies(name, about.default) or (make.__name__, name) in LISTS:
                    continue
                for value in values:
                    if value is None and "None" in about.kind.words[-1]:
                        continue  # sample's progress: None is a third answer
                    judged += 1
                    try:
                        about.kind.convert(value)
                    except (Refused, BadInput):
                        continue
                    wrong.append(f"{make.__qualname__}({name}={value!r})")
    assert wrong == []
    assert judged > 1000


ISSUE: dict[str, Callable[[], Any]] = {
    "a bool as a batch": lambda: aq.AsyncSGD(h=0.1, batch=True),
    "parts of a fraction": lambda: aq.AsyncSAGA(h=0.1, parts=1.5),  # type: ignore[arg-type]
    "a fraction to collect": lambda: aq.Rennala(h=0.1, batch=2, collect=1.5),  # type: ignore[arg-type]
    "no friction": lambda: aq.ASLBFGS(
        h=0.1,
        gamma=None,
        beta=1.0,
        memory=3,
        batch=4,
        overlap=2,  # type: ignore[arg-type]
    ),
    "a text as a unit": lambda: aq.Threads(2, time_unit="x"),  # type: ignore[arg-type]
    "a list of deaths": lambda: aq.Cluster(2, deaths=[1]),  # type: ignore[arg-type]
    "a text as an engine": lambda: aq.resume("no such folder", engine="x"),  # type: ignore[arg-type]
    "too many workers": lambda: aq.Cluster(2**31),
    "complex data": lambda: aq.LeastSquares(X + 1j, Y, intercept=False),
    "masked data": lambda: aq.LeastSquares(
        np.ma.masked_equal(X, 3.0), Y, intercept=False
    ),
    "a complex matrix": lambda: aq.LinearGaussian(X * 1j, Y, 1.0),
    "masked observations": lambda: aq.LinearGaussian(
        X, np.ma.masked_equal(Y, 1.0), 1.0
    ),
    "a masked start": lambda: aq.minimize(
        PROBLEM, theta0=np.ma.masked_equal(np.arange(4.0), 2.0)
    ),
    "a complex start": lambda: aq.minimize(PROBLEM, theta0=[1j, 0, 0, 0]),
    "a start of truth values": lambda: aq.minimize(
        PROBLEM, theta0=[True, False, True, True]
    ),
    "a start that is a number": lambda: aq.minimize(PROBLEM, theta0=1.0),
    "a text as a check": lambda: aq.minimize(PROBLEM, check="x"),  # type: ignore[arg-type]
    "a bool between evaluations": lambda: aq.minimize(PROBLEM, evaluate=True),
    "half a seed": lambda: aq.minimize(PROBLEM, seed=1.5),  # type: ignore[arg-type]
    "a number to call": lambda: aq.minimize(PROBLEM, callback=3),  # type: ignore[arg-type]
    "no time between checkpoints": lambda: aq.minimize(
        PROBLEM, checkpoint="c", checkpoint_every=0.0
    ),
    "a target of nothing": lambda: aq.minimize(PROBLEM, target=math.nan),
    "half a chain": lambda: aq.sample(PROBLEM, chains=1.5),  # type: ignore[arg-type]
    "complex times": lambda: aq.Schedule(
        np.array([0]), np.array([0]), np.array([1]), np.array([1j])
    ),
    "columns of two lengths": lambda: Table({"a": [1.0], "b": [1.0, 2.0]}),
    "no module": lambda: aq.from_torch(3, len, X, Y),
    "nothing to learn": lambda: aq.from_jax(len, {}, X),
    "complex ratings": lambda: Recommender(2).fit(
        ([0, 1], [0, 1], np.array([1j, 2.0]))
    ),
    "masked ratings": lambda: Recommender(2).fit(
        ([0, 1], [0, 1], np.ma.masked_equal([1.0, 2.0], 2.0))
    ),
    "no ratings": lambda: Recommender(2).fit(None),
    "a number of ratings": lambda: Recommender(2).fit(3),
    "users and items of two shapes": lambda: FITTED.predict([1, 2], [1, 2, 3]),
    "a list of users": lambda: FITTED.recommend([1, 2]),
    "a mapping as a user": lambda: FITTED.recommend({"x": 1}),
    "a mapping among users": lambda: FITTED.predict({"x": 1}, 3),
    "a complex number as an item": lambda: FITTED.similar(1j),
    "a ragged list of users": lambda: FITTED.recommend_many([[1], [1, 2]]),
    "a list of items": lambda: FITTED.similar([1, 2]),
}


@pytest.mark.parametrize("call", ISSUE.values(), ids=ISSUE)
def test_a_wrong_value_that_was_found_is_one_sentence(
    call: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AsyncqnError) as caught:
        call()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_absurd_step_is_a_number_and_the_run_says_what_became_of_it() -> None:
    absurd = partial(aq.ASLBFGS, gamma=0.1, beta=1.0, memory=3, batch=4, overlap=2)
    run = aq.minimize(
        PROBLEM, absurd(h=10**30), engine=aq.Simulator(aq.Cluster(2)), commits=20
    )
    assert run.status == "diverged"
    with pytest.raises(
        BadInput, match=r"h must be a positive finite number, not 1000.* too large"
    ):
        absurd(h=10**400)


def test_a_warning_names_the_line_of_the_caller() -> None:
    unstable = aq.ASLBFGS(h=1e-6, gamma=1.0, beta=500.0, memory=3, batch=20, overlap=10)
    with pytest.warns(aq.StabilityWarning) as caught:
        aq.minimize(PROBLEM, unstable, engine=aq.Simulator(aq.Cluster(4)), commits=5)
    assert {warning.filename for warning in caught} == {__file__}
