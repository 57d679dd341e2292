"""A torch module as a problem: its gradient, its precision, its answer, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from engines.runs import assert_replays

import asyncqn as aq
from asyncqn.checks.testing import check_problem
from asyncqn.models.adapters import torch_module

torch = pytest.importorskip("torch")
nn = torch.nn


def network(dtype: Any = None) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(
        dtype or torch.float64
    )


def data(n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3))
    return X, (X[:, 0] + 0.3 * rng.standard_normal(n) > 0).astype(np.int64)


def per_row(answer: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(answer, y, reduction="none")


@pytest.mark.parametrize(
    "loss",
    [nn.CrossEntropyLoss(), nn.functional.cross_entropy, per_row],
    ids=["a module", "a function", "a function per row"],
)
def test_a_module_is_a_problem_whatever_kind_of_loss(
    loss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_module, "CHUNK", 7)  # so that there are several
    module, (X, y) = network(), data()
    problem = aq.from_torch(module, loss, X, y, prior=0.1)
    check_problem(problem, travel=False, engines=("threads",))
    theta = problem.initial(np.random.default_rng(0))
    out = np.empty_like(theta)
    U = problem.grad_with_value(theta, np.arange(50), out)
    whole = nn.CrossEntropyLoss(reduction="sum")(
        module(torch.from_numpy(X)), torch.from_numpy(y)
    )
    assert pytest.approx(whole.item() + 0.05 * float(theta @ theta), rel=1e-13) == U
    grads = torch.autograd.grad(whole, list(module.parameters()))
    flat = np.concatenate([g.numpy().ravel() for g in grads]) + 0.1 * theta
    assert np.allclose(out, flat, rtol=1e-11, atol=1e-12)


def test_the_answer_goes_back_into_the_module_and_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, (X, y) = network(torch.float32), data()
    problem = aq.from_torch(module, nn.CrossEntropyLoss(), X, y, prior=0.1)
    before = problem.initial(np.random.default_rng(0))
    run = aq.minimize(
        problem, engine=aq.Processes(2, start_method="fork"), tol=1e-4, max_passes=60
    )
    assert run.theta.dtype == np.float32
    assert problem.initial(np.random.default_rng(0)).tobytes() == before.tobytes(), (
        "a run changes nothing"
    )
    assert_replays(run, pickle.loads(pickle.dumps(problem)))
    problem.load(run.theta)
    answer = module(torch.from_numpy(X).float())
    U = nn.CrossEntropyLoss(reduction="sum")(answer, torch.from_numpy(y)).item()
    # Float32 sums of 50 losses: a few hundred roundings of 6e-8.
    assert run.fun == pytest.approx(U + 0.05 * float(run.theta @ run.theta), rel=1e-4)
    assert run.fun < problem.value(before)


def test_threads_share_a_module_and_torch_keeps_its_threads() -> None:
    X, y = data()
    problem = aq.from_torch(network(), nn.CrossEntropyLoss(), X, y, prior=0.1)
    torch.set_num_threads(2)
    run = aq.minimize(
        problem, aq.AsyncSGD(h=1e-3, batch=8), engine=aq.Threads(3), commits=60
    )
    assert torch.get_num_threads() == 2
    assert_replays(run, problem)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(3)])
def test_layers_that_are_no_function_of_theta_are_refused_until_they_are(
    layer: Any,
) -> None:
    X, y = data()
    module = nn.Sequential(nn.Linear(3, 3), layer, nn.Linear(3, 2)).double()
    with pytest.raises(aq.BadInput, match=r"in training mode.*module.eval"):
        aq.from_torch(module, nn.CrossEntropyLoss(), X, y)
    assert aq.from_torch(module.eval(), nn.CrossEntropyLoss(), X, y).n_data == 50


# -- datasets


class Pairs(torch.utils.data.Dataset):
    """A dataset that counts how often it is read."""

    def __init__(self, X, y):
        self.X, self.y, self.reads = X, y, 0

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        self.reads += 1
        return self.X[index], self.y[index]


def test_datasets_are_read_once_and_give_the_problem_of_their_tensors():
    X = torch.linspace(-1.0, 1.0, 30).reshape(10, 3)
    y = X.sum(dim=1, keepdim=True)
    module, loss = torch.nn.Linear(3, 1), torch.nn.MSELoss()
    expected = aq.from_torch(module, loss, X, y)
    theta = aq.starting_point(expected)
    pairs = Pairs(X.numpy(), y.numpy())
    for dataset in (torch.utils.data.TensorDataset(X, y), pairs):
        problem = aq.from_torch(module, loss, dataset)
        assert problem.value(theta) == expected.value(theta)
    assert pairs.reads == 10


# -- weights, priors of groups, several inputs


def test_weights_are_rows_that_count_several_times():
    X, y = data()
    counts = np.arange(50) % 3
    many = np.repeat(np.arange(50), counts)
    for loss in (nn.CrossEntropyLoss(), nn.functional.cross_entropy, per_row):
        problem = aq.from_torch(network(), loss, X, y, weights=counts)
        repeated = aq.from_torch(network(), loss, X[many], y[many])
        theta = aq.starting_point(problem)
        assert problem.value(theta) == pytest.approx(repeated.value(theta), rel=1e-12)
    check_problem(problem, travel=False, engines=())
    for weights, words in ((counts[:-1], "weights"), (-counts, "not be negative")):
        with pytest.raises(aq.BadInput, match=words):
            aq.from_torch(network(), nn.CrossEntropyLoss(), X, y, weights=weights)


def test_a_prior_for_each_group_of_parameters():
    X, y = data()
    loss = nn.CrossEntropyLoss()
    prior = {"0": 1.0, "0.bias": 0.5, "2.weight": 2.0}
    problem = aq.from_torch(network(), loss, X, y, prior=prior)
    theta = aq.starting_point(problem)
    first, bias, last = theta[:12], theta[12:16], theta[16:24]
    plus = 0.5 * (first @ first) + 0.25 * (bias @ bias) + last @ last
    plain = aq.from_torch(network(), loss, X, y).value(theta)
    assert problem.value(theta) == pytest.approx(plain + plus, rel=1e-12)
    check_problem(problem, travel=False, engines=())
    assert "a prior per parameter" in repr(problem)
    with pytest.raises(
        aq.BadInput, match=r"no parameter's name begins so; there are 0"
    ):
        aq.from_torch(network(), loss, X, y, prior={"encoder": 1.0})


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 1).double(), nn.Linear(2, 1).double()

    def forward(self, left, right):
        return self.left(left) + self.right(right)


def test_a_module_may_have_several_inputs():
    X, _ = data()
    y = X[:, :1] - X[:, 2:]
    problem = aq.from_torch(Sum(), nn.MSELoss(), (X, X[:, :2]), y, prior=1e-6)
    run = aq.minimize(problem, engine=aq.Threads(2))
    assert run.success
    assert run.fun < 1e-3
    assert_replays(run, pickle.loads(pickle.dumps(problem)))
    with pytest.raises(aq.BadInput, match=r"shapes \(50, 3\), \(49, 2\) and \(50, 1\)"):
        aq.from_torch(Sum(), nn.MSELoss(), (X, X[1:, :2]), y)


# -- mistakes

X, Y = data()
LOSS = nn.CrossEntropyLoss()
ONE = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
MIXED = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2).double())
TENSORS = torch.utils.data.TensorDataset(torch.ones(4, 3), torch.ones(4))


@pytest.mark.parametrize(
    ("module", "loss", "X", "y", "words"),
    [
        (len, LOSS, X, Y, "module must be a torch.nn.Module"),
        (nn.Tanh(), LOSS, X, Y, "no parameter that requires a gradient"),
        (MIXED, LOSS, X, Y, "all be float32, or all float64, not float32, float64"),
        (nn.LazyLinear(2), LOSS, X, Y, r"lazy parameters.*call it on some rows"),
        (nn.Linear(3, 2, device="meta"), LOSS, X, Y, "from the device meta"),
        (network(), LOSS, X, Y[:-1], "one row per data point"),
        (network(), LOSS, X[:, :2], Y, r"cannot take X and y of shapes.*mat1 and mat2"),
        (network(), LOSS, X.astype(object), Y, "must hold numbers, not object: encode"),
        (ONE, nn.MSELoss(), X, X[:, 0], r"have the shapes \(2, 1\) and \(2,\)"),
        (network(), lambda z, y: per_row(z, y).mean(), X, Y, "one number per row, 2"),
        (network(), lambda z, y: per_row(z, y).detach(), X, Y, "cut off from the"),
        (ONE, LOSS, torch.utils.data.DataLoader(TENSORS), None, "pass loader.dataset"),
        (ONE, LOSS, TENSORS, Y, "pass it alone"),
        (ONE, LOSS, Pairs([np.ones(3), np.ones(2)], Y[:2]), None, "all of one shape"),
        (ONE, LOSS, torch.ones(4, 3), None, "y is missing"),
    ],
)
def test_a_mistake_is_one_sentence_before_the_run(module, loss, X, y, words):
    with pytest.raises(aq.BadInput, match=words):
        aq.from_torch(module, loss, X, y)


def test_single_rows_and_read_only_arrays_are_taken(recwarn):
    X, _ = data()
    X.flags.writeable = False  # as the arrays of a data frame are
    assert aq.from_torch(ONE, nn.MSELoss(), X, X[:, :1]).n_data == 50
    own = aq.from_torch(ONE, lambda answer, y: (answer[:, 0] - y) ** 2, X, X[:, 0])
    assert own.n_data == 50, "a loss of one's own may bring the shapes together"
    assert aq.from_torch(ONE, nn.MSELoss(), X[:1], X[:1, :1]).n_data == 1
    with pytest.raises(aq.BadInput, match="theta must be a vector of dim = 21"):
        own.load(np.zeros(3))
    assert not recwarn.list
