"""Sparse matrices whose arrays were replaced are refused before compiled code reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import asyncqn as aq
from asyncqn.models.sparse_layout import checked_csr
from asyncqn_recommender.data import as_ratings

FAR = 10**8
"""An index far enough from any array that reading there ends the process."""


def sparse(kind: str) -> Any:
    rng = np.random.default_rng(0)
    dense = rng.random((12, 8)) * (rng.random((12, 8)) < 0.4)
    dense[0, 0] = 1.0
    if kind == "bsr":
        return sp.bsr_matrix(dense, blocksize=(2, 4))
    return sp.coo_matrix(dense).asformat(kind)


def ends_beyond(X: Any) -> None:
    X.indptr[-1] = FAR


def names_a_far_column(X: Any) -> None:
    X.indices[0] = FAR


def names_a_negative_column(X: Any) -> None:
    X.indices[-1] = -FAR


def far_row(X: Any) -> None:
    X.row[0] = FAR


COMPRESSED = (ends_beyond, names_a_far_column, names_a_negative_column)
BROKEN = [
    *((kind, damage) for kind in ("csr", "csc", "bsr") for damage in COMPRESSED),
    ("coo", far_row),
]


@pytest.mark.parametrize(("kind", "damage"), BROKEN)
def test_a_broken_matrix_is_one_sentence_for_models_and_ratings(
    kind: str, damage: Callable[[Any], None]
) -> None:
    X = sparse(kind)
    damage(X)
    with pytest.raises(aq.BadInput, match="not a valid sparse matrix"):
        aq.LeastSquares(X, np.ones(12))
    with pytest.raises(aq.BadInput, match="not a valid sparse matrix"):
        as_ratings(X)


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia", "lil", "dok"])
def test_every_sound_format_is_taken_as_it_means(kind: str) -> None:
    X = sparse(kind)
    assert np.array_equal(checked_csr(X, "X").toarray(), sparse("csr").toarray())


def test_an_array_of_one_dimension_is_refused() -> None:
    with pytest.raises(aq.BadInput, match="must have two dimensions, but it has 1"):
        checked_csr(sp.coo_array(np.arange(4.0)), "X")
