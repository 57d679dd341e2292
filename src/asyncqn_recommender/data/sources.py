"""The sources of rows: a file, plain or compressed, a MovieLens folder, or a zip archive."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.storage import open_input
from asyncqn_recommender.data.arrow import arrow

_RATINGS = ("ratings.dat", "ratings.csv", "u.data")
_TITLES = {"ratings.dat": "movies.dat", "ratings.csv": "movies.csv", "u.data": "u.item"}
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_TABLES = (".csv", ".tsv", ".dat", ".data", ".parquet", ".pq")


@dataclass(frozen=True)
class Source:
    """A readable file, plain, compressed, or a member of a zip archive; `label` names it in messages."""

    path: Path
    member: str | None = None

    @property
    def label(self) -> str:
        """The name for messages: the path, or archive and member."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @property
    def compression(self) -> str | None:
        """Arrow's name for the compression, by the suffix."""
        path = PurePosixPath(self.member or self.path.name)
        return _COMPRESSIONS.get(path.suffix.lower())

    @property
    def name(self) -> str:
        """The file's name, without folders and the suffix of a compressed file."""
        path = PurePosixPath(self.member or self.path.name)
        return path.stem if self.compression else path.name

    def read(self) -> bytes:
        """Return the content, uncompressed."""
        with _readable(self.path), open_input(self.path) as file:
            if self.member is None:
                data: bytes = file.read()
            else:
                data = zipfile.ZipFile(file).read(self.member)
            if self.compression is None:
                return data
            lib = arrow()
            stream = lib.input_stream(lib.BufferReader(data), self.compression)
            return bytes(stream.read())


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the error for a file that cannot be opened, or for a damaged archive, into one sentence."""
    try:
        yield
    except AsyncqnError:
        raise
    # Archives that are cut, altered or encrypted make the decompressors raise errors of many types.
    except Exception as error:
        # With an errno the system refused the file; without one the content is damaged.
        if isinstance(error, OSError) and error.errno is not None:
            raise BadInput(f"cannot read {path}: {error.strerror}.") from error
        raise DamagedFile(
            f"{path} is damaged, truncated or encrypted: download it again."
        ) from error


def find(path: str | os.PathLike[str]) -> tuple[Source, Source | None]:
    """Return the file of ratings at `path`, and the file of titles that belongs to it, or None."""
    place = Path(path)
    if os.path.isdir(place):
        return _in_directory(place)
    if not os.path.exists(place):
        raise BadInput(
            f"there is no file or directory {str(place)[:200]}: check the path."
        )
    if place.suffix.lower() == ".zip":
        return _in_zip(place)
    source = Source(place)
    # MovieLens stores titles beside the ratings.
    titles = place.with_name(_TITLES.get(source.name, source.name))
    return source, Source(titles) if titles != place and titles.is_file() else None


def _in_directory(place: Path) -> tuple[Source, Source | None]:
    with _readable(place):
        below = sorted(path for path in place.iterdir() if path.is_dir())
    # An unpacked archive is often a folder in a folder.
    for folder in (place, *below):
        for name in _RATINGS:
            for suffix in ("", *_COMPRESSIONS):
                if (folder / f"{name}{suffix}").is_file():
                    return find(folder / f"{name}{suffix}")
    raise BadInput(
        f"{place} contains none of {', '.join(_RATINGS)}: give the file of ratings itself."
    )


def _in_zip(place: Path) -> tuple[Source, Source | None]:
    with _readable(place), open_input(place) as file:
        names = zipfile.ZipFile(file).namelist()
    # macOS adds a hidden copy of every name under __MACOSX.
    members = [m for m in names if m[-1:] != "/" and "__MACOSX" not in m]
    by_name = {PurePosixPath(member).name: member for member in members}
    for name in _RATINGS:
        if name in by_name:
            titles = by_name.get(_TITLES[name])
            source = Source(place, by_name[name])
            return source, Source(place, titles) if titles else None
    tables = [m for m in members if PurePosixPath(m).suffix.lower() in _TABLES]
    if len(tables) == 1:
        return Source(place, tables[0]), None
    shown = ", ".join(members[:10]) or "nothing"
    raise BadInput(f"{place} contains {shown}; unpack it and give the file of ratings.")
