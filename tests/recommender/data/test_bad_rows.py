"""Bad rows: named by file and line, or counted and skipped; damaged archives."""

import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from asyncqn.errors import BadInput, DamagedFile
from asyncqn_recommender.data import read_ratings

GOOD_CSV = ["user,item,rating", "1,10,3.5", "2,10,4", "3,11,1"]
GOOD_DAT = ["1::10::3::9", "2::10::4::9", "3::11::1::9"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("4,10", "found 2 fields where 3"),
        ("4,10,3,5", "found 4 fields where 3"),
        ("4,10,good", "rating 'good' is not a number"),
        ("4,10,", "rating is missing"),
        ("4,10,nan", "not a finite number"),
        ('4,10,"4,5"', "rating '4,5' is not a number"),
        ("4,10,-inf", "not a finite number"),
        ("4,10,1e39", "not a finite number"),
        ("4,10,1_0", "not a number"),
        (",10,3", "user id is missing"),
        ("4,NA,3", "item id is missing"),
        ("4,\udcff,3", "not valid UTF-8"),
        (f"4,{'x' * 300},3", "longer than 256"),
        ("1,10,2", "user 1 rates item 10 a second time"),
        ("4;10;3", "found 1 field where 3"),
    ],
)
def test_a_bad_row_of_a_table_is_named_or_skipped(tmp_path, bad, words):
    for place in (2, 3, 4):
        if "second" in words and place < 4:
            continue
        lines = [*GOOD_CSV[:place], bad, *GOOD_CSV[place:]]
        file = tmp_path / "r.csv"
        file.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
        with pytest.raises(BadInput, match=f"r.csv, row {place + 1}: .*{words}"):
            read_ratings(file)
        reading = read_ratings(file, skip_bad=True)
        assert (len(reading.ratings), reading.skipped) == (3, 1)
        assert f"row {place + 1}: " in reading.problems[0]
        assert reading.ratings.user_ids.tolist() in ([1, 2, 3], ["1", "2", "3"])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("4::10", "found 2 fields where 4"),
        ("4:10:3:9", "found 1 field where 4"),
        ("4::10\t7::3::9", "found 5 fields where 4"),
        ("-4::10::3::9", "user id -4 is negative"),
        ("4::x::3::9", "item id 'x' is not an integer"),
        ("4::10::::9", "rating is missing"),
        ("4::10::*::9", r"rating '\*' is not a number"),
        ("2::10::4::9", "user 2 rates item 10 a second time"),
    ],
)
def test_a_bad_row_of_a_double_colon_file_is_named_or_skipped(tmp_path, bad, words):
    file = tmp_path / "ratings.dat"
    file.write_text("\n".join([*GOOD_DAT, bad]) + "\n")
    with pytest.raises(BadInput, match=f"ratings.dat, row 4: .*{words}"):
        read_ratings(file)
    reading = read_ratings(file, skip_bad=True)
    assert (len(reading.ratings), reading.skipped) == (3, 1)


def test_rows_are_counted_without_blank_lines_and_a_quoted_line_end_ends_no_row(
    tmp_path,
):
    file = tmp_path / "r.csv"
    file.write_text('user,note,item,rating\n\n1,"a\nb\nc",10,3\n\n2,x,10,bad\n')
    with pytest.raises(BadInput, match="row 3: the rating 'bad'"):
        read_ratings(file)
    file.write_text('user,note,item,rating\n\n1,"a\nb\nc",10,3\n\n1,x,10,4\n')
    with pytest.raises(BadInput, match="row 3: user 1 rates item 10 a second time"):
        read_ratings(file)


def test_the_first_bad_row_is_named_whatever_its_fault(tmp_path):
    file = tmp_path / "r.csv"
    for lines in (["1,10,bad", "2,10", "3,11,1"], ["2,10", "1,10,bad", "3,11,1"]):
        file.write_text("\n".join(["user,item,rating", *lines]))
        with pytest.raises(BadInput, match="row 2: "):
            read_ratings(file)
        reading = read_ratings(file, skip_bad=True)
        assert [problem.partition(": ")[0][-5:] for problem in reading.problems] == [
            "row 2",
            "row 3",
        ]
        assert reading.ratings.user_ids.tolist() == [3]


def test_many_bad_rows_are_all_counted_and_the_first_ten_shown(tmp_path):
    file = tmp_path / "r.csv"
    file.write_text("\n".join([*GOOD_CSV, *["4,10,x"] * 30, *["1,10,2"] * 7]))
    reading = read_ratings(file, skip_bad=True)
    assert (len(reading.ratings), reading.skipped, len(reading.problems)) == (3, 37, 10)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "r.csv is empty"),
        (b"\n\n", "r.csv is empty"),
        (b"user,item,rating\n", "the file has no usable row"),
        (
            b"1,2,3.5\n1,3,4\n",
            "row 1: the first line must name the columns, not '1', '2', '3.5'",
        ),
        (
            b"user item rating\n1 2 3\n",
            "row 1: no column looks like the user; there are 'user item rating'",
        ),
        (b"1,2,3\n4,5,6\n", "not '1', '2', '3'"),
        (
            b"user,item,rating,user\n1,2,3,4\n",
            "more than one column has the name 'user'",
        ),
    ],
)
def test_a_file_without_ratings_is_refused_in_one_sentence(tmp_path, content, words):
    file = tmp_path / "r.csv"
    file.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_ratings(file)


def test_bad_rows_of_parquet_are_named_by_row_or_skipped(tmp_path):
    table = pa.table(
        {
            "user": [1, None, 1, 2],
            "item": [1, 2, 1, 2],
            "rating": [1.0, 2.0, 3.0, np.inf],
        }
    )
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="row 2"):
        read_ratings(tmp_path / "t.parquet")
    reading = read_ratings(tmp_path / "t.parquet", skip_bad=True)
    assert (len(reading.ratings), reading.skipped) == (1, 3)
    assert reading.problems[-1].endswith("row 3: user 1 rates item 1 a second time")
    table = pa.table({"user": [1.0, np.nan], "item": [1, 2], "rating": [1, 2]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    assert read_ratings(tmp_path / "t.parquet", skip_bad=True).skipped == 1


def test_bad_titles_are_named_or_skipped(tmp_path):
    (tmp_path / "ratings.dat").write_text("\n".join(GOOD_DAT))
    (tmp_path / "movies.dat").write_text("10::Ten::Drama\nnonsense\n")
    with pytest.raises(BadInput, match=r"movies\.dat, row 2"):
        read_ratings(tmp_path)
    reading = read_ratings(tmp_path, skip_bad=True)
    assert reading.ratings.titles.tolist() == ["Ten", ""]
    assert reading.skipped == 1


@pytest.fixture
def archive(tmp_path):
    file = tmp_path / "ml-1m.zip"
    rng = np.random.default_rng(0)
    rows = "".join(
        f"{u}::{i}::{rng.integers(1, 6)}::9\n"
        for u in range(1, 60)
        for i in range(1, 60)
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("ml-1m/ratings.dat", rows)
    return file


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_zip_is_a_damaged_file_even_when_bad_rows_are_skipped(
    archive, share
):
    data = archive.read_bytes()
    archive.write_bytes(data[: int(share * len(data))])
    for skip_bad in (False, True):
        with pytest.raises(DamagedFile, match=r"ml-1m\.zip is damaged"):
            read_ratings(archive, skip_bad=skip_bad)


def test_a_cut_parquet_file_is_a_damaged_file(tmp_path):
    file = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"user": [1], "item": [1], "rating": [1.0]}), file)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DamagedFile, match="Parquet"):
        read_ratings(file)
