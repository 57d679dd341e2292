"""The scatter of answers, coordinate by coordinate, and a step that is lengthened where it is small."""

from __future__ import annotations

from asyncqn.kernels.jit import kernel


@kernel
def note_difference(D, last, answer, weight):
    """D += weight ((answer - last)^2 / 2 - D), and keep the answer as the last one; returns the largest D."""
    largest = 0.0
    for j in range(D.size):
        difference = float(answer[j]) - float(last[j])
        D[j] += weight * (0.5 * difference * difference - D[j])
        last[j] = answer[j]
        largest = max(largest, D[j])
    return largest


@kernel
def add_lengthened(theta, scale, step, D, largest, most):
    """theta_j += scale * step_j / (D_j / largest + 1 / most)."""
    for j in range(theta.size):
        theta[j] += theta.dtype.type(scale * step[j] / (D[j] / largest + 1.0 / most))
