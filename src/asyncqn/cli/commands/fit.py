"""`asyncqn fit`: learn a recommender from a stored set or a file of ratings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asyncqn.cli.output import Json, Output, Quiet
from asyncqn.errors import require

if TYPE_CHECKING:
    from asyncqn.data import Ratings
    from asyncqn.types import Progress

Source = Annotated[str, typer.Argument(help="Name of a stored set (see 'asyncqn data list'), or a file.")]
UserColumn = Annotated[str | None, typer.Option(help="Column of a file that names the user.", metavar="NAME")]
ItemColumn = Annotated[str | None, typer.Option(help="Column of a file that names the item.", metavar="NAME")]
RatingColumn = Annotated[str | None, typer.Option(help="Column of a file with the rating.", metavar="NAME")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows of a file instead of stopping.")]


def register(app: typer.Typer) -> None:
    """Add the command `fit`."""

    @app.command()
    def fit(
        data: Source,
        rank: Annotated[int, typer.Option(help="Numbers that describe a user or an item.")] = 10,
        workers: Annotated[int, typer.Option(help="Threads that compute.")] = 2,
        seed: Annotated[int, typer.Option(help="Of the test split, the start and the shuffling.")] = 0,
        test_fraction: Annotated[float, typer.Option(help="Share of the ratings kept for the test.")] = 0.0,
        prior: Annotated[float, typer.Option(help="Ridge of every row.")] = 3.0,
        alpha: Annotated[float, typer.Option(help="Ridge of a row per rating of it.")] = 0.04,
        passes: Annotated[int, typer.Option(help="Passes over the ratings, at most.")] = 15,
        offsets: Annotated[bool, typer.Option("--offsets", help="Remove item and user means first.")] = False,
        early_stopping: Annotated[
            bool, typer.Option("--early-stopping", help="Hold ratings out and stop when they get no better.")
        ] = False,
        out: Annotated[Path | None, typer.Option(help="Save the model here.", metavar="DIR")] = None,
        user_column: UserColumn = None,
        item_column: ItemColumn = None,
        rating_column: RatingColumn = None,
        skip_bad: SkipBad = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Learn a recommender from ratings; prints its RMSE and saves it with --out."""
        from asyncqn.recommender.estimator import Recommender
        from asyncqn.recommender.files import MODEL
        from asyncqn.storage import check_folder, check_place

        output = Output(json, quiet)
        if out is not None:
            check_folder(out, MODEL)  # before the work, not after it
            check_place(out)
        require(0.0 <= test_fraction < 1.0, f"--test-fraction must lie in [0, 1), not {test_fraction}.")
        model = Recommender(
            rank, workers=workers, seed=seed, prior=prior, alpha=alpha, passes=passes, offsets=offsets,
            early_stopping=early_stopping,
        )  # fmt: skip
        model.check()
        ratings = read(data, (user_column, item_column, rating_column), skip_bad, output)
        output.say(str(ratings))
        train, test = ratings.split(test_fraction, seed) if test_fraction else (ratings, None)
        with output.progress("fit", passes) as advance:

            def show(progress: Progress) -> None:
                rmse = {k: v for k, v in progress.metrics.items() if k in ("rmse", "validation_rmse")}
                note = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in rmse.items())
                advance(int(progress.metrics["passes"]), note)

            model.fit(train, callback=show)
        numbers: dict[str, Any] = {
            "train_rmse": model.rmse(train), "test_rmse": None if test is None else model.rmse(test),
            "fun": model.fun_, "seconds": model.seconds_, "commits": model.n_iter_, "status": model.status_,
            "model": None if out is None else str(model.save(out)),
        }  # fmt: skip
        for name, value in numbers.items():
            if value is not None and not json:
                output.show(f"{name:<12} {f'{value:.6g}' if isinstance(value, float) else value}")
        output.result(numbers)


def read(
    source: str, columns: tuple[str | None, str | None, str | None], skip_bad: bool, out: Output
) -> Ratings:
    """Ratings by name or from a file; with columns named, from a file."""
    from asyncqn.data import load, read_ratings

    if not any(columns) and not skip_bad:
        return load(source)
    require(Path(source).exists(), f"there is no file {source}: columns and --skip-bad are for files.")
    user, item, rating = columns
    reading = read_ratings(source, user=user, item=item, rating=rating, skip_bad=skip_bad)
    for problem in reading.problems:
        out.say(f"Skipped: {problem}")
    return reading.ratings
