"""A table of the newest gradient of every part of the data, and of the point where it was taken."""

from __future__ import annotations

from asyncqn.kernels.jit import kernel


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
        new_g, new_z = float(g[j]), float(z[j])
        if first:
            g_sum[j] += new_g
            z_sum[j] += new_z
        else:
            # In float64: differences of float32 gradients lose digits.
            y, s = new_g - float(old_g[j]), new_z - float(old_z[j])
            g_sum[j] += y
            z_sum[j] += s
            S[j] += s
            Y[j] += y
            ss += s * s
            yy += y * y
            rise += 0.5 * s * (new_g + float(old_g[j]))
        old_g[j], old_z[j] = g[j], z[j]
    return rise, ss, yy
