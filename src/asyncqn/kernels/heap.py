"""A heap of numbers, the one with the least key first and ties by number: events, idle workers, parts."""

import numpy as np

from asyncqn.kernels.jit import strict_piece

FIRST = np.int64(0)
"""The place of what comes first; a literal would be compiled apart."""


@strict_piece
def _before(key, a, b):
    return key[a] < key[b] or (key[a] == key[b] and a < b)


@strict_piece
def push(heap, size, key, number):
    """Add a number to the `size` there are."""
    i = size
    while i > 0 and _before(key, number, heap[(i - 1) >> 1]):
        heap[i] = heap[(i - 1) >> 1]
        i = (i - 1) >> 1
    heap[i] = number


@strict_piece
def sink(heap, size, key, i):
    """Restore the heap after the key of what stands in place i has grown."""
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
    """Take out the first of `size`."""
    first = heap[0]
    heap[0] = heap[size - 1]
    sink(heap, size - 1, key, FIRST)
    return first


@strict_piece
def sort_by_key(key, size, order):
    """The first `size` numbers in the order of their keys, ties by number.

    (np.argsort would do, but takes two seconds to compile.)
    """
    for i in range(size):
        order[i] = i
    for i in range(size // 2 - 1, -1, -1):
        sink(order, size, key, i)
    for last in range(size - 1, 0, -1):
        order[0], order[last] = order[last], order[0]
        sink(order, last, key, FIRST)
    for i in range(size // 2):
        order[i], order[size - 1 - i] = order[size - 1 - i], order[i]
