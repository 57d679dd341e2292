"""Files that are written whole or not at all, and the checksums that tell whether they still are."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from asyncqn.errors import BadInput


def sha256_of(path: Path) -> str:
    """The checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_of(document: dict[str, Any]) -> str:
    """The checksum of a JSON document, which stores it as its `check`."""
    rest = {key: value for key, value in document.items() if key != "check"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_place(path: str | Path) -> None:
    """Refuse, before any work is done, a place where nothing can be written after it; leaves no trace."""
    parents = Path(path).absolute().parents
    nearest = next(parent for parent in parents if os.path.lexists(parent))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from None


def write_whole(path: str | Path, content: bytes | str) -> Path:
    """Write beside `path`, then move into place: nobody ever sees half a file.

    Folders on the way are made.  What the system refuses becomes one sentence.
    """
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(scratch, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            scratch.unlink()
    return path
