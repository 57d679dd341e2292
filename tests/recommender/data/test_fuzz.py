"""No bytes make a reader raise anything but an error meant for a person."""

import io
import zipfile

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncqn.errors import AsyncqnError
from asyncqn_recommender.data import read_ratings


def _zip(method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr("ml-1m/ratings.dat", VALID["ratings.dat"])
        archive.writestr("ml-1m/movies.dat", b"10::Ten::Drama\n")
    return out.getvalue()


def _parquet():
    out = io.BytesIO()
    pa.parquet.write_table(
        pa.table({"user": [1, 2], "item": ["a", "b"], "rating": [1.0, 2.0]}), out
    )
    return out.getvalue()


VALID = {
    "ratings.dat": b"1::10::3::978300760\n2::10::4::978302109\n3::11::1::978301968\n",
    "u.data": b"196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
    "r.csv": b'userId,movieId,rating,timestamp\n1,10,3.5,9\n2,"a ""b""",4,9\n\n3,11,1,9\n',
    "r.tsv": b"user\titem\trating\nann\tx\t3\nbob\ty\t4\n",
    "r.txt": "user;item;rating\nä;é;3\nb;😀;4\n".encode(),
}
VALID |= {
    "a.zip": _zip(zipfile.ZIP_DEFLATED),
    "b.zip": _zip(zipfile.ZIP_LZMA),
    "t.parquet": _parquet(),
}
SPICE = [
    b"",
    b"::",
    b":",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"\t",
    b"\0",
    b"\xff",
    b"\x1f",
    b"nan",
    b"-1",
    b"1e999",
    b"NA",
]


def check(file):
    for skip_bad in (False, True):
        sentence = None
        try:
            reading = read_ratings(file, skip_bad=skip_bad)
        except AsyncqnError as error:
            sentence = str(error)
        if sentence is not None:
            assert "\n" not in sentence
            assert file.name in sentence
            continue
        ratings = reading.ratings
        assert len(ratings) > 0
        assert ratings.users.max() < ratings.n_users
        assert ratings.items.max() < ratings.n_items
        assert reading.skipped == 0 or skip_bad


@pytest.mark.parametrize("name", VALID)
def test_mutated_files_are_read_or_refused(tmp_path, name):
    file = tmp_path / name

    @given(st.data())
    @settings(max_examples=120)
    def mutate(data):
        content = bytearray(VALID[name])
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content)))
            piece = data.draw(st.sampled_from(SPICE) | st.binary(max_size=4))
            cut = data.draw(st.integers(0, 6))
            content[at : at + cut] = piece
        file.write_bytes(bytes(content))
        check(file)

    mutate()
