"""Packed files: gzip, zstd and bzip2 are read like plain ones, and refused when they are not whole."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from recommender.data.test_readers import ROWS, TITLES, layout, rows_of

from asyncqn.errors import DamagedFile
from asyncqn_recommender.data import read_ratings


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(content)
    return sink.getvalue().to_pybytes()


PACKERS = {".gz": gzip.compress, ".zst": zstd, ".bz2": bz2.compress}
CSV = b"user,item,rating,time\n" + b"".join(b"%d,%d,%f,7\n" % row for row in ROWS)


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_file_is_read_by_its_name(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"r.csv{suffix}"
    file.write_bytes(PACKERS[suffix](CSV))
    assert rows_of(read_ratings(file).ratings) == ROWS


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_movielens_file_has_its_titles_and_may_be_named_by_its_folder(
    tmp_path: Path, suffix: str
) -> None:
    files = layout("20m")
    (tmp_path / f"ratings.csv{suffix}").write_bytes(
        PACKERS[suffix](files["ratings.csv"])
    )
    (tmp_path / "movies.csv").write_bytes(files["movies.csv"])
    ratings = read_ratings(tmp_path).ratings
    assert rows_of(ratings) == ROWS
    assert ratings.titles is not None
    assert set(ratings.titles.tolist()) == set(TITLES.values())


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_cut_packed_file_is_damaged_even_when_bad_rows_are_skipped(
    tmp_path: Path, suffix: str, share: float
) -> None:
    content = b"user,item,rating\n" + b"".join(
        b"%d,%d,3\n" % (k, 7919 * k % 10007) for k in range(3000)
    )
    packed = PACKERS[suffix](content)
    file = tmp_path / f"r.csv{suffix}"
    file.write_bytes(packed[: int(share * len(packed))])
    with pytest.raises(DamagedFile, match="damaged"):
        read_ratings(file, skip_bad=True)
