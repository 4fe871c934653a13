"""Distributions of class labels 0, 1, ..., m − 1, of class probabilities, and of counts."""

import contextlib
import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import i0e, i1e, ndtri
from jax.typing import DTypeLike

from calibjax._core import checks, special
from calibjax._core.pytree import PyTree, parameter, record
from calibjax._core.special import gamma_tails, incomplete_beta, log_poisson_density
from calibjax.distributions import constraints
from calibjax.distributions.base import Distribution, DrawnByInversion
from calibjax.distributions.constraints import Constraint, interval, labels, positive, simplex


class _OfClasses(DrawnByInversion):
    """Family of labels 0, ..., m − 1 with probabilities `class_probs`."""

    @property
    def support(self) -> Constraint:
        """Labels 0, ..., m − 1."""
        return labels(jnp.shape(jax.tree.leaves(self)[0])[-1])

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        raise NotImplementedError

    def sample_at(self, level: jax.Array) -> jax.Array:
        """Label for a uniform number in [0, 1)."""
        return self.icdf(level * jnp.sum(self.class_probs, -1))

    def mean(self) -> jax.Array:
        """Expectation of the one-hot encoded label, [m]: the probabilities."""
        return self.class_probs

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of labels up to y."""
        probs = self.class_probs
        upto = jnp.arange(jnp.shape(probs)[-1]) <= jnp.asarray(y)[..., None]
        return jnp.sum(jnp.where(upto, probs, 0), -1)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest label y of positive probability with cdf(y) ≥ level.

        Negative or NaN probabilities, and NaN levels, give the smallest integer.
        """
        probs = self.class_probs
        below = jnp.cumsum(probs, -1) < jnp.asarray(level)[..., None]
        label = jnp.sum(below, -1)
        # Rounding errors of the sums may select a class past the last, or a first class of
        # probability zero.
        possible = probs > 0
        last = jnp.shape(probs)[-1] - 1 - jnp.argmax(possible[..., ::-1], -1)
        label = jnp.clip(label, jnp.argmax(possible, -1), last)
        is_known = jnp.all(jnp.greater_equal(probs, 0), -1) & ~jnp.isnan(level)
        return checks.missing_unless(is_known, label)


@record
class Categorical(_OfClasses):
    """Distribution of a class label 0, ..., m − 1.

    Attributes:
        probs: class probabilities, [m], or [n, m] for a batch; for logits use `CategoricalLogits`.
        log_probs: logarithms of higher precision than `probs`, of the same shape, or None.
            Functions fill them in for float64 NumPy arrays that JAX casts to float32.

    >>> import jax.numpy as jnp
    >>> p = Categorical(probs=jnp.array([0.2, 0.3, 0.5]))
    >>> print(p.cdf(1), p.icdf(0.6))
    0.5 2
    """

    probs: jax.Array = parameter(
        simplex.with_axes(
            "m", min_size=2, advice="probabilities of label 1 are distributions.Bernoulli(probs)"
        )
    )
    log_probs: jax.Array | None = dataclasses.field(
        default=None, repr=False, kw_only=True, metadata={"axes": ("m",), "logs": np.log}
    )

    def _logs(self) -> jax.Array:
        """Logarithms of the probabilities, with finite derivatives; −inf for zeros."""
        probs = jnp.asarray(self.probs)
        is_zero = probs == 0
        if self.log_probs is None:
            return jnp.where(is_zero, -jnp.inf, jnp.log(jnp.where(is_zero, 1, probs)))
        agree = _agree(self.log_probs, probs)
        logs = jnp.log(jnp.where(agree | is_zero, 1, probs))
        return jnp.where(agree, self.log_probs, jnp.where(is_zero, -jnp.inf, logs))

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        return self.probs

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of label y: −inf for probability zero, NaN for labels out of range."""
        if self.log_probs is None:
            return jnp.log(_at_label(self.probs, y))
        return _at_label(self._logs(), y)

    def tempered(self, temperature: jax.Array) -> "Categorical":
        """Probabilities ∝ p^{1/T}; zeros stay zero."""
        logits = CategoricalLogits(self._logs()).tempered(temperature).logits
        log_probs = None if self.log_probs is None else jax.nn.log_softmax(logits, -1)
        return dataclasses.replace(self, probs=jax.nn.softmax(logits, -1), log_probs=log_probs)


def _checked_logits(name: str, logits: jax.Array) -> jax.Array:
    right = lambda x: (x < np.inf) & (x > -np.inf).any(-1, keepdims=True)  # noqa: E731
    expected = "logits below inf, and one above -inf in each row"
    logits = checks.satisfying(name, logits, right, expected)
    if checks.is_concrete(logits):
        with contextlib.suppress(ValueError):  # keeps them concrete under a trace
            checks.simplex(name, np.asarray(logits))
            warnings.warn(
                f"{name}: all rows are probabilities, which sum to one; pass them to "
                "distributions.Categorical(probs), or jnp.log(probs) here",
                stacklevel=2,
            )
    return logits


@record
class CategoricalLogits(_OfClasses):
    """Distribution of a class label 0, ..., m − 1, given by unnormalised log-probabilities.

    For estimators and tests it equals the `Categorical` with probabilities softmax(logits).
    Functions of log-probabilities stay accurate if probabilities underflow:
    `scores.negative_log_likelihood`, and `recalibration.TemperatureScaling` of networks.

    Attributes:
        logits: log-probabilities up to a constant, [m], or [n, m] for a batch; −∞ for classes of
            probability zero, such as options that a question does not have.

    >>> import jax.numpy as jnp
    >>> p = CategoricalLogits(logits=jnp.array([0.0, 500.0]))
    >>> print(p.class_probs, p.log_prob(0))
    [0. 1.] -500.0
    """

    logits: jax.Array = parameter(Constraint("logits below inf", _checked_logits, ("m",), 2))

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [m]."""
        return jax.nn.softmax(jnp.asarray(self.logits), -1)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of label y, NaN for labels out of range."""
        return _at_label(jax.nn.log_softmax(jnp.asarray(self.logits), -1), y)

    def tempered(self, temperature: jax.Array) -> "CategoricalLogits":
        """Logits divided by T, shifted so that the largest is zero."""
        logits = jnp.asarray(self.logits)
        # The shift cancels; without it low temperatures would give differences of infinities.
        shifted = logits - lax.stop_gradient(jnp.max(logits, -1, keepdims=True))
        is_possible = shifted > -jnp.inf
        moved = jnp.where(is_possible, shifted, 0) / _divisor(temperature)
        return dataclasses.replace(self, logits=jnp.where(is_possible, moved, -jnp.inf))


def _at_label(values: jax.Array, y: jax.Array) -> jax.Array:
    """Entry for label y on the last axis, NaN for labels out of range."""
    index = jnp.where(jnp.asarray(y) < 0, jnp.shape(values)[-1], y)[..., None]
    return jnp.take_along_axis(values, index, -1, mode="fill")[..., 0]


def _agree(log_probs: jax.Array, probs: jax.Array) -> jax.Array:
    """Whether these are logarithms of these probabilities, up to rounding.

    They are not if only the probabilities were replaced.
    """
    limits = jnp.finfo(probs.dtype)
    digits = 1 - jnp.maximum(log_probs, -1e3)
    rounding = 4 * limits.eps * digits * probs
    return jnp.abs(jnp.exp(log_probs) - probs) <= rounding + limits.tiny


def _divisor(temperature: jax.Array) -> jax.Array:
    """Temperature, bounded below where only the largest probabilities remain.

    Otherwise derivatives, with 1 / T², would be zero times infinity.
    """
    return jnp.maximum(temperature, 1e-4 * jnp.finfo(temperature.dtype).eps)


def _logs_of_both(probs: np.ndarray) -> np.ndarray:
    return np.stack([np.log1p(-probs), np.log(probs)], -1)


@record
class Bernoulli(_OfClasses):
    """Distribution of a label 0 or 1.

    Estimators and tests give the results of the two-class `Categorical`; only
    `estimators.UniformBins` treats probabilities on the edge of a bin differently. `np.asarray` and
    JAX functions convert it to the array of probabilities, for use as confidences.

    Attributes:
        probs: probability of label 1; scalar, or [n] for a batch.
        log_probs: logarithms of the probabilities of both classes, [2] or [n, 2], or None; see
            `Categorical`.

    >>> import jax.numpy as jnp
    >>> p = Bernoulli(probs=jnp.array(0.25))
    >>> print(p.class_probs, jnp.sqrt(p))
    [0.75 0.25] 0.5
    """

    @property
    def support(self) -> Constraint:
        """Labels 0 and 1."""
        return labels(2)

    @classmethod
    def of_log_odds(cls, log_odds: jax.Array) -> "Bernoulli":
        """Distribution with these log-odds of label 1; logarithms do not underflow."""
        logs = jnp.stack([jax.nn.log_sigmoid(-log_odds), jax.nn.log_sigmoid(log_odds)], -1)
        return cls(jax.nn.sigmoid(log_odds), log_probs=logs)

    probs: jax.Array = parameter(
        Constraint(
            "probabilities in [0, 1]",
            checks.unit_interval,
            advice="probabilities of both classes are distributions.Categorical(probs)",
        )
    )
    log_probs: jax.Array | None = dataclasses.field(
        default=None, repr=False, kw_only=True, metadata={"axes": ("m",), "logs": _logs_of_both}
    )

    def __jax_array__(self) -> jax.Array:
        return jnp.asarray(self.probs)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.probs, dtype) if copy else np.asarray(self.probs, dtype)

    @property
    def class_probs(self) -> jax.Array:
        """Probability of each class, [2]."""
        probs = jnp.asarray(self.probs)
        return jnp.stack([1 - probs, probs], -1)

    def _with_both(self) -> Categorical:
        """Two-class `Categorical`, with the logarithms of both probabilities if known."""
        if self.log_probs is None:
            return Categorical(self.class_probs)
        probs = jnp.asarray(self.probs)
        agree = _agree(jnp.asarray(self.log_probs)[..., 1], probs)[..., None]
        rounded = jnp.where(agree[..., 0], 0.5, probs)  # derivatives are finite
        logs = jnp.stack([jnp.log1p(-rounded), jnp.log(rounded)], -1)
        logs = jnp.where(agree, self.log_probs, logs)
        return Categorical(jnp.exp(logs), log_probs=logs)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of label y: −inf for probability zero, NaN for labels out of range."""
        if self.log_probs is not None:
            return self._with_both().log_prob(y)
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

    def tempered(self, temperature: jax.Array) -> "Bernoulli":
        """Probabilities ∝ p^{1/T}; zeros stay zero."""
        both = self._with_both().tempered(temperature)
        return dataclasses.replace(self, probs=both.probs[..., 1], log_probs=both.log_probs)


@record
class Dirichlet(Distribution):
    """Dirichlet distribution on the simplex, density ∝ Π_k y_k^(concentration_k − 1).

    As for `Beta`, the targets are points of the closed simplex. Expectations of target kernels have
    no closed form; use `distributions.monte_carlo`.

    Attributes:
        concentration: positive, [d], or [n, d] for a batch; d ≥ 2.

    >>> import jax.numpy as jnp
    >>> p = Dirichlet(concentration=jnp.array([1.0, 1.0, 2.0]))
    >>> print(p.mean())
    [0.25 0.25 0.5 ]
    """

    support = simplex

    concentration: jax.Array = parameter(positive.with_axes("d", min_size=2))

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one point [d], from logarithms of gamma variables, which do not underflow."""
        dtype = jnp.result_type(self.concentration)
        return jax.random.dirichlet(key, self.concentration, dtype=dtype)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density at y, [d]; the limit if a coordinate is zero, NaN without a limit."""
        return special.log_dirichlet_density(jnp.asarray(self.concentration), y)

    def mean(self) -> jax.Array:
        """Expectation, [d]."""
        return self.concentration / jnp.sum(self.concentration, -1, keepdims=True)

    def variance(self) -> jax.Array:
        """Variance of each coordinate, [d]."""
        concentration = jnp.asarray(self.concentration)
        total = jnp.sum(concentration, -1, keepdims=True)
        return (concentration / total) * (1 - concentration / total) / (1 + total)

    def tempered(self, temperature: jax.Array) -> "Dirichlet":
        """The Dirichlet distribution with density ∝ p^{1/T} with respect to dy / Π_k y_k."""
        return dataclasses.replace(self, concentration=self.concentration / temperature)


# Above these rates, counts come close to the largest integers that the dtype resolves.
_LARGEST_RATE = {4: 1e6, 8: 1e9}


def _checked_rate(name: str, rate: Any) -> PyTree:
    """Refuse rates that are not positive, or too large for exact counts."""
    rate = checks.positive(name, rate)
    limit = _LARGEST_RATE[rate.dtype.itemsize]
    expected = f"rates up to {limit:g} in {rate.dtype}"
    return checks.satisfying(name, rate, lambda x: x <= limit, expected)


class _Counts(Distribution):
    """Family of counts; `_tails(y)` gives the probabilities up to y and above y."""

    support = constraints.nonnegative_integer
    _tails: Any

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of counts up to y."""
        return self._tails(y)[0]


@record
class Poisson(_Counts):
    """Poisson distribution of a count 0, 1, 2, ...

    For rates from 1e-3 to 1e6, relative errors of log-probabilities and absolute errors of the
    distribution function are below 1e-13 in float64 (float32: 3e-6 and 1e-5).

    Attributes:
        rate: expected count, positive; scalar, or [n] for a batch.

    >>> import jax.numpy as jnp
    >>> p = Poisson(rate=jnp.array(2.5))
    >>> print(f"{p.cdf(2):.4f} {p.icdf(0.6)}")
    0.5438 3
    """

    rate: jax.Array = parameter(Constraint("rates", _checked_rate))

    def _as_float(self, y: jax.Array) -> jax.Array:
        return jnp.asarray(y, jnp.result_type(self.rate))

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one count, by inversion of the distribution function.

        `jax.random.poisson` computes in float32, which is inaccurate for large rates.
        """
        dtype = jnp.result_type(self.rate)
        level = jax.random.uniform(key, jnp.shape(self.rate), dtype)
        return self.icdf(level + 0.5 * jnp.finfo(dtype).eps)  # never zero

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of count y; −inf below zero."""
        value = self._as_float(y)
        density = log_poisson_density(jnp.maximum(value, 0), jnp.asarray(self.rate))
        return jnp.where(value < 0, -jnp.inf, density)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.rate

    def variance(self) -> jax.Array:
        """Variance."""
        return self.rate

    def _tails(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Probabilities of counts up to y and above y; the smaller one is exact."""
        value, rate = jnp.broadcast_arrays(jnp.floor(self._as_float(y)), self.rate)
        above, below = gamma_tails(jnp.maximum(value, 0), rate)
        return jnp.where(value < 0, 0, below), jnp.where(value < 0, 1, above)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest count y with cdf(y) ≥ level, an integer.

        Invalid rates and levels, and counts beyond the largest integer, give the smallest integer.

        By bisection between Chernoff's bounds, starting from the Cornish–Fisher approximation, in
        at most log₂(50 √rate + 30) steps.
        """
        level, rate = jnp.broadcast_arrays(self._as_float(level), self.rate)
        root = jnp.sqrt(rate)
        low = jnp.maximum(rate - 38 * root, 0).astype(int)
        high = (rate + 9 * root + 30).astype(int)
        z = jnp.clip(ndtri(level), -38, 9)
        guess = (rate + root * z + (jnp.square(z) - 1) / 6).astype(int)
        below = lambda y: gamma_tails(self._as_float(y), rate)[1]  # noqa: E731
        guesses = guess - 1, guess + 1
        count = special.smallest_integer(below, level, low, high, guesses=guesses)
        count = jnp.where(level > 0, count, 0)
        is_known = (rate >= jnp.finfo(rate.dtype).tiny) & (count < jnp.iinfo(count.dtype).max)
        return checks.missing_unless(is_known & ~jnp.isnan(level), count)

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of a count y; rate > 0.

        References: Wei and Held (2014), Calibration tests for count data, eq. (8).
        """
        y, rate = jnp.broadcast_arrays(self._as_float(y), self.rate)
        density = jnp.exp(log_poisson_density(y, rate))
        distance = (y - rate) * (2 * self.cdf(y) - 1) + 2 * rate * density
        return distance - rate * (i0e(2 * rate) + i1e(2 * rate))


_NUM_NODES, _DECAY = 512, 38.0  # e^(−38) is below the rounding of float64
_LARGEST_COUNT = 2 * 10**9  # in 32 bits


@record
class NegativeBinomial(_Counts):
    """Negative binomial distribution: counts with the variance mean + mean² / concentration.

    It is numpyro's `NegativeBinomial2`: a Poisson distribution whose rate is multiplied by a gamma
    variable of mean 1 and variance 1 / concentration.

    Attributes:
        mean_: expected count, the argument `mean`, from 1e-3 to 1e6; scalar, or [n] for a batch.
        concentration: k, not necessarily an integer, from 1e-2 to 1e6; shape of `mean`.

    >>> import jax.numpy as jnp
    >>> p = NegativeBinomial(mean=jnp.array(2.0), concentration=jnp.array(1.0))
    >>> print(f"{p.cdf(1):.4f} {p.icdf(0.5)}")  # 1 − (2/3)²
    0.5556 1
    """

    mean_: jax.Array = parameter(interval(1e-3, 1e6))
    concentration: jax.Array = parameter(interval(1e-2, 1e6))

    def __init__(self, mean: Any = None, concentration: Any = None, *, mean_: Any = None) -> None:
        """Take the mean; copies name the field `mean_`, because `mean` is a method."""
        object.__setattr__(self, "mean_", mean if mean_ is None else mean_)
        object.__setattr__(self, "concentration", concentration)
        self.__post_init__()

    @property
    def _success(self) -> jax.Array:
        return self.concentration / (self.mean_ + self.concentration)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one count."""
        gamma_key, key = jax.random.split(key)
        dtype = jnp.result_type(self.mean_, self.concentration)
        factor = jax.random.gamma(gamma_key, self.concentration, jnp.shape(self.mean_), dtype)
        rate = jnp.clip(self.mean_ * factor / self.concentration, jnp.finfo(dtype).tiny)
        return Poisson(jnp.minimum(rate, _LARGEST_COUNT)).sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-probability of count y; −inf below zero. Loader's form avoids cancellation."""
        k = jnp.asarray(self.concentration)
        count = jnp.asarray(jnp.maximum(y, 0)).astype(jnp.result_type(self.mean_))
        n = k + count
        density = log_poisson_density(k, n * self._success) - log_poisson_density(n, n)
        density += log_poisson_density(count, n * (self.mean_ / (self.mean_ + k)))
        return jnp.where(y < 0, -jnp.inf, density + jnp.log(k / n))

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.mean_

    def variance(self) -> jax.Array:
        """Variance."""
        return self.mean_ + jnp.square(self.mean_) / self.concentration

    def _tails(self, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Probabilities of counts up to y and above y; the smaller one is exact."""
        count = jnp.floor(jnp.maximum(y, 0)).astype(jnp.result_type(self.mean_))
        k, success, count = jnp.broadcast_arrays(self.concentration, self._success, count)
        # Near one, the probability of success has fewer digits than its complement.
        failure = self.mean_ / (self.mean_ + k)
        below, above = incomplete_beta(k, count + 1, success, failure)
        return jnp.where(y < 0, 0, below), jnp.where(y < 0, 1, above)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Smallest count y with cdf(y) ≥ level, an integer, by bisection.

        Invalid parameters and levels give the smallest integer.
        """
        level, _ = jnp.broadcast_arrays(jnp.asarray(level, jnp.result_type(self.mean_)), self.mean_)
        low = jnp.zeros(level.shape, jnp.int32)
        count = special.smallest_integer(self.cdf, level, low, low + _LARGEST_COUNT)
        is_known = (self.mean_ > 0) & (self.concentration > 0) & ~jnp.isnan(level)
        return checks.missing_unless(is_known, count.astype(int))

    def crps(self, y: jax.Array) -> jax.Array:
        """Continuous ranked probability score of a count y.

        A trapezoidal rule with 512 nodes, exact up to rounding, computes the mean distance of two
        counts, ½ E|Z − Z'| = ∫₀^π (1 − |φ(t)|²) / (1 − cos t) dt / (2π), from the characteristic
        function φ.

        References: Wei and Held (2014), Calibration tests for count data, §2.2.
        """
        k, mean = jnp.broadcast_arrays(self.concentration, self.mean_)
        y = jnp.asarray(y).astype(mean.dtype)
        density = jnp.exp(self.log_prob(y))
        distance = (y - mean) * (2 * self.cdf(y) - 1) + 2 * mean * (1 + y / k) * density
        return distance - _half_mean_distance(mean / k, k)


def _half_mean_distance(odds: jax.Array, k: jax.Array) -> jax.Array:
    """½ E|Z − Z'|, with |φ(t)|² = (1 + c² s²)^(−k) and the variable v in s² = 1 / (1 + e^(−2v))."""
    square = 4 * odds * (1 + odds)
    low, high = -jnp.log1p(jnp.sqrt(square * (1 + k))) - _DECAY, _DECAY
    step = (high - low) / (_NUM_NODES - 1)
    v = low[..., None] + step[..., None] * jnp.arange(_NUM_NODES, dtype=odds.dtype)
    losses = -jnp.expm1(-k[..., None] * jnp.log1p(square[..., None] * jax.nn.sigmoid(2 * v)))
    return step * jnp.sum(losses * jnp.exp(-v), -1) / (2 * jnp.pi)
