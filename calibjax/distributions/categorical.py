"""Distributions of class labels 0, 1, ..., m − 1."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import _checks
from calibjax._pytree import record


@record
class Categorical:
    """Distribution of a class label 0, ..., m − 1.

    Attributes:
        probs: class probabilities, [m], or [n, m] for a batch; logits go into `CategoricalLogits`.

    >>> import jax.numpy as jnp
    >>> p = Categorical(probs=jnp.array([0.2, 0.3, 0.5]))
    >>> print(p.cdf(1), p.quantile(0.6))
    0.5 2
    """

    parameter_axes: ClassVar = {"probs": 1}

    probs: jax.Array

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        return self.probs

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one label, by inversion of the distribution function."""
        level = jax.random.uniform(key, jnp.shape(self.probs)[:-1], jnp.result_type(self.probs))
        return self.quantile(level * jnp.sum(self.probs, -1))

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

    def quantile(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level."""
        num_classes = jnp.shape(self.probs)[-1]
        below = jnp.cumsum(self.probs, -1) < jnp.asarray(level)[..., None]
        label = jnp.sum(below, -1)
        # Rounding of the sums may lead past the last, or to a first class of probability zero.
        possible = self.probs > 0
        last = num_classes - 1 - jnp.argmax(possible[..., ::-1], -1)
        return jnp.clip(label, jnp.argmax(possible, -1), last)

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose probabilities are no floating-point array [n, m], m ≥ 2."""
        _check_classes(f"{name}.probs", self.probs)

    def check_values(self, name: str) -> "Categorical":
        """Refuses rows off the probability simplex."""
        return _checks.replaced(self, probs=_checks.simplex(f"{name}.probs", self.probs))

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not integer labels 0, ..., m − 1, [n]."""
        return _check_labels(name, targets, "probs", self.probs)


@record
class CategoricalLogits:
    """Distribution of a class label 0, ..., m − 1, given by unnormalised log-probabilities.

    The `Categorical` with the probabilities softmax(logits), for estimators and tests the same.
    What takes logarithms of probabilities is exact where those underflow:
    `scores.negative_log_likelihood` and `recalibration.temperature_scaling` of networks.

    Attributes:
        logits: finite numbers, up to a constant the log-probabilities, [m], or [n, m] for a batch.

    >>> import jax.numpy as jnp
    >>> p = CategoricalLogits(logits=jnp.array([0.0, 500.0]))
    >>> print(p.class_probs, p.log_prob(0))
    [0. 1.] -500.0
    """

    parameter_axes: ClassVar = {"logits": 1}

    logits: jax.Array

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        return jax.nn.softmax(jnp.asarray(self.logits), -1)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one label, that of the `Categorical`."""
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

    def quantile(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level."""
        return Categorical(self.class_probs).quantile(level)

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose logits are no floating-point array [n, m], m ≥ 2."""
        _check_classes(f"{name}.logits", self.logits)

    def check_values(self, name: str) -> "CategoricalLogits":
        """Refuses logits that are not finite."""
        return _checks.replaced(self, logits=_checks.finite(f"{name}.logits", self.logits))

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not integer labels 0, ..., m − 1, [n]."""
        return _check_labels(name, targets, "logits", self.logits)


def _at_label(values: jax.Array, y: jax.Array) -> jax.Array:
    """The entry of label y of the last axis, NaN for labels out of range."""
    index = jnp.where(jnp.asarray(y) < 0, jnp.shape(values)[-1], y)[..., None]
    return jnp.take_along_axis(values, index, -1, mode="fill")[..., 0]


def _check_classes(name: str, values: jax.Array) -> None:
    """Refuses everything but a floating-point array [n, m], m ≥ 2."""
    _checks.floating(name, values)
    _checks.shape(name, values, (None, None), "[n, m]")
    if jnp.shape(values)[1] < 2:
        raise ValueError(f"{name}: expected at least two classes, got shape {jnp.shape(values)}")


def _check_labels(name: str, targets: jax.Array, parameter: str, values: jax.Array) -> jax.Array:
    """Refuses targets that are not integer labels 0, ..., m − 1, [n], with the parameter [n, m]."""
    targets = _checks.integer(name, targets)
    described = f"[n], as the predictions' {parameter}"
    _checks.shape(name, targets, jnp.shape(values)[:1], described)
    return _checks.labels(name, targets, jnp.shape(values)[1])


@record
class Bernoulli:
    """Distribution of a label 0 or 1.

    Estimators and tests give exactly the numbers of the two-class `Categorical`; only
    `estimators.uniform_bins` treats probabilities on the edge of a bin differently. `np.asarray`
    and JAX functions turn it into the array of probabilities, so that confidences can be handed
    to them.

    Attributes:
        probs: probability of label 1; scalar, or [n] for a batch.

    >>> import jax.numpy as jnp
    >>> p = Bernoulli(probs=jnp.array(0.25))
    >>> print(p.class_probs, jnp.sqrt(p))
    [0.75 0.25] 0.5
    """

    parameter_axes: ClassVar = {"probs": 0}

    probs: jax.Array

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

    def quantile(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level."""
        return Categorical(self.class_probs).quantile(level)

    def check_structure(self, name: str) -> None:
        """Refuses a batch whose probabilities are no floating-point array [n]."""
        _checks.floating(f"{name}.probs", self.probs)
        _checks.shape(f"{name}.probs", self.probs, (None,), "[n]")

    def check_values(self, name: str) -> "Bernoulli":
        """Refuses probabilities outside [0, 1]."""
        return _checks.replaced(self, probs=_checks.unit_interval(f"{name}.probs", self.probs))

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets that are not labels 0 or 1, [n]."""
        targets = _checks.integer(name, targets)
        _checks.shape(name, targets, jnp.shape(self.probs), "[n], as the predictions' probs")
        return _checks.labels(name, targets, 2)
