"""Readers: every MovieLens layout and tables with named columns, packed or not; bad rows and damaged files."""

import bz2
import csv
import gzip
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recommender_cases import rows_of

from asyncqn.errors import AsyncqnError, BadInput, DamagedFile
from asyncqn_recommender.data import read_ratings

ROWS = [(1, 31, 2.5), (1, 7, 3.0), (2, 31, 4.0), (15, 2, 5.0)]
TITLES = {
    2: "Café, the Sequel (1999)",
    7: "Seven: a Number (1995)",
    31: "Thirty-one (1990)",
    40: "Unseen (1980)",
}
GOOD_CSV = ["user,item,rating", "1,10,3.5", "2,10,4", "3,11,1"]
GOOD_DAT = ["1::10::3::9", "2::10::4::9", "3::11::1::9"]


def layout(name):
    """The files of a MovieLens set as (name, bytes), holding ROWS and TITLES."""
    if name == "100k":
        rows = "".join(f"{u}\t{i}\t{v:g}\t88125094\n" for u, i, v in ROWS)
        titles = "".join(f"{i}|{t}|01-Jan-1995||0|1\n" for i, t in TITLES.items())
        return {"u.data": rows.encode(), "u.item": titles.encode("latin-1")}
    if name in ("1m", "10m"):
        encoding = "latin-1" if name == "1m" else "utf-8"
        rows = "".join(f"{u}::{i}::{v:g}::838985046\n" for u, i, v in ROWS)
        titles = "".join(f"{i}::{t}::Comedy|Drama\n" for i, t in TITLES.items())
        return {"ratings.dat": rows.encode(), "movies.dat": titles.encode(encoding)}
    rows = "".join(f"{u},{i},{v},964982703\r\n" for u, i, v in ROWS)
    titles = "".join(f'{i},"{t}",Comedy\r\n' for i, t in TITLES.items())
    return {
        "ratings.csv": f"userId,movieId,rating,timestamp\r\n{rows}".encode(),
        "movies.csv": f"movieId,title,genres\r\n{titles}".encode(),
    }


def zip_of(file, members, folder="ml/"):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(folder + name, content)
    return file


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["100k", "1m", "10m", "20m"])
def test_movielens_is_read_with_titles_packed_or_not(tmp_path, name, packed):
    files = layout(name)
    place = zip_of(tmp_path / "archive.zip", files) if packed else tmp_path
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    reading = read_ratings(place)
    ratings = reading.ratings
    assert rows_of(ratings) == ROWS
    assert dict(zip(ratings.item_ids.tolist(), ratings.titles.tolist())) == TITLES
    assert (reading.skipped, reading.problems) == (0, ())


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_tables_with_a_common_delimiter_are_read(tmp_path, delimiter):
    file = tmp_path / "mine.csv"
    lines = [delimiter.join(("timestamp", "Rating", "item_id", "User ID"))]
    lines += [delimiter.join(("9", str(v), str(i), str(u))) for u, i, v in ROWS]
    file.write_text("\n\n".join(lines))
    assert rows_of(read_ratings(file).ratings) == ROWS


def test_a_byte_order_mark_and_quoted_newlines_are_understood(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_bytes(
        b'\xef\xbb\xbfuser,review,item,rating\n1,"two\nlines, ""quoted""",5,3\n2,plain,5,4\n'
    )
    assert rows_of(read_ratings(file).ratings) == [(1, 5, 3.0), (2, 5, 4.0)]


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
usable = words.filter(lambda w: w.strip() not in MISSING)
not_numbers = usable.filter(lambda w: not w.strip("-").isdigit())
columns = st.sampled_from([st.integers(-(10**9), 10**9), not_numbers])


@given(columns, columns, st.data())
def test_what_a_csv_writer_wrote_is_read_back(tmp_path_factory, users, items, data):
    pairs = st.lists(st.tuples(users, items), min_size=1, max_size=20, unique=True)
    stars = st.floats(-5, 5, width=32)
    rows = [(u, i, data.draw(stars)) for u, i in data.draw(pairs)]
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("user", "item", "rating"), *rows])
    assert rows_of(read_ratings(file).ratings) == rows
    # One bad row more, and every value is examined by itself.
    with file.open("a", newline="", encoding="utf-8") as stream:
        stream.write("too few,fields\n")
    reading = read_ratings(file, skip_bad=True)
    assert rows_of(reading.ratings) == rows
    assert reading.skipped == 1


def test_ids_are_numbers_only_when_all_of_a_column_spell_one(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("user,item,rating\n7,07,1\n8,x,2\n")
    assert rows_of(read_ratings(file).ratings) == [(7, "07", 1.0), (8, "x", 2.0)]
    file.write_text("user,item,rating\n7,07,1\n8,7,2\n")
    assert rows_of(read_ratings(file).ratings) == [(7, 7, 1.0), (8, 7, 2.0)]


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (GOOD_CSV, "4,10", "2 fields where 3"),
        (GOOD_CSV, "4,10,good", "a finite rating is missing or not valid"),
        (GOOD_CSV, "4,10,nan", "finite rating"),
        (GOOD_CSV, "4,10,1e39", "finite rating"),
        (GOOD_CSV, ",10,3", "a user"),
        (GOOD_CSV, "4,NA,3", "an item"),
        (GOOD_CSV, "1,10,2", "user 1 rates item 10 a second time"),
        (GOOD_DAT, "4::10", "2 fields where 4"),
        (GOOD_DAT, "4::x::3::9", "an item"),
        (GOOD_DAT, "2::10::4::9", "user 2 rates item 10 a second time"),
    ],
)
def test_a_bad_row_is_named_or_skipped(tmp_path, good, bad, words):
    file = tmp_path / ("ratings.dat" if good is GOOD_DAT else "r.csv")
    file.write_text("\n".join([*good, bad]) + "\n")
    row = len(good) + 1
    with pytest.raises(BadInput, match=f"{file.name}, row {row}: .*{words}"):
        read_ratings(file)
    reading = read_ratings(file, skip_bad=True)
    assert (len(reading.ratings), reading.skipped) == (3, 1)
    assert f"row {row}: " in reading.problems[0]
    assert reading.ratings.user_ids.tolist() == [1, 2, 3]


def test_rows_are_counted_without_blank_lines_and_a_quoted_line_end_ends_no_row(
    tmp_path,
):
    file = tmp_path / "r.csv"
    for bad, words in (("2,x,10,bad", "a finite rating"), ("1,x,10,4", "second time")):
        file.write_text(f'user,note,item,rating\n\n1,"a\nb\nc",10,3\n\n{bad}\n')
        with pytest.raises(BadInput, match=f"row 3: .*{words}"):
            read_ratings(file)


def test_many_bad_rows_are_all_counted_and_the_first_ten_shown(tmp_path):
    file = tmp_path / "r.csv"
    lines = ["2,10", *["4,10,x"] * 30, "5", *["1,10,2"] * 7]
    file.write_text("\n".join([*GOOD_CSV, *lines]))
    with pytest.raises(BadInput, match="row 5: 2 fields"):
        read_ratings(file)
    reading = read_ratings(file, skip_bad=True)
    assert (len(reading.ratings), reading.skipped, len(reading.problems)) == (3, 39, 10)
    assert reading.remarks()[-1] == "bad rows skipped: 39"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\n\n", "r.csv is empty"),
        (b"user,item,rating\n", "the file has no usable row"),
        (b"user,item,rating\n1,\xff\xff,3\n", "r.csv is not UTF-8 text"),
        (b"1,2,3.5\n1,3,4\n", "row 1: the first line must name the columns, not '1'"),
        (b"user item rating\n1 2 3\n", "row 1: no column looks like the user"),
        (b"user,item,rating,user\n1,2,3,4\n", "more than one column has the name"),
    ],
)
def test_a_file_without_ratings_is_refused_in_one_sentence(tmp_path, content, words):
    file = tmp_path / "r.csv"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_ratings(file)


def test_parquet_is_read_alone_and_in_a_zip_and_its_bad_rows_are_named_or_skipped(
    tmp_path,
):
    file = tmp_path / "t.parquet"
    table = pa.table({"userId": ["a", "b"], "asin": [1, 2], "overall": [1, 2]})
    pa.parquet.write_table(table, file)
    packed = zip_of(tmp_path / "t.zip", {"t.parquet": file.read_bytes()})
    for place in (file, packed):
        assert rows_of(read_ratings(place).ratings) == [("a", 1, 1.0), ("b", 2, 2.0)]
    columns = {"user": [1, None, 1, 2], "item": [1, 2, 1, 2]}
    rating = [1.0, 2.0, 3.0, np.inf]
    pa.parquet.write_table(pa.table(columns | {"rating": rating}), file)
    with pytest.raises(BadInput, match="row 2"):
        read_ratings(file)
    reading = read_ratings(file, skip_bad=True)
    assert (len(reading.ratings), reading.skipped) == (1, 3)
    assert reading.problems[-1].endswith("row 3: user 1 rates item 1 a second time")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DamagedFile, match="Parquet"):
        read_ratings(file)


def test_bad_titles_are_named_or_skipped(tmp_path):
    (tmp_path / "ratings.dat").write_text("\n".join(GOOD_DAT))
    (tmp_path / "movies.dat").write_text("10::Ten::Drama\nnonsense\n")
    with pytest.raises(BadInput, match=r"movies\.dat, row 2"):
        read_ratings(tmp_path)
    reading = read_ratings(tmp_path, skip_bad=True)
    assert reading.ratings.titles.tolist() == ["Ten", ""]
    assert reading.skipped == 1


def test_a_time_that_was_asked_for_must_be_there_in_every_row(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("user,item,rating,when\n1,1,3,5\n2,1,3,later\n")
    with pytest.raises(BadInput, match=r"r\.csv, row 3: .* or a time is missing"):
        read_ratings(file, time="when")
    reading = read_ratings(file, time="when", skip_bad=True)
    assert (reading.skipped, reading.ratings.times.tolist()) == (1, [5.0])
    assert read_ratings(file).ratings.times is None, "'when' is no common name"


@pytest.mark.parametrize(
    ("header", "stamps", "expected"),
    [
        ("timestamp", ["978300760", "7.5"], [978300760.0, 7.5]),
        ("date", ["1970-01-01", "1970-01-02"], [0.0, 86400.0]),
        (
            "created_at",
            ["1970-01-01T12:00:00Z", "1970-01-02T00:00:00Z"],
            [43200, 86400],
        ),
        ("time", ["5", "later"], None),
        ("time", ["5", ""], None),
    ],
)
def test_a_column_with_a_common_name_is_kept_where_every_row_tells_a_time(
    tmp_path, header, stamps, expected
):
    file = tmp_path / "r.csv"
    rows = "".join(f"{k},1,3,{stamp}\n" for k, stamp in enumerate(stamps))
    file.write_text(f"user,item,rating,{header}\n{rows}")
    times = read_ratings(file).ratings.times
    assert (None if times is None else times.tolist()) == expected


def zstd(content):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(content)
    return sink.getvalue().to_pybytes()


PACKERS = {".gz": gzip.compress, ".zst": zstd, ".bz2": bz2.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_a_packed_file_is_read_by_its_name_and_refused_when_it_is_cut(tmp_path, suffix):
    files = layout("20m")
    packed = PACKERS[suffix](files["ratings.csv"])
    (tmp_path / f"ratings.csv{suffix}").write_bytes(packed)
    (tmp_path / "movies.csv").write_bytes(files["movies.csv"])
    ratings = read_ratings(tmp_path).ratings
    assert rows_of(ratings) == ROWS
    assert set(ratings.titles.tolist()) == set(TITLES.values())
    for share in (0.2, 0.95):
        cut = packed[: int(share * len(packed))]
        (tmp_path / f"ratings.csv{suffix}").write_bytes(cut)
        with pytest.raises(DamagedFile, match="damaged"):
            read_ratings(tmp_path, skip_bad=True)


def test_a_missing_file_and_an_unknown_layout_are_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="no file or directory"):
        read_ratings(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match="contains none of"):
        read_ratings(tmp_path)
    two = zip_of(tmp_path / "two.zip", {"a.csv": "x", "b.csv": "x"})
    with pytest.raises(BadInput, match=r"a\.csv, ml/b\.csv"):
        read_ratings(two)


VALID = {
    "ratings.dat": b"1::10::3::978300760\n2::10::4::978302109\n3::11::1::978301968\n",
    "r.csv": b'userId,movieId,rating,timestamp\n1,10,3.5,9\n2,"a ""b""",4,9\n\n3,11,1,9\n',
    "r.txt": "user;item;rating\nä;é;3\nb;😀;4\n".encode(),
    "a.zip": None,
    "t.parquet": None,
}
SPICE = [b"::", b"\n", b"\r", b'"', b",", b"\0", b"\xff", b"nan", b"1e999"]


@pytest.mark.parametrize("name", VALID)
def test_mutated_files_are_read_or_refused_in_one_sentence(tmp_path, name):
    file = tmp_path / name
    if name == "a.zip":
        zip_of(file, layout("1m"))
    elif name == "t.parquet":
        table = pa.table({"user": [1, 2], "item": ["a", "b"], "rating": [1.0, 2.0]})
        pa.parquet.write_table(table, file)
    refused = []
    original = VALID[name] or file.read_bytes()

    @given(st.data())
    @settings(max_examples=120)
    def mutate(data):
        content = bytearray(original)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content)))
            piece = data.draw(st.sampled_from(SPICE) | st.binary(max_size=4))
            content[at : at + data.draw(st.integers(0, 6))] = piece
        file.write_bytes(bytes(content))
        for skip_bad in (False, True):
            try:
                reading = read_ratings(file, skip_bad=skip_bad)
            except AsyncqnError as error:
                refused.append(str(error))
                continue
            ratings = reading.ratings
            assert len(ratings) > 0
            assert ratings.users.max() < ratings.n_users
            assert ratings.items.max() < ratings.n_items
            assert reading.skipped == 0 or skip_bad

    mutate()
    assert not any("\n" in sentence for sentence in refused)
