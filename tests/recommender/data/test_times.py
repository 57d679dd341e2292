"""Times of ratings: kept through every reader and the store, and what splits make of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.errors import BadInput
from asyncqn_recommender.data import (
    Ratings,
    read_ratings,
)
from asyncqn_recommender.data.times import time_of

NOON = datetime(2024, 5, 31, 12, tzinfo=UTC)
DAYS = ["2024-05-31", "2023-01-01", "2024-06-01"]


def seconds(words: list[str]) -> list[float]:
    return [
        datetime.fromisoformat(word).replace(tzinfo=UTC).timestamp() for word in words
    ]


def test_a_time_is_a_number_or_an_iso_date_in_utc_unless_it_says_otherwise() -> None:
    assert time_of(" 978300760 ") == 978300760.0
    assert (
        time_of("2024-05-31T12:00:00Z")
        == time_of("2024-05-31T14:00:00+02:00")
        == NOON.timestamp()
    )
    assert time_of("2024-05-31 12:00:00") == NOON.timestamp()
    assert [time_of(word) for word in ("", "nan", "inf", "1_0", "yesterday")] == [
        None
    ] * 5


@pytest.mark.parametrize(
    ("header", "stamps", "expected"),
    [
        ("timestamp", ["978300760", "5", "7.5"], [978300760.0, 5.0, 7.5]),
        ("date", DAYS, seconds(DAYS)),
        ("Date Time", ["2024-05-31 12:00:00"] * 3, [NOON.timestamp()] * 3),
        ("created_at", ["2024-05-31T12:00:00Z"] * 3, [NOON.timestamp()] * 3),
        ("time", ["5", "later", "6"], None),
        ("time", ["5", "", "6"], None),
    ],
)
def test_a_column_with_a_common_name_is_kept_where_every_row_tells_a_time(
    tmp_path: Path, header: str, stamps: list[str], expected: list[float] | None
) -> None:
    file = tmp_path / "r.csv"
    rows = "".join(f"{k},1,3,{stamp}\n" for k, stamp in enumerate(stamps))
    file.write_text(f"user,item,rating,{header}\n{rows}")
    found = read_ratings(file).ratings.times
    assert (None if found is None else found.tolist()) == expected
    # The reader that names bad rows gives the same.
    file.write_text(f"user,item,rating,{header}\n{rows}9,9,bad,{stamps[0]}\n")
    again = read_ratings(file, skip_bad=True).ratings.times
    assert (None if again is None else again.tolist()) == expected


def test_a_time_that_was_asked_for_must_be_there_in_every_row(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("user,item,rating,when\n1,1,3,5\n2,1,3,later\n")
    with pytest.raises(BadInput, match=r"r\.csv, row 3: the time 'later' is neither"):
        read_ratings(file, time="when")
    reading = read_ratings(file, time="when", skip_bad=True)
    assert (reading.skipped, reading.ratings.times.tolist()) == (1, [5.0])
    assert read_ratings(file).ratings.times is None, "'when' is no common name"
    table = pa.table(
        {"user": [1, 2], "item": [1, 1], "rating": [1, 2], "when": [5.0, None]}
    )
    pa.parquet.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(BadInput, match=r"row 2: .* or a time is missing"):
        read_ratings(tmp_path / "r.parquet", time="when")


ratings_with_times = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 6)),
    min_size=3,
    max_size=40,
    unique_by=lambda row: row[:2],
).map(lambda rows: Ratings.from_arrays(*zip(*((u, i, 1.0, t) for u, i, t in rows))))


@given(ratings_with_times, st.floats(0.05, 0.9))
def test_a_time_split_tests_on_the_latest_and_leaves_nothing_out(
    ratings: Ratings, share: float
) -> None:
    n_test = round(share * len(ratings))
    if n_test in (0, len(ratings)):
        with pytest.raises(BadInput, match="empty"):
            ratings.split_by_time(share)
        return
    train, test = ratings.split_by_time(share)
    assert (len(train), len(test)) == (len(ratings) - n_test, n_test)
    assert train.times.max() <= test.times.min()
    assert train.user_ids is test.user_ids is ratings.user_ids


@given(ratings_with_times, st.integers(1, 3))
def test_the_last_of_each_user_go_to_the_test_and_short_users_stay(
    ratings: Ratings, n: int
) -> None:
    counts = np.bincount(ratings.users, minlength=ratings.n_users)
    if (counts <= n).all():
        with pytest.raises(BadInput, match="empty"):
            ratings.split_last(n)
        return
    train, test = ratings.split_last(n)
    for u in range(ratings.n_users):
        held, kept = test.times[test.users == u], train.times[train.users == u]
        assert len(held) == (n if counts[u] > n else 0)
        assert len(held) == 0 or kept.max() <= held.min()
