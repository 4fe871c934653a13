"""Distributions of class labels 0, 1, ..., m − 1."""

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax import _checks
from calibjax._pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import Constraint, labels, probability, real, simplex

_UNDERFLOW = -800.0  # smaller exponents, which give zero, are left out: derivatives would be 0 / 0


@record
class Categorical(Distribution):
    """Distribution of a class label 0, ..., m − 1.

    Attributes:
        probs: class probabilities, [m], or [n, m] for a batch; logits go into `CategoricalLogits`.

    >>> import jax.numpy as jnp
    >>> p = Categorical(probs=jnp.array([0.2, 0.3, 0.5]))
    >>> print(p.cdf(1), p.icdf(0.6))
    0.5 2
    """

    probs: jax.Array = parameter(simplex.with_axes("m", min_size=2))

    @property
    def support(self) -> Constraint:
        """The labels 0, ..., m − 1."""
        return labels(jnp.shape(self.probs)[-1])

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        return self.probs

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one label, by inversion of the distribution function."""
        level = jax.random.uniform(key, jnp.shape(self.probs)[:-1], jnp.result_type(self.probs))
        return self.icdf(level * jnp.sum(self.probs, -1))

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of label y: −inf where it is zero, NaN for labels out of range."""
        return jnp.log(_at_label(self.probs, y))

    def mean(self) -> jax.Array:
        """Expectation of the one-hot encoded label, [m]: the probabilities."""
        return self.probs

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of labels up to y."""
        upto = jnp.arange(jnp.shape(self.probs)[-1]) <= jnp.asarray(y)[..., None]
        return jnp.sum(jnp.where(upto, self.probs, 0), -1)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level.

        Wrong probabilities, NaN or negative, give the smallest integer.
        """
        num_classes = jnp.shape(self.probs)[-1]
        below = jnp.cumsum(self.probs, -1) < jnp.asarray(level)[..., None]
        label = jnp.sum(below, -1)
        # Rounding errors of the sums may lead past the last class, or to a first class with
        # probability zero.
        possible = self.probs > 0
        last = num_classes - 1 - jnp.argmax(possible[..., ::-1], -1)
        label = jnp.clip(label, jnp.argmax(possible, -1), last)
        return _checks.missing_unless(jnp.all(jnp.greater_equal(self.probs, 0), -1), label)

    def tempered(self, temperature: jax.Array) -> "Categorical":
        """Probabilities ∝ p^{1/T}; zeros stay zero."""
        probs = jnp.asarray(self.probs)
        is_possible = probs > 0
        logs = jnp.log(jnp.where(is_possible, probs, 1))
        # The largest exponent is zero, so that nothing overflows; the shift cancels.
        largest = jnp.max(jnp.where(is_possible, logs, -jnp.inf), -1, keepdims=True)
        logs = logs - lax.stop_gradient(largest)
        remains = is_possible & (logs > _UNDERFLOW * temperature)
        logs = jnp.where(remains, logs, 0) / _divisor(temperature)
        powers = jnp.where(remains, jnp.exp(logs), 0)
        return dataclasses.replace(self, probs=powers / jnp.sum(powers, -1, keepdims=True))


@record
class CategoricalLogits(Distribution):
    """Distribution of a class label 0, ..., m − 1, given by unnormalised log-probabilities.

    For estimators and tests it is the same as the `Categorical` with probabilities softmax(logits).
    Functions of log-probabilities stay exact where probabilities underflow:
    `scores.negative_log_likelihood`, and `recalibration.TemperatureScaling` of networks.

    Attributes:
        logits: log-probabilities up to a constant, finite, [m], or [n, m] for a batch.

    >>> import jax.numpy as jnp
    >>> p = CategoricalLogits(logits=jnp.array([0.0, 500.0]))
    >>> print(p.class_probs, p.log_prob(0))
    [0. 1.] -500.0
    """

    logits: jax.Array = parameter(real.with_axes("m", min_size=2))

    def check_values(self, name: str) -> "CategoricalLogits":
        """Refuses logits that are not finite, and warns where all rows are probabilities."""
        checked = super().check_values(name)
        if _checks.is_concrete(self.logits) and _checks.is_simplex(self.logits):
            warnings.warn(
                f"{name}.logits: all rows are probabilities, which sum to one; they belong into "
                "distributions.Categorical(probs), or jnp.log(probs) here",
                stacklevel=2,
            )
        return checked

    @property
    def support(self) -> Constraint:
        """The labels 0, ..., m − 1."""
        return labels(jnp.shape(self.logits)[-1])

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        return jax.nn.softmax(jnp.asarray(self.logits), -1)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one label, the same as the `Categorical` with this key."""
        return Categorical(self.class_probs).sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of label y, NaN for labels out of range."""
        return _at_label(jax.nn.log_softmax(jnp.asarray(self.logits), -1), y)

    def mean(self) -> jax.Array:
        """Expectation of the one-hot encoded label, [m]: the probabilities."""
        return self.class_probs

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of labels up to y."""
        return Categorical(self.class_probs).cdf(y)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level."""
        return Categorical(self.class_probs).icdf(level)

    def tempered(self, temperature: jax.Array) -> "CategoricalLogits":
        """Logits divided by T, shifted so that the largest is zero."""
        logits = jnp.asarray(self.logits)
        # Without the shift, which cancels, low temperatures would give differences of infinities.
        shifted = logits - lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
        return dataclasses.replace(self, logits=shifted / _divisor(temperature))


def _at_label(values: jax.Array, y: jax.Array) -> jax.Array:
    """The entry for label y on the last axis, NaN for labels out of range."""
    index = jnp.where(jnp.asarray(y) < 0, jnp.shape(values)[-1], y)[..., None]
    return jnp.take_along_axis(values, index, -1, mode="fill")[..., 0]


def _divisor(temperature: jax.Array) -> jax.Array:
    """The temperature, bounded from below where only the largest probabilities remain anyway.

    Below, the derivative, which contains 1 / T², would be zero times infinity.
    """
    return jnp.maximum(temperature, 1e-4 * jnp.finfo(temperature.dtype).eps)


@record
class Bernoulli(Distribution):
    """Distribution of a label 0 or 1.

    Estimators and tests give exactly the numbers of the two-class `Categorical`; only
    `estimators.UniformBins` treats probabilities on the edge of a bin differently. `np.asarray`
    and JAX functions turn it into the array of probabilities, so that it can be passed on as
    confidences.

    Attributes:
        probs: probability of label 1; scalar, or [n] for a batch.

    >>> import jax.numpy as jnp
    >>> p = Bernoulli(probs=jnp.array(0.25))
    >>> print(p.class_probs, jnp.sqrt(p))
    [0.75 0.25] 0.5
    """

    support = labels(2)

    probs: jax.Array = parameter(probability)

    def __jax_array__(self) -> jax.Array:
        return jnp.asarray(self.probs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.probs, dtype) if copy else np.asarray(self.probs, dtype)

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [2]."""
        probs = jnp.asarray(self.probs)
        return jnp.stack([1 - probs, probs], -1)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one label."""
        return Categorical(self.class_probs).sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of label y: −inf where it is zero, NaN for labels out of range."""
        is_one, is_zero = jnp.equal(y, 1), jnp.equal(y, 0)
        one = jnp.log(jnp.where(is_one, self.probs, 1))
        zero = jnp.log1p(-jnp.where(is_zero, self.probs, 0))
        return jnp.where(is_one | is_zero, one + zero, jnp.nan)

    def mean(self) -> jax.Array:
        """Expectation of the label: the probability of label 1."""
        return self.probs

    def variance(self) -> jax.Array:
        """Variance of the label."""
        return self.probs * (1 - self.probs)

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of labels up to y."""
        return Categorical(self.class_probs).cdf(y)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level."""
        return Categorical(self.class_probs).icdf(level)

    def tempered(self, temperature: jax.Array) -> "Bernoulli":
        """Probabilities ∝ p^{1/T}; zeros stay zero."""
        probs = jnp.asarray(self.probs)
        is_certain = (probs <= 0) | (probs >= 1)
        inside = jnp.where(is_certain, 0.5, probs)
        log_odds = jnp.log(inside) - jnp.log1p(-inside)
        remains = jnp.abs(log_odds) < -_UNDERFLOW * temperature
        power = jax.nn.sigmoid(jnp.where(remains, log_odds, 0) / _divisor(temperature))
        power = jnp.where(remains, power, jnp.where(log_odds > 0, 1, 0))
        return dataclasses.replace(self, probs=jnp.where(is_certain, probs, power))
