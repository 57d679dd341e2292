"""from_jax: a JAX loss and its parameters as a problem; theta is the parameters in one vector.

This file alone imports jax.  Batches are padded with rows of weight 0 to a few sizes, so that XLA compiles a
few times and not for every sample size.  Compiled functions and JAX arrays stay in the process that made
them; the data are sent to other processes as NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from asyncqn.errors import BadInput, MissingExtra, require
from asyncqn.models.adapters.row_sums import RowSumsWithValue
from asyncqn.models.parameters import Prior
from asyncqn.models.validation import chosen
from asyncqn.parameters import checked
from asyncqn.types import Array, Rows

MIN_BATCH, MAX_BATCH = 64, 4096
"""Rows of the smallest and the largest batch; sizes double in between, so there are seven."""


@checked
def from_jax(
    loss: Callable[[Any, Any], Any],
    params: Any,
    data: Any,
    *,
    prior: Prior | Callable[[Any], Any] = 0.0,
) -> JaxSum:
    """Make a problem from a JAX loss: the sum of loss(params, batch) over all rows, and a prior.

    Parameters
    ----------
    loss : callable
        loss(params, batch) returns one number per row of the batch.
    params : pytree of arrays
        The starting point. float32 stays float32.
    data : pytree of arrays
        Arrays with one row per data point; a batch has some of their rows.
    prior : float or callable, default 0.0
        Precision of the Gaussian prior of all parameters; 0 means no prior.  A function prior(params) returns minus
        the logarithm of the prior's density, which is added once.

    Returns
    -------
    JaxSum
        The problem; its `params(run.theta)` is the result as a pytree like `params`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import asyncqn as aq
    >>> def loss(params, batch):
    ...     x, y = batch
    ...     return (params["slope"] * x + params["shift"] - y) ** 2
    >>> x = np.linspace(-1, 1, 40, dtype=np.float32)
    >>> start = {"slope": jnp.zeros(()), "shift": jnp.zeros(())}
    >>> problem = aq.from_jax(loss, start, (x, 3 * x + 1))
    >>> run = aq.minimize(problem)
    >>> {name: round(float(value), 2) for name, value in sorted(problem.params(run.theta).items())}
    {'shift': 1.0, 'slope': 3.0}
    """
    return JaxSum(loss, params, data, prior)


class _Compiled(NamedTuple):
    """The functions that JAX compiles, of theta, or of theta, weights and rows."""

    unravel: Callable[[Any], Any]
    value: Callable[..., Any]
    value_and_grad: Callable[..., Any]
    prior_and_grad: Callable[[Any], Any]


class JaxSum(RowSumsWithValue):
    """The problem that `from_jax` makes; `params` converts a theta to a pytree."""

    def __init__(
        self,
        loss: Callable[[Any, Any], Any],
        params: Any,
        data: Any,
        prior: float | Callable[[Any], Any],
    ) -> None:
        jax = _jax()
        self._loss = loss
        self._prior_loss = prior if callable(prior) else None
        self._template = jax.tree_util.tree_map(np.asarray, params)
        self._data = jax.tree_util.tree_map(np.asarray, data)
        leaves = jax.tree_util.tree_leaves(self._template)
        kinds = {leaf.dtype for leaf in leaves}
        # JAX would compute float64 parameters in float32 without a word.
        wide = bool(jax.config.jax_enable_x64)
        require(bool(leaves), "params contains no array, so there is nothing to learn.")
        require(
            kinds in ({np.dtype(np.float32)}, {np.dtype(np.float64)}),
            "the arrays of params must all be float32, or all float64, not "
            f"{', '.join(sorted(map(str, kinds)))}.",
        )
        (kind,) = kinds
        require(
            wide or kind == np.float32,
            "params are float64, which JAX computes in float32 by default: make them float32, or "
            "call jax.config.update('jax_enable_x64', True) first.",
        )
        columns = jax.tree_util.tree_leaves(self._data)
        for column in columns:
            require(
                column.dtype.kind in "biuf",
                f"the arrays of data must hold real numbers, not {column.dtype}: encode them.",
            )
        counts = {np.shape(column)[:1] for column in columns}
        require(
            len(counts) == 1 and counts != {()},
            "every array of data must have one row per data point, but their lengths differ: "
            f"{sorted(counts)}.",
        )
        ((n_data,),) = counts
        precision = 0.0 if callable(prior) else prior
        super().__init__(n_data, sum(leaf.size for leaf in leaves), kind, precision)
        self._check_functions(jax)

    def _check_functions(self, jax: Any) -> None:
        """Raise `BadInput` unless the loss gives a number per row, and the prior one number."""
        two = self._batch(np.zeros(2, np.int64))
        # `eval_shape` traces the loss without computing it, so the check is cheap for any model.
        try:
            returned = jax.eval_shape(self._loss, self._template, two)
        except Exception as error:  # tracing raises errors of many kinds
            reason = str(error).splitlines()[0].rstrip(".")
            raise BadInput(
                f"JAX cannot compute loss(params, batch) for two rows: {reason}."
            ) from error
        shape = getattr(returned, "shape", None)
        require(
            shape == (2,),
            "loss must return one number per row of the batch, because padding rows must weigh "
            f"nothing: for two rows it returns {type(returned).__name__} of shape {shape}.",
        )
        require(
            bool(jax.numpy.issubdtype(returned.dtype, np.floating)),
            f"loss must return real numbers, floats, not {returned.dtype}.",
        )
        if self._prior_loss is not None:
            returned = jax.eval_shape(self._prior_loss, self._template)
            require(
                getattr(returned, "shape", None) == (),
                "prior(params) must return one number, minus the logarithm of the prior's density.",
            )

    def __getstate__(self) -> dict[str, Any]:
        # Compiled functions cannot be sent to another process, which compiles its own.
        return {name: part for name, part in vars(self).items() if name != "_compiled"}

    def initial(self, rng: np.random.Generator) -> Array:
        """Return the given params as a vector."""
        leaves = _jax().tree_util.tree_leaves(self._template)
        return np.concatenate([leaf.astype(self.dtype).reshape(-1) for leaf in leaves])

    def params(self, theta: Array) -> Any:
        """Return `theta` as a pytree like the given params."""
        require(
            np.shape(theta) == (self.dim,),
            f"theta must be a vector of dim = {self.dim} numbers, not of shape {np.shape(theta)}.",
        )
        return self._compiled.unravel(np.asarray(theta, self.dtype))

    def losses(self, theta: Array, rows: Rows) -> float:
        """Return the sum of the losses of `rows`."""
        value = self._compiled.value
        return sum(float(value(theta, *padded)) for padded in self._batches(rows))

    def losses_with_grad(self, theta: Array, rows: Rows, out: Array) -> float:
        """Return the same, and write its gradient to `out`; batches are added in float64."""
        total, g = 0.0, np.zeros(self.dim)
        for padded in self._batches(rows):
            value, part = self._compiled.value_and_grad(theta, *padded)
            total += float(value)
            # float64 on the host: sums of float32 batches would lose digits.
            g += np.asarray(part)
        out[:] = g
        return total

    def _with_grad(self, theta: Array, rows: Rows, out: Array) -> float | None:
        total = super()._with_grad(theta, rows, out)
        if self._prior_loss is not None:
            out += np.asarray(self._compiled.prior_and_grad(theta)[1])
        return total

    def _scaled(self, theta: Array, rows: Rows, total: float) -> float:
        scaled = super()._scaled(theta, rows, total)
        if self._prior_loss is None:
            return scaled
        return scaled + float(self._compiled.prior_and_grad(theta)[0])

    @cached_property
    def _compiled(self) -> _Compiled:
        jax = _jax()
        from jax.flatten_util import ravel_pytree

        unravel = ravel_pytree(self._template)[1]
        loss, prior = self._loss, self._prior_loss

        def weighted(theta: Any, weights: Any, batch: Any) -> Any:
            return (weights * loss(unravel(theta), batch)).sum()

        def prior_of(theta: Any) -> Any:
            assert prior is not None
            return prior(unravel(theta))

        with_grad = jax.jit(jax.value_and_grad(weighted))
        prior_and_grad = jax.jit(jax.value_and_grad(prior_of))
        return _Compiled(unravel, jax.jit(weighted), with_grad, prior_and_grad)

    def _batch(self, rows: Any) -> Any:
        return _jax().tree_util.tree_map(lambda leaf: leaf[rows], self._data)

    def _batches(self, rows: Rows) -> Iterator[tuple[Array, Any]]:
        """Yield weights and rows of each batch; the last is padded with its last row, with weight 0."""
        # JAX would silently clip an index that does not exist.
        chosen(rows, self.n_data)
        for first in range(0, len(rows), MAX_BATCH):
            some = rows[first : first + MAX_BATCH]
            # The next power of two.
            size = max(MIN_BATCH, 1 << (len(some) - 1).bit_length())
            # Padding rows are real rows, so that the loss is finite there, but weigh nothing.
            weights = np.zeros(size, self.dtype)
            weights[: len(some)] = 1.0
            yield weights, self._batch(np.pad(some, (0, size - len(some)), "edge"))


def _jax() -> Any:
    try:
        import jax
    except ModuleNotFoundError:
        raise MissingExtra("jax", "jax", "from_jax") from None
    return jax
