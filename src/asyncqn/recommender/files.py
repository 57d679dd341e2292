"""A learned model on disk: one JSON file and one of arrays, checksummed, without pickle."""

from __future__ import annotations

import json
import os
import shutil
import uuid
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.core.plain import to_plain
from asyncqn.core.table import Table
from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.kernels.als import Grouped
from asyncqn.recommender.model import FactorModel, Offsets
from asyncqn.storage import check_of, sha256_of

KIND, FORMAT = "asyncqn model", 1
DOCUMENT, ARRAYS = "model.json", "arrays.npz"
_NUMBERS = ("lowest", "highest", "prior", "alpha", "residual", "trust", "clip")


def check_model_folder(folder: Path) -> None:
    """Refuse, before any work is done, a folder that `save_model` will refuse after it."""
    ours = folder.is_dir() and ((folder / DOCUMENT).exists() or not any(folder.iterdir()))
    if folder.exists() and not ours:
        raise BadInput(f"{folder} exists and is not a model: choose another folder, or empty it.")


def save_model(
    folder: str | Path, model: FactorModel, history: Table, parameters: dict[str, Any], facts: dict[str, Any]
) -> Path:
    """Write the model to `folder`, whole or not at all; an older model there is replaced."""
    folder = Path(folder)
    check_model_folder(folder)
    arrays: dict[str, npt.NDArray[Any]] = {
        "item_factors": model.item_factors, "user_factors": model.user_factors,
        "user_ids": model.user_ids, "item_ids": model.item_ids,
        "item_offsets": model.offsets.items, "user_offsets": model.offsets.users,
        "item_counts": model.offsets.item_counts, "user_counts": model.offsets.user_counts,
        "seen_start": model.seen.start, "seen_items": model.seen.others,
        **{f"history.{name}": column for name, column in history.items()},
    }  # fmt: skip
    if model.titles is not None:
        arrays["titles"] = model.titles
    scratch, old = (
        folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}") for _ in ("new", "old")
    )
    try:
        scratch.mkdir(parents=True)
        np.savez(scratch / ARRAYS, **arrays)  # type: ignore[arg-type]
        document = {
            "kind": KIND, "format": FORMAT, "parameters": to_plain(parameters), "facts": to_plain(facts),
            "mean": model.offsets.mean, **{name: getattr(model, name) for name in _NUMBERS},
            "sha256": sha256_of(scratch / ARRAYS),
        }  # fmt: skip
        document["check"] = check_of(document)
        (scratch / DOCUMENT).write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(scratch, folder)
        except OSError:
            if old.exists():
                os.replace(old, folder)
            raise
    except OSError as error:
        raise BadInput(f"The model cannot be saved to {folder}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return folder


def load_model(folder: str | Path) -> tuple[FactorModel, Table, dict[str, Any], dict[str, Any]]:
    """Model, history, parameters and facts; a folder that is none, or is damaged, gives one sentence."""
    folder = Path(folder)
    if not (folder / DOCUMENT).is_file():
        raise BadInput(f"{folder} is not a saved model: it has no {DOCUMENT}.")
    try:
        document = json.loads((folder / DOCUMENT).read_text())
        if document.get("kind") != KIND:
            raise DamagedFile(f"{folder} was not written by asyncqn: its {DOCUMENT} is of another kind.")
        if document["format"] != FORMAT:
            raise DamagedFile(
                f"{folder} has format {document['format']}, this version of asyncqn reads {FORMAT}: "
                "use the version that wrote it."
            )
        if check_of(document) != document["check"]:
            raise DamagedFile(f"{folder} is damaged: {DOCUMENT} was altered; fit the model again.")
        if sha256_of(folder / ARRAYS) != document["sha256"]:
            raise DamagedFile(
                f"{folder} is damaged: {ARRAYS} does not match its checksum; fit the model again."
            )
        with np.load(folder / ARRAYS, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        model = FactorModel(
            item_factors=arrays["item_factors"],
            user_factors=arrays["user_factors"],
            offsets=Offsets(
                float(document["mean"]),
                *(arrays[name] for name in ("item_offsets", "user_offsets", "item_counts", "user_counts")),
            ),
            user_ids=arrays["user_ids"],
            item_ids=arrays["item_ids"],
            titles=arrays.get("titles"),
            seen=Grouped(arrays["seen_start"], arrays["seen_items"], np.empty(0, np.float32)),
            **{name: document[name] for name in _NUMBERS},
        )
        head = "history."
        history = {name.removeprefix(head): a for name, a in arrays.items() if name.startswith(head)}
        return model, Table(history), document["parameters"], document["facts"]
    except AsyncqnError:
        raise
    except FileNotFoundError as error:
        raise DamagedFile(f"{folder} is damaged: {Path(error.filename).name} is missing.") from None
    except (
        LookupError, ValueError, TypeError, AttributeError, OSError, EOFError, RecursionError,
        NotImplementedError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        text = " ".join(str(error).split()).rstrip(".")
        raise DamagedFile(f"{folder} is damaged and cannot be read: {text[:200]}.") from None
