"""A table of the newest gradient of every part of the data, and of the point where it was taken."""

from __future__ import annotations

from asyncqn.kernels.jit import kernel


@kernel
def replace_entry(gradients, points, sums, part, g, z, first):
    """Replace a part's entry by (g, z), and update `sums`: of g, of z, and of the changes of z and g.

    `first` says that the part has no entry yet.  Returns whether z has moved since the old entry, and by how
    much the part's share of U has risen since then, by the trapezoidal rule.
    """
    old_g, old_z = gradients[part], points[part]
    g_sum, z_sum, S, Y = sums
    moved, rise = False, 0.0
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
            moved |= s != 0.0
            rise += 0.5 * s * (new_g + float(old_g[j]))
        old_g[j], old_z[j] = g[j], z[j]
    return moved, rise
