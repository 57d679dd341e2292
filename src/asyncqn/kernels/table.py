"""A table of the newest gradient of every part of the data, and of the point where it was taken."""

from __future__ import annotations

import numpy as np

from asyncqn.kernels.jit import kernel, reducing_kernel

(
    SEEN,
    VALUE,
    MOVED,
    RISE,
    SQUARES,
    SLOPES,
    BEND,
    CHANGES,
    RESPONSES,
    UNPAIRED,
    UPDATES,
) = range(11)
"""Places in the tally of a table, which `centred_table.Tally` explains."""


@kernel
def replace_entry(entries, values, versions, sums, tally, part, g, z, value, version):
    """Replace a part's entry by (g, z, value, version); update the sums of the table and its tally.

    entries: shape (2, P, d), gradients and points.  A version of -1 says that the part has no entry yet.
    sums: shape (4, d), of g, of z, and of the changes of z and g.  The rise of a part is that of its value
    or, where there is none, that by the trapezoidal rule.

    Returns the number of parts that have moved in this window, and of those that have an entry.
    """
    old_g, old_z = entries[0, part], entries[1, part]
    g_sum, z_sum, S, Y = sums[0], sums[1], sums[2], sums[3]
    first = versions[part] < 0
    slope, ss, yy = 0.0, 0.0, 0.0
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
            slope += 0.5 * s * (new_g + before)
        old_g[j], old_z[j] = g[j], z[j]
    change = value - (0.0 if first else values[part])
    values[part], versions[part] = value, version
    tally[VALUE] += change
    if first:
        tally[SEEN] += 1.0
    # A first entry cannot be compared with anything, and one with s = 0 tells neither a rise nor curvature.
    if ss != 0.0:
        # A problem offers values always or never, so the old value is a number wherever the new one is.
        rise = slope if np.isnan(change) else change
        tally[MOVED] += 1.0
        tally[RISE] += rise
        tally[SQUARES] += rise * rise
        tally[SLOPES] += abs(slope)
        tally[BEND] += abs(rise - slope)
        tally[CHANGES] += ss
        tally[RESPONSES] += yy
    return tally[MOVED], tally[SEEN]


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
