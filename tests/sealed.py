"""Sealed folders as a forger sees them: their data files, and how to alter them and mend the checksums."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncqn.storage.writing import check_of

DOCUMENTS = ("run.json", "model.json", "header.json", "checkpoint.json")


def data_file(folder: Path, plain: str = "arrays.npz") -> Path:
    """The one data file of this plain name in a sealed folder."""
    stem, suffix = plain.rsplit(".", 1)
    (found,) = folder.glob(f"{stem}-*.{suffix}")
    return found


def document_of(folder: Path) -> Path:
    """The document of a sealed folder."""
    return next(folder / name for name in DOCUMENTS if (folder / name).exists())


def reseal(
    folder: Path, change: Callable[[dict[str, Any]], Any] = lambda document: None
) -> None:
    """Change the document, then mend its checksum and those of its data files."""
    path = document_of(folder)
    document = json.loads(path.read_text())
    for entry in document["files"].values():
        content = (folder / entry["name"]).read_bytes()
        entry["size"] = len(content)
        entry["crc32"] = zlib.crc32(content)
    changed = change(document)
    document = changed if isinstance(changed, dict) else document
    document["check"] = check_of(document)
    path.write_text(json.dumps(document))
