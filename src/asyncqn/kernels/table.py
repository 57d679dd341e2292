"""A table of the newest gradient of every part of the data, and of the point where it was taken."""

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel

SEEN, VALUE, SIZES, MOVED, RISE, SQUARES, SLOPE = range(7)
"""Places in the tally of a table, which `algorithms.table.entries.Tally` explains."""


@kernel
def replace_entry(
    entries, values, versions, sums, tally, part, g, z, value, version, slack
):
    """Replace a part's entry by (g, z, value, version) unless it is refused; return whether it was replaced.

    entries: shape (2, P, d), gradients and points.  A version of -1 says that the part has no entry yet.
    sums: shape (4, d), of g, of z, and of the changes of z and g.
    Refused is an update whose value exceeds that of the tangent of the entry by more than G |s| and `slack`,
    with G the larger one of |g_i| and its root mean square over all parts.  A negative slack refuses nothing.
    The rise of a part is that of its value or, where there is none, that by the trapezoidal rule.
    """
    old_g, old_z = entries[0, part], entries[1, part]
    first = versions[part] < 0
    slope = bend = gg = ss = 0.0
    if not first:
        for j in range(g.size):
            # In float64: differences of float32 gradients lose digits.
            before = np.float64(old_g[j])
            s = np.float64(z[j]) - np.float64(old_z[j])
            slope += before * s
            bend += 0.5 * s * (np.float64(g[j]) - before)
            gg += before * before
            ss += s * s
    rise = slope + bend
    # A problem offers values always or never, so the old value is a number wherever the new one is.
    if not first and not np.isnan(value):
        rise = value - values[part]
        bend = rise - slope
    # Negated, so that a bend that is not a number is refused.
    largest = max(gg, tally[SIZES] / max(tally[SEEN], 1.0))
    if slack >= 0.0 and not bend <= np.sqrt(largest * ss) + slack:
        return False
    g_sum, z_sum, S, Y = sums
    size = 0.0
    for j in range(g.size):
        new_g, new_z = np.float64(g[j]), np.float64(z[j])
        if first:
            g_sum[j] += new_g
            z_sum[j] += new_z
        else:
            y, s = new_g - np.float64(old_g[j]), new_z - np.float64(old_z[j])
            g_sum[j] += y
            z_sum[j] += s
            S[j] += s
            Y[j] += y
        size += new_g * new_g
        old_g[j], old_z[j] = g[j], z[j]
    tally[SIZES] += size - gg
    tally[VALUE] += value - (0.0 if first else values[part])
    values[part], versions[part] = value, version
    tally[SEEN] += first
    # A first entry cannot be compared with anything, and one with s = 0 tells neither a rise nor curvature.
    if ss != 0.0:
        tally[MOVED] += 1.0
        tally[RISE] += rise
        tally[SQUARES] += rise * rise
        tally[SLOPE] += slope
    return True


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
