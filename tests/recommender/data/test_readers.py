"""Readers: every MovieLens layout, packed or not, and tables with named columns."""

import csv
import zipfile

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.errors import BadInput
from asyncqn_recommender.data import read_ratings

ROWS = [(1, 31, 2.5), (1, 7, 3.0), (2, 31, 4.0), (15, 2, 5.0)]
TITLES = {
    2: "Café, the Sequel (1999)",
    7: "Seven: a Number (1995)",
    31: "Thirty-one (1990)",
    40: "Unseen (1980)",
}


def layout(name):
    """The files of a MovieLens set as (name, bytes), holding ROWS and TITLES."""
    if name == "100k":
        rows = "".join(f"{u}\t{i}\t{v:g}\t88125094\n" for u, i, v in ROWS)
        titles = "".join(
            f"{i}|{t}|01-Jan-1995||http://x|0|1\n" for i, t in TITLES.items()
        )
        return {"u.data": rows.encode(), "u.item": titles.encode("latin-1")}
    if name in ("1m", "10m"):
        rows = "".join(f"{u}::{i}::{v:g}::838985046\n" for u, i, v in ROWS)
        titles = "".join(f"{i}::{t}::Comedy|Drama\n" for i, t in TITLES.items())
        return {
            "ratings.dat": rows.encode(),
            "movies.dat": titles.encode("latin-1" if name == "1m" else "utf-8"),
        }
    rows = "userId,movieId,rating,timestamp\r\n" + "".join(
        f"{u},{i},{v},1260759144\r\n" for u, i, v in ROWS
    )
    titles = "movieId,title,genres\n" + "".join(
        f'{i},"{t}",Comedy\n' for i, t in TITLES.items()
    )
    return {"ratings.csv": rows.encode(), "movies.csv": titles.encode()}


def rows_of(ratings):
    users, items = (
        ratings.user_ids[ratings.users].tolist(),
        ratings.item_ids[ratings.items].tolist(),
    )
    return list(zip(users, items, ratings.values.tolist(), strict=True))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["100k", "1m", "10m", "20m"])
def test_movielens_is_read_with_titles_packed_or_not(tmp_path, name, packed):
    files = layout(name)
    folder = tmp_path / f"ml-{name}"
    folder.mkdir()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    place = folder
    if packed:
        place = tmp_path / "archive.zip"
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in files:
                archive.write(folder / file, f"ml-{name}/{file}")
    reading = read_ratings(place)
    assert rows_of(reading.ratings) == ROWS
    assert (
        dict(
            zip(
                reading.ratings.item_ids.tolist(),
                reading.ratings.titles.tolist(),
                strict=True,
            )
        )
        == TITLES
    )
    assert (reading.skipped, reading.problems) == (0, ())


@pytest.mark.parametrize("delimiter", [",", "\t", ";"])
def test_tables_with_a_common_delimiter_are_read(tmp_path, delimiter):
    file = tmp_path / "mine.csv"
    lines = [delimiter.join(("timestamp", "Rating", "item_id", "User ID"))]
    lines += [delimiter.join(("9", str(v), str(i), str(u))) for u, i, v in ROWS]
    file.write_text("\n\n".join(lines))
    assert rows_of(read_ratings(file).ratings) == ROWS


def test_parquet_is_read_alone_and_in_a_zip(tmp_path):
    table = pa.table(
        {"userId": ["a", "b"], "asin": [1, 2], "overall": [1, 2], "text": ["x", "y"]}
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.write(tmp_path / "t.parquet", "t.parquet")
    for name in ("t.parquet", "t.zip"):
        assert rows_of(read_ratings(tmp_path / name).ratings) == [
            ("a", 1, 1.0),
            ("b", 2, 2.0),
        ]


def test_named_columns_and_a_given_delimiter_are_obeyed(tmp_path):
    file = tmp_path / "odd.txt"
    file.write_text("who~what~how\nann~x~2\n")
    ratings = read_ratings(
        file, user="who", item="what", rating="how", delimiter="~"
    ).ratings
    assert rows_of(ratings) == [("ann", "x", 2.0)]


def test_a_byte_order_mark_and_quoted_newlines_are_understood(tmp_path):
    file = tmp_path / "reviews.csv"
    file.write_bytes(
        b'\xef\xbb\xbfuser,review,item,rating\n1,"two\nlines, ""quoted""",5,3\n2,plain,5,4\n'
    )
    assert rows_of(read_ratings(file).ratings) == [(1, 5, 3.0), (2, 5, 4.0)]


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
usable = words.filter(
    lambda w: w.strip() not in ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
)
columns = st.sampled_from(
    [st.integers(-(10**9), 10**9), usable.filter(lambda w: not w.strip("-").isdigit())]
)


@given(columns, columns, st.data())
def test_what_a_csv_writer_wrote_is_read_back(tmp_path_factory, users, items, data):
    pairs = data.draw(
        st.lists(st.tuples(users, items), min_size=1, max_size=20, unique=True)
    )
    rows = [(u, i, data.draw(st.floats(-5, 5, width=32))) for u, i in pairs]
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerows([("user", "item", "rating"), *rows])
    assert rows_of(read_ratings(file).ratings) == rows
    # One bad row more, and every row is examined by itself.
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


def test_a_missing_file_and_an_unknown_layout_are_one_sentence(tmp_path):
    with pytest.raises(BadInput, match="no file or directory"):
        read_ratings(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match="contains none of"):
        read_ratings(tmp_path)
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "x")
    with pytest.raises(BadInput, match=r"a\.csv, b\.csv"):
        read_ratings(tmp_path / "two.zip")
