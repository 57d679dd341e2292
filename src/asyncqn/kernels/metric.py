"""Linear algebra of a sampler's metric H: products with its factor, and the decompositions that build it.

It uses no BLAS, whose bits change with the number of threads: every draw of a chain depends on them.
"""

import math

from asyncqn.kernels.jit import kernel, reducing_kernel, reducing_piece
from asyncqn.kernels.vectors import sum_of_squares


@reducing_piece
def _apply_dense(F, g, work, out):
    """out = F F'g; `work` has one entry per column of F."""
    for j in range(work.size):
        work[j] = 0.0
    for i in range(g.size):
        row, c = F[i], g[i]
        for j in range(work.size):
            work[j] += c * row[j]
    for i in range(out.size):
        row, total = F[i], 0.0
        for j in range(work.size):
            total += row[j] * work[j]
        out[i] = total


@reducing_kernel
def multiply(F, z, out):
    """out = F z."""
    for i in range(out.size):
        row, total = F[i], 0.0
        for j in range(z.size):
            total += row[j] * z[j]
        out[i] = total


@reducing_kernel
def apply(metric, g, work, out):
    """out = H g for the factor F of H, dense or the row of a diagonal; `work` ends with F'g where it is dense."""
    if metric.shape[0] == g.size:
        _apply_dense(metric, g, work, out)
    else:
        for i in range(out.size):
            out[i] = metric[0, i] * metric[0, i] * g[i]


@kernel
def kick_and_drift(h, kick, drift, g, Hg, x, v, w):
    """w += kick g, v -= kick h H g and, where `drift`, x += h v; return whether g and x are finite.

    Nothing changes where g is not finite.
    """
    if not math.isfinite(sum_of_squares(g)):
        return False
    for i in range(x.size):
        w[i] += kick * g[i]
        v[i] -= (kick * h) * Hg[i]
    if drift:
        for i in range(x.size):
            x[i] += h * v[i]
    return math.isfinite(sum_of_squares(x))


@reducing_kernel
def row_products(A, B, out):
    """out = A B'."""
    for i in range(A.shape[0]):
        for j in range(B.shape[0]):
            a, b = A[i], B[j]
            total = 0.0
            for k in range(a.size):
                total += a[k] * b[k]
            out[i, j] = total


@reducing_kernel
def orthogonal_rows(B, V, tolerance):
    """Do one sweep of one-sided Jacobi: rotate the rows of B, and those of V alike; return the rotations.

    Start with V = I.  When a sweep makes no rotation, V B has orthogonal rows: their lengths are the singular
    values of the first B, and the rows of V are its left singular vectors (for a symmetric B, the absolute
    eigenvalues and the eigenvectors).
    """
    rotated = 0
    for p in range(B.shape[0] - 1):
        for q in range(p + 1, B.shape[0]):
            x, y = B[p], B[q]
            xx = yy = xy = 0.0
            for k in range(x.size):
                xx += x[k] * x[k]
                yy += y[k] * y[k]
                xy += x[k] * y[k]
            # The rows are orthogonal already; rotating them would only add rounding.
            if abs(xy) <= tolerance * math.sqrt(xx * yy):
                continue
            rotated += 1
            zeta = (yy - xx) / (2.0 * xy)
            # The smaller root of t^2 + 2 zeta t - 1 = 0: the smaller angle, for which the sweeps converge.
            t = 1.0 / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
            if zeta < 0.0:
                t = -t
            c = 1.0 / math.sqrt(1.0 + t * t)
            s = c * t
            for k in range(x.size):
                a, b = x[k], y[k]
                x[k] = c * a - s * b
                y[k] = s * a + c * b
            v, w = V[p], V[q]
            for k in range(v.size):
                a, b = v[k], w[k]
                v[k] = c * a - s * b
                w[k] = s * a + c * b
    return rotated


@kernel
def acceptance_excess(h, accepted, weight, root):
    """Return the sum of weight (accepted - P(h)) with P(h) = 2 Phi(-root h^2 / 2)."""
    total = 0.0
    for i in range(h.size):
        # 2 Phi(-x) = erfc(x / sqrt(2)), with x = root h^2 / 2.
        total += weight[i] * (
            accepted[i] - math.erfc(root * h[i] * h[i] / math.sqrt(8.0))
        )
    return total
