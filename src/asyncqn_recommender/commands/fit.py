"""`asyncqn recommender fit`: learn a recommender from a stored set or a file of ratings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli import Generated, Output
from asyncqn.errors import require
from asyncqn_recommender.commands._options import How, Source, read
from asyncqn_recommender.estimator import Recommender

if TYPE_CHECKING:
    from asyncqn.types import Progress
    from asyncqn_recommender.data import Ratings

SPLITS = ("random", "time", "user-time", "last")
"""Splits: a random share; the latest share of all ratings; of each user's; each user's last rating."""

USUAL_SHARE = 0.1
"""The share of a split by time, by default."""


Model = Annotated[
    dict[str, Any],
    Generated(
        Recommender,
        (
            "rank",
            "workers",
            "seed",
            "feedback",
            "prior",
            "alpha",
            "confidence",
            "passes",
            "offsets",
            "early_stopping",
        ),
    ),
]
"""The parameters of the model that the user gave."""


@dataclass(frozen=True)
class SplitOptions:
    """The options of the test split."""

    test_fraction: Annotated[
        float | None,
        typer.Option(
            help="Share of the ratings for the test.  [0; with --split time or user-time 0.1]"
        ),
    ] = None
    split: Annotated[
        str,
        typer.Option(
            help="Test ratings: random, the latest (time), the latest of each user (user-time), or the "
            "last one of each user (last, which takes no --test-fraction)."
        ),
    ] = "random"
    test_out: Annotated[
        Path | None,
        typer.Option(
            help="Write the test ratings here: .csv, .parquet or a folder.",
            metavar="PATH",
        ),
    ] = None

    def check(self) -> None:
        """Raise `BadInput` for an unknown split, a missing share, or a test file without a test."""
        split = self.split
        share = self.share
        require(
            split in SPLITS,
            f"--split must be one of {', '.join(SPLITS)}, not {split!r}.",
        )
        require(0.0 <= share < 1.0, f"--test-fraction must lie in [0, 1), not {share}.")
        require(
            split in ("random", "last") or share > 0.0,
            f"--split {split} needs a share: leave --test-fraction out, for 0.1, or make it positive.",
        )
        require(
            split != "last" or self.test_fraction is None,
            "--split last takes no --test-fraction: leave it out.",
        )
        require(
            self.test_out is None or split == "last" or share > 0.0,
            "--test-out needs a test: add --test-fraction 0.1, or --split last.",
        )

    @property
    def share(self) -> float:
        """The share of the ratings that is kept for the test."""
        if self.test_fraction is None:
            return USUAL_SHARE if self.split in ("time", "user-time") else 0.0
        return self.test_fraction

    def divided(self, ratings: Ratings, seed: int) -> tuple[Ratings, Ratings | None]:
        """Return train and test ratings according to the options."""
        if self.split == "last":
            return ratings.split_last()
        if not self.share:
            return ratings, None
        if self.split == "random":
            return ratings.split(self.share, seed)
        return ratings.split_by_time(self.share, per_user=self.split == "user-time")


def fit(
    data: Source,
    model: Model,
    kept: SplitOptions,
    how: How,
    output: Output,
    out: Annotated[
        Path | None, typer.Option(help="Save the model here.", metavar="DIR")
    ] = None,
) -> None:
    """Learn a recommender from ratings or clicks; print its quality, and save it with --out."""
    kept.check()
    check_places(out, kept.test_out)
    learner = Recommender(**model)
    # Before the file is read, which may take long.
    learner.check()
    implicit = learner.feedback == "implicit"
    clicks = how.pop("clicks", False)
    require(implicit or not clicks, "--clicks needs --feedback implicit: add it.")
    found = read(data, output, {**how, "clicks": implicit})
    output.say(str(found.ratings))
    train, test = kept.divided(found.ratings, learner.seed)
    learn(learner, train, output)
    numbers: dict[str, Any] = {
        **quality(learner, train, test),
        "fun": learner.fun_,
        "seconds": learner.seconds_,
        "commits": learner.n_iter_,
        "status": learner.status_,
        "skipped": found.skipped,
        "repeated": found.repeated,
        "test": None
        if test is None or kept.test_out is None
        else str(write_test(test, kept.test_out)),
        "model": None if out is None else str(learner.save(out)),
    }
    output.numbers(numbers)
    output.result(numbers)


def quality(
    model: Recommender, train: Ratings, test: Ratings | None
) -> dict[str, float | None]:
    """Return the RMSEs for ratings, or the NDCG of lists of ten for clicks."""
    if model.feedback == "implicit":
        return {"test_ndcg": None if test is None else model.evaluate(test)["ndcg"]}
    return {
        "train_rmse": model.rmse(train),
        "test_rmse": None if test is None else model.rmse(test),
    }


def check_places(out: Path | None, test_out: Path | None) -> None:
    """Raise `BadInput` early for paths that could not be written later."""
    from asyncqn.storage import check_output
    from asyncqn_recommender.data.store import RATINGS
    from asyncqn_recommender.data.tables import check_table_name
    from asyncqn_recommender.files import MODEL

    if out is not None:
        MODEL.check_place(out)
    if test_out is not None:
        if test_out.suffix:
            check_table_name(test_out)
            check_output(test_out)
        else:
            RATINGS.check_place(test_out)


def write_test(test: Ratings, place: Path) -> Path:
    """Write the test ratings as a table or, without a suffix, as a stored set."""
    from asyncqn_recommender.data.store import save_ratings
    from asyncqn_recommender.data.tables import write_ratings

    if not place.suffix:
        return save_ratings(test, place)
    write_ratings(place, test)
    return place


def learn(model: Recommender, train: Ratings, output: Output) -> None:
    """Fit the model and show its progress after each pass."""
    from asyncqn_recommender.learning import SHOWN

    with output.progress("fit", model.passes) as advance:

        def show(progress: Progress) -> None:
            known = {k: v for k, v in progress.metrics.items() if k in SHOWN}
            note = ", ".join(
                f"{name.replace('_', ' ')} {value:.4f}" for name, value in known.items()
            )
            advance(int(progress.metrics["passes"]), note)

        model.fit(train, callback=show)
