"""The parts of an evaluation: mean errors, ranges, tasks, temperatures, impossible outcomes."""

import types

import jax
import numpy as np
import pytest
import scipy.stats

from calibjax import distributions
from calibjax.evaluation.data import checked_data, measured, ranges, shown_classes, task_of
from calibjax.evaluation.errors import Column, _entry, proper_scores, temperature

KEY = jax.random.key(0)


def test_what_does_not_exist():
    def refuse():
        raise ValueError("x: expected more")

    entry = measured("error", refuse, "f(x)")
    assert np.isnan(entry.value)
    assert (entry.call, entry.note) == ("f(x)", "does not exist: x: expected more")


def _row(pvalue, residuals, members, expected=0.0, **more):
    """The row of an error of -0.5, one of two."""
    of_all = np.full(len(residuals), expected)
    column = Column(0, "error", "targets", of_all, lambda entry, errors: None, **more)
    data = types.SimpleNamespace(mean_of=lambda values, weights: f"jnp.mean({values})")
    return _entry(data, column, [[-0.5], [pvalue], [0.2]], residuals[:, None], members, 2)


def test_mean_error_against_a_z_test():
    random = np.random.default_rng(1)
    residuals, members = random.normal(size=40), np.arange(40) % 2
    residuals -= residuals[members == 1].mean() + 0.5
    error = residuals[members == 1].std(ddof=1) / np.sqrt(20)
    observed = 2 * 2 * scipy.stats.norm.sf(0.5 / error)  # two-sided, of two errors
    entry = _row(0.001, residuals, members, expected=3.0)
    assert (entry.value, entry.expected, entry.difference) == (2.5, 3.0, -0.5)
    assert entry.high - entry.low == pytest.approx(2 * 1.96 * error)
    assert entry.call == "jnp.mean(targets)"
    assert entry.by_chance == pytest.approx((2.8, 3.2))
    assert entry.pvalue == pytest.approx(max(0.001, observed))
    assert _row(0.9, residuals, members).pvalue == 0.9
    share = _row(0.9, residuals, members, expected=0.6, is_share=True)
    assert 0 <= share.low < share.value == pytest.approx(0.1)


def test_mean_error_of_residuals_without_scatter():
    for residuals, members in (
        (np.full(9, -0.5), np.ones(9)),
        (np.full(9, np.float32(-0.1)) - 0.4, np.ones(9)),  # up to rounding
        (np.arange(9.0) - 3.5, np.arange(9) == 3),
    ):
        entry = _row(0.01, residuals, members * 1.0)
        assert entry.pvalue == 0.01
        assert entry.low is entry.high is None


def test_tasks_of_other_families():
    floats, integers, ones = np.zeros(3), np.zeros(3, int), np.ones(3)
    several = distributions.Categorical(np.full((3, 2, 4), 0.25))
    two, drawn = distributions.Categorical(np.full((3, 2), 0.5)), distributions.Normal(floats, ones)
    assert task_of(two, integers) == "binary"
    assert task_of(distributions.Mixture(None, several), integers) == "classification"
    assert task_of(distributions.NegativeBinomial(ones, ones), integers) == "counts"
    assert task_of(distributions.monte_carlo(KEY, drawn, 2), floats) == "regression"


def test_classes_that_are_shown():
    probs = np.random.default_rng(0).dirichlet(np.linspace(0.1, 2, 30), 100)
    expected = np.sort(np.argsort(-probs.mean(0))[:20])
    np.testing.assert_array_equal(shown_classes(probs), expected)
    assert shown_classes(np.full((3, 2), 0.5)) == [1]


def test_ranges_hold_together():
    """Correlated, skewed values, B = 199; the standard error is 0.4 %."""
    random = np.random.default_rng(0)
    held, alone = [], []
    for _ in range(3000):
        values = np.exp(random.normal(size=(200, 3)) @ [[1, 0.5, 0.2], [0, 1, 0.5], [0, 0, 1]])
        found = ranges(dict(zip("abc", values[1:].T)))
        held.append(all(found[k][0] <= x <= found[k][1] for k, x in zip("abc", values[0])))
        (low, high) = ranges({"a": values[1:, 0]})["a"]
        alone.append(low <= values[0, 0] <= high)
    assert 0.94 < np.mean(held) < 0.975
    assert 0.94 < np.mean(alone) < 0.96
    assert ranges({"a": np.arange(999)})["a"] == (24, 974)  # the 25th from both ends


def test_predictions_that_no_temperature_changes():
    half, certain = np.full(12, 0.5), np.arange(12) % 2 * 1.0
    some, labels = np.where(np.arange(12) % 3 == 0, 0.2, 0.8), np.arange(12) % 4 > 0
    idle = [distributions.Bernoulli(half), distributions.Bernoulli(certain)]
    idle += [distributions.CategoricalLogits(np.full((12, 3), 3.3))]
    idle += [distributions.Categorical(np.full((12, 3), 1 / 3))]
    idle += [distributions.Bernoulli(np.where(certain == 1, half, certain))]
    for predictions, is_idle in [
        *((x, True) for x in idle),
        (distributions.Bernoulli(some), False),
    ]:
        for is_double in (False, True):
            with jax.enable_x64(is_double):
                data = checked_data(KEY, predictions, labels.astype(int), *[None] * 3)
                [section] = temperature(data).sections
            assert ("No temperature changes these predictions" in section.remark) == is_idle
            assert (not section.entries) == is_idle


@pytest.mark.parametrize("binary", [True, False])
def test_impossible_outcomes_are_counted(binary):
    one, labels = np.where(np.arange(40) < 3, 0.0, 0.5), np.ones(40, int)
    rows = np.stack([1 - one, np.zeros(40), one], 1)
    predictions = distributions.Bernoulli(one) if binary else distributions.Categorical(rows)
    data = checked_data(KEY, predictions, labels + (not binary), None, None, None)
    [text] = proper_scores(data).warnings
    assert text == "3 of 40 samples had a predicted probability of 0 for what happened"
