"""The stored form of ratings: a directory of raw columns that any number of processes map into memory.

`header.json` carries the format's version, the length and checksum of every column, and the digest
of the whole; the columns are plain .npy files.  Processes on one host share their pages through the
page cache, and nothing is read before it is touched, so a set may be larger than the memory.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncqn.data.ratings import Ratings
from asyncqn.errors import BadInput, DamagedFile

FORMAT, VERSION = "asyncqn ratings", 1
HEADER = "header.json"
_COLUMNS = ("users", "items", "values", "user_ids", "item_ids", "titles")
_BLOCK = 1 << 24


def save_ratings(
    ratings: Ratings, path: str | os.PathLike[str], *, origin: dict[str, Any] | None = None
) -> Path:
    """Write the stored form at `path`, whole or not at all, replacing a stored set that is there.

    `origin` is plain data about where the ratings came from, kept in the header.
    """
    target = Path(path)
    if target.exists() and not is_store(target):
        raise BadInput(f"{target} exists and is not a stored set of ratings: choose another place.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise BadInput(f"Cannot write to {target.parent}: {error.strerror}.") from error
    try:
        _write_columns(ratings, work, origin or {})
        _put_in_place(work, target)
    except OSError as error:
        raise BadInput(f"Cannot write the ratings to {target}: {error.strerror}.") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def open_ratings(path: str | os.PathLike[str], *, verify: bool = True) -> Ratings:
    """The stored ratings as memory maps; `verify` reads every byte once to compare checksums."""
    folder = Path(path)
    header = read_header(folder)
    arrays: dict[str, npt.NDArray[Any] | None] = {"titles": None}
    try:
        for name, expected in header["columns"].items():
            if name not in _COLUMNS:
                raise DamagedFile(f"{folder} has an unknown column {name!r}: import the ratings again.")
            arrays[name] = _open_column(folder / f"{name}.npy", expected, verify)
        ratings = Ratings(**arrays)  # type: ignore[arg-type]
    except (KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise DamagedFile(f"{folder} is incomplete or altered: import the ratings again.") from error
    if verify:
        _check_range(folder, ratings.users, ratings.n_users)
        _check_range(folder, ratings.items, ratings.n_items)
    # The digest was computed when the columns were written: fill the cached property.
    ratings.__dict__["digest"] = header["digest"]
    return ratings


def is_store(path: Path) -> bool:
    """Whether `path` looks like a stored set, sound or damaged."""
    return (path / HEADER).is_file() and (path / "users.npy").is_file()


def read_header(folder: Path) -> dict[str, Any]:
    """The header of a stored set: format, version, columns, digest, origin."""
    if not folder.is_dir():
        raise BadInput(f"There is no stored set of ratings at {folder}.")
    try:
        header = json.loads((folder / HEADER).read_bytes())
        sound = header["format"] == FORMAT and header["check"] == _header_check(header)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DamagedFile(f"{folder} is not a stored set of ratings, or its header is damaged.") from error
    if not sound:
        raise DamagedFile(f"The header of {folder} is damaged: import the ratings again.")
    if header["version"] != VERSION:
        raise DamagedFile(
            f"{folder} is stored in version {header['version']}, and this asyncqn reads {VERSION}."
        )
    return dict(header)


def _write_columns(ratings: Ratings, work: Path, origin: dict[str, Any]) -> None:
    columns = {}
    for name in _COLUMNS:
        array = getattr(ratings, name)
        if array is None:
            continue
        file = work / f"{name}.npy"
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        columns[name] = {"bytes": file.stat().st_size, "crc32": _crc(file)}
    counts = {"ratings": len(ratings), "users": ratings.n_users, "items": ratings.n_items}
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "digest": ratings.digest, **counts}
    header |= {"columns": columns, "origin": origin}
    header["check"] = _header_check(header)
    (work / HEADER).write_text(json.dumps(header, indent=1))


def _put_in_place(work: Path, target: Path) -> None:
    # mkdtemp gives 0700; a set in a shared cache follows the umask like any other directory.
    mask = os.umask(0)
    os.umask(mask)
    work.chmod(0o777 & ~mask)
    if not target.exists():
        os.replace(work, target)
        return
    # A directory cannot be replaced in one step; whoever has the old set mapped keeps it.
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    os.replace(target, old / "old")
    os.replace(work, target)
    shutil.rmtree(old, ignore_errors=True)


def _open_column(file: Path, expected: dict[str, int], verify: bool) -> npt.NDArray[Any]:
    if file.stat().st_size != expected["bytes"]:
        raise DamagedFile(f"{file} has not the length its header gives: import the ratings again.")
    if verify and _crc(file) != expected["crc32"]:
        raise DamagedFile(f"{file} differs from its checksum: import the ratings again.")
    array: npt.NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)


def _check_range(folder: Path, indices: npt.NDArray[np.int32], size: int) -> None:
    if len(indices) and not (indices.min() >= 0 and indices.max() < size):
        raise DamagedFile(f"{folder} has indices outside its tables: import the ratings again.")


def _crc(file: Path) -> int:
    total = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            total = zlib.crc32(block, total)
    return total


def _header_check(header: dict[str, Any]) -> int:
    rest = {key: value for key, value in header.items() if key != "check"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())
