"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

from asyncqn.errors import BadInput


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
