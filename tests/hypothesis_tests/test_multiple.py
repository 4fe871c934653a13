"""Holm's method."""

import numpy as np
import pytest

from calibjax.hypothesis_tests import holm


@pytest.mark.parametrize(
    ("pvalues", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # 1 · 0.04 is raised to 2 · 0.03
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
        ([0.5, 0.4, 0.01], [0.8, 0.8, 0.03]),
        ([0.6, 0.9, 1.0], [1.0, 1.0, 1.0]),
        ([0.3], [0.3]),
    ],
)
def test_adjusted_pvalues(pvalues, adjusted):
    pvalues = np.array(pvalues)
    before = pvalues.copy()
    np.testing.assert_allclose(holm(pvalues), adjusted, rtol=1e-12)
    np.testing.assert_array_equal(pvalues, before)


def rejected(pvalues, level):
    """Holm's method step by step: the smallest of k p-values left is compared with level / k."""
    left, found = list(range(len(pvalues))), set()
    while left:
        smallest = min(left, key=lambda i: pvalues[i])
        if pvalues[smallest] * len(left) > level:
            break
        left.remove(smallest)
        found.add(smallest)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_against_the_steps(seed):
    """A hypothesis is rejected at the levels from its adjusted p-value on."""
    rng = np.random.default_rng(seed)
    pvalues = (1 + rng.integers(0, 41, 30) * rng.integers(0, 26, 30)) / 1001  # with ties
    adjusted = holm(pvalues)
    np.testing.assert_array_equal(np.diff(adjusted[np.argsort(pvalues, kind="stable")]) >= 0, True)
    assert np.all((pvalues <= adjusted) & (adjusted <= 1))
    for level in (0.01, 0.05, 0.2, 0.5, 0.999, *adjusted[adjusted < 1]):
        assert rejected(pvalues, level) == set(np.flatnonzero(adjusted <= level))


def test_by_rows():
    pvalues = np.array([[0.01, 0.04, 0.03, 0.005], [0.6, 0.9, 1.0, 0.7]])
    np.testing.assert_allclose(holm(pvalues), [[0.03, 0.06, 0.06, 0.02], [1, 1, 1, 1]])


def test_refusals():
    for wrong in (0.1, [], [0.1, 1.1], [-0.1, 0.5], [0.1, np.nan]):
        with pytest.raises(ValueError, match="pvalues"):
            holm(wrong)
    with pytest.raises(TypeError, match="pvalues"):
        holm(["small"])
