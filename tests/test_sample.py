"""`sample`: right laws, warnings where they are due, replays, checkpoints, workers that come and go."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncqn as aq
from asyncqn.algorithms.sampling import shared_metric_hmc
from asyncqn.algorithms.sampling.search import find_start
from asyncqn.algorithms.sampling.shared_metric_hmc import BURN_IN
from asyncqn.algorithms.sampling.target import Target
from asyncqn.errors import BadInput, SamplingWarning
from tests.posterior_models import (
    Model,
    beside_a_unit_gaussian,
    centred_schools,
    funnel,
    gaussian,
    hierarchical,
    on_a_grid,
)

EIGHT = aq.Simulator(aq.Cluster(8))


def uneven(worker_mean: Any = (1.0, 1.5, 2.5, 4.0), **changes: Any) -> aq.Simulator:
    cluster = aq.Cluster(4, worker_mean=worker_mean, worker_std=0.3, **changes)
    return aq.Simulator(cluster)


@contextmanager
def quietly() -> Iterator[None]:
    """Short chains warn, rightly; here something else is looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        yield


def drawn(problem: Any, draws: int = 4000, **options: Any) -> aq.Samples:
    options = {"chains": 4, "engine": uneven(), **options}
    return aq.sample(problem, draws=draws, **options)


def warned(problem: Any, draws: int, **options: Any) -> str:
    """The warnings of a run, or the sentence with which it ends."""
    with quietly(), np.errstate(all="ignore"):
        try:
            return " ".join(drawn(problem, draws, **options).warnings)
        except BadInput as error:
            return str(error)


def assert_equal(a: aq.Samples, b: aq.Samples) -> None:
    for x, y in zip(a.chains, b.chains, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(a.metric, b.metric)
    assert (a.step, a.accept) == (b.step, b.accept)


def assert_right(samples: aq.Samples, mean: Any, sd: Any) -> None:
    """Means within 0.1 sd and standard deviations within 5 %, as far as the draws can tell."""
    pooled = np.concatenate(samples.chains)
    error = 4.0 / np.sqrt(float(samples.ess.min()))
    assert np.abs((pooled.mean(axis=0) - mean) / sd).max() < max(0.1, error)
    assert np.abs(pooled.std(axis=0) / sd - 1.0).max() < max(0.05, error / 1.4)


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
    off = np.abs(pooled.mean(axis=0) - mean)
    assert (off < np.maximum(0.1 * sd, 4.0 * error)).all()
    assert np.abs(pooled.std(axis=0) / sd - 1.0).max() < 0.08


@pytest.mark.parametrize(
    ("centre", "scale"),
    [
        ([11.0, 11.0], 1.0),
        ([8.0], 0.1),
        ([60.0, -80.0], 1.0),
    ],
    ids=["separate", "narrow", "far"],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_second_mode_is_found_even_if_it_is_narrow_or_far(
    centre: list[float], scale: float, seed: int
) -> None:
    model = beside_a_unit_gaussian(np.array(centre), scale)
    options = {"chains": 8, "warm_up": 400, "engine": EIGHT}
    with pytest.warns(SamplingWarning, match="R-hat is"):
        samples = drawn(model, 600, seed=seed, **options)
    assert samples.rhat.max() > 1.1
    assert any("2 separate places" in sentence for sentence in samples.warnings)


def test_a_chain_whose_start_is_not_finite_begins_at_the_best_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(target: Target, origin: Any, rng: Any, chain: int, chains: int) -> Any:
        place = find_start(target, origin, rng, chain, chains)
        if chain in (0, 2):
            place = place._replace(x=np.full(3, np.nan), evidence=-1e11)
        return place

    monkeypatch.setattr(shared_metric_hmc, "find_start", lost)
    model = gaussian(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        samples = drawn(model, 3000)
    assert samples.run.counters["chains_moved"] == 2
    assert_right(samples, model.mean, model.sd)
    assert_equal(samples, aq.Samples.from_run(aq.replay(samples.run)))


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


@pytest.mark.parametrize("seed", [0, 1])
def test_a_posterior_without_a_mode_is_drawn_and_replays(seed: int) -> None:
    with quietly():
        samples = drawn(centred_schools(), 6000, chains=8, seed=seed)
    # By integration over tau: mean 3.6 and standard deviation 3.2; the short tail needs a wide margin.
    assert 2.6 < samples["tau"].mean() < 4.8
    assert abs(samples["mu"].mean() - 4.4) < 1.6
    assert samples.run.counters["starts_without_mode"] >= 8
    assert_equal(samples, aq.Samples.from_run(aq.replay(samples.run)))


@pytest.mark.parametrize("engine", [aq.Threads(2), aq.Processes(2)], ids=str)
def test_a_replay_gives_every_draw_again(engine: Any, tmp_path: Path) -> None:
    problem = aq.LinearGaussian.random(dim=4, n_data=40, seed=2)
    with quietly():
        samples = drawn(problem, 600, warm_up=200, engine=engine, seed=3)
    assert_equal(aq.Samples.from_run(aq.replay(samples.run)), samples)
    loaded = aq.load_run(samples.run.save(tmp_path / "run"))
    assert_equal(aq.Samples.from_run(loaded), samples)


@pytest.mark.parametrize("engine", [uneven(), aq.Threads(2)], ids=["sim", "threads"])
def test_a_run_that_was_interrupted_goes_on(engine: Any, tmp_path: Path) -> None:
    problem = aq.LinearGaussian.random(dim=3, n_data=30, seed=0)

    def stop(progress: Any) -> None:
        if progress.commit >= 500:
            raise StopIteration

    options = {"checkpoint": tmp_path / "c", "checkpoint_every": 100, "callback": stop}
    with quietly():
        first = drawn(problem, 900, warm_up=200, engine=engine, **options)
    assert sum(map(len, first.chains)) < 900
    assert any("of 900 draws were made" in sentence for sentence in first.warnings)
    samples = aq.Samples.from_run(aq.resume(tmp_path / "c"))
    assert sum(map(len, samples.chains)) == 900
    assert_equal(samples, aq.Samples.from_run(aq.replay(samples.run)))
    assert (first.chains[0] == samples.chains[0][: len(first.chains[0])]).all()


def test_a_worker_that_joins_late_burns_in_and_one_that_dies_keeps_its_past() -> None:
    engine = uneven(worker_mean=1.0, joins={3: 300.0}, deaths={0: 320.0})
    with quietly():
        samples = drawn(gaussian(4), 3000, engine=engine, warm_up=300)
    schedule = samples.run.schedule
    made = int((schedule.worker == 3).sum())
    late = len(samples.chains[3])
    assert late <= made - BURN_IN
    assert 0 < len(samples.chains[0]) < len(samples.chains[1])
    assert sum(map(len, samples.chains)) == 3000
    model = gaussian(4)
    assert abs(samples.chains[3].mean(axis=0) - model.mean)[0] < model.sd[0]


@pytest.mark.parametrize(
    ("workers", "chains", "expected"), [(1, 4, 4), (3, 4, 6), (4, 2, 4)]
)
def test_every_worker_runs_equally_many_chains(
    workers: int, chains: int, expected: int
) -> None:
    engine, model = aq.Simulator(aq.Cluster(workers)), gaussian(2)
    with quietly():
        samples = drawn(model, 1200, chains=chains, warm_up=600, engine=engine)
    assert len(samples.chains) == expected
    assert_right(samples, model.mean, model.sd)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda t: (np.inf if t[0] <= 0 else t[0], t), "U is inf at theta0"),
        (
            lambda t: (0.5 * t @ t, t * [1.0, np.nan]),
            r"gradient with respect to theta\[1\] is nan",
        ),
        (lambda t: (0.5 * t @ t, -t), "is -1 times the gradient"),
        (lambda t: (0.5 * t @ t, 0.0 * t), "is exactly zero where"),
    ],
    ids=["-inf", "nan", "sign", "zero"],
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
        lambda t: (0.5e-170 * t @ t, 1e-170 * t),
    ],
    ids=["flat", "heavy", "one flat direction", "flat on one side", "slope", "tiny"],
)
def test_an_improper_posterior_never_looks_fine(function: Any) -> None:
    """Chains that run away end the run; slower ones get a warning."""
    said = warned(Model(function, 2), 800)
    assert "improper" in said or "proper." in said


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda t: (-0.5 * t @ t, -t), "that U is minus the log density"),
        (
            lambda t: (0.5 * t @ t, t[[0, 0]]),
            "were accepted: check that the gradient",
        ),
        (
            lambda t: (0.5 * t @ t, t * (np.nan if t[0] > 1.0 else 1.0)),
            "where U or its gradient is NaN or infinite: nothing is drawn",
        ),
        (
            lambda t: (0.5 * t @ t if t[0] < 1.0 else np.inf, t),
            "where U or its gradient is NaN or infinite: nothing is drawn",
        ),
        (
            lambda t: (1e16 + 0.5 * t @ t, t),
            "rounding affects which trajectories",
        ),
    ],
    ids=["log density", "wrong gradient", "no gradient", "no density", "rounding"],
)
def test_a_doubtful_density_is_told(function: Any, sentence: str) -> None:
    said = warned(Model(function, 2), 800, check=False, theta0=np.zeros(2))
    assert sentence in said


def test_a_run_that_ends_in_its_warm_up_has_no_draws_to_show() -> None:
    def stop(seen: aq.Progress) -> None:
        raise StopIteration

    for options in ({"max_time": 5.0}, {"callback": stop}):
        with quietly():
            samples = drawn(gaussian(2), 400, **options)
        assert samples.warnings[-1].startswith("0 of 400 draws were made")
        assert str(samples).startswith("no draws: ")
        for show in (samples.summary, samples.to_arviz):
            with pytest.raises(BadInput, match="there are no draws"):
                show()


def test_the_result_is_shown_in_a_table_in_arviz_and_in_a_figure() -> None:
    model = gaussian(3)
    model.names = ["alpha", "beta[0]", "beta[1]"]
    samples = drawn(model, 2000)
    table = samples.summary()
    assert table["rhat"].max() < 1.02
    lines = str(table).splitlines()
    assert len(lines) == 4
    assert lines[1].split()[0] == "alpha"
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


def test_late_divergences_lengthen_the_warm_up_and_stay_with_their_draws() -> None:
    half = Model(lambda t: (0.5 * t @ t if t[0] < 1.0 else np.inf, t), 2)
    with quietly():
        samples = drawn(half, 2000)
    assert any("was lengthened 1.5 times" in said for said in samples.warnings)
    assert sum(part[:, 3].sum() for part in samples.statistics) == samples.divergent
    stats = samples.to_arviz()["sample_stats"]
    assert set(stats.data_vars) == set(shared_metric_hmc.STATISTICS)
    assert stats["diverging"].dtype == bool


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
        assert str(samples).splitlines()[1].split()[0] == "age"
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
    wrong = type("Wrong", (Model,), {})(lambda t: (0.5 * t @ t, 3.0 * t), 1)
    with pytest.raises(BadInput, match=r"^Wrong\.grad"):
        drawn(aq.Constrained(wrong, [aq.Bounded("a", low=-9.0)]), 100)
