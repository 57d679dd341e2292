"""A table of the newest gradient of every part of the data, and of the point where it was taken."""

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel

SEEN, VALUE, MOVED, RISE, SQUARES, SLOPE = range(6)
"""Places in the tally of a table, which `algorithms.table.state.Tally` explains."""


@kernel
def replace_entry(entries, values, versions, sums, tally, part, g, z, value, version):
    """Replace a part's entry by (g, z, value, version).

    entries: shape (2, P, d), gradients and points.  A version of -1 says that the part has no entry yet.
    sums: shape (4, d), of g, of z, and of the changes of z and g.
    The rise of a part is that of its value or, where there is none, that by the trapezoidal rule.
    """
    old_g, old_z = entries[0, part], entries[1, part]
    g_sum, z_sum, S, Y = sums
    first = versions[part] < 0
    slope = bend = ss = 0.0
    for j in range(g.size):
        # In float64: differences of float32 gradients lose digits.
        new_g, new_z = np.float64(g[j]), np.float64(z[j])
        if first:
            g_sum[j] += new_g
            z_sum[j] += new_z
        else:
            before = np.float64(old_g[j])
            y, s = new_g - before, new_z - np.float64(old_z[j])
            slope += before * s
            bend += 0.5 * s * y
            ss += s * s
            g_sum[j] += y
            z_sum[j] += s
            S[j] += s
            Y[j] += y
        old_g[j], old_z[j] = g[j], z[j]
    rise = slope + bend
    # A problem offers values always or never, so the old value is a number wherever the new one is.
    if not first and not np.isnan(value):
        rise = value - values[part]
    tally[VALUE] += value - (0.0 if first else values[part])
    values[part], versions[part] = value, version
    tally[SEEN] += first
    # A first entry cannot be compared with anything, and one with s = 0 tells neither a rise nor curvature.
    if ss != 0.0:
        tally[MOVED] += 1.0
        tally[RISE] += rise
        tally[SQUARES] += rise * rise
        tally[SLOPE] += slope


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
