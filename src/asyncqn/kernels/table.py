"""A table of the newest gradient of every part of the data, and of the point where it was taken."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel


@kernel
def replace_entry(gradients, points, sums, part, g, z, first):
    """Replace a part's entry by (g, z), and update `sums`: of g, of z, and of the changes of z and g.

    `first` says that the part has no entry yet.  Returns by how much the part's share of U has risen since
    the old entry, by the trapezoidal rule, and the squares of the changes of z and g; that of z is 0 where z
    has not moved.
    """
    old_g, old_z = gradients[part], points[part]
    g_sum, z_sum, S, Y = sums
    rise, ss, yy = 0.0, 0.0, 0.0
    for j in range(g.size):
        new_g, new_z = np.float64(g[j]), np.float64(z[j])
        if first:
            g_sum[j] += new_g
            z_sum[j] += new_z
        else:
            # In float64: differences of float32 gradients lose digits.  (`float` would keep them in float32.)
            before = np.float64(old_g[j])
            y, s = new_g - before, new_z - np.float64(old_z[j])
            g_sum[j] += y
            z_sum[j] += s
            S[j] += s
            Y[j] += y
            ss += s * s
            yy += y * y
            rise += 0.5 * s * (new_g + before)
        old_g[j], old_z[j] = g[j], z[j]
    return rise, ss, yy


@reducing_kernel
def table_means(g_sum, z_sum, seen, g, z):
    """Write the means over `seen` entries into g and z; return |g|^2 and |z|^2."""
    gg, zz = 0.0, 0.0
    for j in range(g.size):
        g[j] = g_sum[j] / seen
        z[j] = z_sum[j] / seen
        gg += g[j] * g[j]
        zz += z[j] * z[j]
    return gg, zz


@kernel
def step_from(theta, z, step, scale, start):
    """theta = z - scale step; return the largest |theta - start| and the largest |start|, by coordinate.

    The first is infinite where a coordinate is not a number.
    """
    away, size = 0.0, 0.0
    for j in range(theta.size):
        new, old = z[j] - scale * step[j], np.float64(start[j])
        distance = abs(new - old)
        away = max(away, distance) if distance == distance else np.inf
        size = max(size, abs(old))
        theta[j] = new
    return away, size
