"""The stored form of ratings: a folder of raw columns that any number of processes map into memory.

`header.json` holds the length and checksum of every column, and the digest of the whole set; the columns are
plain .npy files.  Processes on one host share their pages through the page cache, and nothing is read before
it is used, so a set may be larger than the memory.  A process that has an old version mapped keeps it when a
new one is saved.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from asyncqn.errors import BadInput, DamagedFile
from asyncqn.storage import Document, FolderKind, Spec, read_folder, write_folder
from asyncqn_recommender.data.ratings import Ratings

IDS = ("<i8", "U")
"""The dtypes of ids: integers or texts."""

SCHEMA = {
    "users": Spec(("<i4",), ("ratings",)),
    "items": Spec(("<i4",), ("ratings",)),
    "values": Spec(("<f4",), ("ratings",)),
    "user_ids": Spec(IDS, ("users",)),
    "item_ids": Spec(IDS, ("items",)),
    "titles": Spec(("U",), ("items",), optional=True),
    "times": Spec(("<f8",), ("ratings",), optional=True),
}
RATINGS = FolderKind(
    "asyncqn ratings",
    "stored set of ratings",
    "header.json",
    3,
    tuple(f"{name}.npy" for name in SCHEMA),
    advice=": import the ratings again",
)

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class Header(msgspec.Struct):
    """The entries that header.json must have; `origin` says where the ratings came from."""

    digest: str
    ratings: Count
    users: Count
    items: Count
    origin: dict[str, Any]


def save_ratings(
    ratings: Ratings,
    path: str | os.PathLike[str],
    *,
    origin: dict[str, Any] | None = None,
) -> Path:
    """Write ratings in their stored form, completely or not at all; a stored set at `path` is replaced.

    Parameters
    ----------
    ratings : Ratings
        The ratings.
    path : path
        Folder of the stored set.
    origin : dict, optional
        Plain data (JSON) about where the ratings come from, kept in the header.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> from asyncqn_recommender import as_ratings, open_ratings, save_ratings
    >>> folder = save_ratings(as_ratings(([1, 1, 2], [10, 20, 20], [5.0, 3.0, 4.0])), "small")
    >>> open_ratings(folder)
    Ratings(3 ratings of 2 users on 2 items)
    """
    counts = len(ratings), ratings.n_users, ratings.n_items
    header = Header(ratings.digest, *counts, origin or {})
    columns = {f"{name}.npy": getattr(ratings, name) for name in SCHEMA}
    files = {name: column for name, column in columns.items() if column is not None}
    return write_folder(Path(path), RATINGS, msgspec.structs.asdict(header), files)


def open_ratings(path: str | os.PathLike[str], *, verify: bool = True) -> Ratings:
    """Open stored ratings as memory maps.

    Parameters
    ----------
    path : path
        Folder of the stored set.
    verify : bool, default True
        Whether to read every byte once and compare checksums.

    Returns
    -------
    Ratings
        The ratings; several processes share their memory.

    Examples
    --------
    >>> from asyncqn_recommender import as_ratings, open_ratings, save_ratings
    >>> folder = save_ratings(as_ratings(([1, 1, 2], [10, 20, 20], [5.0, 3.0, 4.0])), "small")
    >>> open_ratings(folder, verify=False)
    Ratings(3 ratings of 2 users on 2 items)
    """
    folder = _stored(Path(path))
    return read_folder(folder, RATINGS, lambda document: _columns(document, verify))


def _columns(document: Document, verify: bool) -> Ratings:
    header = document.typed(Header)
    sizes = {name: getattr(header, name) for name in ("ratings", "users", "items")}
    arrays: dict[str, Any] = {
        name: document.mapped(f"{name}.npy", SCHEMA, sizes, verify)
        for name, spec in SCHEMA.items()
        if not spec.optional or f"{name}.npy" in document.files
    }
    ratings = Ratings(**arrays)
    # Checksums protect against accidents; this protects kernels against indices of a forged file.
    if verify:
        _check_columns(document.folder, ratings)
    # The digest was computed when the columns were written: fill the cached property.
    ratings.__dict__["digest"] = header.digest
    return ratings


def is_store(path: str | Path) -> bool:
    """Return whether `path` looks like a stored set, intact or damaged."""
    try:
        names = os.listdir(path)
    except (OSError, ValueError):
        return False
    # The header alone could belong to another kind of folder, so that a column must be there as well.
    columns = map(RATINGS.plain_name, names)
    return RATINGS.document in names and "users.npy" in columns


def read_header(folder: Path) -> Header:
    """Return the header of a stored set."""
    return read_folder(_stored(folder), RATINGS, lambda about: about.typed(Header))


def _stored(folder: Path) -> Path:
    if not os.path.isdir(folder):
        raise BadInput(
            f"there is no stored set of ratings at {folder}: check the path."
        )
    if not os.path.isfile(folder / RATINGS.document):
        raise DamagedFile(
            f"{folder} is not a stored set of ratings: it has no {RATINGS.document}."
        )
    return folder


def _check_columns(place: str | Path, ratings: Ratings) -> None:
    """Raise `DamagedFile` for columns that do not fit together: kernels rely on indices within their tables."""
    wrong = None
    # Minimum and maximum need no temporary array, however large the columns are.
    for indices, size in (
        (ratings.users, ratings.n_users),
        (ratings.items, ratings.n_items),
    ):
        if len(indices) and not (indices.min() >= 0 and indices.max() < size):
            wrong = "indices outside its tables"
    # The sum is finite only if every rating is; a mask of all ratings would take memory.
    if not np.isfinite(ratings.values.sum(dtype=np.float64)):
        wrong = "ratings that are not finite"
    if ratings.times is not None and not np.isfinite(ratings.times).all():
        wrong = "times that are not finite"
    if wrong is not None:
        raise DamagedFile(f"{place} has {wrong}{RATINGS.advice}.")
