"""Sets of ratings that are stored once under a name, in the user's cache folder."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncqn.errors import BadInput, DamagedFile, require
from asyncqn.storage import open_input
from asyncqn_recommender.data.columns import RatingColumns
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
from asyncqn_recommender.data.synthetic import GENERATION, PRESETS, synthetic_ratings

URL = "https://files.grouplens.org/datasets/movielens/{}.zip"
MD5 = {
    "ml-100k": "0e33842e24a9c977be4e0107933c0723",
    "ml-1m": "c4d9eecfca2ab87c1945afe126590906",
    "ml-10m": "ce571fd55effeba0271552578f2648bd",
    "ml-20m": "cd245b17a1ae2cc31bb14903e1204af3",
    "ml-25m": "6b51fb2759a8657d3bfcbfc42b592ada",
}
"""The checksums that GroupLens publishes with its archives."""
_TIMEOUT = 30.0
_NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError)
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
        f"{name[:80]!r} is not a name for a set of ratings: use letters, digits, dots and "
        "dashes.",
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
    places = sorted(folder.iterdir()) if folder.is_dir() else []
    stored = [p.name for p in places if _NAME.fullmatch(p.name) and is_store(p)]
    return {name: name in stored for name in (*MD5, *PRESETS, *stored)}


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
    if name in PRESETS:
        require(
            source is None, f"{name} is generated: choose another name for {source}."
        )
        origin = {"generator": name, "seed": 0, "generation": GENERATION}
        # A set of an older generation has other ratings under the same name.
        if not (_is_sound(target) and read_header(target).origin == origin):
            say(f"Generating {name}")
            save_ratings(synthetic_ratings(*PRESETS[name]), target, origin=origin)
        return target
    # A stored set is kept, unless the user names a file: that may have changed.
    if source is None and _is_sound(target):
        return target
    if source is None:
        require(
            name in MD5,
            f"there is no set named {name!r}: choose one of {', '.join((*MD5, *PRESETS))}, "
            "or import your own file with --from FILE.",
        )
        say(f"Downloading {name}")
        # The archive is deleted after the import: the stored set is smaller and faster.
        with tempfile.TemporaryDirectory() as folder:
            archive = _downloaded(name, Path(folder))
            return _store_file(target, archive, reading, say)
    require(
        os.path.exists(source),
        f"there is no file {str(source)[:200]}: give an archive or a file of ratings with "
        "--from.",
    )
    return _store_file(target, Path(source), reading, say)


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
        names = RatingColumns(
            *(given.pop(name, None) for name in RatingColumns._fields)
        )
        require(
            not set(given) - {"clicks", "duplicates"},
            f"{word[:200]} is on a data server, not in a file: leave the options for "
            "files out.",
        )
        return Reading(read_served(word, names, **given))
    # A name of a stored set wins over a file of the same name, unless a path was given.
    place = Path(word)
    named = isinstance(name_or_path, str) and _NAME.fullmatch(word) is not None
    if named and (is_store(stored_path(word)) or word in PRESETS):
        place = fetch(word)
    require(
        bool(word) and os.path.exists(place),
        f"there is no file {word[:200]!r} and no stored set of that name: see 'asyncqn "
        "recommender data list'; 'asyncqn recommender data NAME' stores one.",
    )
    if not is_store(place):
        return read_ratings(place, **given)
    # A stored set has no bad rows, no columns to choose from and no repeated pairs.
    require(
        not set(given) - {"skip_bad", "duplicates", "clicks"},
        f"{word[:200]} is a stored set, whose columns are known: leave the column options "
        "out.",
    )
    return Reading(open_ratings(place))


def _is_sound(target: Path) -> bool:
    """Return whether a set is stored and can be opened; a damaged one is made again."""
    try:
        open_ratings(target)
    except (BadInput, DamagedFile):
        return False
    return True


def _downloaded(name: str, folder: Path) -> Path:
    """Download the official archive `name` into the folder, and verify it."""
    url = URL.format(name)
    archive = folder / f"{name}.zip"
    try:
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT) as answer,
            archive.open("wb") as file,
        ):
            shutil.copyfileobj(answer, file)
    except (*_NETWORK, ValueError, TimeoutError) as error:
        raise BadInput(
            f"cannot download {url}: get the archive another way and import it with "
            "--from FILE."
        ) from error
    if _md5_of(archive) != MD5[name]:
        raise DamagedFile(
            f"the download of {url} differs from its published checksum: try again later."
        )
    return archive


def _md5_of(path: Path) -> str:
    """Return the MD5 of a file in hexadecimal; it identifies published archives, and is no protection."""
    with open_input(path) as stream:
        md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False))
    return md5.hexdigest()


def _store_file(
    target: Path, source: Path, reading: dict[str, Any], say: Callable[[str], None]
) -> Path:
    # Kept in the header, so that a user can see later how the file was read.
    given = {key: value for key, value in reading.items() if value}
    origin: dict[str, Any] = {"file": source.name, "reading": given}
    if target.name in MD5:
        origin["official"] = source.is_file() and _md5_of(source) == MD5[target.name]
        if not origin["official"]:
            say(
                f"{source.name} differs from the official archive of {target.name}; it is "
                "imported unchanged"
            )
    say(f"Reading {source.name}")
    content = read_ratings(source, **given)
    for sentence in content.remarks():
        say(sentence)
    origin |= {"skipped": content.skipped, "repeated": content.repeated}
    return save_ratings(content.ratings, target, origin=origin)
