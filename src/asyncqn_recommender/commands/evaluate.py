"""`asyncqn recommender evaluate`: how well a saved recommender predicts, and ranks, what it has not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from asyncqn.cli import Output
from asyncqn_recommender.commands._options import ReadingOptions, Source


def evaluate(
    model: Annotated[Path, typer.Argument(help="Folder of a saved model.")],
    data: Source,
    reading: ReadingOptions,
    out: Output,
    k: Annotated[
        int | None, typer.Option("--k", "-k", help="Judge lists of the k best items, too.", metavar="K")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Ratings of at least this are relevant [all].")
    ] = None,
) -> None:
    """Compare a model with ratings: RMSE, MAE; with --k, or of clicks, precision, recall, NDCG..."""
    from asyncqn_recommender.estimator import Recommender

    loaded = Recommender.load(model)
    clicks = reading.clicks or loaded.feedback == "implicit"
    tested = replace(reading, clicks=clicks).read(data, out)
    numbers = loaded.evaluate(tested.ratings, k=k, threshold=threshold)
    width = max(map(len, numbers))
    out.show("\n".join(f"{name:<{width}} {value:.6g}" for name, value in numbers.items()))
    out.result(numbers | {"skipped": tested.skipped, "repeated": tested.repeated})
