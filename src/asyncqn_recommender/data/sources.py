"""The sources of rows: a file, plain or compressed with gzip or zstd, a MovieLens folder, or a zip archive.

A small compressed file may expand to any size, so that the ratio is bounded.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn.storage import open_input
from asyncqn_recommender.data.arrow import zstd_stream

ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, NotImplementedError),
    *(RuntimeError, ValueError, KeyError, IndexError, OverflowError, OSError),
)
"""The errors of `zipfile` on archives that are cut, altered, encrypted or compressed in an unknown way."""

SMALL, MAX_EXPANSION = 1 << 26, 100
"""Uncompressed files up to this size pass; a larger one may have at most this ratio to its compressed
size."""
MAX_TITLE_BYTES = 1 << 28

_RATINGS = ("ratings.dat", "ratings.csv", "u.data")
_TITLES = {"ratings.dat": "movies.dat", "ratings.csv": "movies.csv", "u.data": "u.item"}
_PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""The first bytes of compressed files, and the usual suffix of their names."""
_TABLES = (".csv", ".tsv", ".dat", ".data", ".parquet", ".pq")


@dataclass(frozen=True)
class Source:
    """A readable file, plain, compressed, or a member of a zip archive; `label` names it in messages."""

    path: Path
    member: str | None = None
    packed: str | None = None
    """The compression: ".gz" or ".zst"."""

    @property
    def name(self) -> str:
        """The file's name, without folders and the suffix of a compressed file."""
        name = PurePosixPath(self.member).name if self.member else self.path.name
        return name.removesuffix(self.packed) if self.packed else name

    @property
    def plain(self) -> bool:
        """Return whether the file is neither compressed nor in an archive."""
        return self.member is None and self.packed is None

    @property
    def label(self) -> str:
        """The name for messages: the path, or archive and member."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the uncompressed bytes, from the beginning."""
        if self.member is not None:
            with _zip(self.path) as archive, archive.open(self.member) as stream:
                yield stream
        elif self.packed is not None:
            unpack = gzip.GzipFile if self.packed == ".gz" else zstd_stream
            with open_input(self.path) as file, unpack(fileobj=file) as stream:
                yield io.BufferedReader(_Bounded(stream, self))
        else:
            with open_input(self.path) as stream:
                yield stream

    def check_size(self, most: int | None = None) -> None:
        """Raise `DamagedFile` early for a file that expands beyond reason, or is longer than `most`.

        A zip archive gives no more bytes than it declares, so the declared size is a bound; other compressed
        files declare none, and are checked while they are read.
        """
        if self.member is None:
            size, packed = self.path.stat().st_size, self.path.stat().st_size
        else:
            with _zip(self.path) as archive:
                info = archive.getinfo(self.member)
                size, packed = info.file_size, info.compress_size
        # The declared size is checked before anything is uncompressed.
        if size > SMALL and size > MAX_EXPANSION * packed:
            raise _swollen(self, size / packed)
        if most is not None and size > most:
            raise DamagedFile(
                f"{self.label} has {size:,} bytes, but at most {most:,} are allowed: read the ratings "
                "without it."
            )

    def check(self) -> None:
        """Read a compressed file to its end, where its checksum is compared; raise `DamagedFile` on
        failure."""
        with telling_unreadable(self), self.open() as stream:
            while not self.plain and stream.read(1 << 22):
                pass


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_input(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


class _Bounded(io.RawIOBase):
    """The uncompressed bytes of a file, up to a limit."""

    def __init__(self, stream: Any, source: Source) -> None:
        self._stream, self._source = stream, source
        self._most = max(SMALL, MAX_EXPANSION * source.path.stat().st_size)
        self._given = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes; raise `DamagedFile` beyond the limit."""
        block: bytes = self._stream.read(len(buffer))
        self._given += len(block)
        if self._given > self._most:
            raise _swollen(self._source, self._given / self._source.path.stat().st_size)
        buffer[: len(block)] = block
        return len(block)


def _swollen(source: Source, times: float) -> DamagedFile:
    return DamagedFile(
        f"{source.label} would be {times:.0f} times as long uncompressed, which is unusual for ratings: "
        "uncompress it yourself if it is intact."
    )


@contextmanager
def telling_unreadable(source: Source) -> Iterator[None]:
    """Turn the error for a file that cannot be opened, or for a damaged archive, into one sentence."""
    try:
        yield
    except AsyncqnError:
        raise
    except ZIP_ERRORS as error:
        # With an errno the system refused the file; without one the content is damaged.
        if isinstance(error, OSError) and error.errno is not None:
            raise BadInput(f"cannot read {source.path}: {error.strerror}.") from error
        kind = f"{source.packed} file" if source.packed else "zip archive"
        raise DamagedFile(
            f"{source.path} is a damaged, truncated or encrypted {kind}: download it again."
        ) from error


def find(path: str | os.PathLike[str]) -> tuple[Source, Source | None]:
    """Return the file of ratings at `path`, and the file of titles that belongs to it, or None."""
    place = Path(path)
    if os.path.isdir(place):
        return _in_directory(place)
    if not os.path.exists(place):
        raise BadInput(f"there is no file or directory {str(place)[:200]}: check the path.")
    with telling_unreadable(Source(place)), open_input(place) as stream:
        beginning = stream.read(4)
    # Every zip archive begins with these two letters.
    if beginning[:2] == b"PK" or place.suffix.lower() == ".zip":
        return _in_zip(place)
    packed = next((suffix for magic, suffix in _PACKED.items() if beginning.startswith(magic)), None)
    source = Source(place, packed=packed)
    # MovieLens stores titles beside the ratings.
    titles = place.with_name(_TITLES.get(source.name, source.name))
    known = source.name in _TITLES and titles.is_file()
    return source, Source(titles) if known else None


def _in_directory(place: Path) -> tuple[Source, Source | None]:
    with telling_unreadable(Source(place)):
        below = sorted(p for p in place.iterdir() if p.is_dir())
    # An unpacked archive is often a folder in a folder.
    for folder in (place, *below):
        for name in (name + suffix for name in _RATINGS for suffix in ("", *_PACKED.values())):
            if (folder / name).is_file():
                return find(folder / name)
    raise BadInput(f"{place} contains none of {', '.join(_RATINGS)}: give the file of ratings itself.")


def _in_zip(place: Path) -> tuple[Source, Source | None]:
    with telling_unreadable(Source(place)), _zip(place) as archive:
        # macOS adds a hidden copy of every name under __MACOSX.
        members = [m for m in archive.namelist() if not m.endswith("/") and "__MACOSX" not in m]
    # Reversed, so that the first of several members of one name wins.
    by_name = {PurePosixPath(m).name: m for m in reversed(members)}
    for name in _RATINGS:
        if name in by_name:
            titles = by_name.get(_TITLES[name])
            return Source(place, by_name[name]), Source(place, titles) if titles else None
    tables = [m for m in members if PurePosixPath(m).suffix.lower() in _TABLES]
    if len(tables) == 1:
        return Source(place, tables[0]), None
    shown = ", ".join(members[:10]) or "nothing"
    raise BadInput(f"{place} contains {shown}; unpack it and give the file of ratings.")
