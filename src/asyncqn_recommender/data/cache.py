"""Sets of ratings that are stored once under a name, in the user's cache folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncqn.errors import BadInput, DamagedFile, require
from asyncqn_recommender.data.columns import Columns
from asyncqn_recommender.data.download import MD5, downloaded, md5_of
from asyncqn_recommender.data.duplicates import check_policy
from asyncqn_recommender.data.ratings import Ratings
from asyncqn_recommender.data.readers import Reading, read_ratings
from asyncqn_recommender.data.served import SCHEME, read_served
from asyncqn_recommender.data.store import (
    is_store,
    open_ratings,
    read_header,
    save_ratings,
)
from asyncqn_recommender.data.synthetic import PRESETS, REVISION, synthetic_ratings

# The pattern also keeps a name from leading out of the cache folder.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def cache_dir() -> Path:
    """Return the folder in which sets are stored: $ASYNCQN_CACHE, or asyncqn in the user's cache folder.

    Returns
    -------
    Path
        The folder; it need not exist yet.

    Examples
    --------
    >>> from asyncqn_recommender import cache_dir
    >>> cache_dir().is_absolute()
    True
    """
    if own := os.environ.get("ASYNCQN_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "asyncqn"


def stored_path(name: str) -> Path:
    """Return the folder of the set `name`, whether or not it is stored."""
    require(
        _NAME.fullmatch(name) is not None,
        f"{name[:80]!r} is not a name for a set of ratings: use letters, digits, dots and dashes.",
    )
    return cache_dir() / "ratings" / name


def known_names() -> dict[str, bool]:
    """Return every name that `fetch` knows or has stored, and whether it is stored.

    Returns
    -------
    dict of str to bool
        True where the set is stored.

    Examples
    --------
    >>> from asyncqn_recommender import known_names
    >>> "synthetic-demo" in known_names()
    True
    """
    folder = cache_dir() / "ratings"
    stored = (
        {p.name for p in folder.iterdir() if is_store(p)} if folder.is_dir() else set()
    )
    stored = {name for name in stored if _NAME.fullmatch(name)}
    return {
        name: name in stored
        for name in (*MD5, *PRESETS, *sorted(stored - {*MD5, *PRESETS}))
    }


def fetch(
    name: str,
    source: str | os.PathLike[str] | None = None,
    *,
    say: Callable[[str], None] = lambda sentence: None,
    **reading: Any,
) -> Path:
    """Store the set `name` unless it is stored already.

    MovieLens sets are downloaded and verified, or imported from `source`; synthetic presets are generated;
    any other name needs a `source`.

    Parameters
    ----------
    name : str
        Name of the set: a MovieLens name, a preset, or your own.
    source : path, optional
        An archive or a file on disk to import.
    say : callable, optional
        Called with a sentence about each step.
    reading : keyword arguments
        How the source is read: parameters of `read_ratings`.

    Returns
    -------
    Path
        The folder of the stored set.

    Examples
    --------
    >>> from asyncqn_recommender import fetch
    >>> fetch("synthetic-demo").name
    'synthetic-demo'
    """
    target = stored_path(name)
    given = {key: value for key, value in reading.items() if value}
    # Presets come first: they can be made again at any time, so that no source is needed.
    if name in PRESETS:
        require(
            source is None, f"{name} is generated: choose another name for {source}."
        )
        # A stored set of an older revision of the generator is made again.
        origin = {"generator": name, "seed": 0, "revision": REVISION}
        if _is_sound(target) and read_header(target).origin == origin:
            return target
        say(f"Generating {name}")
        return save_ratings(synthetic_ratings(*PRESETS[name]), target, origin=origin)
    if source is not None:
        return _store_file(target, Path(source), given, say, MD5.get(name))
    if _is_sound(target):
        return target
    if name in MD5:
        say(f"Downloading {name}")
        with downloaded(name) as archive:
            return _store_file(target, archive, given, say, MD5[name])
    raise BadInput(
        f"there is no set named {name!r}: choose one of {', '.join((*MD5, *PRESETS))}, or import your own "
        "file with --from FILE."
    )


def load(name_or_path: str | os.PathLike[str], **reading: Any) -> Ratings:
    """Load ratings by name, from a stored folder, a data server, or any file that `read_ratings` reads.

    A synthetic preset is generated and stored when it is first used; nothing is downloaded.

    Parameters
    ----------
    name_or_path : str or path
        Name of a set, a folder, an address of a data server, or a file.
    reading : keyword arguments
        How a file is read: parameters of `read_ratings`.

    Returns
    -------
    Ratings
        The ratings.

    Examples
    --------
    >>> from asyncqn_recommender import load
    >>> load("synthetic-demo")
    Ratings(12,000 ratings of 300 users on 200 items)
    """
    return load_reading(name_or_path, **reading).ratings


def load_reading(name_or_path: str | os.PathLike[str], **reading: Any) -> Reading:
    """Load ratings as `load` does, and report what was skipped."""
    word = os.fspath(name_or_path)
    given = {key: value for key, value in reading.items() if value}
    check_policy(given.get("duplicates"))
    if word.startswith(SCHEME):
        names = {name: given.pop(name, None) for name in Columns._fields}
        require(
            not set(given) - {"clicks", "duplicates"},
            f"{word[:200]} is on a data server, not in a file: leave the options for files out.",
        )
        return Reading(read_served(word, Columns(**names), **given))
    # A name of a stored set wins over a file of the same name, unless a path was given.
    place = Path(word)
    named = isinstance(name_or_path, str) and _NAME.fullmatch(word) is not None
    if named and (is_store(stored_path(word)) or word in PRESETS):
        place = fetch(word)
    elif not word or not os.path.exists(place):
        require(
            not (named and word in MD5),
            f"the set {word} is not stored yet: run 'asyncqn recommender data {word}' first.",
        )
        raise BadInput(
            f"there is no file {word[:200]!r} and no stored set of that name: see "
            "'asyncqn recommender data list'."
        )
    if not is_store(place):
        return read_ratings(place, **given)
    # A stored set has no bad rows, no columns to choose from and no repeated pairs.
    require(
        not set(given) - {"skip_bad", "duplicates", "clicks"},
        f"{word[:200]} is a stored set, whose columns are known: leave the column options out.",
    )
    return Reading(open_ratings(place))


def _is_sound(target: Path) -> bool:
    """Return whether a set is stored and can be opened; a damaged one is made again."""
    if not is_store(target):
        return False
    try:
        open_ratings(target)
    except DamagedFile:
        return False
    return True


def _store_file(
    target: Path,
    source: Path,
    given: dict[str, Any],
    say: Callable[[str], None],
    official: str | None,
) -> Path:
    require(
        os.path.exists(source),
        f"there is no file {str(source)[:200]}: give an archive or a file of ratings with --from.",
    )
    origin: dict[str, Any] = {"file": source.name, "reading": given}
    if official is not None:
        origin["official"] = source.is_file() and md5_of(source) == official
        if not origin["official"]:
            say(
                f"{source.name} differs from the official archive of {target.name}; it is imported unchanged"
            )
    say(f"Reading {source.name}")
    reading = read_ratings(source, **given)
    for sentence in reading.remarks():
        say(sentence)
    origin |= {"skipped": reading.skipped, "repeated": reading.repeated}
    return save_ratings(reading.ratings, target, origin=origin)
