"""`sample`: right laws, warnings where they are due, replays, checkpoints, workers that come and go."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.sampling.metric import metric_shape
from asyncqn.algorithms.sampling.search import find_start
from asyncqn.algorithms.sampling.shared_metric_hmc import BURN_IN, PREPARATIONS
from asyncqn.algorithms.sampling.target import Target
from asyncqn.algorithms.sampling.trajectory import trajectory
from asyncqn.errors import BadInput, SamplingWarning
from tests.posterior_models import (
    Model,
    beside_a_unit_gaussian,
    funnel,
    gaussian,
    hierarchical,
    on_a_grid,
    two_modes,
)

UNEVEN = aq.Cluster(workers=4, worker_mean=[1.0, 1.5, 2.5, 4.0], worker_std=0.3)


def uneven(**changes: Any) -> aq.Simulator:
    return aq.Simulator(
        UNEVEN if not changes else aq.Cluster(workers=4, worker_std=0.3, **changes)
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Short chains warn, rightly; here something else is looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        yield


def drawn(problem: Any, draws: int = 4000, **options: Any) -> aq.Samples:
    options = {"chains": 4, "engine": uneven(), **options}
    return aq.sample(problem, draws=draws, **options)


def assert_right(samples: aq.Samples, mean: Any, sd: Any) -> None:
    """Means within 0.1 sd and standard deviations within 5 %, as far as the draws can tell."""
    pooled = np.concatenate(samples.chains)
    least = float(samples.ess.min())
    assert np.abs((pooled.mean(axis=0) - mean) / sd).max() < max(
        0.1, 4.0 / np.sqrt(least)
    )
    assert np.abs(pooled.std(axis=0) / sd - 1.0).max() < max(
        0.05, 4.0 / np.sqrt(2.0 * least)
    )


def test_a_correlated_gaussian_of_any_scale_is_drawn_right() -> None:
    model = gaussian(8)
    samples = drawn(model)
    assert_right(samples, model.mean, model.sd)
    assert samples.warnings == []
    assert samples.rhat.shape == samples.ess.shape == (8,)
    assert samples.ess.min() > 2000
    np.testing.assert_allclose(np.sqrt(np.diag(samples.metric)), model.sd, rtol=1e-6)
    assert 0.7 < samples.accept < 0.95
    lengths = [len(chain) for chain in samples.chains]
    assert sum(lengths) == 4000
    assert lengths == sorted(lengths, reverse=True)  # a faster worker draws more


def test_a_regression_of_ours_agrees_with_its_closed_form() -> None:
    problem = aq.LinearGaussian.random(dim=6, n_data=60, seed=1)
    samples = drawn(problem)
    sd = np.sqrt(np.diag(np.linalg.inv(problem.precision)))
    assert_right(samples, problem.optimum_theta, sd)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_logistic_regression_agrees_with_quadrature(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2)).astype(dtype)
    y = X @ np.array([1.0, -0.5]) + rng.standard_normal(40) > 0
    problem = aq.LogisticRegression(X, y, intercept=False)
    axis = np.linspace(-2.0, 5.0, 90)
    mean, sd = on_a_grid(lambda t: problem.value(t.astype(dtype)), [axis, axis - 3.0])
    samples = drawn(problem, 3000)
    assert samples.run.theta.dtype == dtype
    assert_right(samples, mean, sd)


def test_a_hierarchical_model_has_the_moments_that_integration_gives() -> None:
    """Given (mu, log tau) the groups are Gaussian, so that two dimensions are left to sum over."""
    model = hierarchical()
    groups, y, s = model.dim - 2, model.y, model.s

    def marginal(t: Any) -> float:
        mu, tau = t[0], np.exp(t[1])
        var = s**2 + tau**2
        prior = 0.5 * (mu / 5.0) ** 2 + np.log1p((tau / 5.0) ** 2) - t[1]
        return float(prior + 0.5 * ((y - mu) ** 2 / var + np.log(var)).sum())

    mean, sd = on_a_grid(
        marginal, [np.linspace(-16.0, 24.0, 100), np.linspace(-9.0, 5.0, 140)]
    )
    with quietly():  # a few trajectories diverge where tau is small
        samples = drawn(model, 8000)
    pooled = np.concatenate(samples.chains)[:, groups:]
    error = sd / np.sqrt(samples.ess[groups:])
    assert (
        np.abs(pooled.mean(axis=0) - mean) < np.maximum(0.1 * sd, 4.0 * error)
    ).all()
    assert np.abs(pooled.std(axis=0) / sd - 1.0).max() < 0.08


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_two_separate_modes_are_told(seed: int) -> None:
    with pytest.warns(SamplingWarning, match="2 separate places"):
        samples = drawn(
            two_modes(), 1500, chains=8, seed=seed, engine=aq.Simulator(aq.Cluster(8))
        )
    assert samples.rhat.max() > 1.1


@pytest.mark.parametrize(
    ("centre", "scale"),
    [
        ([8.0], 0.1),
        ([8.0, 0.0, 0.0, 0.0, 0.0], 0.3),
        ([60.0, -80.0], 1.0),
        ([30.0] * 5, 3.0),
    ],
    ids=["narrow", "narrow in five dimensions", "far", "wide"],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_second_mode_that_is_narrow_or_far_is_found(
    centre: list[float], scale: float, seed: int
) -> None:
    model = beside_a_unit_gaussian(np.array(centre), scale)
    with pytest.warns(SamplingWarning, match="R-hat is"):
        samples = drawn(
            model,
            600,
            chains=8,
            warm_up=400,
            seed=seed,
            engine=aq.Simulator(aq.Cluster(8)),
        )
    assert samples.rhat.max() > 1.1


@pytest.mark.parametrize("chain", [0, 1, 2, 3])
def test_a_tail_is_no_mode(chain: int) -> None:
    """A search that ends far out in a tail, because U hardly falls there, has found nothing."""
    cauchy = Model(lambda t: (np.log1p(t**2).sum(), 2.0 * t / (1.0 + t**2)), 2)
    rng, target = np.random.default_rng(chain), Target(cauchy, np.float64)
    with np.errstate(all="ignore"):
        mode = find_start(target, np.array([0.5, -1.0]), rng, metric_shape(2), chain, 4)
    assert np.abs(mode.x).max() < 0.1


def test_a_chain_leaves_a_place_that_is_too_steep_for_the_usual_step() -> None:
    """Where theta[0] is large, trajectories of the usual step diverge; one chain stayed for 132 draws."""
    with quietly():
        samples = drawn(funnel(0.7), 3000)
    moves = [
        np.concatenate([[True], np.diff(chain[:, 0]) != 0.0, [True]])
        for chain in samples.chains
    ]
    assert max(np.diff(np.flatnonzero(moved)).max() for moved in moves) < 60
    assert abs(np.concatenate(samples.chains)[:, 0].mean()) < 0.15


def test_a_mode_of_negligible_mass_is_left() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samples = drawn(
            two_modes(share=1e-9), 3000, chains=8, engine=aq.Simulator(aq.Cluster(8))
        )
    assert_right(samples, -4.0, 1.0)


@pytest.mark.parametrize(
    "engine", [aq.Threads(2), aq.Processes(2)], ids=["threads", "processes"]
)
def test_a_replay_gives_every_draw_again(engine: Any, tmp_path: Path) -> None:
    problem = aq.LinearGaussian.random(dim=4, n_data=40, seed=2)
    with quietly():
        samples = aq.sample(
            problem, chains=4, draws=600, warm_up=200, engine=engine, seed=3
        )
    loaded = aq.load_run(samples.run.save(tmp_path / "run"))
    for again in (
        aq.Samples.from_run(aq.replay(samples.run)),
        aq.Samples.from_run(loaded),
    ):
        assert len(again.chains) == 4
        for a, b in zip(again.chains, samples.chains):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(again.metric, samples.metric)
        assert (again.step, again.accept) == (samples.step, samples.accept)


def test_equal_seeds_give_equal_bits_and_others_other_draws() -> None:
    model = gaussian(3)
    with quietly():
        a, b, c = (drawn(model, 300, warm_up=200, seed=seed) for seed in (1, 1, 2))
    assert all((x == y).all() for x, y in zip(a.chains, b.chains))
    assert a.chains[0][0, 0] != c.chains[0][0, 0]


@pytest.mark.parametrize(
    "engine", [uneven(), aq.Threads(2)], ids=["simulator", "threads"]
)
def test_a_run_that_was_interrupted_goes_on(engine: Any, tmp_path: Path) -> None:
    problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)

    def stop(progress: Any) -> None:
        if progress.commit >= 500:
            raise StopIteration

    with quietly():
        first = aq.sample(problem, chains=4, draws=900, warm_up=200, engine=engine, callback=stop,
                          checkpoint=tmp_path / "c", checkpoint_every=100)  # fmt: skip
    assert sum(map(len, first.chains)) < 900
    assert any("of 900 draws were made" in sentence for sentence in first.warnings)
    samples = aq.Samples.from_run(aq.resume(tmp_path / "c"))
    assert sum(map(len, samples.chains)) == 900
    again = aq.Samples.from_run(aq.replay(samples.run))
    assert all((a == b).all() for a, b in zip(again.chains, samples.chains))
    assert (first.chains[0] == samples.chains[0][: len(first.chains[0])]).all()


def test_a_worker_that_joins_late_burns_in_and_one_that_dies_keeps_its_past() -> None:
    engine = uneven(worker_mean=1.0, joins={3: 300.0}, deaths={0: 320.0})
    with quietly():
        samples = drawn(gaussian(4), 3000, engine=engine, warm_up=300)
    schedule = samples.run.schedule
    made = int((schedule.worker == 3).sum())
    late = len(samples.chains[3])
    assert late <= made - BURN_IN - PREPARATIONS
    assert 0 < len(samples.chains[0]) < len(samples.chains[1])
    assert sum(map(len, samples.chains)) == 3000
    model = gaussian(4)
    assert abs(samples.chains[3].mean(axis=0) - model.mean)[0] < model.sd[0]


@pytest.mark.parametrize(
    ("workers", "chains", "expected"), [(1, 1, 1), (1, 4, 4), (3, 4, 6), (4, 2, 4)]
)
def test_every_worker_runs_equally_many_chains(
    workers: int, chains: int, expected: int
) -> None:
    engine = aq.Simulator(aq.Cluster(workers))
    model = gaussian(2)
    with quietly():
        samples = aq.sample(
            model, chains=chains, draws=1200, warm_up=600, engine=engine
        )
    assert len(samples.chains) == expected
    assert_right(samples, model.mean, model.sd)


def test_a_long_theta_has_a_metric_of_low_rank() -> None:
    dim = 300
    sd = np.geomspace(0.1, 10.0, dim)
    model = Model(lambda t: (0.5 * ((t / sd) ** 2).sum(), t / sd**2), dim)
    with quietly():
        samples = drawn(model, 1500)
    assert samples.metric.shape[0] < 100
    assert samples.rhat.max() < 1.05
    pooled = np.concatenate(samples.chains)
    assert np.abs((pooled**2).mean(axis=0) / sd**2 - 1.0).mean() < 0.06


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (
            lambda t: (
                np.inf if t[0] <= 0 else t[0] - np.log(t[0]),
                1.0 - 1.0 / np.maximum(t, 1e-9),
            ),
            "U is inf",
        ),
        (lambda t: (0.5 * t @ t, np.full_like(t, np.nan)), "gradient is not finite"),
        (lambda t: (0.5 * t @ t, -t), "wrong sign"),
        (lambda t: (0.5 * t @ t, 2.0 * t), "is 2 times the gradient"),
        (lambda t: (0.5 * t @ t, 0.0 * t), "is exactly zero where"),
    ],
    ids=["-inf", "nan", "sign", "factor", "zero"],
)
def test_a_bad_model_gets_one_sentence(function: Any, sentence: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(BadInput, match=sentence) as caught:
        drawn(Model(function, 2), 500)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: (0.0 * t.sum(), 0.0 * t),
        lambda t: (0.2 * np.log1p(t @ t), 0.4 * t / (1.0 + t @ t)),
        lambda t: (0.5 * t[0] ** 2, np.array([t[0], 0.0])),
        lambda t: (np.logaddexp(0.0, -t).sum(), -1.0 / (1.0 + np.exp(t))),
        lambda t: (t.sum(), np.ones_like(t)),
    ],
    ids=["flat", "heavy", "one flat direction", "flat on one side", "slope"],
)
def test_an_improper_posterior_never_looks_fine(function: Any) -> None:
    """Chains that run away end the run; slower ones get a warning."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error", SamplingWarning)
        with pytest.raises((BadInput, SamplingWarning), match=r"improper|proper\."):
            drawn(Model(function, 2), 800)


def test_a_log_density_in_the_place_of_U_is_told() -> None:
    said = []
    with quietly():
        try:
            said = drawn(Model(lambda t: (-0.5 * t @ t, -t), 2), 500).warnings
        except BadInput as error:
            said = [str(error)]
    assert any("that U is minus the log density" in sentence for sentence in said)


@pytest.mark.parametrize(
    "result", [None, np.zeros(1), np.complex128(1.0)], ids=["none", "array", "complex"]
)
def test_a_value_that_is_no_number_is_named(result: Any) -> None:
    model = gaussian(2)
    model.value = lambda theta: result
    with pytest.raises(BadInput, match="value must return a number, not"):
        drawn(model, 500)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: (0.5 * t @ t, t * (np.nan if t[0] > 1.0 else 1.0)),
        lambda t: (0.5 * t @ t if t[0] < 1.0 else np.inf, t),
    ],
    ids=["no gradient", "no density"],
)
def test_a_region_without_finite_numbers_is_told(function: Any) -> None:
    with quietly():
        samples = drawn(Model(function, 2), 800)
    said = "where U or its gradient is NaN or infinite: nothing is drawn"
    assert any(said in sentence for sentence in samples.warnings)
    assert max(chain[:, 0].max() for chain in samples.chains) <= 1.0


def test_a_step_that_overflows_is_no_fault_of_the_problem() -> None:
    """Too long a step on a quartic ends at infinity; U itself is finite everywhere."""

    def function(t: Any) -> tuple[float, Any]:
        bend = t[1] - t[0] ** 2
        g = np.array([0.1 * (t[0] - 1.0) - 20.0 * t[0] * bend, 10.0 * bend])
        return 0.05 * (t[0] - 1.0) ** 2 + 5.0 * bend**2, g

    target, x = Target(Model(function, 2), np.float64), np.array([3.0, 9.0])
    g = np.empty(2)
    value = target.value_and_grad(x, g)
    with np.errstate(all="ignore"):
        end = trajectory(target, x, g, value, np.eye(2), 1.0, 20, np.ones(2))
    assert end.divergent
    assert end.finite


def test_draws_that_a_chain_could_not_send_are_no_draws() -> None:
    """At the commit of a rejected update stands the draw of another chain."""
    with quietly():
        run = drawn(gaussian(2), 300, warm_up=200).run
    counters = {
        **run.counters,
        "draws": run.counters["draws"] - 5,
        "updates_rejected": 5,
    }
    with pytest.raises(BadInput, match="5 draws were not finite or beyond all bounds"):
        aq.Samples.from_run(dataclasses.replace(run, counters=counters))


@pytest.mark.parametrize(("dtype", "constant"), [(np.float32, 1e8), (np.float64, 1e16)])
def test_a_value_that_is_rounded_too_much_is_told(dtype: Any, constant: float) -> None:
    def function(t: Any) -> tuple[float, Any]:
        return float(dtype(constant) + dtype(0.5 * t @ t)), t

    with quietly():
        samples = drawn(
            Model(function, 2), 400, theta0=np.zeros(2, dtype), warm_up=200, check=False
        )
    assert any(
        "rounding affects which trajectories" in sentence
        for sentence in samples.warnings
    )


def test_a_run_that_ends_in_its_warm_up_has_no_draws_to_show() -> None:
    with quietly():
        samples = drawn(gaussian(2), 400, max_time=5.0)
    assert any("0 of 400 draws were made" in sentence for sentence in samples.warnings)
    assert not any("accepted" in sentence for sentence in samples.warnings)
    with pytest.raises(BadInput, match="no draws to summarise: max_time"):
        samples.summary()
    with pytest.raises(BadInput, match="no draws for ArviZ: max_time"):
        samples.to_arviz()


def test_a_wrong_gradient_that_nobody_checked_is_noticed() -> None:
    twisted = Model(lambda t: (0.5 * t @ t, np.array([t[0], t[0]])), 2)
    with quietly():
        samples = drawn(twisted, 500, check=False)
    assert any(
        "were accepted: check that the gradient" in sentence
        for sentence in samples.warnings
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"draws": 0}, "draws must be"),
        ({"chains": 1.5}, "chains must be"),
        ({"acceptance": 1.0}, "acceptance must be"),
        ({"warm_up": 0}, "warm_up must be"),
        ({"theta0": [0.0]}, "theta0 must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_mistakes_get_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        drawn(gaussian(2), **{"draws": 10, **options})


def test_the_result_is_shown_in_a_table_in_arviz_and_in_a_figure() -> None:
    model = gaussian(3)
    model.names = ["alpha", "beta[0]", "beta[1]"]
    samples = drawn(model, 2000)
    table = samples.summary()
    assert table["rhat"].max() < 1.02
    lines = str(table).splitlines()
    assert len(lines) == 4
    assert lines[1].startswith("alpha")
    posterior = samples.to_arviz()["posterior"]
    shortest = min(map(len, samples.chains))
    assert posterior["alpha"].shape == (4, shortest)
    assert posterior["beta"].shape == (4, shortest, 2)
    assert len(samples.plot().axes) == 6
    assert "Samples(" in repr(samples)
    with pytest.raises(BadInput, match="not of a sampler"):
        aq.Samples.from_run(
            aq.minimize(
                aq.LinearGaussian.random(3, 9), engine=aq.Simulator(aq.Cluster(1))
            )
        )
    with pytest.raises(BadInput, match="names"):
        aq.Samples.from_run(samples.run, names=["one"])


def centred_schools() -> Any:
    """The textbook centred eight schools, whose density has no mode: it grows without end as tau falls."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def function(phi: Any) -> tuple[float, Any]:
        mu, tau, effects = phi[0], phi[1], phi[2:]
        away = (effects - mu) / tau**2
        residual = (effects - y) / sigma**2
        square = away @ (effects - mu)
        value = 0.5 * (mu / 5.0) ** 2 + np.log1p((tau / 5.0) ** 2)
        value += 8.0 * np.log(tau) + 0.5 * square + 0.5 * residual @ (effects - y)
        scale = 2.0 * tau / (25.0 + tau**2) + (8.0 - square) / tau
        return value, np.array([mu / 25.0 - away.sum(), scale, *(away + residual)])

    return aq.Constrained(
        Model(function, 10),
        [aq.Bounded("mu"), aq.Bounded("tau", low=0.0), aq.Bounded("theta", 8)],
    )


def neal() -> Model:
    """Neal's funnel: v ~ N(0, 9), and nine numbers x ~ N(0, exp(v))."""

    def function(theta: Any) -> tuple[float, Any]:
        v, x = theta[0], theta[1:]
        precision = np.exp(-v)
        square = precision * (x @ x)
        value = v * v / 18.0 + 4.5 * v + 0.5 * square
        return value, np.array([v / 9.0 + 4.5 - 0.5 * square, *(precision * x)])

    return Model(function, 10)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_posterior_without_a_mode_is_drawn_and_replays(seed: int) -> None:
    with quietly():
        samples = drawn(centred_schools(), 6000, chains=8, seed=seed)
    # By integration over tau: mean 3.6 and standard deviation 3.2; the short tail needs a wide margin.
    assert 2.6 < samples["tau"].mean() < 4.8
    assert abs(samples["mu"].mean() - 4.4) < 1.6
    again = aq.Samples.from_run(aq.replay(samples.run))
    assert all((a == b).all() for a, b in zip(samples.chains, again.chains))


def test_a_neck_is_entered_from_where_its_mass_is() -> None:
    """Neal's funnel: all searches run down the neck, where the density is high and the mass is none."""
    with quietly():
        samples = drawn(neal(), 6000, chains=8)
    v = np.concatenate(samples.chains)[:, 0]
    assert samples.run.counters["starts_without_mode"] >= 8
    assert abs(v.mean()) < 2.0
    assert 1.5 < v.std() < 4.5
    assert samples.warnings


def test_late_divergences_lengthen_the_warm_up_once_and_are_kept_with_their_draws() -> (
    None
):
    half = Model(lambda t: (0.5 * t @ t if t[0] < 1.0 else np.inf, t), 2)
    with quietly():
        samples = drawn(half, 2000)
    assert samples.run.results["step"][3] == 1.0
    assert any("was lengthened 1.5 times" in said for said in samples.warnings)
    assert sum(part[:, 3].sum() for part in samples.statistics) == samples.divergent
    stats = samples.to_arviz()["sample_stats"]
    assert set(stats.data_vars) == {
        "energy",
        "acceptance_rate",
        "step_size",
        "diverging",
    }
    assert stats["diverging"].dtype == bool


def test_a_callback_may_stop_before_the_first_draw() -> None:
    def stop(seen: aq.Progress) -> None:
        raise StopIteration

    with quietly():
        samples = drawn(gaussian(2), 100, callback=stop)
    assert str(samples).startswith("no draws: ")
    with pytest.raises(BadInput, match="no draws to summarise"):
        samples.summary()


def test_columns_name_draws_and_rows_have_likelihoods(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.standard_normal((50, 1)), columns=["age"])
    problems = [
        aq.LogisticRegression(X, X["age"] + rng.standard_normal(50) > 0),
        aq.PoissonRegression(X, rng.poisson(2.0, 50)),
    ]
    for problem in problems:
        with quietly():
            samples = drawn(problem, 400, warm_up=300)
        assert samples.names == ["age", "(intercept)"]
        assert str(samples).splitlines()[1].startswith("age")
        tree = samples.to_arviz()
        likelihood = tree["log_likelihood"]["y"].values
        # U is minus their sum, but for the prior and a constant.
        per_draw = likelihood.sum(axis=-1).ravel()
        intercepts = tree["posterior"]["(intercept)"].values.ravel()
        slopes = tree["posterior"]["age"].values.ravel()
        U = [
            problem.value(np.array(t)) - 0.5 * problem.prior * t[0] ** 2
            for t in zip(slopes, intercepts)
        ]
        assert np.ptp(per_draw + U) < 1e-8
        predicted = tree["posterior_predictive"]["y"].values
        expected = problem.y.mean() if problem.y.min() >= 0 else (problem.y > 0).mean()
        assert abs(predicted.mean() - expected) < 0.15 * (1.0 + expected)
    samples.to_csv(tmp_path / "draws.csv")
    table = np.loadtxt(tmp_path / "draws.csv", delimiter=",", skiprows=1)
    np.testing.assert_array_equal(table[:, 2:], np.concatenate(samples.chains))


def test_a_mistake_below_constrained_names_the_class_of_the_user() -> None:
    class Wrong(Model):
        pass

    wrong = Wrong(lambda t: (0.5 * t @ t, 3.0 * t), 1)
    with pytest.raises(BadInput, match=r"^Wrong\.grad"):
        drawn(aq.Constrained(wrong, [aq.Bounded("a", low=-9.0)]), 100)


def test_values_that_change_only_away_from_the_start_are_refused() -> None:
    calls = []

    def noisy(t: Any) -> tuple[float, Any]:
        calls.append(1)
        return 0.5 * t @ t * (1.0 + 1e-6 * len(calls)), t

    with pytest.raises(BadInput, match="value is not pure"):
        drawn(Model(noisy, 2), 100)


def test_tiny_gradients_end_in_a_sentence() -> None:
    with np.errstate(all="ignore"), pytest.raises(BadInput, match="proper prior"):
        drawn(Model(lambda t: (0.5e-170 * t @ t, 1e-170 * t), 2), 400)
