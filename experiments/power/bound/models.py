"""Predictions, and laws of their targets that are wrong in known ways."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax.distributions import Bernoulli, Categorical, Gamma, Mixture, NegativeBinomial, Normal

CALIBRATED = "calibrated"
_LOG_SCALE = 0.5  # standard deviation of log scales that differ
_SHAPE = 4.0  # of a gamma distribution, whose skewness is one
_MODES = 0.9, 0.19**0.5  # their distance from the mean, and the width of each

Law = Callable[[Any], Any]  # n predictions → the n distributions that targets are drawn from


class Model(NamedTuple):
    """Predictions of one kind, (key, n) → batch, and laws by name; the first is calibrated."""

    predictions: Callable[[jax.Array, int], Any]
    laws: dict[str, Law]


class Affine(NamedTuple):
    """The law of shift + sign · (a variable)."""

    distribution: Any
    shift: jax.Array
    sign: jax.Array

    def sample(self, key: jax.Array) -> jax.Array:
        """One draw."""
        return self.shift + self.sign * self.distribution.sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log density."""
        return self.distribution.log_prob(self.sign * (y - self.shift))


def _wrong(
    shift: Callable[[Any], Any] = lambda p: 0.0, factor: Callable[[Any], Any] = lambda p: 1.0
) -> Law:
    """Errors of the mean, in standard deviations, and factors of these."""
    return lambda p: Normal(p.loc + shift(p) * p.scale, factor(p) * p.scale)


def _constant(value: float) -> Callable[[Any], Any]:
    return lambda _: value


def _local(value: float) -> Callable[[Any], Any]:
    return lambda p: value * ((p.loc > 0.4) & (p.loc < 0.5))


def _log_scale(p: Normal) -> jax.Array:
    return jnp.log(p.scale / 0.1) / _LOG_SCALE


def _bimodal(p: Normal) -> Mixture:
    center, width = _MODES
    modes = p.loc[:, None] + center * p.scale[:, None] * jnp.array([-1.0, 1.0])
    return Mixture(None, Normal(modes, width * p.scale[:, None] * jnp.ones(2)))


def _skewed(sign: float) -> Law:
    def law(p: Normal) -> Affine:
        rate = _SHAPE**0.5 / p.scale
        shift = p.loc - sign * _SHAPE / rate
        return Affine(Gamma(jnp.full_like(rate, _SHAPE), rate), shift, jnp.full_like(rate, sign))

    return law


_NORMALS = {
    CALIBRATED: _wrong(),
    "shift +0.3": _wrong(_constant(0.3)),
    "shift -0.3": _wrong(_constant(-0.3)),
    "sd x 1.4": _wrong(factor=_constant(1.4)),
    "sd x 0.7": _wrong(factor=_constant(0.7)),
}
_ONE_SCALE = {
    "local +2": _wrong(_local(2.0)),
    "local -2": _wrong(_local(-2.0)),
    "oscillating": _wrong(lambda p: 0.8 * jnp.sin(8 * jnp.pi * p.loc)),
    "bimodal": _bimodal,
    "skewed +": _skewed(1.0),
    "skewed -": _skewed(-1.0),
}
_MANY_SCALES = {
    "sd ∝ scale^1.7": _wrong(factor=lambda p: jnp.exp(0.35 * _log_scale(p))),
    "sd ∝ scale^0.3": _wrong(factor=lambda p: jnp.exp(-0.35 * _log_scale(p))),
}


def _binary(truth: Callable[[jax.Array], jax.Array]) -> Law:
    return lambda p: Bernoulli(jnp.clip(truth(p.probs), 0, 1))


def _of_logits(truth: Callable[[jax.Array], jax.Array]) -> Law:
    return _binary(lambda p: jax.nn.sigmoid(truth(jnp.log(p) - jnp.log1p(-p))))


def _local_probability(value: float) -> Law:
    return _binary(lambda p: p + value * ((p > 0.6) & (p < 0.8)))


_BINARY = {
    CALIBRATED: _binary(lambda p: p),
    "T = 1.25": _of_logits(lambda x: x / 1.25),
    "T = 0.8": _of_logits(lambda x: x / 0.8),
    "logit +0.3": _of_logits(lambda x: x + 0.3),
    "logit -0.3": _of_logits(lambda x: x - 0.3),
    "local +0.15": _local_probability(0.15),
    "local -0.15": _local_probability(-0.15),
    "wave": _binary(lambda p: p + 0.1 * jnp.sin(6 * jnp.pi * p)),
}


def _classes(truth: Callable[[jax.Array], jax.Array]) -> Law:
    """From weights that are proportional to the true probabilities."""

    def law(p: Categorical) -> Categorical:
        weights = truth(jnp.maximum(p.probs, 1e-30))
        return Categorical(weights / jnp.sum(weights, 1, keepdims=True))

    return law


def _exchanged(p: jax.Array) -> jax.Array:
    swapped = p[:, jnp.arange(p.shape[1]).at[1:3].set(jnp.array([2, 1]))]
    return 0.4 * p + 0.6 * swapped


def _first_class(factor: float) -> Law:
    return _classes(lambda p: p.at[:, 0].multiply(factor))


def classes_model(num_classes: int, factors: tuple[float, ...] = (0.4, 1.6)) -> Model:
    """Class predictions Dirichlet(1/2), with the first class more or less likely by factors."""
    concentration = jnp.full(num_classes, 0.5)
    laws = {
        CALIBRATED: _classes(lambda p: p),
        "T = 1.25": _classes(lambda p: p ** (1 / 1.25)),
        "T = 0.8": _classes(lambda p: p ** (1 / 0.8)),
        **{f"first class x {factor:g}": _first_class(factor) for factor in factors},
        "15 % noise": _classes(lambda p: 0.85 * p + 0.15 / p.shape[1]),
        "exchanged": _classes(_exchanged),
    }
    return Model(lambda key, n: Categorical(jax.random.dirichlet(key, concentration, (n,))), laws)


def _counts(factor: Callable[[jax.Array], Any] = lambda r: 1.0, concentration: float = 4.0) -> Law:
    return lambda p: NegativeBinomial(factor(p.rate) * p.rate, jnp.full_like(p.rate, concentration))


def _local_rate(value: float) -> Callable[[jax.Array], Any]:
    return lambda r: jnp.where((r > 4) & (r < 6), value, 1)


_COUNTS = {
    CALIBRATED: _counts(),
    "rate x 1.25": _counts(lambda r: 1.25),
    "rate / 1.25": _counts(lambda r: 1 / 1.25),
    "concentration 2": _counts(concentration=2.0),
    "concentration 16": _counts(concentration=16.0),
    "local x 2": _counts(_local_rate(2.0)),
    "local / 2": _counts(_local_rate(0.5)),
    "oscillating": _counts(lambda r: jnp.exp(0.4 * jnp.sin(4 * jnp.log(r)))),
}


def _count_predictions(key: jax.Array, n: int) -> NegativeBinomial:
    rate = 4 * jnp.exp(0.7 * jax.random.normal(key, (n,)))
    return NegativeBinomial(rate, jnp.full(n, 4.0))


def _normals(key: jax.Array, n: int, log_scale: float = 0.0) -> Normal:
    keys = jax.random.split(key)
    scale = 0.1 * jnp.exp(log_scale * jax.random.normal(keys[1], (n,)))
    return Normal(jax.random.uniform(keys[0], (n,)), scale)


MODELS = {
    "normals": Model(_normals, _NORMALS | _ONE_SCALE),
    "heteroscedastic": Model(lambda key, n: _normals(key, n, _LOG_SCALE), _NORMALS | _MANY_SCALES),
    "binary": Model(
        lambda key, n: Bernoulli(jax.nn.sigmoid(1.5 * jax.random.normal(key, (n,)))), _BINARY
    ),
    "classes_5": classes_model(5),
    "classes_10": classes_model(10),
    "counts": Model(_count_predictions, _COUNTS),
}
