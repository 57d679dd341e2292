"""`asyncqn evaluate`: how well a saved recommender predicts, and ranks, what it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.output import Json, Output, Quiet
from asyncqn.cli.ratings_options import (
    Delimiter,
    Duplicates,
    ItemColumn,
    RatingColumn,
    SkipBad,
    Source,
    TimeColumn,
    UserColumn,
    read,
)


def register(app: typer.Typer) -> None:
    """Add the command `evaluate`."""

    @app.command()
    def evaluate(
        model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
        data: Source,
        k: Annotated[
            int | None,
            typer.Option("--k", "-k", help="Judge lists of the k best items, too.", metavar="K"),
        ] = None,
        threshold: Annotated[
            float | None, typer.Option(help="Ratings of at least this are relevant [all].")
        ] = None,
        user_column: UserColumn = None,
        item_column: ItemColumn = None,
        rating_column: RatingColumn = None,
        time_column: TimeColumn = None,
        delimiter: Delimiter = None,
        duplicates: Duplicates = None,
        skip_bad: SkipBad = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Compare a model with ratings: RMSE, MAE; with --k precision, recall, NDCG, MAP, hits, coverage."""
        from asyncqn.recommender.estimator import Recommender

        out = Output(json, quiet)
        loaded = Recommender.load(model)
        reading = read(
            data,
            out,
            user=user_column,
            item=item_column,
            rating=rating_column,
            time=time_column,
            delimiter=delimiter,
            duplicates=duplicates,
            skip_bad=skip_bad,
        )
        numbers = loaded.evaluate(reading.ratings, k=k, threshold=threshold)
        if not json:
            width = max(map(len, numbers))
            out.show("\n".join(f"{name:<{width}} {value:.6g}" for name, value in numbers.items()))
        out.result(numbers | {"skipped": reading.skipped, "repeated": reading.repeated})
