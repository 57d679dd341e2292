"""from_torch: a torch module and a loss as a problem; theta is the module's parameters in one vector.

This file alone imports torch.  A computation has no side effects: each thread calls its own copy of the
module with the given parameters, on one thread of torch, so that equal arguments give equal bits on every
engine.
"""

from __future__ import annotations

import copy
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from asyncqn.errors import AsyncqnError, BadInput, MissingExtra, require
from asyncqn.models.adapters.row_sums import RowSumsWithValue
from asyncqn.models.feature_rows import one_number_per_row
from asyncqn.models.parameters import Features, Prior, Weights
from asyncqn.models.validation import chosen
from asyncqn.parameters import ARRAY, checked
from asyncqn.types import Array, Rows

CHUNK = 4096
"""Rows that pass through the module at once, so that the memory for gradients stays bounded."""


@checked
def from_torch(
    module: Any,
    loss: Any,
    X: Features,
    y: Annotated[Any, ARRAY] | None = None,
    *,
    weights: Weights = None,
    prior: Prior | dict[str, Prior] = 0.0,
) -> TorchSum:
    """Make a problem from a torch module: the sum over rows of loss(module(x_i), y_i), and a Gaussian prior.

    Parameters
    ----------
    module : torch.nn.Module
        The parameters that require a gradient are theta; their current values are the start.
    loss : torch loss or function
        One of torch's (a class of `torch.nn`, or a function with a parameter `reduction`), which is then
        summed; or your own function that returns one number per row.
    X : tensor, array, tuple of these, or torch.utils.data.Dataset
        The rows; a tuple holds the rows of several inputs, for module(*inputs). Or a dataset of pairs (x, y),
        such as a `TensorDataset`, which is read once, into memory. A DataLoader is refused, because asyncqn
        draws its own samples.
    y : tensor or array, optional
        One per row; None where X is a dataset.
    weights : array of n_data numbers, optional
        Weight of each row's loss; without it, all rows weigh 1.
    prior : float or dict of str to float, default 0.0
        Precision of the Gaussian prior on theta. A dict has one for each group of parameters, by the
        beginning of their names, as in {"0.weight": 1e-2, "2": 1.0}; the others have none.

    Returns
    -------
    TorchSum
        The problem; `problem.load(run.theta)` puts the result into the module.  float32 stays float32.

    Examples
    --------
    >>> import torch
    >>> import asyncqn as aq
    >>> X = torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(-1, 1)
    >>> module = torch.nn.Linear(1, 1, dtype=torch.float64)
    >>> problem = aq.from_torch(module, torch.nn.MSELoss(), X, 3 * X + 1)
    >>> run = aq.minimize(problem)
    >>> problem.load(run.theta)
    >>> run.status, round(module.weight.item(), 3), round(module.bias.item(), 3)
    ('converged', 3.0, 1.0)
    """
    torch = _torch()
    require(
        isinstance(module, torch.nn.Module),
        f"module must be a torch.nn.Module, not a {type(module).__name__}.",
    )
    if isinstance(X, torch.utils.data.DataLoader):
        raise BadInput(
            "X must be the data, not a DataLoader, which draws batches: pass loader.dataset."
        )
    if isinstance(X, torch.utils.data.Dataset):
        require(y is None, "a dataset holds both X and y: pass it alone, without y.")
        X, y = _read_dataset(torch, X)
    require(y is not None, "y is missing: pass X and y, or a Dataset of pairs (x, y).")
    return TorchSum(module, _per_row(torch, loss), X, y, weights, prior)


class TorchSum(RowSumsWithValue):
    """The problem that `from_torch` makes; `load` puts a theta into the module."""

    def __init__(
        self,
        module: Any,
        loss: Callable[..., Any],
        X: Any,
        y: Any,
        weights: Any,
        prior: float | dict[str, float],
    ) -> None:
        torch = _torch()
        _check_pure(torch, module)
        require(
            not any(map(torch.nn.parameter.is_lazy, module.parameters())),
            "the module has lazy parameters, without a shape: call it on some rows first.",
        )
        self.module, self._loss = module, loss
        # Frozen parameters stay as they are, in the module's copies.
        self._names = [name for name, p in module.named_parameters() if p.requires_grad]
        parameters = [p for p in module.parameters() if p.requires_grad]
        require(
            bool(parameters),
            "the module has no parameter that requires a gradient to learn.",
        )
        kinds = {p.dtype for p in parameters}
        require(
            kinds in ({torch.float32}, {torch.float64}),
            f"the module's parameters must all be float32, or all float64, not {_listed(kinds)}.",
        )
        require(
            {p.device.type for p in module.parameters()} == {"cpu"},
            "the module must be on the CPU: call module.cpu() first (from the device meta, "
            "module.to_empty(device='cpu'), and initialise it).",
        )
        self._shapes = [tuple(p.shape) for p in parameters]
        self._sizes = [p.numel() for p in parameters]
        (kind,) = kinds
        several = X if isinstance(X, (tuple, list)) and _are_inputs(torch, X) else (X,)
        self._inputs = tuple(_tensor(torch, data, kind) for data in several)
        self._y = _tensor(torch, y, kind)
        n_data = len(self._y) if self._y.ndim else 0
        require(
            all(X.ndim >= 1 and len(X) == n_data for X in self._inputs),
            f"X and y must have one row per data point: they have shapes {self._shapes_of_X} and "
            f"{tuple(self._y.shape)}.",
        )
        self._weights = None
        if weights is not None:
            checked_weights = one_number_per_row("weights", weights, n_data)
            require(bool((checked_weights >= 0).all()), "weights must not be negative.")
            self._weights = torch.from_numpy(checked_weights).to(kind)
        dtype = np.dtype(np.float32 if kind == torch.float32 else np.float64)
        precision = self._precisions(prior, dtype) if isinstance(prior, dict) else prior
        super().__init__(n_data, sum(self._sizes), dtype, precision)
        self._copies = threading.local()
        with _one_thread(torch):
            self._check_first_rows(self.initial(np.random.default_rng(0)))

    def _precisions(self, prior: dict[str, float], dtype: np.dtype[Any]) -> Array:
        """Return the precision of each number of theta; `prior` maps beginnings of names to precisions."""
        for start in prior:
            require(
                any(name.startswith(start) for name in self._names),
                f"prior has {start!r}, but no parameter's name begins so; there are "
                f"{', '.join(self._names[:8])}{', ...' * (len(self._names) > 8)}.",
            )
        # The longest beginning is the closest description of a parameter.
        own = [
            prior[max(starts, key=len)] if starts else 0.0
            for starts in (list(filter(name.startswith, prior)) for name in self._names)
        ]
        return np.repeat(np.array(own, dtype), self._sizes)

    @property
    def _shapes_of_X(self) -> str:
        return ", ".join(str(tuple(X.shape)) for X in self._inputs)

    def _words(self) -> tuple[str, ...]:
        dtype = f"{self._inputs[0].dtype}".removeprefix("torch.")
        return (type(self.module).__name__, dtype)

    def __getstate__(self) -> dict[str, Any]:
        # The copies belong to the threads of this process, and a thread-local object cannot be pickled.
        return {name: value for name, value in vars(self).items() if name != "_copies"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._copies = threading.local()

    def initial(self, rng: np.random.Generator) -> Array:
        """Return the current parameters of the module."""
        torch = _torch()
        # In the order of `parameters()`, which `_split` uses as well.
        parts = [
            p.detach().reshape(-1) for p in self.module.parameters() if p.requires_grad
        ]
        start: Array = torch.cat(parts).numpy().copy()
        return start

    def load(self, theta: Array) -> None:
        """Put `theta` into the module."""
        torch = _torch()
        require(
            np.shape(theta) == (self.dim,),
            f"theta must be a vector of dim = {self.dim} numbers, not of shape {np.shape(theta)}.",
        )
        held = [p for p in self.module.parameters() if p.requires_grad]
        # Written in place, so that an optimizer or a view of the user's keeps its parameters.
        with torch.no_grad():
            for mine, new in zip(
                held, self._split(torch.tensor(np.asarray(theta, self.dtype)))
            ):
                mine.copy_(new)

    def losses(self, theta: Array, rows: Rows) -> float:
        """Return the sum of the losses of `rows`."""
        torch = _torch()
        total = 0.0
        with _one_thread(torch), torch.no_grad():
            mine = self._mine()
            mine.theta[:] = theta
            for index in self._chunks(rows):
                total += float(self._chunk_loss(mine.module, index))
        return total

    def losses_with_grad(self, theta: Array, rows: Rows, out: Array) -> float:
        """Return the same, and write its gradient to `out`; chunks are added in float64."""
        torch = _torch()
        total = 0.0
        with _one_thread(torch), torch.enable_grad():
            mine = self._mine()
            mine.theta[:] = theta
            several = np.zeros(self.dim) if len(rows) > CHUNK else None
            for index in self._chunks(rows):
                mine.grad.fill(0.0)
                loss = self._chunk_loss(mine.module, index)
                loss.backward()
                total += loss.item()
                if several is not None:
                    several += mine.grad
        out[:] = mine.grad if several is None else several
        return total

    def _check_first_rows(self, start: Array) -> None:
        """Raise `BadInput` unless module, loss and data fit, and each row meets only its own y."""
        # Two rows, so that even a costly module is checked at once.
        mine, y = self._mine(), self._y[:2]
        mine.theta[:] = start
        try:
            with warnings.catch_warnings(
                action="ignore"
            ):  # of broadcasting, refused below
                output = self._output(mine.module, slice(0, len(y)))
                loss = self._chunk_loss(mine.module, slice(0, len(y)))
                alone = sum(
                    float(self._chunk_loss(mine.module, slice(i, i + 1)).detach())
                    for i in range(len(y))
                )
        except AsyncqnError:
            raise
        except (
            AttributeError, IndexError, RuntimeError, TypeError, ValueError
        ) as error:  # fmt: skip
            reason = str(error).splitlines()[0].rstrip(".")
            raise BadInput(
                f"the module and the loss cannot take X and y of shapes {self._shapes_of_X} and "
                f"{tuple(self._y.shape)}: {reason}."
            ) from error
        require(
            loss.requires_grad,
            "the loss is cut off from the module's parameters: compute it with torch, without detach() "
            "and without torch.no_grad().",
        )
        both = float(loss.detach())
        shape = tuple(getattr(output, "shape", y.shape))
        require(
            # If outputs are broadcast against y, two rows together do not cost what they cost one by one.
            shape == tuple(y.shape)
            or abs(both - alone) <= 1e-3 * abs(both)
            or not np.isfinite(both),
            f"the loss compares every output with every y: the outputs of two rows have shape {shape} and "
            f"their y {tuple(y.shape)}: give both the same shape, for example with y.reshape(-1, 1).",
        )

    def _output(self, module: Any, index: slice | Any) -> Any:
        return module(*(X[index] for X in self._inputs))

    def _chunk_loss(self, module: Any, index: slice | Any) -> Any:
        """Return the weighted sum of the losses of some rows."""
        weights = None if self._weights is None else self._weights[index]
        return self._loss(self._output(module, index), self._y[index], weights)

    def _split(self, flat: Any) -> list[Any]:
        """Return theta as the module's parameters."""
        return [
            part.view(shape)
            for part, shape in zip(flat.split(self._sizes), self._shapes)
        ]

    def _chunks(self, rows: Rows) -> Iterator[Any]:
        torch, index = _torch(), chosen(rows, self.n_data)
        for first in range(0, len(rows), CHUNK):
            if isinstance(index, slice):
                yield slice(
                    index.start + first, min(index.start + first + CHUNK, index.stop)
                )
            else:
                yield torch.from_numpy(np.array(index[first : first + CHUNK], np.int64))

    def _mine(self) -> _Copy:
        """Return this thread's copy of the module, whose parameters are computed with and overwritten."""
        if not hasattr(self._copies, "mine"):
            self._copies.mine = self._copy()
        mine: _Copy = self._copies.mine
        return mine

    def _copy(self) -> _Copy:
        module = copy.deepcopy(self.module)
        theta, grad = np.zeros((2, self.dim), self.dtype)
        held = [p for p in module.parameters() if p.requires_grad]
        parts = map(self._split, map(_torch().from_numpy, (theta, grad)))
        # Views of two vectors: autograd adds gradients in place, so nothing is gathered after a call.
        for parameter, part, slope in zip(held, *parts):
            parameter.data, parameter.grad = part, slope
        return _Copy(module, theta, grad)


class _Copy(NamedTuple):
    """A module whose parameters and their gradients are views of two vectors."""

    module: Any
    theta: Array
    grad: Array


def _read_dataset(torch: Any, dataset: Any) -> tuple[Any, Any]:
    """Return X and y of a dataset of pairs."""
    wanted = "a Dataset must give pairs (x, y) of tensors or numbers, all of one shape"
    # Its tensors can be used directly, without reading item by item.
    if isinstance(dataset, torch.utils.data.TensorDataset):
        require(
            len(dataset.tensors) == 2,
            f"{wanted}: this TensorDataset has {len(dataset.tensors)} tensor"
            f"{'s' * (len(dataset.tensors) != 1)}.",
        )
        return dataset.tensors[0], dataset.tensors[1]
    count = len(dataset)
    require(count > 0, "the dataset is empty: it needs at least one pair (x, y).")
    items = [dataset[index] for index in range(count)]
    for index, item in enumerate(items):
        require(
            isinstance(item, (tuple, list)) and len(item) == 2,
            f"{wanted}: item {index} is not a pair.",
        )
    try:
        X, y = torch.utils.data.default_collate(items)
    except (RuntimeError, TypeError, ValueError) as error:
        raise BadInput(f"{wanted}: {str(error).splitlines()[0].rstrip('.')}.") from None
    return X, y


def _are_inputs(torch: Any, X: Any) -> bool:
    """Return whether a sequence holds the rows of several inputs, not the rows of one."""
    return bool(X) and all(isinstance(each, (torch.Tensor, np.ndarray)) for each in X)


def _torch() -> Any:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingExtra("torch", "torch", "from_torch") from None
    return torch


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """Compute on one thread inside the block: sums that are split between threads have other bits."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _tensor(torch: Any, data: Any, kind: Any) -> Any:
    """Return data as a tensor, in the module's precision unless they are integers."""
    if isinstance(data, torch.Tensor):
        tensor = data.detach()
    else:
        array = np.ascontiguousarray(data)
        require(
            array.dtype.kind in "biuf",
            f"X and y must hold numbers, not {array.dtype}: encode those columns.",
        )
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "The given NumPy array is not writ"
            )  # the tensor is only read
            tensor = torch.from_numpy(array)
    return tensor.to(kind) if tensor.is_floating_point() else tensor


def _per_row(torch: Any, loss: Any) -> Callable[..., Any]:
    """Return the loss as a function of outputs, y and weights that is the weighted sum over the rows."""
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        # Copies: the user's own loss keeps its reduction.
        total, each = copy.deepcopy(loss), copy.deepcopy(loss)
        total.reduction = "sum"
        each.reduction = "none"
        return partial(_reduced, total, each)
    require(
        callable(loss),
        f"loss must be a function of the output and y, not {type(loss).__name__}.",
    )
    try:
        reduced = "reduction" in inspect.signature(loss).parameters
    # Some built-in functions have no signature; they are treated as functions of one number per row.
    except (TypeError, ValueError):
        reduced = False
    if reduced:
        total, each = partial(loss, reduction="sum"), partial(loss, reduction="none")
        return partial(_reduced, total, each)
    return partial(_sum_over_rows, loss)


def _reduced(
    total: Callable[..., Any],
    each: Callable[..., Any],
    output: Any,
    y: Any,
    weights: Any,
) -> Any:
    """Sum a loss of torch's, whose rows may have several numbers."""
    if weights is None:
        loss = total(output, y)
    else:
        loss = each(output, y).reshape(len(y), -1).sum(1) @ weights
    require(
        isinstance(loss, _torch().Tensor) and loss.ndim == 0,
        f"the loss must be a number with reduction='sum', not {_brief(loss)}.",
    )
    return loss


def _sum_over_rows(loss: Callable[..., Any], output: Any, y: Any, weights: Any) -> Any:
    """Sum a user's loss of one number per row."""
    each = loss(output, y)
    require(
        isinstance(each, _torch().Tensor) and tuple(each.shape[:1]) == (len(y),),
        f"loss must return one number per row, {len(y)} here, which asyncqn sums, as a tensor: it "
        f"returned {_brief(each)}.",
    )
    if weights is None:
        return each.sum()
    return each.reshape(len(y), -1).sum(1) @ weights


def _brief(value: Any) -> str:
    """Return a few words about what a loss returned."""
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"{'None' if value is None else 'a ' + type(value).__name__}"
    kind = "a tensor" if isinstance(value, _torch().Tensor) else "an array of NumPy"
    return f"{kind} of shape {tuple(shape)}" if tuple(shape) else "a single number"


def _check_pure(torch: Any, module: Any) -> None:
    """Raise `BadInput` for layers that, in training mode, are not a function of theta and the row alone."""
    nn = torch.nn
    for name, layer in module.named_modules():
        if not layer.training:
            continue
        what = type(layer).__name__ + (f" '{name}'" if name else "")
        random = isinstance(layer, (nn.modules.dropout._DropoutNd, nn.RReLU))
        random = random or (
            isinstance(getattr(layer, "dropout", None), float) and layer.dropout > 0.0
        )
        # In training mode its output depends on the other rows of the batch.
        batch = isinstance(layer, nn.modules.batchnorm._BatchNorm)
        stored = (
            isinstance(layer, nn.modules.instancenorm._InstanceNorm)
            and layer.track_running_stats
        )
        if random or batch or stored:
            why = "draws random numbers" if random else "changes with every call"
            raise BadInput(
                f"the module's {what} {why} in training mode, so the loss is not a function of theta: call "
                "module.eval() first."
            )


def _listed(kinds: set[Any]) -> str:
    return ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
