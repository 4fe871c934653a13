"""ECE in data-dependent bins of two classes, as the authors' code rounds.

Both classes have the same variance, so that rounding errors decide which of them is split. They
depend on the last bits of the predictions, on the order of the samples, and so on Julia's partial
sort. With all of these the panels are the published ones, in which `MedianVarianceBins` differs.
"""

import numba
import numpy as np
import pytest

from paper_repro.julia_random import seeded
from paper_repro.w19 import authors_data
from paper_repro.w19.authors_data import Model
from paper_repro.w19.estimates_panels import published
from paper_repro.w19.estimates_simulation import MIN_BIN_SIZE, ece

compiled = numba.njit


@compiled
def partition(order, x, low, high):
    """Splits around the median of three values, as Julia's quicksort; place of the pivot."""
    middle = (low + high) // 2
    if x[order[low]] < x[order[middle]]:
        order[middle], order[low] = order[low], order[middle]
    if x[order[high]] < x[order[low]]:
        if x[order[high]] < x[order[middle]]:
            order[high], order[low], order[middle] = order[low], order[middle], order[high]
        else:
            order[high], order[low] = order[low], order[high]
    pivot, i, j = order[low], low + 1, high - 1
    while True:
        while x[order[i]] < x[pivot]:
            i += 1
        while x[pivot] < x[order[j]]:
            j -= 1
        if i >= j:
            break
        order[i], order[j] = order[j], order[i]
        i, j = i + 1, j - 1
    order[j], order[low] = pivot, order[j]
    return j


@compiled
def sort_first(order, x, last):
    """Sorts the places 0, …, last by x; the others come to be as Julia's `partialsort!` does."""
    todo = [(0, len(order) - 1)]
    while todo:
        low, high = todo.pop()
        if high - low <= 20:  # insertion sort
            for i in range(low + 1, high + 1):
                j, row = i, order[i]
                while j > low and x[row] < x[order[j - 1]]:
                    order[j] = order[j - 1]
                    j -= 1
                order[j] = row
            continue
        place = partition(order, x, low, high)
        if place > 0:
            todo.append((low, place - 1))
        if place < last:
            todo.append((place + 1, high))


@compiled
def variance(values):
    """Welford's algorithm."""
    mean, total = values[0], 0.0
    for i in range(1, len(values)):
        new = mean + (values[i] - mean) / (i + 1)
        total += (values[i] - mean) * (values[i] - new)
        mean = new
    return total / (len(values) - 1)


@compiled
def bins_of(probs, least):
    """Bins of predictions of two classes, none of which are equal, [n]."""
    first, second, order = probs[:, 0].copy(), probs[:, 1].copy(), np.arange(len(probs))
    bins, number, todo = np.empty(len(probs), np.int64), 0, [(0, len(probs))]
    while todo:
        start, stop = todo.pop()
        rows = order[start:stop]
        if stop - start < 2 * least:
            bins[rows] = number
            number += 1
            continue
        values = second if variance(second[rows]) > variance(first[rows]) else first
        half = (stop - start) // 2
        sort_first(rows, values, half)
        todo += [(start, start + half), (start + half, stop)]
    return bins


@pytest.mark.slow
@pytest.mark.parametrize("a", [1.0, 0.1])
@pytest.mark.parametrize(("share", "beta"), [(0.0, "uniform"), (0.25, "first")])
def test_panels_are_the_published_ones(a, share, beta):
    model = Model(2, a, share, beta)
    samples = zip(*authors_data.draw(seeded(1234), model, 10_000), strict=True)
    estimates = [ece(probs, labels, bins_of(probs, MIN_BIN_SIZE)) for probs, labels in samples]
    panel = published()["ece_median_variance", a, beta, 2, share]
    assert np.mean(estimates) == pytest.approx(panel.mean, rel=1e-13)
    np.testing.assert_array_equal(np.histogram(estimates, panel.edges)[0], panel.counts)
