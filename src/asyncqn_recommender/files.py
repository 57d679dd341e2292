"""A learned model on disk: a JSON document and a file of arrays, with checksums and without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import DamagedFile
from asyncqn.storage import (
    Document,
    Kind,
    Spec,
    read_folder,
    to_json,
    write_folder,
)
from asyncqn.types import Table
from asyncqn_recommender.kernels.als import Grouped
from asyncqn_recommender.model import FactorModel, Offsets

MODEL = Kind(
    "asyncqn model",
    "model",
    "model.json",
    3,
    ("arrays.npz",),
    advice="; fit the model again",
)
FLOATS = ("<f8", "<f4")
INT64 = ("<i8",)
IDS = ("<i8", "U")
"""The dtypes of ids: integers or texts."""

SCHEMA = {
    "item_factors": Spec(FLOATS, ("items", "rank")),
    "user_factors": Spec(FLOATS, ("users", "rank")),
    "user_ids": Spec(IDS, ("users",)),
    "item_ids": Spec(IDS, ("items",)),
    "item_offsets": Spec(("<f8",), ("items",)),
    "user_offsets": Spec(("<f8",), ("users",)),
    "item_counts": Spec(INT64, ("items",)),
    "user_counts": Spec(INT64, ("users",)),
    "seen_start": Spec(INT64, ("users + 1",)),
    "seen_items": Spec(("<i4",), ("ratings",)),
    # The names in each shape tie the arrays together: all that have "users" must agree in length.
    "seen_values": Spec(("<f4",), ("ratings",)),
    "titles": Spec(("U",), ("items",), optional=True),
    "columns": Spec(("<f8",), ("rank",)),
    "history.*": Spec(("f", "i", "u", "b"), ("evaluations",)),
}

Number = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]


class ModelDocument(msgspec.Struct):
    """The entries that model.json must have."""

    mean: Number
    lowest: Number
    highest: Number
    prior: Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]
    alpha: Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]
    trust: Annotated[float, msgspec.Meta(ge=0.0, le=1e300)]
    residual: bool
    clip: bool
    parameters: dict[str, Any]
    facts: dict[str, Any]
    confidence: Annotated[float, msgspec.Meta(gt=0.0, le=1e300)] | None = None


_ARRAYS = ("item_factors", "user_factors", "user_ids", "item_ids", "titles", "columns")
"""Arrays with the name of a field of the model; titles are optional."""
_NUMBERS = (
    "lowest",
    "highest",
    "prior",
    "alpha",
    "residual",
    "trust",
    "clip",
    "confidence",
)


def save_model(
    folder: str | Path,
    model: FactorModel,
    history: Table,
    parameters: dict[str, Any],
    facts: dict[str, Any],
) -> Path:
    """Write the model to `folder`, completely or not at all; an older model there is replaced."""
    arrays: dict[str, npt.NDArray[Any]] = {
        **{
            name: array
            for name in _ARRAYS
            if (array := getattr(model, name)) is not None
        },
        "item_offsets": model.offsets.items,
        "user_offsets": model.offsets.users,
        "item_counts": model.offsets.item_counts,
        "user_counts": model.offsets.user_counts,
        "seen_start": model.seen.start,
        "seen_items": model.seen.others,
        "seen_values": model.seen.values,
        **{f"history.{name}": column for name, column in history.items()},
    }
    document = {
        "parameters": to_json(parameters),
        "facts": to_json(facts),
        "mean": model.offsets.mean,
        **{name: getattr(model, name) for name in _NUMBERS},
    }
    return write_folder(folder, MODEL, document, {"arrays.npz": arrays})


def load_model(
    folder: str | Path,
) -> tuple[FactorModel, Table, dict[str, Any], dict[str, Any]]:
    """Return model, history, parameters and facts; raise an error for a folder without an intact model."""
    return read_folder(folder, MODEL, _read_model)


def _read_model(
    document: Document,
) -> tuple[FactorModel, Table, dict[str, Any], dict[str, Any]]:
    said = document.typed(ModelDocument)
    arrays = document.arrays("arrays.npz", SCHEMA)
    _check_seen(document.folder, arrays)
    same: dict[str, Any] = {name: arrays.get(name) for name in _ARRAYS}
    model = FactorModel(
        **same,
        **{name: getattr(said, name) for name in _NUMBERS},
        offsets=Offsets(
            said.mean,
            *(
                arrays[name]
                for name in (
                    "item_offsets",
                    "user_offsets",
                    "item_counts",
                    "user_counts",
                )
            ),
        ),
        seen=Grouped(
            *(arrays[f"seen_{name}"] for name in ("start", "items", "values"))
        ),
    )
    head = "history."
    history = {
        name.removeprefix(head): a
        for name, a in arrays.items()
        if name.startswith(head)
    }
    return model, Table(history), said.parameters, said.facts


def _check_seen(folder: str | Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Check that the groups of items by user cover their list, and refer to items that exist."""
    start = arrays["seen_start"]
    items = arrays["seen_items"]
    users = len(arrays["user_ids"])
    n_items = len(arrays["item_ids"])
    # Compiled loops rely on these ranges and do not check them, so that a wrong file could crash the process.
    tiled = len(start) == users + 1 and start[0] == 0 and start[-1] == len(items)
    inside = len(items) == 0 or (items.min() >= 0 and items.max() < n_items)
    if not (tiled and (np.diff(start) >= 0).all() and inside):
        raise DamagedFile(
            f"{folder} is damaged: the items seen by its users do not fit{MODEL.advice}."
        )
    if arrays["item_factors"].dtype != arrays["user_factors"].dtype:
        raise DamagedFile(
            f"{folder} is damaged: its factors differ in precision{MODEL.advice}."
        )
