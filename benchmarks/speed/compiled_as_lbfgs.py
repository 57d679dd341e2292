"""as-L-BFGS on the linear Gaussian model as one compiled loop: what the generic replay is measured against.

It follows a given asynchronous schedule with one worker state per worker, draws the same streams
and does the same arithmetic, but knows the model and the algorithm at compile time: no Python
between two updates.
"""

from __future__ import annotations

import math

import numpy as np

from asyncqn import ASLBFGS, LinearGaussian, Schedule
from asyncqn.algorithms.paper.as_lbfgs import Update
from asyncqn.core.streams import Stream
from asyncqn.kernels import compact_memory as kernels
from asyncqn.kernels.jit import kernel
from asyncqn.kernels.linear_gaussian import gradient
from asyncqn.kernels.random import fill_rows


@kernel
def _loop(
    A,
    y,
    noise_var,
    theta,
    h,
    gamma,
    noise,
    M,
    batch,
    overlap,
    epsilon,
    seed,
    worker,
    starts,
    read,
    W,
):
    d, n = theta.size, A.shape[0]
    u = np.zeros(d)
    memory = np.zeros((W, 2, M, d))
    gram = np.zeros((W, 2, M, M))
    middle = np.zeros((W, 2 * M, 2 * M))
    scale = np.ones(W)
    count = np.zeros(W, np.int64)
    newest = np.full(W, -1)
    k = np.zeros(W, np.int64)
    omega = np.zeros((W, 2, batch), np.int64)
    g_O = np.zeros((W, 2, d))
    theta_old = np.zeros((W, d))
    d_theta = np.zeros((W, d))
    d_u = np.zeros((W, d))
    g_S = np.zeros(d)
    empty = np.zeros(0)
    share = overlap / batch
    work = np.empty(8 * M)
    room = np.empty((2, M, M)), np.empty(M, np.int64)
    begun = 0
    for version in range(worker.size + 1):
        if version > 0:
            w = worker[version - 1]
            for i in range(d):
                theta[i] += d_theta[w, i]
                u[i] += d_u[w, i]
        while begun < starts.size and read[starts[begun]] == version:
            w = worker[starts[begun]]
            begun += 1
            now = k[w] & 1
            rows = omega[w, now]
            fill_rows(seed, k[w], w, n, rows)
            gradient(A, y, noise_var, theta, rows[:overlap], g_O[w, now])
            gradient(A, y, noise_var, theta, rows[overlap:], g_S)
            H = (memory[w], gram[w], middle[w], scale[w : w + 1], empty, count)
            numbers = kernels.Langevin(0.0, h, gamma, noise, share)
            stream = Stream(seed, w, k[w])
            update = Update(d_theta[w], d_u[w])
            kernels.langevin_update(
                H, numbers, u, g_O[w, now], g_S, stream, update, work
            )
            if k[w] > 0:
                before = omega[w, 1 - now][:overlap]
                gradient(A, y, noise_var, theta, before, g_S)
                ss, sy, yy = kernels.pair_products(
                    theta, theta_old[w], g_S, g_O[w, 1 - now]
                )
                if ss > 0.0 and sy >= epsilon * ss:
                    slot = (newest[w] + 1) % M
                    kernels.add_pair(
                        memory[w],
                        gram[w],
                        slot,
                        theta,
                        theta_old[w],
                        g_S,
                        g_O[w, 1 - now],
                        empty,
                    )
                    count[w] = min(count[w] + 1, M)
                    newest[w] = slot
                    scale[w] = sy / yy
                    kernels.factor(gram[w], count[w], slot, scale[w], middle[w], room)
            theta_old[w, :] = theta
            k[w] += 1
    return theta


def compiled_as_lbfgs(
    problem: LinearGaussian,
    algorithm: ASLBFGS,
    schedule: Schedule,
    theta0: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Return the final theta of the schedule."""
    noise = math.sqrt(2.0 * algorithm.h * algorithm.gamma / algorithm.beta)
    return _loop(
        problem.A,
        problem.y,
        problem.noise_var,
        theta0.copy(),
        algorithm.h,
        algorithm.gamma,
        noise,
        algorithm.memory,
        algorithm.batch,
        algorithm.overlap,
        algorithm.epsilon,
        seed,
        schedule.worker,
        np.argsort(schedule.read, kind="stable"),
        schedule.read,
        schedule.workers,
    )
