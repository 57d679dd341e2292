"""Several ratings of one item by one user: which counts, and how many were dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncqn.errors import BadInput
from asyncqn_recommender.data import Ratings, as_ratings, read_ratings
from asyncqn_recommender.data.duplicates import POLICIES, resolve

ROWS = [
    ("a", "x", 1.0, 30),
    ("b", "x", 2.0, 1),
    ("a", "x", 4.0, 10),
    ("a", "x", 4.0, 20),
]
EXPECTED = {"last": 1.0, "first": 4.0, "mean": 3.0}
BY_POSITION = {"last": 4.0, "first": 1.0, "mean": 3.0}


def kept(ratings: Ratings) -> float:
    (row,) = np.flatnonzero(ratings.users == ratings.user_index(["a"])[0])
    return float(ratings.values[row])


@pytest.mark.parametrize("policy", EXPECTED)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_keeps_the_one_asked_for_and_counts_the_others(
    tmp_path: Path, policy: str, suffix: str
) -> None:
    frame = pd.DataFrame(ROWS, columns=["user", "item", "rating", "time"])
    for columns, expected in ((list(frame), EXPECTED), (list(frame)[:3], BY_POSITION)):
        file = tmp_path / f"r.{suffix}"
        if suffix == "csv":
            frame[columns].to_csv(file, index=False)
        else:
            pa.parquet.write_table(pa.Table.from_pandas(frame[columns]), file)
        reading = read_ratings(file, duplicates=policy)
        assert (len(reading.ratings), reading.repeated, reading.skipped) == (2, 2, 0)
        assert kept(reading.ratings) == expected[policy]
        assert kept(as_ratings(str(file), duplicates=policy)) == expected[policy]
        assert kept(as_ratings(frame[columns], duplicates=policy)) == expected[policy]
        assert (
            kept(as_ratings(pa.Table.from_pandas(frame[columns]), duplicates=policy))
            == expected[policy]
        )


def test_without_a_policy_repeats_are_refused_and_among_bad_rows_the_last_is_kept(
    tmp_path: Path,
) -> None:
    file = tmp_path / "r.csv"
    file.write_text("user,item,rating\na,x,1\na,x,5\nb,x,2\n")
    with pytest.raises(
        BadInput, match=r"row 3: user a rates item x a second time; .*--duplicates last"
    ):
        read_ratings(file)
    with pytest.raises(BadInput, match="second time"):
        read_ratings(file, duplicates="error", skip_bad=True)
    reading = read_ratings(file, skip_bad=True)
    assert (kept(reading.ratings), reading.skipped, reading.repeated) == (5.0, 1, 0)
    assert reading.remarks()[-1] == "bad rows skipped: 1"
    with pytest.raises(
        BadInput, match="one of error, last, first, mean, sum, not 'newest'"
    ):
        read_ratings(file, duplicates="newest")


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    ),
    st.sampled_from([policy for policy in POLICIES if policy != "error"]),
    st.booleans(),
)
def test_every_pair_is_kept_once_as_a_plain_loop_would(
    rows: list[tuple[int, int, int]], policy: str, timed: bool
) -> None:
    users, items, times = np.array(rows, np.int32).T
    values = np.arange(len(rows), dtype=np.float32)
    stamps = times.astype(np.float64) if timed else None
    ratings = Ratings(users, items, values, np.arange(3), np.arange(3), None, stamps)
    found, dropped = resolve(ratings, policy)
    groups: dict[tuple[int, int], list[int]] = {}
    for k, (user, item, _) in enumerate(rows):
        groups.setdefault((user, item), []).append(k)
    for group in groups.values():
        group.sort(key=lambda k: (times[k] if timed else 0, k))
    pick = {
        "first": lambda g: values[g[0]],
        "last": lambda g: values[g[-1]],
        "mean": lambda g: values[g].mean(),
        "sum": lambda g: values[g].sum(),
    }
    expected = {pair: pick[policy](group) for pair, group in groups.items()}
    assert dropped == len(rows) - len(groups)
    got = dict(
        zip(zip(found.users.tolist(), found.items.tolist()), found.values.tolist())
    )
    assert got == pytest.approx(expected)


def test_columns_are_named_as_the_message_advises() -> None:
    frame = pd.DataFrame({"who": [1], "what": [2], "how": [3.0]})
    with pytest.raises(BadInput, match=r"as_ratings\(\.\.\., user=\.\.\.\)"):
        as_ratings(frame)
    assert len(as_ratings(frame, user="who", item="what", rating="how")) == 1
    with pytest.raises(BadInput, match="no named columns"):
        as_ratings(([1], [2], [3]), user="who")
