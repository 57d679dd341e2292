"""Tables of metrics."""

from __future__ import annotations

import numpy as np
import pytest

from asyncqn.columns import Table


def test_records_become_columns_and_what_one_lacks_is_nan():
    table = Table.from_records(
        [{"commit": 0, "fun": 2.0}, {"commit": 1, "fun": 1.0, "rmse": 0.5}]
    )
    assert table.columns == ["commit", "fun", "rmse"]
    assert table.rows == 2
    assert np.isnan(table["rmse"][0])
    assert table.row(1) == {"commit": 1, "fun": 1.0, "rmse": 0.5}


def test_a_table_is_a_mapping_of_columns():
    table = Table({"a": [1, 2, 3], "b": [4.0, 5.0, 6.0]})
    assert list(table) == ["a", "b"]
    assert len(table) == 2
    assert dict(table.items())["a"].tolist() == [1, 2, 3]
    with pytest.raises(KeyError):
        table["c"]


def test_an_empty_table_has_no_rows():
    assert Table({}).rows == 0
    assert Table.from_records([]).columns == []
    assert repr(Table({})) == ""


def test_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match="must have the same length"):
        Table({"a": [1, 2], "b": [1]})


def test_a_table_becomes_a_data_frame():
    frame = Table({"a": [1, 2], "b": [3.0, 4.0]}).to_pandas()
    assert list(frame.columns) == ["a", "b"]
    assert frame["b"].tolist() == [3.0, 4.0]


def test_a_table_speaks_arrow():
    import polars
    import pyarrow

    table = Table({"commit": [0, 1], "fun": [3.0, 4.0], "name": ["a", "b"]})
    assert pyarrow.table(table).to_pydict() == {
        "commit": [0, 1],
        "fun": [3.0, 4.0],
        "name": ["a", "b"],
    }
    assert polars.DataFrame(table)["name"].to_list() == ["a", "b"]
