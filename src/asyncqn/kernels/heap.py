"""A binary heap of numbers ordered by key, ties by number: events, idle workers, parts.

Ties are broken by number so that simulations do not depend on the order of insertion.
"""

import numpy as np

from asyncqn.kernels.jit import strict_piece

FIRST = np.int64(0)
"""The index of the first element; a literal 0 would be another type to numba, and compiled separately."""


@strict_piece
def _before(key, a, b):
    return key[a] < key[b] or (key[a] == key[b] and a < b)


@strict_piece
def push(heap, size, key, number):
    """Add a number to the heap of `size` numbers."""
    i = size
    while i > 0 and _before(key, number, heap[(i - 1) >> 1]):
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = number


@strict_piece
def sink(heap, size, key, i):
    """Restore the heap after the key of the number at index i has grown."""
    number = heap[i]
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(key, heap[child + 1], heap[child]):
            child += 1
        if not _before(key, heap[child], number):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = number


@strict_piece
def pop(heap, size, key):
    """Remove and return the first of `size` numbers."""
    first = heap[0]
    heap[0] = heap[size - 1]
    sink(heap, size - 1, key, FIRST)
    return first


@strict_piece
def sort_by_key(key, size, order):
    """Write the first `size` numbers to `order`, sorted by key, ties by number.

    This is a heap sort, because np.argsort takes two seconds to compile.
    """
    for i in range(size):
        order[i] = i
    for i in range(size // 2 - 1, -1, -1):
        sink(order, size, key, i)
    for last in range(size - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        sink(order, last, key, FIRST)
    # The heap has the smallest first, so the sort is descending until here.
    for i in range(size // 2):
        order[i], order[size - 1 - i] = order[size - 1 - i], order[i]
