"""Probabilities that float32 makes 0 or 1, of arrays and files, against sums with 400 digits."""

import dataclasses
import decimal
from decimal import Decimal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import command_line, distributions, recalibration, scores

# Rows of two classes; 1 − 1e-17 is 1 in float64, and its complement is known of both columns only.
TWO = np.array(
    [
        [1 - 1e-12, 1e-12],
        [1e-12, 1 - 1e-12],
        [1.0, 1e-40],
        [1e-17, 1.0],
        [1e-300, 1.0],
        [0.7, 0.3],
        [0.0, 1.0],
        [1.0, 0.0],
    ]
)
LABELS = np.array([1, 0, 1, 0, 0, 1, 1, 0])  # none of which has probability 0 in both columns
ONE = TWO[:, 1]
ONE_LABELS = np.array([1, 0, 1, 1, 1, 1, 1, 0])
TEN = np.tile(np.array([1e-40, 1e-300, 1e-12, 1e-17, 0.0, 0.1, 0.2, 0.3, 0.05, 0.35]), (8, 1))
TEN_LABELS = np.array([0, 1, 2, 3, 9, 5, 6, 7])
TEMPERATURE = 7.0


def _file(tmp_path, names, values, labels):
    """What the program reads from a text with all digits."""
    rows = [[*map(repr, map(float, row)), str(y)] for row, y in zip(values, labels, strict=True)]
    path = tmp_path / "predictions.csv"
    path.write_text("\n".join(",".join(row) for row in [[*names, "label"], *rows]))
    data = command_line.load([str(path)])
    return data.predictions, data.targets


def _mixture(components):
    """Two equal components."""
    return distributions.Mixture(None, jax.tree.map(lambda x: np.stack([x, x], 1), components))


PATHS = {
    "file, one column": lambda path: _file(path, ["prob"], ONE[:, None], ONE_LABELS),
    "file, two columns": lambda path: _file(path, ["prob_0", "prob_1"], TWO, LABELS),
    "Bernoulli": lambda _: (distributions.Bernoulli(ONE), ONE_LABELS),
    "Categorical": lambda _: (distributions.Categorical(TWO), LABELS),
    "ten classes": lambda _: (distributions.Categorical(TEN), TEN_LABELS),
    "mixture of Bernoullis": lambda _: (_mixture(distributions.Bernoulli(ONE)), ONE_LABELS),
    "mixture": lambda _: (_mixture(distributions.Categorical(TWO)), LABELS),
}


def _exact(name):
    """Probabilities and labels of a path, exactly."""
    if "ten" in name:
        return [[Decimal(p) for p in map(float, row)] for row in TEN], TEN_LABELS
    if name in ("file, one column", "Bernoulli", "mixture of Bernoullis"):
        return [[1 - Decimal(p), Decimal(p)] for p in map(float, ONE)], ONE_LABELS
    return [[Decimal(p) for p in map(float, row)] for row in TWO], LABELS


def _scores(probs, labels, temperature=1.0):
    """Log scores of the samples, and the mean Brier score."""
    power = 1 / Decimal(temperature)
    powers = [[p**power if p > 0 else Decimal(0) for p in row] for row in probs]
    probs = [[p / sum(row) for p in row] for row in powers]
    logs = [float(-row[y].ln()) for row, y in zip(probs, labels, strict=True)]
    brier = [
        sum((p - (y == c)) ** 2 for c, p in enumerate(row))
        for row, y in zip(probs, labels, strict=True)
    ]
    return np.array(logs), float(sum(brier) / len(brier))


@pytest.mark.parametrize("name", PATHS)
def test_log_scores(name, tmp_path):
    with jax.enable_x64(False), decimal.localcontext(prec=400):
        predictions, targets = PATHS[name](tmp_path)
        probs, labels = _exact(name)
        np.testing.assert_array_equal(targets, labels)
        expected, _ = _scores(probs, labels)
        found = scores.negative_log_likelihood(predictions, targets)
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected.mean(), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATHS)
def test_scores_at_a_temperature(name, tmp_path):
    with jax.enable_x64(False), decimal.localcontext(prec=400):
        predictions, targets = PATHS[name](tmp_path)
        probs, labels = _exact(name)
        _, brier = _scores(probs, labels)
        found = scores.brier_score(predictions, targets)
        np.testing.assert_allclose(found, brier, rtol=1e-6, atol=1e-7)
        scaled = recalibration.TemperatureScaling().apply(TEMPERATURE, predictions)
        assert type(scaled) is type(predictions)
        logs, brier = _scores(probs, labels, TEMPERATURE)
        found = scores.negative_log_likelihood(scaled, targets, reduction="none")
        np.testing.assert_allclose(found, logs, rtol=1e-5, atol=1e-7)
        found = scores.brier_score(scaled, targets)
        np.testing.assert_allclose(found, brier, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("family", [distributions.Bernoulli, distributions.Categorical])
def test_probabilities_that_were_replaced_alone(family):
    """Logarithms that do not belong to the probabilities are not used."""
    is_binary = family is distributions.Bernoulli
    with jax.enable_x64(False):
        batch = distributions.with_features(family(ONE if is_binary else TWO), ONE).distribution
        clipped = jnp.clip(batch.probs, 0.01, 0.99)
        replaced = dataclasses.replace(batch, probs=clipped)
        expected = scores.negative_log_likelihood(family(clipped), LABELS)
        np.testing.assert_allclose(
            scores.negative_log_likelihood(replaced, LABELS), expected, rtol=1e-6
        )


@pytest.mark.slow
def test_derivatives_are_finite():
    """Of the interval of the temperature, whose second derivatives passed through 1 / p²."""
    random = np.random.default_rng(0)
    log_odds = 80 * random.normal(size=40)
    targets = (log_odds / 40 + random.logistic(size=40) > 0).astype(int)
    small = np.exp(-np.logaddexp(0, [log_odds, -log_odds])).T
    logits = np.stack([0 * log_odds, log_odds], 1)
    with jax.enable_x64(False):
        found = recalibration.temperature_interval(distributions.Categorical(small), targets)
        by_logits = distributions.CategoricalLogits(logits)
        expected = recalibration.temperature_interval(by_logits, targets)
    np.testing.assert_allclose(
        [found.low, found.estimate, found.high],
        [expected.low, expected.estimate, expected.high],
        rtol=1e-4,
    )


def test_impossible_outcomes_are_infinite():
    with jax.enable_x64(False):
        for predictions, label in (
            (distributions.Bernoulli(ONE), 0),
            (distributions.Categorical(TWO), 0),
            (distributions.Categorical(TEN), 4),
        ):
            assert scores.negative_log_likelihood(predictions, np.full(8, label)) == np.inf
