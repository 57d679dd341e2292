"""A learned model on disk: a JSON document and a file of arrays, with checksums and without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from asyncqn.errors import DamagedFile
from asyncqn.storage import (
    Document,
    FolderKind,
    Spec,
    read_folder,
    to_json,
    write_folder,
)
from asyncqn.types import Table
from asyncqn_recommender.kernels.als import Grouped
from asyncqn_recommender.model import FactorModel, Offsets

MODEL = FolderKind(
    "asyncqn model",
    "model",
    "model.json",
    4,
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
    clip: bool
    parameters: dict[str, Any]
    facts: dict[str, Any]
    confidence: Annotated[float, msgspec.Meta(gt=0.0, le=1e300)] | None = None


_ARRAYS = ("item_factors", "user_factors", "user_ids", "item_ids", "titles", "columns")
"""Arrays with the name of a field of the model; titles are optional."""
_OFFSETS = ("item_offsets", "user_offsets", "item_counts", "user_counts")
_SEEN = ("seen_start", "seen_items", "seen_values")
_NUMBERS = ("lowest", "highest", "prior", "alpha", "trust", "clip", "confidence")
_HISTORY = "history."


class SavedModel(NamedTuple):
    """Contents of a model's folder."""

    model: FactorModel
    history: Table
    parameters: dict[str, Any]
    facts: dict[str, Any]


def save_model(folder: str | Path, saved: SavedModel) -> Path:
    """Write the model to `folder`, completely or not at all; an older model there is replaced."""
    model = saved.model
    arrays: dict[str, Any] = {name: getattr(model, name) for name in _ARRAYS}
    arrays |= zip(_OFFSETS, model.offsets[1:])
    arrays |= zip(_SEEN, model.seen)
    arrays |= {f"{_HISTORY}{name}": a for name, a in saved.history.items()}
    document = {
        "parameters": to_json(saved.parameters),
        "facts": to_json(saved.facts),
        "mean": model.offsets.mean,
        **{name: getattr(model, name) for name in _NUMBERS},
    }
    known = {name: array for name, array in arrays.items() if array is not None}
    return write_folder(folder, MODEL, document, {"arrays.npz": known})


def load_model(folder: str | Path) -> SavedModel:
    """Return the content; raise an error for a folder without an intact model."""
    return read_folder(folder, MODEL, _read_model)


def _read_model(document: Document) -> SavedModel:
    about = document.typed(ModelDocument)
    arrays = document.arrays("arrays.npz", SCHEMA)
    _check_seen(document.folder, arrays)
    fields: dict[str, Any] = {name: arrays.get(name) for name in _ARRAYS}
    fields |= {name: getattr(about, name) for name in _NUMBERS}
    offsets = Offsets(about.mean, *(arrays[name] for name in _OFFSETS))
    seen = Grouped(*(arrays[name] for name in _SEEN))
    history = {
        name.removeprefix(_HISTORY): array
        for name, array in arrays.items()
        if name.startswith(_HISTORY)
    }
    model = FactorModel(**fields, offsets=offsets, seen=seen)
    return SavedModel(model, Table(history), about.parameters, about.facts)


def _check_seen(folder: str | Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Check that the groups of items by user cover their list, and refer to items that exist."""
    start = arrays["seen_start"]
    items = arrays["seen_items"]
    n_items = len(arrays["item_ids"])
    # Compiled loops rely on these ranges and do not check them, so that a wrong file could crash the process.
    tiled = start[0] == 0 and start[-1] == len(items) and (np.diff(start) >= 0).all()
    inside = len(items) == 0 or (items.min() >= 0 and items.max() < n_items)
    if not (tiled and inside):
        raise DamagedFile(
            f"{folder} is damaged: the items seen by its users do not fit{MODEL.advice}."
        )
    if arrays["item_factors"].dtype != arrays["user_factors"].dtype:
        raise DamagedFile(
            f"{folder} is damaged: its factors differ in precision{MODEL.advice}."
        )
