"""Ratings: ids there and back, constructors, splits."""

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
import scipy.sparse
from conftest import python
from hypothesis import given
from hypothesis import strategies as st
from recommender_cases import rows_of

from asyncqn.errors import BadInput
from asyncqn_recommender.data import Ratings, as_ratings
from asyncqn_recommender.data.duplicates import POLICIES, resolve
from asyncqn_recommender.data.ids import MAX_ID_LENGTH

texts = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"),
    min_size=1,
    max_size=6,
)
numbers = st.integers(-(2**62), 2**62) | st.integers(0, 5)


@st.composite
def rated_pairs(draw, ids=numbers):
    """(users, items, values) without repeated pairs, ids all numbers."""
    pairs = draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=30, unique=True))
    values = draw(
        st.lists(st.floats(-9, 9, width=32), min_size=len(pairs), max_size=len(pairs))
    )
    return [u for u, _ in pairs], [i for _, i in pairs], values


@given(rated_pairs() | rated_pairs(ids=texts))
def test_ids_map_to_dense_indices_and_back(rows):
    users, items, values = rows
    ratings = Ratings.from_arrays(users, items, values)
    assert rows_of(ratings) == list(zip(users, items, values, strict=True))
    assert ratings.user_index(users).tolist() == ratings.users.tolist()
    assert ratings.item_index(items).tolist() == ratings.items.tolist()
    assert (ratings.n_users, ratings.n_items) == (len(set(users)), len(set(items)))


@given(rated_pairs(), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_a_split_is_a_reproducible_partition_with_the_same_tables(rows, fraction, seed):
    ratings = Ratings.from_arrays(*rows)
    n_test = round(fraction * len(ratings))
    if n_test in (0, len(ratings)):
        with pytest.raises(BadInput, match="empty"):
            ratings.split(fraction, seed)
        return
    train, test = ratings.split(fraction, seed)
    assert len(test) == n_test
    assert sorted(rows_of(train) + rows_of(test)) == sorted(rows_of(ratings))
    assert train.user_ids is test.user_ids is ratings.user_ids
    again, _ = ratings.split(fraction, seed)
    assert rows_of(again) == rows_of(train)


def test_unknown_ids_give_minus_one_and_numbers_are_found_as_text():
    ratings = Ratings.from_arrays([7, 42], ["a", "10"], [1, 2])
    assert ratings.user_index([42, 8, 7]).tolist() == [1, -1, 0]
    assert ratings.user_index(["42", "x", "", "8"]).tolist() == [1, -1, -1, -1]
    assert int(ratings.user_index("7")) == 0
    assert ratings.item_index([10, 11]).tolist() == [0, -1]


def test_every_form_gives_the_same_ratings():
    users, items, values = [0, 0, 1, 2], [1, 0, 1, 1], [3.0, 4.5, 1.0, 2.0]
    expected = sorted(zip(users, items, values, strict=True))
    frame = pd.DataFrame({"userId": users, "movieId": items, "rating": values})
    table = pa.table({"user": users, "item": items, "score": values})
    matrix = scipy.sparse.csr_matrix((values, (users, items)), shape=(4, 2))
    plain = Ratings.from_arrays(users, items, values)
    for form in (
        plain,
        frame,
        polars.DataFrame(table),
        table,
        table.to_batches()[0],
        matrix,
        (users, items, values),
    ):
        assert sorted(rows_of(as_ratings(form))) == expected
    assert as_ratings(matrix).n_users == 4
    assert as_ratings(scipy.sparse.coo_array(matrix)).n_users == 4


def test_text_ids_come_from_pandas_and_arrow_dictionaries():
    words = ["ann", "bob", "ann"]
    frame = pd.DataFrame(
        {"u": words, "i": pd.Categorical(["x", "y", "y"]), "r": [1, 2, 3]}
    )
    table = pa.table(
        {"u": pa.array(words).dictionary_encode(), "i": ["x", "y", "y"], "r": [1, 2, 3]}
    )
    unused = pa.DictionaryArray.from_arrays([0, 2, 0], ["ann", "zoe", "bob"])
    for form in (frame, table, table.set_column(0, "u", unused)):
        ratings = as_ratings(form)
        assert ratings.user_ids.tolist() == ["ann", "bob"]
        assert rows_of(ratings) == [("ann", "x", 1), ("bob", "y", 2), ("ann", "y", 3)]


@pytest.mark.parametrize(
    ("users", "items", "values", "words"),
    [
        ([1, 1], [2, 2], [3, 4], "row 1 rates item 2 by user 1 a second time"),
        ([1], [2], [float("nan")], "row 0 has the rating nan"),
        ([1, 2], [2], [3], "differ in length"),
        ([], [], [], "no ratings"),
        ([1.5], [2], [3], r"row 0 has the user id \[1.5\]"),
        ([None], [2], [3], "row 0 has no user id"),
        (["a", 1], [1, 2], [1, 2], "mix types"),
        ([True], [2], [3], "type bool"),
        ([2**63], [2], [3], "too large"),
        (["a\0"], [2], [3], "null byte"),
        (["a" * (MAX_ID_LENGTH + 1)], [2], [3], "longer than"),
        ([1], [2], ["x"], "must be numbers"),
    ],
)
def test_bad_arrays_are_refused_in_one_sentence(users, items, values, words):
    with pytest.raises(BadInput, match=words) as caught:
        Ratings.from_arrays(users, items, values)
    assert "\n" not in str(caught.value)


def test_bad_tables_are_refused_with_their_row():
    nulls = pa.table({"user": [1, None], "item": [1, 2], "rating": [1.0, 2.0]})
    with pytest.raises(BadInput, match="row 1 lacks"):
        as_ratings(nulls)
    with pytest.raises(BadInput, match="does not hold numbers"):
        as_ratings(pa.table({"user": [1], "item": [1], "rating": ["good"]}))
    with pytest.raises(BadInput, match="cannot be made from"):
        as_ratings(3.5)
    with pytest.raises(BadInput, match="must be different columns"):
        Ratings.from_table(nulls, user="item")
    frame = pd.DataFrame({"who": [1], "what": [2], "how": [3.0]})
    with pytest.raises(BadInput, match=r"as_ratings\(\.\.\., user=\.\.\.\)"):
        as_ratings(frame)
    assert len(as_ratings(frame, user="who", item="what", rating="how")) == 1
    with pytest.raises(BadInput, match="no named columns"):
        as_ratings(([1], [2], [3]), user="who")


def test_without_pyarrow_arrays_work_and_files_name_the_extra(tmp_path):
    code = f"""
import sys
sys.modules["pyarrow"] = sys.modules["pandas"] = sys.modules["scipy.sparse"] = None
from asyncqn_recommender.data import as_ratings, open_ratings, read_ratings, save_ratings
from asyncqn.errors import MissingExtra
ratings = as_ratings(([1, 2], ["a", "b"], [3, 4]))
assert open_ratings(save_ratings(ratings, {str(tmp_path / "set")!r})).digest == ratings.digest
open({str(tmp_path / "r.csv")!r}, "w").write("user,item,rating\\n1,2,3\\n")
try:
    read_ratings({str(tmp_path / "r.csv")!r})
except MissingExtra as error:
    print(error)
"""
    done = python("-c", code)
    assert "pip install 'asyncqn[data]'" in done.stdout


triples = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))


@given(
    st.lists(triples, min_size=1, max_size=30),
    st.sampled_from([policy for policy in POLICIES if policy != "error"]),
    st.booleans(),
)
def test_every_pair_is_kept_once_as_a_plain_loop_would(rows, policy, timed):
    users, items, times = np.array(rows, np.int32).T
    values = np.arange(len(rows), dtype=np.float32)
    stamps = times.astype(np.float64) if timed else None
    ratings = Ratings(users, items, values, np.arange(3), np.arange(3), None, stamps)
    resolved, dropped = resolve(ratings, policy)
    groups = {}
    for k, (user, item, _) in enumerate(rows):
        groups.setdefault((user, item), []).append(k)
    pick = {
        "first": lambda group: values[group[0]],
        "last": lambda group: values[group[-1]],
        "mean": lambda group: values[group].mean(),
        "sum": lambda group: values[group].sum(),
    }
    for group in groups.values():
        group.sort(key=lambda k: (times[k] if timed else 0, k))
    assert dropped == len(rows) - len(groups)
    got = {(u, i): value for u, i, value in rows_of(resolved)}
    assert got == pytest.approx({pair: pick[policy](g) for pair, g in groups.items()})


def test_times_are_numbers_or_iso_dates_in_utc_unless_they_say_otherwise():
    moments = ["1970-01-02", "1970-01-02T02:00:00+02:00", pd.Timestamp(86400, unit="s")]
    for times in (
        moments,
        np.array(["1970-01-02"] * 3, "datetime64[D]"),
        [86400.0] * 3,
    ):
        ratings = Ratings.from_arrays([1, 2, 3], [1, 1, 1], [1, 2, 3], times)
        assert ratings.times.tolist() == [86400.0] * 3
    for wrong in (["yesterday"] * 3, [1.0, np.nan, 2.0], [1.0]):
        with pytest.raises(BadInput, match="there must be a time for each of 3"):
            Ratings.from_arrays([1, 2, 3], [1, 1, 1], [1, 2, 3], wrong)


ratings_with_times = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 6)),
    min_size=3,
    max_size=40,
    unique_by=lambda row: row[:2],
).map(lambda rows: Ratings.from_arrays(*zip(*((u, i, 1.0, t) for u, i, t in rows))))


@given(ratings_with_times, st.floats(0.05, 0.9))
def test_a_time_split_tests_on_the_latest_and_leaves_nothing_out(ratings, share):
    n_test = round(share * len(ratings))
    if n_test in (0, len(ratings)):
        with pytest.raises(BadInput, match="empty"):
            ratings.split_by_time(share)
        return
    train, test = ratings.split_by_time(share)
    assert (len(train), len(test)) == (len(ratings) - n_test, n_test)
    assert train.times.max() <= test.times.min()


@given(ratings_with_times, st.integers(1, 3))
def test_the_last_of_each_user_go_to_the_test_and_short_users_stay(ratings, n):
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
