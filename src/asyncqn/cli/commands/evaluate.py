"""`asyncqn evaluate`: how well a saved recommender predicts ratings it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli.commands.fit import ItemColumn, RatingColumn, SkipBad, Source, UserColumn, read
from asyncqn.cli.output import Json, Output, Quiet


def register(app: typer.Typer) -> None:
    """Add the command `evaluate`."""

    @app.command()
    def evaluate(
        model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
        data: Source,
        user_column: UserColumn = None,
        item_column: ItemColumn = None,
        rating_column: RatingColumn = None,
        skip_bad: SkipBad = False,
        json: Json = False,
        quiet: Quiet = False,
    ) -> None:
        """Compare a model's predictions with ratings: RMSE, mean absolute error, how many."""
        from asyncqn.recommender.estimator import Recommender

        out = Output(json, quiet)
        loaded = Recommender.load(model)
        numbers = loaded.evaluate(read(data, (user_column, item_column, rating_column), skip_bad, out))
        if not json:
            out.show(f"rmse {numbers['rmse']:.6g}\nmae  {numbers['mae']:.6g}\nn    {numbers['n']}")
        out.result(numbers)
