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
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np

from asyncqn.errors import BadInput, MissingExtra, require
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
        X, y = _pairs(torch, X)
    require(y is not None, "y is missing: pass X and y, or a Dataset of pairs (x, y).")
    return TorchSum(module, loss, X, y, weights, prior)


class TorchSum(RowSumsWithValue):
    """The problem that `from_torch` makes; `load` puts a theta into the module."""

    def __init__(
        self,
        module: Any,
        loss: Any,
        X: Any,
        y: Any,
        weights: Any,
        prior: float | dict[str, float],
    ) -> None:
        torch = _torch()
        require(
            not any(map(torch.nn.parameter.is_lazy, module.parameters())),
            "the module has lazy parameters, without a shape: call it on some rows first.",
        )
        self.module = module
        self._row_loss = _per_row(torch, loss)
        parameters = _learned(module)
        require(
            bool(parameters),
            "the module has no parameter that requires a gradient to learn.",
        )
        kinds = {p.dtype for p in parameters}
        words = ", ".join(sorted(str(each).removeprefix("torch.") for each in kinds))
        require(
            kinds in ({torch.float32}, {torch.float64}),
            f"the module's parameters must all be float32, or all float64, not {words}.",
        )
        require(
            {p.device.type for p in module.parameters()} == {"cpu"},
            "the module must be on the CPU: call module.cpu() first (from the device meta, "
            "module.to_empty(device='cpu'), and initialise it).",
        )
        self._shapes = [tuple(p.shape) for p in parameters]
        self._sizes = [p.numel() for p in parameters]
        (kind,) = kinds
        several = isinstance(X, (tuple, list)) and len(X) > 0
        # A sequence of numbers is the rows of one input.
        several = several and all(isinstance(x, (torch.Tensor, np.ndarray)) for x in X)
        inputs = X if several else (X,)
        self._inputs = tuple(_tensor(torch, data, kind) for data in inputs)
        self._y = _tensor(torch, y, kind)
        n_data = len(self._y) if self._y.ndim else 0
        require(
            all(X.ndim >= 1 and len(X) == n_data for X in self._inputs),
            f"X and y must have one row per data point: they have shapes {self._all_shapes}.",
        )
        self._weights = None
        if weights is not None:
            checked_weights = one_number_per_row("weights", weights, n_data)
            require(bool((checked_weights >= 0).all()), "weights must not be negative.")
            self._weights = torch.from_numpy(checked_weights).to(kind)
        dtype = np.dtype(np.float32 if kind == torch.float32 else np.float64)
        precision = self._precisions(prior, dtype) if isinstance(prior, dict) else prior
        super().__init__(n_data, sum(self._sizes), dtype, precision)
        with _one_thread(torch):
            self._check_first_rows(torch)

    def _precisions(self, prior: dict[str, float], dtype: np.dtype[Any]) -> Array:
        """Return the precision of each number of theta; `prior` maps prefixes of names to precisions."""
        names = [n for n, p in self.module.named_parameters() if p.requires_grad]
        for prefix in prior:
            require(
                any(name.startswith(prefix) for name in names),
                f"prior has {prefix!r}, but no parameter's name begins so; there are "
                f"{', '.join(names[:8])}{', ...' * (len(names) > 8)}.",
            )
        own = []
        for name in names:
            prefixes = list(filter(name.startswith, prior))
            # The longest prefix is the closest description of a parameter.
            own.append(prior[max(prefixes, key=len)] if prefixes else 0.0)
        return np.repeat(np.array(own, dtype), self._sizes)

    @property
    def _all_shapes(self) -> str:
        shapes = ", ".join(str(tuple(X.shape)) for X in self._inputs)
        return f"{shapes} and {tuple(self._y.shape)}"

    def _words(self) -> tuple[str, ...]:
        dtype = f"{self._inputs[0].dtype}".removeprefix("torch.")
        return (type(self.module).__name__, dtype)

    @cached_property
    def _copy(self) -> threading.local:
        """Each thread's own copy of the module."""
        return threading.local()

    def __getstate__(self) -> dict[str, Any]:
        # The copies belong to the threads of this process, and a thread-local object cannot be pickled.
        return {name: value for name, value in vars(self).items() if name != "_copy"}

    def initial(self, rng: np.random.Generator) -> Array:
        """Return the current parameters of the module."""
        parts = [p.detach().reshape(-1) for p in _learned(self.module)]
        start: Array = _torch().cat(parts).numpy().copy()
        return start

    def load(self, theta: Array) -> None:
        """Put `theta` into the module."""
        torch = _torch()
        require(
            np.shape(theta) == (self.dim,),
            f"theta must be a vector of dim = {self.dim} numbers, not of shape {np.shape(theta)}.",
        )
        parts = self._split(torch.tensor(np.asarray(theta, self.dtype)))
        # Written in place, so that an optimizer or a view of the user's keeps its parameters.
        with torch.no_grad():
            for parameter, part in zip(_learned(self.module), parts):
                parameter.copy_(part)

    def losses(self, theta: Array, rows: Rows) -> float:
        """Return the sum of the losses of `rows`."""
        torch = _torch()
        with _one_thread(torch), torch.no_grad():
            module = self._module_at(theta)
            chunks = self._chunks(rows)
            return sum(float(self._chunk_loss(module, index)) for index in chunks)

    def losses_with_grad(self, theta: Array, rows: Rows, out: Array) -> float:
        """Return the same, and write its gradient to `out`; chunks are added in float64."""
        torch = _torch()
        total = 0.0
        with _one_thread(torch), torch.enable_grad():
            module = self._module_at(theta)
            chunk_grad, total_grad = self._copy.grad, np.zeros(self.dim)
            for index in self._chunks(rows):
                chunk_grad.fill(0.0)
                loss = self._chunk_loss(module, index)
                loss.backward()
                total += loss.item()
                total_grad += chunk_grad
        out[:] = total_grad
        return total

    def _check_first_rows(self, torch: Any) -> None:
        """Raise `BadInput` unless module, loss and data fit, and each row meets only its own y."""
        module = self._module_at(self.initial(np.random.default_rng(0)))
        # Two rows, so that even a costly module is checked at once.
        y = self._y[:2]
        two = slice(0, len(y))
        try:
            # PyTorch warns of broadcasting, which is refused below.
            with warnings.catch_warnings(action="ignore"):
                output = self._output(module, two)
                losses = self._row_loss(output, y)
                quiet = self._output(copy.deepcopy(module).eval(), two)
                quiet_losses = self._row_loss(quiet, y)
        except (
            AttributeError, IndexError, RuntimeError, TypeError, ValueError
        ) as error:  # fmt: skip
            reason = str(error).splitlines()[0].rstrip(".")
            raise BadInput(
                f"the module and the loss cannot take X and y of shapes {self._all_shapes}: {reason}."
            ) from error
        per_row = isinstance(losses, torch.Tensor) and losses.shape[:1] == y.shape[:1]
        require(
            per_row,
            f"loss must return one number per row, {len(y)} here, which asyncqn sums, as a tensor: it "
            f"returned a {type(losses).__name__} of shape {tuple(getattr(losses, 'shape', ()))}.",
        )
        require(
            torch.allclose(losses, quiet_losses, equal_nan=True),
            "the module draws random numbers in training mode, or changes with every call (dropout, "
            "batch norm), so the loss is not a function of theta: call module.eval() first.",
        )
        require(
            losses.requires_grad,
            "the loss is cut off from the module's parameters: compute it with torch, without detach() "
            "and without torch.no_grad().",
        )
        tensors = [part for part in (output, y) if isinstance(part, torch.Tensor)]
        shapes = " and ".join(str(tuple(part.shape)) for part in tensors)
        require(
            # Outputs that are broadcast against y give more losses than there are numbers in either.
            losses.numel() <= max(part.numel() for part in tensors),
            f"the loss compares every output with every y, because those of two rows have the shapes "
            f"{shapes}: give both the same shape, for example with y.reshape(-1, 1).",
        )

    def _output(self, module: Any, index: slice | Any) -> Any:
        return module(*(X[index] for X in self._inputs))

    def _chunk_loss(self, module: Any, index: slice | Any) -> Any:
        """Return the weighted sum of the losses of some rows."""
        y = self._y[index]
        losses = self._row_loss(self._output(module, index), y)
        if self._weights is None:
            return losses.sum()
        return losses.reshape(len(y), -1).sum(1) @ self._weights[index]

    def _split(self, flat: Any) -> list[Any]:
        """Return theta as the module's parameters."""
        parts = flat.split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes)]

    def _chunks(self, rows: Rows) -> Iterator[Any]:
        torch, index = _torch(), chosen(rows, self.n_data)
        for first in range(0, len(rows), CHUNK):
            if isinstance(index, slice):
                start = index.start + first
                yield slice(start, min(start + CHUNK, index.stop))
            else:
                yield torch.from_numpy(np.array(index[first : first + CHUNK], np.int64))

    def _module_at(self, theta: Array) -> Any:
        """Return this thread's copy of the module, with these parameters."""
        own = self._copy
        if not hasattr(own, "module"):
            own.module = copy.deepcopy(self.module)
            own.theta, own.grad = np.zeros((2, self.dim), self.dtype)
            vectors = map(_torch().from_numpy, (own.theta, own.grad))
            # Views of two vectors: autograd adds gradients in place, so nothing is gathered after a call.
            views = zip(*map(self._split, vectors))
            for parameter, (part, slope) in zip(_learned(own.module), views):
                parameter.data, parameter.grad = part, slope
        own.theta[:] = theta
        return own.module


def _learned(module: Any) -> list[Any]:
    """Return the parameters that are theta; frozen ones stay as they are."""
    return [p for p in module.parameters() if p.requires_grad]


def _pairs(torch: Any, dataset: Any) -> tuple[Any, Any]:
    """Return X and y of a dataset of pairs."""
    # Its tensors can be used directly, without reading item by item.
    if isinstance(dataset, torch.utils.data.TensorDataset):
        parts = dataset.tensors
    else:
        items = [dataset[index] for index in range(len(dataset))]
        require(bool(items), "the dataset is empty: it needs at least one pair (x, y).")
        try:
            parts = torch.utils.data.default_collate(items)
        except (RuntimeError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise BadInput(
                f"a Dataset must give pairs (x, y), all of one shape: {reason}."
            ) from None
    require(
        isinstance(parts, (tuple, list)) and len(parts) == 2,
        "a Dataset must give pairs (x, y) of tensors or numbers.",
    )
    return parts[0], parts[1]


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
        # PyTorch warns of arrays that are read-only, but the tensor is only read.
        with warnings.catch_warnings(action="ignore"):
            tensor = torch.from_numpy(array)
    return tensor.to(kind) if tensor.is_floating_point() else tensor


def _per_row(torch: Any, loss: Any) -> Any:
    """Return the loss as a function that returns numbers per row."""
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        # A copy: the user's own loss keeps its reduction.
        each = copy.deepcopy(loss)
        each.reduction = "none"
        return each
    require(
        callable(loss),
        f"loss must be a function of the output and y, not {type(loss).__name__}.",
    )
    try:
        reduced = "reduction" in inspect.signature(loss).parameters
    # Some built-in functions have no signature; they are treated as functions of one number per row.
    except (TypeError, ValueError):
        reduced = False
    return partial(loss, reduction="none") if reduced else loss
