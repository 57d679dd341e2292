"""`asyncqn recommender fit`: learn a recommender from a stored set or a file of ratings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from asyncqn.cli import Generated, Output
from asyncqn.errors import require
from asyncqn_recommender.commands._options import (
    How,
    Saved,
    Source,
    check_model_place,
    check_table_place,
    read,
    write_table,
)
from asyncqn_recommender.estimator import Recommender

if TYPE_CHECKING:
    from asyncqn.types import Progress
    from asyncqn_recommender.data import Ratings

Split = Literal["random", "time", "user-time", "last"]
USUAL_SHARE = 0.1
"""The share of a split by time, by default."""
_OPTIONS = "rank workers seed feedback prior alpha confidence passes early_stopping"
Parameters = Annotated[dict[str, Any], Generated(Recommender, tuple(_OPTIONS.split()))]
"""The parameters of the model that the user gave."""


def fit(
    data: Source,
    model: Parameters,
    how: How,
    output: Output,
    test_fraction: Annotated[
        float | None,
        typer.Option(
            help="Share of the ratings for the test.  [0; with --split time or user-time "
            "0.1]"
        ),
    ] = None,
    split: Annotated[
        Split,
        typer.Option(
            help="Test ratings: random, the latest (time), the latest of each user "
            "(user-time), or the last one of each user (last, which takes no "
            "--test-fraction)."
        ),
    ] = "random",
    test_out: Annotated[
        Path | None,
        typer.Option(help="Write the test ratings here: .csv or .parquet."),
    ] = None,
    out: Saved = None,
) -> None:
    """Learn a recommender from ratings or clicks; print its quality, and save it with --out."""
    share = test_fraction
    if share is None:
        share = USUAL_SHARE if split in ("time", "user-time") else 0.0
    require(0.0 <= share < 1.0, f"--test-fraction must lie in [0, 1), not {share}.")
    require(
        split in ("random", "last") or share > 0.0,
        f"--split {split} needs a share: leave --test-fraction out, for 0.1, or make it "
        "positive.",
    )
    require(
        split != "last" or test_fraction is None,
        "--split last takes no --test-fraction: leave it out.",
    )
    require(
        test_out is None or split == "last" or share > 0.0,
        "--test-out needs a test: add --test-fraction 0.1, or --split last.",
    )
    # Places are checked before a fit that may take long.
    check_model_place(out)
    if test_out is not None:
        check_table_place(test_out)
    learner = Recommender(**model)
    # Before the file is read, which may take long.
    learner.check()
    implicit = learner.feedback == "implicit"
    require(
        implicit or not how.get("clicks"),
        "--clicks needs --feedback implicit: add it.",
    )
    reading = read(data, output, how, implicit)
    output.say(str(reading.ratings))
    train, test = divide(reading.ratings, split, share, learner.seed)
    learn(learner, train, output)
    if test is not None and test_out is not None:
        write_ratings(test_out, test)
    numbers: dict[str, Any] = {
        **quality(learner, train, test),
        "fun": learner.fun_,
        "seconds": learner.seconds_,
        "commits": learner.n_iter_,
        "status": learner.status_,
        "skipped": reading.skipped,
        "repeated": reading.repeated,
        "test": None if test_out is None else str(test_out),
        "model": None if out is None else str(learner.save(out)),
    }
    output.numbers(numbers)
    output.result(numbers)


def divide(
    ratings: Ratings, split: Split, share: float, seed: int
) -> tuple[Ratings, Ratings | None]:
    """Return train and test ratings."""
    if split == "last":
        return ratings.split_last()
    if share == 0.0:
        return ratings, None
    if split == "random":
        return ratings.split(share, seed)
    return ratings.split_by_time(share, per_user=split == "user-time")


def learn(model: Recommender, train: Ratings, output: Output) -> None:
    """Fit the model and show its progress after each pass."""
    from asyncqn_recommender.learning import SHOWN

    with output.progress("fit", model.passes) as advance:

        def show(progress: Progress) -> None:
            words = [name for name in SHOWN if name in progress.metrics]
            notes = (f"{word} {progress.metrics[word]:.4f}" for word in words)
            advance(int(progress.metrics["passes"]), ", ".join(notes).replace("_", " "))

        model.fit(train, callback=show)


def quality(
    model: Recommender, train: Ratings, test: Ratings | None
) -> dict[str, float | None]:
    """Return the RMSEs for ratings, or the NDCG of lists of ten for clicks."""
    if model.feedback == "implicit":
        return {"test_ndcg": None if test is None else model.evaluate(test)["ndcg"]}
    test_rmse = None if test is None else model.rmse(test)
    return {"train_rmse": model.rmse(train), "test_rmse": test_rmse}


def write_ratings(path: Path, ratings: Ratings) -> None:
    """Write ratings as a table with the columns user, item, rating and, if there are times, time."""
    columns = {
        "user": ratings.user_ids[ratings.users],
        "item": ratings.item_ids[ratings.items],
        "rating": ratings.values,
    }
    times = {} if ratings.times is None else {"time": ratings.times}
    write_table(path, columns | times)
