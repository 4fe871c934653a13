"""Predictions, and targets that are wrong in known ways: samplers and likelihood ratios."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln, log_ndtr
from jax.scipy.stats import norm

from calibjax.distributions import (
    Bernoulli,
    Categorical,
    NegativeBinomial,
    Normal,
    Poisson,
    Samples,
)

CALIBRATED = "calibrated"
MEMBERS = 11  # of an ensemble
_SKEWNESS_SHAPE = 4.0  # of a gamma distribution, whose skewness is one
_BIMODAL = 0.9, 0.19  # distance of the modes from the mean, and variance of each


class Law(NamedTuple):
    """How targets are drawn from given predictions, and their log likelihood ratio.

    Attributes:
        sample: (key, predictions) → targets [n].
        log_ratio: (predictions, targets) → log of their density over the predicted one, a scalar.
    """

    sample: Callable[[jax.Array, Any], jax.Array]
    log_ratio: Callable[[Any, jax.Array], jax.Array]


class Model(NamedTuple):
    """Predictions of one kind, and how their targets may be wrong.

    Attributes:
        predictions: (key, n) → a batch of n predictions.
        laws: by name of the alternative; the first is that of calibrated predictions.
        about: what they are, in words.
    """

    predictions: Callable[[jax.Array, int], Any]
    laws: dict[str, Law]
    about: str


def _scores_law(error: Any, log_density: Any) -> Law:
    """A law of the error z in units of the predicted deviation, given location and log scale."""

    def sample(key: jax.Array, p: Normal) -> jax.Array:
        keys = jax.random.split(key)
        e = jax.random.normal(keys[0], p.loc.shape)
        return p.loc + p.scale * error(e, p.loc, _relative_scale(p), keys[1])

    def log_ratio(p: Normal, y: jax.Array) -> jax.Array:
        z = (y - p.loc) / p.scale
        return jnp.sum(log_density(z, p.loc, _relative_scale(p)) - norm.logpdf(z))

    return Law(sample, log_ratio)


def _relative_scale(p: Normal) -> jax.Array:
    return jnp.log(p.scale / 0.1) / _LOG_SCALE


def _linear(shift: Any, log_scale: Any = lambda m, s: 0.0) -> Law:
    """z = shift(m, s) + exp(log_scale(m, s)) e."""

    def error(e: jax.Array, m: jax.Array, s: jax.Array, _: jax.Array) -> jax.Array:
        return shift(m, s) + jnp.exp(log_scale(m, s)) * e

    return _scores_law(
        error, lambda z, m, s: norm.logpdf(z, shift(m, s), jnp.exp(log_scale(m, s)))
    )


def _bimodal(e: jax.Array, m: jax.Array, s: jax.Array, key: jax.Array) -> jax.Array:
    center, variance = _BIMODAL
    return center * jax.random.rademacher(key, e.shape, e.dtype) + jnp.sqrt(variance) * e


def _bimodal_density(z: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
    center, width = _BIMODAL[0], _BIMODAL[1] ** 0.5
    both = norm.logpdf(z, center, width), norm.logpdf(z, -center, width)
    return jnp.logaddexp(*both) - jnp.log(2)


def _skewed(sign: int) -> Law:
    """A gamma variable in units of its standard deviation, minus its mean; or its mirror image."""
    k, root = _SKEWNESS_SHAPE, _SKEWNESS_SHAPE**0.5

    def error(e: jax.Array, m: jax.Array, s: jax.Array, key: jax.Array) -> jax.Array:
        return sign * (jax.random.gamma(key, k, e.shape) - k) / root

    def density(z: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
        g = k + root * sign * z
        inside = jnp.where(g > 0, g, 1)
        value = (k - 1) * jnp.log(inside) - inside - gammaln(k) + jnp.log(root)
        return jnp.where(g > 0, value, -jnp.inf)

    return _scores_law(error, density)


_LOG_SCALE = 0.5  # standard deviation of log scales that differ
_NONE = lambda m, s: 0.0  # noqa: E731
_COMMON = {
    CALIBRATED: _linear(_NONE),
    "shift +0.3": _linear(lambda m, s: 0.3),
    "shift −0.3": _linear(lambda m, s: -0.3),
    "sd × 1.4": _linear(_NONE, lambda m, s: jnp.log(1.4)),
    "sd × 0.7": _linear(_NONE, lambda m, s: jnp.log(0.7)),
}
_NORMALS = _COMMON | {
    "local +2": _linear(lambda m, s: 2.0 * ((m > 0.4) & (m < 0.5))),
    "local −2": _linear(lambda m, s: -2.0 * ((m > 0.4) & (m < 0.5))),
    "oscillating": _linear(lambda m, s: 0.8 * jnp.sin(8 * jnp.pi * m)),
    "bimodal": _scores_law(_bimodal, _bimodal_density),
    "skewed +": _skewed(1),
    "skewed −": _skewed(-1),
}
_HETEROSCEDASTIC = _COMMON | {
    "sd ∝ scale^1.7": _linear(_NONE, lambda m, s: 0.35 * s),
    "sd ∝ scale^0.3": _linear(_NONE, lambda m, s: -0.35 * s),
}


def _class_law(truth: Callable[[jax.Array], jax.Array]) -> Law:
    """Labels with the true probabilities [n, m]."""

    def log_truth(p: Any) -> jax.Array:
        return jnp.log(jnp.maximum(truth(p.class_probs), 1e-30))

    def sample(key: jax.Array, p: Any) -> jax.Array:
        return jax.random.categorical(key, log_truth(p))

    def log_ratio(p: Any, y: jax.Array) -> jax.Array:
        ratio = log_truth(p) - jnp.log(jnp.maximum(p.class_probs, 1e-30))
        return jnp.sum(jnp.take_along_axis(ratio, y[:, None], 1))

    return Law(sample, log_ratio)


def _tempered(temperature: float) -> Law:
    return _class_law(
        lambda p: jax.nn.softmax(jnp.log(jnp.maximum(p, 1e-30)) / temperature)
    )


def _binary(truth: Callable[[jax.Array], jax.Array]) -> Law:
    """From the true probability of label 1."""

    def both(probs: jax.Array) -> jax.Array:
        p = jnp.clip(truth(probs[:, 1]), 0, 1)
        return jnp.stack([1 - p, p], 1)

    return _class_law(both)


def _shifted(by: float) -> Law:
    return _binary(lambda p: jax.nn.sigmoid(jnp.log(p) - jnp.log1p(-p) + by))


def _first_times(factor: float) -> Law:
    def truth(p: jax.Array) -> jax.Array:
        changed = p.at[:, 0].multiply(factor)
        return changed / jnp.sum(changed, 1, keepdims=True)

    return _class_law(truth)


def _exchanged(p: jax.Array) -> jax.Array:
    swapped = p[:, jnp.arange(p.shape[1]).at[1:3].set(jnp.array([2, 1]))]
    return 0.4 * p + 0.6 * swapped


_TEMPERED = {
    CALIBRATED: _class_law(lambda p: p),
    "T = 1.25": _tempered(1.25),
    "T = 0.8": _tempered(0.8),
}
_BINARY = _TEMPERED | {
    "logit +0.3": _shifted(0.3),
    "logit −0.3": _shifted(-0.3),
    "local +0.15": _binary(lambda p: p + 0.15 * ((p > 0.6) & (p < 0.8))),
    "local −0.15": _binary(lambda p: p - 0.15 * ((p > 0.6) & (p < 0.8))),
    "wave": _binary(lambda p: p + 0.1 * jnp.sin(6 * jnp.pi * p)),
}
_CLASSES = _TEMPERED | {
    "first class × 0.4": _first_times(0.4),
    "first class × 1.6": _first_times(1.6),
    "15 % noise": _class_law(lambda p: 0.85 * p + 0.15 / p.shape[1]),
    "exchanged": _class_law(_exchanged),
}


def _count_law(rate: Callable[[jax.Array], jax.Array]) -> Law:
    """Poisson counts of another rate."""
    return Law(
        lambda key, p: jax.vmap(lambda k, r: Poisson(r).sample(k))(
            jax.random.split(key, p.rate.size), rate(p.rate)
        ),
        lambda p, y: jnp.sum(y * jnp.log(rate(p.rate) / p.rate) - rate(p.rate) + p.rate),
    )


def _dispersed(key: jax.Array, p: Poisson) -> jax.Array:
    keys = jax.random.split(key, p.rate.size)
    return jax.vmap(lambda k, r: NegativeBinomial(r, 2 * r).sample(k))(keys, p.rate)


def _dispersed_ratio(p: Poisson, y: jax.Array) -> jax.Array:
    return jnp.sum(NegativeBinomial(p.rate, 2 * p.rate).log_prob(y) - p.log_prob(y))


def _trials(p: Poisson) -> tuple[jax.Array, jax.Array]:
    number = jnp.ceil(2.5 * p.rate)
    return number, p.rate / number


def _binomial(key: jax.Array, p: Poisson) -> jax.Array:
    return jax.random.binomial(key, *_trials(p)).astype(int)


def _binomial_ratio(p: Poisson, y: jax.Array) -> jax.Array:
    n, success = _trials(p)
    rest = jnp.maximum(n - y, 0)
    choices = gammaln(n + 1) - gammaln(rest + 1) - gammaln(y + 1.0)
    density = choices + y * jnp.log(success) + rest * jnp.log1p(-success)
    return jnp.sum(jnp.where(y <= n, density - p.log_prob(y), -jnp.inf))


_COUNTS = {
    CALIBRATED: _count_law(lambda r: r),
    "rate × 1.15": _count_law(lambda r: 1.15 * r),
    "rate / 1.15": _count_law(lambda r: r / 1.15),
    "variance × 1.5": Law(_dispersed, _dispersed_ratio),
    "variance × 0.6": Law(_binomial, _binomial_ratio),
    "local × 1.5": _count_law(lambda r: r * jnp.where((r > 4) & (r < 6), 1.5, 1)),
    "local / 1.5": _count_law(lambda r: r / jnp.where((r > 4) & (r < 6), 1.5, 1)),
    "oscillating": _count_law(lambda r: r * jnp.exp(0.3 * jnp.sin(4 * jnp.log(r)))),
}


def _posterior(p: Samples) -> tuple[jax.Array, float]:
    """Mean and variance of the center c of an ensemble, whose prior is standard normal."""
    return jnp.sum(p.values, 1) / (MEMBERS + 1), 1 / (MEMBERS + 1)


def _ensemble_law(shift: float, deviation: float = 1.0) -> Law:
    mean_density = lambda p, y, s, d: norm.logpdf(  # noqa: E731
        y, _posterior(p)[0] + s, jnp.sqrt(_posterior(p)[1] + d**2)
    )

    def sample(key: jax.Array, p: Samples) -> jax.Array:
        center, variance = _posterior(p)
        spread = jnp.sqrt(variance + deviation**2)
        return center + shift + spread * jax.random.normal(key, center.shape)

    def log_ratio(p: Samples, y: jax.Array) -> jax.Array:
        return jnp.sum(mean_density(p, y, shift, deviation) - mean_density(p, y, 0.0, 1.0))

    return Law(sample, log_ratio)


def _changing(key: jax.Array, p: Samples) -> jax.Array:
    keys = jax.random.split(key)
    center, variance = _posterior(p)
    c = center + jnp.sqrt(variance) * jax.random.normal(keys[0], center.shape)
    return c + jnp.where(c > 0, 0.5, -0.5) + jax.random.normal(keys[1], c.shape)


def _changing_ratio(p: Samples, y: jax.Array) -> jax.Array:
    """The center is above or below zero, of both with its probability given the target."""
    center, v = _posterior(p)
    total, parts = jnp.sqrt(1 + v), []
    for sign in (1, -1):
        rest = y - sign * 0.5 - center
        mean, deviation = center + v / (1 + v) * rest, jnp.sqrt(v / (1 + v))
        parts.append(norm.logpdf(rest, 0, total) + log_ndtr(sign * mean / deviation))
    return jnp.sum(jnp.logaddexp(*parts) - norm.logpdf(y - center, 0, total))


_ENSEMBLES = {
    CALIBRATED: _ensemble_law(0.0),
    "shift +0.5": _ensemble_law(0.5),
    "shift −0.5": _ensemble_law(-0.5),
    "sd × 1.5": _ensemble_law(0.0, 1.5),
    "sd × 0.67": _ensemble_law(0.0, 0.67),
    "sign-changing": Law(_changing, _changing_ratio),
}


def _normals(key: jax.Array, n: int) -> Normal:
    return Normal(jax.random.uniform(key, (n,)), jnp.full(n, 0.1))


def _of_many_scales(key: jax.Array, n: int) -> Normal:
    keys = jax.random.split(key)
    scale = 0.1 * jnp.exp(_LOG_SCALE * jax.random.normal(keys[1], (n,)))
    return Normal(jax.random.uniform(keys[0], (n,)), scale)


def _dirichlet(num_classes: int) -> Callable[[jax.Array, int], Categorical]:
    return lambda key, n: Categorical(
        jax.random.dirichlet(key, jnp.full(num_classes, 0.5), (n,))
    )


def _ensembles(key: jax.Array, n: int) -> Samples:
    keys = jax.random.split(key)
    center = jax.random.normal(keys[0], (n, 1))
    return Samples(center + jax.random.normal(keys[1], (n, MEMBERS)))


MODELS = {
    "normals": Model(_normals, _NORMALS, ""),
    "heteroscedastic": Model(_of_many_scales, _HETEROSCEDASTIC, ""),
    "binary": Model(
        lambda key, n: Bernoulli(jax.nn.sigmoid(1.5 * jax.random.normal(key, (n,)))), _BINARY, ""
    ),
    "classes_5": Model(_dirichlet(5), _CLASSES, ""),
    "classes_10": Model(_dirichlet(10), _CLASSES, ""),
    "counts": Model(
        lambda key, n: Poisson(4 * jnp.exp(0.7 * jax.random.normal(key, (n,)))), _COUNTS, ""
    ),
    "ensembles": Model(_ensembles, _ENSEMBLES, ""),
}
