"""Where the rows are: a file, plain or packed by gzip or zstd, in a MovieLens directory, or in a zip."""

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
"""What `zipfile` raises on archives that are cut, altered, encrypted or packed in a way it cannot read."""

SMALL, MOST_SWELLING = 1 << 26, 100
"""Unpacked files up to so many bytes pass; larger ones may be so many times as long as packed."""
MOST_TITLES = 1 << 28

_RATINGS = ("ratings.dat", "ratings.csv", "u.data")
_TITLES = {"ratings.dat": "movies.dat", "ratings.csv": "movies.csv", "u.data": "u.item"}
_PACKED = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""How packed files begin, and the suffix that their names usually have."""
_TABLES = (".csv", ".tsv", ".dat", ".data", ".parquet", ".pq")


@dataclass(frozen=True)
class Source:
    """A readable file, plain, packed, or a member of a zip; `label` is how messages name it."""

    path: Path
    member: str | None = None
    packed: str | None = None
    """".gz" or ".zst": what has packed it."""

    @property
    def name(self) -> str:
        """The file's own name, without directories and the suffix of a packed file."""
        name = PurePosixPath(self.member).name if self.member else self.path.name
        return name.removesuffix(self.packed) if self.packed else name

    @property
    def plain(self) -> bool:
        """Return whether the bytes of the path are those of the file."""
        return self.member is None and self.packed is None

    @property
    def label(self) -> str:
        """The name to show: the path, or archive and member."""
        return f"{self.path}:{self.member}" if self.member else str(self.path)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The bytes, from the beginning."""
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
        """Refuse, before it is read, a packed file that swells beyond reason, or one longer than `most`.

        A zip gives no more bytes than it declares, so that the declared size is a bound; other packed
        files declare none, and are refused while they are read.
        """
        if self.member is None:
            size, packed = self.path.stat().st_size, self.path.stat().st_size
        else:
            with _zip(self.path) as archive:
                info = archive.getinfo(self.member)
                size, packed = info.file_size, info.compress_size
        if size > SMALL and size > MOST_SWELLING * packed:
            raise _swollen(self, size / packed)
        if most is not None and size > most:
            raise DamagedFile(f"{self.label} has {size:,} bytes, and this reads at most {most:,}.")

    def check(self) -> None:
        """Read a packed file to its end, where its checksum is compared; `DamagedFile` if that fails."""
        with telling_unreadable(self), self.open() as stream:
            while not self.plain and stream.read(1 << 22):
                pass


@contextmanager
def _zip(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_input(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


class _Bounded(io.RawIOBase):
    """What a packed file unpacks to, as long as it stays within reason."""

    def __init__(self, stream: Any, source: Source) -> None:
        self._stream, self._source = stream, source
        self._most = max(SMALL, MOST_SWELLING * source.path.stat().st_size)
        self._given = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; `DamagedFile` once there are more than any file of ratings has."""
        block: bytes = self._stream.read(len(buffer))
        self._given += len(block)
        if self._given > self._most:
            raise _swollen(self._source, self._given / self._source.path.stat().st_size)
        buffer[: len(block)] = block
        return len(block)


def _swollen(source: Source, times: float) -> DamagedFile:
    return DamagedFile(
        f"{source.label} would be {times:.0f} times as long unpacked, which no file of ratings is: unpack it "
        "yourself if it is what it should be."
    )


@contextmanager
def telling_unreadable(source: Source) -> Iterator[None]:
    """A file that cannot be opened, or an archive that is not whole, is refused in one sentence."""
    try:
        yield
    except AsyncqnError:
        raise
    except ZIP_ERRORS as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise BadInput(f"cannot read {source.path}: {error.strerror}.") from error
        kind = f"{source.packed} file" if source.packed else "zip archive"
        raise DamagedFile(
            f"{source.path} is a damaged, truncated or encrypted {kind}: fetch it again."
        ) from error


def find(path: str | os.PathLike[str]) -> tuple[Source, Source | None]:
    """The file of ratings at `path`, and the file of titles that belongs to it."""
    place = Path(path)
    if os.path.isdir(place):
        return _in_directory(place)
    if not os.path.exists(place):
        raise BadInput(f"there is no file or directory {str(place)[:200]}.")
    with telling_unreadable(Source(place)), open_input(place) as stream:
        beginning = stream.read(4)
    if beginning[:2] == b"PK" or place.suffix.lower() == ".zip":
        return _in_zip(place)
    packed = next((suffix for magic, suffix in _PACKED.items() if beginning.startswith(magic)), None)
    source = Source(place, packed=packed)
    titles = place.with_name(_TITLES.get(source.name, source.name))
    known = source.name in _TITLES and titles.is_file()
    return source, Source(titles) if known else None


def _in_directory(place: Path) -> tuple[Source, Source | None]:
    with telling_unreadable(Source(place)):
        below = sorted(p for p in place.iterdir() if p.is_dir())
    for folder in (place, *below):
        for name in (name + suffix for name in _RATINGS for suffix in ("", *_PACKED.values())):
            if (folder / name).is_file():
                return find(folder / name)
    raise BadInput(f"{place} holds none of {', '.join(_RATINGS)}: name the file of ratings itself.")


def _in_zip(place: Path) -> tuple[Source, Source | None]:
    with telling_unreadable(Source(place)), _zip(place) as archive:
        members = [m for m in archive.namelist() if not m.endswith("/") and "__MACOSX" not in m]
    by_name = {PurePosixPath(m).name: m for m in reversed(members)}
    for name in _RATINGS:
        if name in by_name:
            titles = by_name.get(_TITLES[name])
            return Source(place, by_name[name]), Source(place, titles) if titles else None
    tables = [m for m in members if PurePosixPath(m).suffix.lower() in _TABLES]
    if len(tables) == 1:
        return Source(place, tables[0]), None
    shown = ", ".join(members[:10]) or "nothing"
    raise BadInput(f"{place} holds {shown}; unpack it and name the file of ratings.")
