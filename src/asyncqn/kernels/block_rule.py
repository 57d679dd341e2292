"""Blocks of the data with backups: the one rule that hands them out, for simulator and real engines.

The master opens a version, hands each idle worker a block that nobody works on, and closes the
version when every part is answered.  A block lies in pieces, which its worker computes in order and
answers one by one, without waiting.  A worker that finds every open block taken helps with a single
piece, from the end of a block that has been out for long; the first answer wins.  Nobody is
interrupted: a worker finishes the piece under way before it gives up the rest of a version that it
hears is over, and only when that piece is answered does it get work of the current one.

The simulator compiles these functions into its queue (`kernels.blocks`), and the real engines call the same
source as Python (`cluster.handout`).

Which block is next is kept in a tournament: a binary tree over the blocks whose nodes know the best block
below them, so that to hand out and to take an answer cost log B.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from asyncqn.kernels.jit import shared_rule

DEVIATIONS = 6.0
"""How many standard deviations of the answer times help comes sooner: docs/results/exact-blocks.md."""

PART = np.dtype(
    [
        ("done", np.int64),  # whether it is answered
        ("copies", np.int64),  # how often it was handed out
        ("handed", np.float64),  # when it was handed out last
        ("answered", np.int64),  # the version of its newest answer
    ],
    align=True,
)
"""What is known of a piece of a block; all but `answered` is of the open version."""
BLOCK = np.dtype(
    [
        ("missing", np.int64),  # pieces that are not answered
        ("rank", np.int64),  # the least first: untouched by age, below 0; then fewest copies, most missing
        ("since", np.float64),  # among equals the least first: when its best piece was handed out
    ],
    align=True,
)
NODE = np.dtype(
    [
        ("best", np.int64),  # the block of the least rank, and then of the least number; -1: there is none
        ("soonest", np.float64),  # when a piece that is not answered was handed out; -inf: it never was
    ],
    align=True,
)
UNTOUCHED, COPY, ANSWERED = -(1 << 60), 1 << 32, 1 << 60
"""Ranks: what is added to the age of an untouched block, what a copy counts (one more than there are, so that
these ranks are positive), and the rank of a block that is done."""


class Parts(NamedTuple):
    """What the master knows of the parts."""

    part: np.ndarray  # (P,) of PART
    block: np.ndarray  # (B,) of BLOCK
    node: np.ndarray  # (2 L,) of NODE, L >= B a power of two: children of i at 2 i and 2 i + 1, leaves from L
    times: np.ndarray  # (3,) answers seen, the sum of the times a block takes at their pace, and of squares


def new_parts(n_blocks: int, pieces: int) -> Parts:
    """Nothing answered, and no version open."""
    leaves = 1 << max(0, math.ceil(math.log2(n_blocks)))
    part, block = np.zeros(n_blocks * pieces, PART), np.zeros(n_blocks, BLOCK)
    parts = Parts(part, block, np.zeros(2 * leaves, NODE), np.zeros(3))
    parts.part["answered"] = -1
    parts.node["best"], parts.node["soonest"] = -1, np.inf
    return parts


@shared_rule
def open_version(parts, pieces):
    """A new version wants every part."""
    for q in range(parts.part.size):
        part = parts.part[q]
        part["done"], part["copies"] = 0, 0
    for b in range(parts.block.size):
        parts.block[b]["missing"] = pieces
        settle(parts, b, pieces)


@shared_rule
def settle(parts, b, pieces):
    """Say anew how block b stands in the tournament."""
    block, oldest, soonest, best = parts.block[b], ANSWERED, np.inf, -1
    copies, handed = ANSWERED, np.inf
    for q in range(b * pieces + pieces - 1, b * pieces - 1, -1):
        part = parts.part[q]
        oldest = min(oldest, part["answered"])
        if part["done"] == 0:
            if part["copies"] < copies or (part["copies"] == copies and part["handed"] < handed):
                best, copies, handed = q, part["copies"], part["handed"]
            soonest = min(soonest, part["handed"])
    if best < 0:
        block["rank"], block["since"] = ANSWERED, np.inf
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
            if c["rank"] < a["rank"] or (c["rank"] == a["rank"] and c["since"] < a["since"]):
                best = right["best"]
        above = parts.node[node]
        if above["best"] == best != b and above["soonest"] == soonest:
            return  # nothing changes further up
        above["best"], above["soonest"] = best, soonest


@shared_rule
def help_after(times, backup_after):
    """Return how long a part is out before it is duplicated.

    Help that is not needed keeps its worker from the next version, so where times are steady there
    should be none; where they scatter, the slowest of many is far beyond the mean, and help must begin
    early.
    """
    seen = max(times[0], 1.0)
    mean = times[1] / seen
    deviation = math.sqrt(max(0.0, times[2] / seen - mean * mean))
    return max(0.0, backup_after * mean - DEVIATIONS * deviation)


@shared_rule
def choose(parts, home, now, wait, pieces):
    """The piece for an idle worker; the first of an untouched block stands for the block; -1: none yet.

    Untouched blocks go by the age of their last answer, from the worker's own number onward, so
    that with as many blocks as workers everybody keeps the same rows.  Else help goes to a piece
    that has been out for `wait`: with the fewest copies, in the block that misses most, handed
    out longest ago, and last in its block.
    """
    leaves, top = parts.node.size // 2, parts.block[parts.node[1]["best"]]
    found, rank, since = -1, ANSWERED, np.inf
    if now < parts.node[1]["soonest"] + wait:
        return found
    root = leaves + home
    while True:  # subtrees from home onward, and then the whole tree
        node = root
        while True:
            best, soonest = parts.node[node]["best"], parts.node[node]["soonest"]
            if best >= 0 and not now < soonest + wait:
                block = parts.block[best]
                if block["rank"] < rank or (block["rank"] == rank and block["since"] < since):
                    if node < leaves and block["rank"] >= 0 and now < block["since"] + wait:
                        node *= 2  # its best has not been out for long, but another has
                        continue
                    found, rank, since = _best_piece(parts, best, now, wait, pieces, found, rank, since)
            while node != root and node & 1:
                node >>= 1
            if node == root:
                break
            node += 1
        if root == 1 or (rank == top["rank"] and since == top["since"]):
            return found
        while root > 1 and root & 1:
            root >>= 1
        root = root + 1 if root > 1 else 1


@shared_rule
def _best_piece(parts, b, now, wait, pieces, found, rank, since):
    """The piece of block b that is better than what was found, its rank, and when it was handed out."""
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
    """Hand out piece q, as the first of its block with the block; returns the last piece handed out."""
    last = q + pieces - 1 if q % pieces == 0 and parts.part[q]["copies"] == 0 else q
    for i in range(q, last + 1):
        part = parts.part[i]
        part["copies"] += 1
        part["handed"] = now
    settle(parts, q // pieces, pieces)
    return last


@shared_rule
def answer(parts, q, version, pieces):
    """Piece q of the open version is answered; whether it is the first answer."""
    part = parts.part[q]
    if version <= part["answered"]:
        return False
    part["answered"], part["done"] = version, 1
    parts.block[q // pieces]["missing"] -= 1
    settle(parts, q // pieces, pieces)
    return True


@shared_rule
def note_time(times, spent):
    """A block takes `spent` at the pace of an answer."""
    times[0] += 1.0
    times[1] += spent
    times[2] += spent**2
