"""The tournament that says who gets which block, against a scan of all parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncqn.kernels.block_rule import (
    Parts,
    give_back,
    new_parts,
    open_version,
    receive,
    take,
)


def scan(parts: Parts, home: int, now: float, wait: float, pieces: int) -> int:
    """The rule in its plainest form: every piece of every block is looked at."""
    best, oldest, helped, B = -1, 0, -1, len(parts.block)
    copies, handed = parts.part["copies"], parts.part["handed"]
    missing = parts.block["missing"]
    for j in range(B):
        b = (home + j) % B
        if missing[b] == 0:
            continue
        if copies[b * pieces] == 0:
            age = parts.part["delivered"][b * pieces : (b + 1) * pieces].min()
            if best < 0 or age < oldest:
                best, oldest = b * pieces, age
            continue
        for q in reversed(range(b * pieces, (b + 1) * pieces)):
            if parts.part["done"][q] or now < handed[q] + wait:
                continue
            key = (copies[q], -missing[b], handed[q])
            if helped < 0 or key < (
                copies[helped],
                -missing[helped // pieces],
                handed[helped],
            ):
                helped = q
    return best if best >= 0 else helped


@settings(max_examples=150)
@given(
    st.sampled_from([1, 2, 3, 11]),
    st.integers(1, 4),
    st.sampled_from([0.0, 2.0, 5.0]),
    st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 3), st.integers(0, 99)),
        min_size=20,
        max_size=60,
    ),
)
def test_the_tournament_chooses_what_a_scan_of_all_parts_chooses(
    n_blocks, pieces, wait, events
):
    parts, now, version, out = new_parts(n_blocks, pieces), 0.0, 0, []
    part, block, node, _ = parts
    open_version(part, block, node)
    for home, kind, pick in events:
        now += pick % 3
        # One update without a deviation: help begins after `wait`.
        parts.times[:] = 1.0, wait, wait**2
        if kind < 2:
            expected = scan(parts, home % n_blocks, now, wait, pieces)
            q, last, _ = take(*parts, home, now, 1.0)
            assert q == expected
            out += range(q, last + 1) if q >= 0 else ()
        elif kind == 2 and out:
            receive(*parts, out.pop(pick % len(out)), version, 1.0)
        elif out:  # whoever computed it is gone
            q = out.pop(pick % len(out))
            if not parts.part["done"][q]:
                give_back(part, block, node, q, q)
        if not parts.block["missing"].any():
            version, out = version + 1, []
            open_version(part, block, node)
    np.testing.assert_array_equal(
        parts.block["missing"],
        (parts.part["done"].reshape(n_blocks, pieces) == 0).sum(axis=1),
    )
