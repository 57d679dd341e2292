"""Blocks of the data with backups: the rule by which a version's blocks are assigned.

The master opens a version, gives each idle worker a block that no worker has, and closes the version when an
update of every part has arrived.  A block consists of pieces, which its worker computes in order and sends
one by one, without waiting.  If every open block is taken, an idle worker helps with a single piece, from the
end of a block that is overdue; the first update wins.  No computation is interrupted: a worker that learns
that its version is over finishes the current piece, drops the rest, and then receives work of the current
version.

`core.stages` calls `open_version`, `take`, `receive` and `give_back`, all compiled.

The next block is found in a tournament: a binary tree over the blocks whose nodes hold the best block below
them, so that assigning a block and recording an update cost O(log B).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import kernel, strict_piece

DEVIATIONS = 6.0
"""Standard deviations of the update times by which help comes earlier; measured in
docs/results/exact-blocks.md."""

PART = np.dtype(
    [
        ("done", np.int64),  # whether its update has arrived
        ("copies", np.int64),  # how often it was handed out
        ("handed", np.float64),  # when it was handed out last
        ("delivered", np.int64),  # the version that its newest update read
    ],
    align=True,
)
"""The state of a piece of a block; all fields but `delivered` refer to the open version."""
BLOCK = np.dtype(
    [
        ("missing", np.int64),  # pieces whose update has not arrived
        (
            "rank",
            np.int64,
        ),  # the least first: untouched by age, below 0; then fewest copies, most missing
        (
            "since",
            np.float64,
        ),  # among equals the least first: when its best piece was handed out
    ],
    align=True,
)
NODE = np.dtype(
    [
        (
            "best",
            np.int64,
        ),  # the block of the least rank, and then of the least number; -1: there is none
        (
            "soonest",
            np.float64,
        ),  # when a piece without an update was handed out; -inf: it never was
    ],
    align=True,
)
UNTOUCHED, COPY, DELIVERED = -(1 << 60), 1 << 32, 1 << 60
"""Offsets of ranks: added to the age of an untouched block, per copy (one more than there are, so that these
ranks are positive), and the rank of a block that is done."""


class Parts(NamedTuple):
    """The state of all parts, as the master knows it."""

    part: np.ndarray  # (P,) of PART
    block: np.ndarray  # (B,) of BLOCK
    node: np.ndarray  # (2 L,) of NODE, L >= B a power of two: children of i at 2 i and 2 i + 1, leaves from L
    times: np.ndarray  # (3,) updates seen, the sum of the times a block takes at their pace, and of squares


def new_parts(n_blocks: int, pieces: int) -> Parts:
    """Return the state before the first version: no updates, and no version open."""
    # A power of two makes the tree complete: the leaf of block b is at index leaves + b.
    leaves = 1 << max(0, math.ceil(math.log2(n_blocks)))
    part, block = np.zeros(n_blocks * pieces, PART), np.zeros(n_blocks, BLOCK)
    parts = Parts(part, block, np.zeros(2 * leaves, NODE), np.zeros(3))
    parts.part["delivered"] = -1
    parts.node["best"], parts.node["soonest"] = -1, np.inf
    return parts


@kernel
def open_version(part, block, node):
    """Open a version: every part is needed again."""
    pieces = part.size // block.size
    for q in range(part.size):
        part[q]["done"], part[q]["copies"] = 0, 0
    for b in range(block.size):
        block[b]["missing"] = pieces
        settle(part, block, node, b)


@kernel
def settle(part, block, node, b):
    """Update the rank of block b, and the nodes above its leaf."""
    mine, oldest, soonest, best = block[b], DELIVERED, np.inf, -1
    copies, handed, pieces = DELIVERED, np.inf, part.size // block.size
    # From the last piece down, so that among equals help goes to the end of a block, which its own worker
    # reaches last.
    for q in range(b * pieces + pieces - 1, b * pieces - 1, -1):
        piece = part[q]
        oldest = min(oldest, piece["delivered"])
        if piece["done"] == 0:
            if piece["copies"] < copies or (
                piece["copies"] == copies and piece["handed"] < handed
            ):
                best, copies, handed = q, piece["copies"], piece["handed"]
            soonest = min(soonest, piece["handed"])
    if best < 0:
        mine["rank"], mine["since"] = DELIVERED, np.inf
    elif part[b * pieces]["copies"] == 0:
        mine["rank"], mine["since"], soonest = UNTOUCHED + oldest, 0.0, -np.inf
    else:
        mine["rank"], mine["since"] = COPY * (copies + 1) - mine["missing"], handed
    i = node.size // 2 + b
    node[i]["best"], node[i]["soonest"] = b, soonest
    while i > 1:
        i >>= 1
        left, right = node[2 * i], node[2 * i + 1]
        best, soonest = left["best"], min(left["soonest"], right["soonest"])
        if right["best"] >= 0:
            a, c = block[best], block[right["best"]]
            if c["rank"] < a["rank"] or (
                c["rank"] == a["rank"] and c["since"] < a["since"]
            ):
                best = right["best"]
        above = node[i]
        if above["best"] == best != b and above["soonest"] == soonest:
            return  # the nodes above are unchanged
        above["best"], above["soonest"] = best, soonest


@strict_piece
def _help_after(times, backup_after):
    """Return how long a part is out before another worker duplicates it.

    Unnecessary help keeps a worker from the next version, so there should be none where times are steady.
    Where they vary, the slowest of many workers is far beyond the mean, and help must begin early.
    """
    seen = max(times[0], 1.0)
    mean = times[1] / seen
    deviation = math.sqrt(max(0.0, times[2] / seen - mean * mean))
    return max(0.0, backup_after * mean - DEVIATIONS * deviation)


@strict_piece
def _choose(part, block, node, home, now, wait):
    """Return the piece for an idle worker; there is one.

    The first piece of an untouched block stands for the whole block.

    Untouched blocks are ordered by the age of their last update, starting at the worker's own number: with
    one block per worker, every worker keeps the same rows.  Otherwise help goes to a piece that has been out
    for `wait`: the one with the fewest copies, in the block that misses most, assigned earliest, and last in
    its block.
    """
    leaves, top = node.size // 2, block[node[1]["best"]]
    chosen, rank, since = np.int64(-1), np.int64(DELIVERED), np.inf
    root = leaves + home
    while True:  # the subtrees from home onward, and then the whole tree
        i = root
        while True:
            best, soonest = node[i]["best"], node[i]["soonest"]
            if best >= 0 and not now < soonest + wait:
                b = block[best]
                if b["rank"] < rank or (b["rank"] == rank and b["since"] < since):
                    if i < leaves and b["rank"] >= 0 and now < b["since"] + wait:
                        i *= 2  # the best below is not overdue, but another one is: descend
                        continue
                    chosen, rank, since = _best_piece(
                        part, block, best, now, wait, (chosen, rank, since)
                    )
            # Go up from a right child, then to the right sibling: a depth-first walk without a stack.
            while i != root and i & 1:
                i >>= 1
            if i == root:
                break
            i += 1
        # Nothing elsewhere can be better than the best of the whole tree.
        if root == 1 or (rank == top["rank"] and since == top["since"]):
            return chosen
        while root > 1 and root & 1:
            root >>= 1
        root = root + 1 if root > 1 else 1


@strict_piece
def _best_piece(part, block, b, now, wait, best):
    """Return the better of `best` (piece, rank, time of assignment) and the best piece of block b."""
    chosen, rank, since = best
    pieces = part.size // block.size
    if block[b]["rank"] < 0:
        return np.int64(b * pieces), block[b]["rank"], 0.0
    for q in range(b * pieces + pieces - 1, b * pieces - 1, -1):
        piece = part[q]
        if piece["done"] == 0 and not now < piece["handed"] + wait:
            own = COPY * (piece["copies"] + 1) - block[b]["missing"]
            if own < rank or (own == rank and piece["handed"] < since):
                chosen, rank, since = q, own, piece["handed"]
    return chosen, rank, since


@kernel
def take(part, block, node, times, worker, now, backup_after):
    """Assign work to an idle worker; return its first and last piece, and when the next part is overdue.

    The pieces are -1 where there is nothing to do before then.
    """
    overdue = node[1]["soonest"] + _help_after(times, backup_after)
    # Nothing is overdue, and no block is untouched (those have soonest = -inf).
    if now < overdue:
        return -1, -1, overdue
    pieces, home = part.size // block.size, worker % block.size
    wait = _help_after(times, backup_after)
    q = _choose(part, block, node, home, now, wait)
    # The whole block if it is untouched.
    last = q + pieces - 1 if q % pieces == 0 and part[q]["copies"] == 0 else q
    for i in range(q, last + 1):
        part[i]["copies"] += 1
        part[i]["handed"] = now
    settle(part, block, node, q // pieces)
    return q, last, now


@kernel
def receive(part, block, node, times, q, version, spent):
    """Record an update for piece q of the open version; return whether it is the first one.

    `spent` is the time that a block takes at its pace.
    """
    times[0] += 1.0
    times[1] += spent
    times[2] += spent**2
    if version <= part[q]["delivered"]:
        return False
    part[q]["delivered"], part[q]["done"] = version, 1
    b = q // (part.size // block.size)
    block[b]["missing"] -= 1
    settle(part, block, node, b)
    return True


@kernel
def give_back(part, block, node, q, last):
    """Return the pieces of a lost worker; they are overdue at once, so that any idle worker takes them."""
    for i in range(q, last + 1):
        part[i]["copies"] -= 1
        part[i]["handed"] = -np.inf
    settle(part, block, node, q // (part.size // block.size))
