"""Files in the libsvm format."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import asyncqn as aq


def test_rows_and_labels_are_those_of_the_file(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("+1 1:0.5 3:2\n-1 2:1.5 # a remark\n")
    X, y = aq.read_libsvm(path, n_features=4, dtype=np.float32)
    assert X.toarray().tolist() == [[0.5, 0, 2, 0], [0, 1.5, 0, 0]]
    assert X.dtype == np.float32
    assert y.tolist() == [1.0, -1.0]


def test_what_is_no_such_file_gets_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(aq.BadInput, match="there is no file"):
        aq.read_libsvm(tmp_path / "none.txt")
    (tmp_path / "wrong.txt").write_text("one, two\n")
    with pytest.raises(aq.BadInput, match="is not a file in the libsvm format"):
        aq.read_libsvm(tmp_path / "wrong.txt")
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"asyncqn\[sklearn\]"):
        aq.read_libsvm(tmp_path / "wrong.txt")


def test_a_folder_and_an_empty_file_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(aq.BadInput, match=r" is a folder: name a regular file\.$"):
        aq.read_libsvm(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(
        aq.BadInput, match="is empty: a libsvm file has one line per row"
    ):
        aq.read_libsvm(tmp_path / "empty.txt")
