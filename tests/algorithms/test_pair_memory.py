"""The memory seen from the algorithms: what the cautious rule compares with epsilon."""

from __future__ import annotations

import numpy as np

from asyncqn.algorithms.pair_memory import CompactMemory, PairRule


def test_the_curvature_of_a_pair_is_what_the_cautious_rule_compares_with_epsilon() -> (
    None
):
    memory = CompactMemory.empty(3, np.zeros(4), "pair")
    assert memory.curvatures().size == 0
    zero = np.zeros(4)
    for number, curvature in enumerate((2.0, 5.0, 0.5), 1):
        s = np.full(4, float(number))
        admitted = memory.consider(PairRule(1.0), True, s, zero, curvature * s, zero)
        assert admitted == (curvature >= 1.0)
    # s'(c s) / s's = c up to the rounding of two sums of four.
    np.testing.assert_allclose(np.sort(memory.curvatures()), [2.0, 5.0], rtol=1e-15)
