"""Sealed folders as a forger sees them: their data files, and how to alter them and mend the checksums."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncqn.storage import check_of

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
        entry["bytes"] = len(content)
        if "sha256" in entry:
            entry["sha256"] = hashlib.sha256(content).hexdigest()
        else:
            entry["crc32"] = zlib.crc32(content)
    changed = change(document)
    document = changed if isinstance(changed, dict) else document
    document["check"] = check_of(document)
    path.write_text(json.dumps(document))


def as_first_layout(folder: Path, number: int) -> None:
    """Turn a sealed folder of one archive into one of an older format, whose archive had a plain name."""
    path = document_of(folder)
    document = json.loads(path.read_text())
    (entry,) = document.pop("files").values()
    (folder / entry["name"]).rename(folder / "arrays.npz")
    document |= {"format": number, "sha256": entry["sha256"]}
    if number > 1 or path.name == "model.json":
        document["check"] = check_of(document)
    else:
        del document["check"]
    path.write_text(json.dumps(document))
