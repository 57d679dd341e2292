"""`asyncqn recommender evaluate`: measure the predictions and lists of a saved recommender on new ratings."""

from __future__ import annotations

from typing import Annotated

import typer

from asyncqn.cli import Output
from asyncqn_recommender.commands._options import How, Model, Source, read


def evaluate(
    model: Model,
    data: Source,
    how: How,
    out: Output,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", help="Also judge lists of the k best items."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Ratings of at least this value are relevant.  [all]"),
    ] = None,
) -> None:
    """Compare a model with ratings: RMSE and MAE; with --k, or for clicks, precision, recall, NDCG and
    more."""
    from asyncqn_recommender.estimator import Recommender

    loaded = Recommender.load(model)
    # A model of clicks is evaluated on clicks, whatever the options say.
    clicks = bool(how.get("clicks")) or loaded.feedback == "implicit"
    tested = read(data, out, how, clicks)
    numbers = loaded.evaluate(tested.ratings, k=k, threshold=threshold)
    out.numbers(numbers)
    out.result(numbers | {"skipped": tested.skipped, "repeated": tested.repeated})
