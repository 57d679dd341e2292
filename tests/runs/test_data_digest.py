"""The digest of a problem's data: in the manifest, and the reason that a replay or a resumed run gives."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from oracles import one_sentence

import asyncqn as aq
from asyncqn.models import PROBLEMS
from asyncqn.runs.data_digest import data_digest

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 4)), (RNG.random(60) > 0.5).astype(float)
SGD = aq.AsyncSGD(h=1e-3, batch=10)


def engine():
    return aq.Simulator(aq.Cluster(2, 2.0, 0.5))


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_digest_does_not_change_with_use_and_is_that_of_an_equal_problem(kind):
    p, other = (PROBLEMS[kind].example("float64") for _ in range(2))
    before = data_digest(p)
    assert before == data_digest(other) != ""
    theta = aq.minimize(p, engine=engine(), commits=30, tol=None).theta
    p.value(theta)
    assert data_digest(p) == before


def test_replay_names_other_data_where_u_at_the_start_is_the_same(tmp_path):
    run = aq.minimize(
        aq.LogisticRegression(X, Y, intercept=False), SGD, engine=engine(), commits=30
    )
    run.save(tmp_path)
    aq.replay(tmp_path, aq.LogisticRegression(X.copy(), Y.copy(), intercept=False))
    with pytest.raises(
        aq.ReplayMismatch, match="the problem holds other data than the recording"
    ) as caught:
        aq.replay(tmp_path, aq.LogisticRegression(2 * X, Y, intercept=False))
    assert one_sentence(caught.value)
    assert "altered" not in str(caught.value)


def test_data_are_found_in_sparse_rows_tensors_and_own_classes():
    import torch

    class Own:
        dim, n_data = 4, 60

        def __init__(self, data):
            self.data, self.label = {"rows": [data]}, "text"

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))

        def forward(self, x):
            return x @ self.w

    def from_torch(data):
        return aq.from_torch(
            Linear(), torch.nn.MSELoss(), torch.tensor(data), torch.tensor(Y)
        )

    makers = {
        "own class": Own,
        "sparse": lambda data: aq.LogisticRegression(
            scipy.sparse.csr_array(data), Y, intercept=False
        ),
        "torch": from_torch,
    }
    for name, make in makers.items():
        one, same, other = (
            data_digest(make(X)),
            data_digest(make(X.copy())),
            data_digest(make(2 * X)),
        )
        assert one == same != "", name
        assert one != other, name


def test_where_no_array_is_known_nothing_is_said():
    class Bare:
        dim, n_data = 1, 1

    assert data_digest(Bare()) == ""


class Holder:
    def __init__(self, data):
        self.data = data


def test_of_huge_arrays_blocks_are_read():
    rows = np.zeros((400_000, 10))
    before = data_digest(Holder(rows))
    rows[-1, -1] = 1.0
    assert data_digest(Holder(rows)) != before
    wide = np.asfortranarray(rows)
    assert data_digest(Holder(wide)) != data_digest(Holder(2 * wide))


def test_in_an_array_of_some_megabytes_any_row_that_changes_is_noticed():
    data = np.random.default_rng(1).standard_normal((3000, 70))
    before = data_digest(Holder(data))
    assert data_digest(Holder(data.copy())) == before
    data[17, 3] += 1e-12
    assert data_digest(Holder(data)) != before
