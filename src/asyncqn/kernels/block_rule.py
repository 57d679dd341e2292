"""Blocks of the data with backups: the one rule of assignment, for simulator and real engines.

The master opens a version, gives each idle worker a block that no worker has, and closes the version when an
update of every part has arrived.  A block consists of pieces, which its worker computes in order and sends
one by one, without waiting.  If every open block is taken, an idle worker helps with a single piece, from the
end of a block that is overdue; the first update wins.  No computation is interrupted: a worker that learns
that its version is over finishes the current piece, drops the rest, and then receives work of the current
version.

The simulator compiles these functions into its queue (`kernels.blocks`), and the real engines call the same
source as Python (`cluster.handout`).

The next block is found in a tournament: a binary tree over the blocks whose nodes hold the best block below
them, so that assigning a block and recording an update cost O(log B).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import shared_rule

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


@shared_rule
def open_version(parts, pieces):
    """Open a version: every part is needed again."""
    for q in range(parts.part.size):
        part = parts.part[q]
        part["done"], part["copies"] = 0, 0
    for b in range(parts.block.size):
        parts.block[b]["missing"] = pieces
        settle(parts, b, pieces)


@shared_rule
def settle(parts, b, pieces):
    """Update the rank of block b, and the nodes above its leaf."""
    block, oldest, soonest, best = parts.block[b], DELIVERED, np.inf, -1
    copies, handed = DELIVERED, np.inf
    # From the last piece down, so that among equals help goes to the end of a block, which its own worker
    # reaches last.
    for q in range(b * pieces + pieces - 1, b * pieces - 1, -1):
        part = parts.part[q]
        oldest = min(oldest, part["delivered"])
        if part["done"] == 0:
            if part["copies"] < copies or (
                part["copies"] == copies and part["handed"] < handed
            ):
                best, copies, handed = q, part["copies"], part["handed"]
            soonest = min(soonest, part["handed"])
    if best < 0:
        block["rank"], block["since"] = DELIVERED, np.inf
    elif parts.part[b * pieces]["copies"] == 0:
        block["rank"], block["since"], soonest = UNTOUCHED + oldest, 0.0, -np.inf
    else:
        block["rank"], block["since"] = COPY * (copies + 1) - block["missing"], handed
    node = parts.node.size // 2 + b
    parts.node[node]["best"], parts.node[node]["soonest"] = b, soonest
    while node > 1:
        node >>= 1
        left, right = parts.node[2 * node], parts.node[2 * node + 1]
        best, soonest = left["best"], min(left["soonest"], right["soonest"])
        if right["best"] >= 0:
            a, c = parts.block[best], parts.block[right["best"]]
            if c["rank"] < a["rank"] or (
                c["rank"] == a["rank"] and c["since"] < a["since"]
            ):
                best = right["best"]
        above = parts.node[node]
        if above["best"] == best != b and above["soonest"] == soonest:
            return  # the nodes above are unchanged
        above["best"], above["soonest"] = best, soonest


@shared_rule
def help_after(times, backup_after):
    """Return how long a part is out before another worker duplicates it.

    Unnecessary help keeps a worker from the next version, so there should be none where times are steady.
    Where they vary, the slowest of many workers is far beyond the mean, and help must begin early.
    """
    seen = max(times[0], 1.0)
    mean = times[1] / seen
    deviation = math.sqrt(max(0.0, times[2] / seen - mean * mean))
    return max(0.0, backup_after * mean - DEVIATIONS * deviation)


@shared_rule
def choose(parts, home, now, wait, pieces):
    """Return the piece for an idle worker, or -1 where there is nothing to do yet.

    The first piece of an untouched block stands for the whole block.

    Untouched blocks are ordered by the age of their last update, starting at the worker's own number: with
    one block per worker, every worker keeps the same rows.  Otherwise help goes to a piece that has been out
    for `wait`: the one with the fewest copies, in the block that misses most, assigned earliest, and last in
    its block.
    """
    leaves, top = parts.node.size // 2, parts.block[parts.node[1]["best"]]
    found, rank, since = -1, DELIVERED, np.inf
    # Nothing is overdue, and no block is untouched (those have soonest = -inf).
    if now < parts.node[1]["soonest"] + wait:
        return found
    root = leaves + home
    while True:  # the subtrees from home onward, and then the whole tree
        node = root
        while True:
            best, soonest = parts.node[node]["best"], parts.node[node]["soonest"]
            if best >= 0 and not now < soonest + wait:
                block = parts.block[best]
                if block["rank"] < rank or (
                    block["rank"] == rank and block["since"] < since
                ):
                    if (
                        node < leaves
                        and block["rank"] >= 0
                        and now < block["since"] + wait
                    ):
                        node *= 2  # the best below is not overdue, but another one is: descend
                        continue
                    found, rank, since = _best_piece(
                        parts, best, now, wait, pieces, found, rank, since
                    )
            # Go up from a right child, then to the right sibling: a depth-first walk without a stack.
            while node != root and node & 1:
                node >>= 1
            if node == root:
                break
            node += 1
        # Nothing elsewhere can be better than the best of the whole tree.
        if root == 1 or (rank == top["rank"] and since == top["since"]):
            return found
        while root > 1 and root & 1:
            root >>= 1
        root = root + 1 if root > 1 else 1


@shared_rule
def _best_piece(parts, b, now, wait, pieces, found, rank, since):
    """Return piece, rank and time of assignment of the best piece so far, including those of block b."""
    if parts.block[b]["rank"] < 0:
        return b * pieces, parts.block[b]["rank"], 0.0
    for q in range(b * pieces + pieces - 1, b * pieces - 1, -1):
        part = parts.part[q]
        if part["done"] == 0 and not now < part["handed"] + wait:
            own = COPY * (part["copies"] + 1) - parts.block[b]["missing"]
            if own < rank or (own == rank and part["handed"] < since):
                found, rank, since = q, own, part["handed"]
    return found, rank, since


@shared_rule
def take_up(parts, q, now, pieces):
    """Assign piece q, or its whole block if untouched; return the last piece that was assigned."""
    last = q + pieces - 1 if q % pieces == 0 and parts.part[q]["copies"] == 0 else q
    for i in range(q, last + 1):
        part = parts.part[i]
        part["copies"] += 1
        part["handed"] = now
    settle(parts, q // pieces, pieces)
    return last


@shared_rule
def deliver(parts, q, version, pieces):
    """Record an update for piece q of the open version; return whether it is the first one."""
    part = parts.part[q]
    if version <= part["delivered"]:
        return False
    part["delivered"], part["done"] = version, 1
    parts.block[q // pieces]["missing"] -= 1
    settle(parts, q // pieces, pieces)
    return True


@shared_rule
def note_time(times, spent):
    """Record that a block takes `spent` at the speed of an update."""
    times[0] += 1.0
    times[1] += spent
    times[2] += spent**2
