"""Predictions made with numpyro, which is imported only when `from_numpyro` is called."""

import dataclasses
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from calibjax._core import checks, environment
from calibjax._core.pytree import PyTree
from calibjax.distributions.categorical import Bernoulli, Categorical
from calibjax.distributions.logistic import Logistic
from calibjax.distributions.mixture import Mixture
from calibjax.distributions.negative_binomial import NegativeBinomial
from calibjax.distributions.normal import DiagNormal, Normal
from calibjax.interoperability.families import FAMILIES


def from_numpyro(distribution: Any) -> PyTree:
    """Turns a batch of numpyro distributions into predictions.

    Normal, Laplace, Logistic, MultivariateNormal, Categorical, Bernoulli, Poisson, Beta, Dirichlet,
    StudentT, LogNormal, Gamma, Uniform, NegativeBinomial2, `Normal(...).to_event(1)` (→
    `DiagNormal`) and `MixtureSameFamily` of these become the records of this package, with
    expectations in closed form where they exist. So do the same distributions under other names:
    Exponential and Chi2 (→ `Gamma`), GammaPoisson, the other negative binomial ones and Geometric
    (→ `NegativeBinomial`), BetaProportion (→ `Beta`), Cauchy (→ `StudentT`) and
    LowRankMultivariateNormal (→ `MvNormal`). Expanded ones become what they are expansions of. For
    other distributions, draws of theirs are `distributions.Ensemble`.

    Args:
        distribution: a numpyro distribution with batch shape (n,).

    Returns:
        A batch of n predictions.

    Raises:
        ImportError: if numpyro is not installed (`pip install 'calibjax[numpyro]'`).
        TypeError: if it is not a numpyro distribution, or of another family.
        ValueError: if its batch shape is not (n,).

    >>> import jax.numpy as jnp, numpyro.distributions
    >>> from calibjax.interoperability import from_numpyro
    >>> p = from_numpyro(numpyro.distributions.Normal(jnp.array([0.0, 1.0]), 2.0))
    >>> print(type(p).__name__, p.scale)
    Normal [2. 2.]
    """
    use = "from_numpyro reads distributions of numpyro"
    numpyro = environment.imported("numpyro.distributions", use, "numpyro")
    if not isinstance(distribution, numpyro.Distribution):
        raise TypeError(
            f"distribution: expected a numpyro distribution, got {checks.described(distribution)}"
        )
    if len(distribution.batch_shape) != 1:
        raise ValueError(
            "distribution: expected batch shape (n,), one distribution for each target, "
            f"got {distribution.batch_shape}"
        )
    return _convert(distribution)


def _convert(distribution: Any) -> PyTree:
    """The record of a numpyro distribution of any batch shape."""
    import numpyro.distributions as numpyro

    kind = type(distribution)
    batch = distribution.batch_shape
    if kind is numpyro.ExpandedDistribution:
        base = distribution.base_dist
        axes = len(base.batch_shape)
        return jax.tree.map(lambda x: _full(x, batch, x.ndim - axes), _convert(base))
    if kind is numpyro.MixtureSameFamily:
        weights = distribution.mixing_distribution.probs
        components = _convert(distribution.component_distribution)
        return Mixture(jnp.broadcast_to(weights, (*batch, weights.shape[-1])), components)
    if kind is numpyro.Independent and distribution.reinterpreted_batch_ndims == 1:
        base = _convert(distribution.base_dist)
        is_normal = isinstance(base, Normal)
        return DiagNormal(base.loc, base.scale) if is_normal else _refuse(distribution)
    counts = ("GammaPoisson", *(f"NegativeBinomial{x}" for x in ("Probs", "Logits", "2")))
    families = {
        **{getattr(numpyro, name): family for name, family in FAMILIES.items()},
        numpyro.CategoricalProbs: (Categorical, ("probs",)),
        numpyro.BernoulliProbs: (Bernoulli, ("probs",)),
        numpyro.BetaProportion: FAMILIES["Beta"],
        **{getattr(numpyro, x): (NegativeBinomial, ("mean", "concentration")) for x in counts},
        numpyro.GeometricProbs: (NegativeBinomial, ("mean", 1.0)),
        numpyro.GeometricLogits: (NegativeBinomial, ("mean", 1.0)),
        numpyro.Logistic: (Logistic, ("loc", "scale")),
    }
    if kind is numpyro.BernoulliLogits:
        return Bernoulli.of_log_odds(_full(distribution.logits, batch, 0))
    if kind is numpyro.CategoricalLogits:
        logits = _full(distribution.logits, batch, 1)
        return Categorical(jax.nn.softmax(logits), log_probs=jax.nn.log_softmax(logits))
    if kind not in families:
        _refuse(distribution)
    record, parameters = families[kind]
    constraints = [field.metadata.get("constraint") for field in dataclasses.fields(record)]
    axes = [constraint.axes for constraint in constraints if constraint is not None]
    values = [x if isinstance(x, float) else getattr(distribution, x) for x in parameters]
    return record(*(_full(v, batch, len(k)) for v, k in zip(values, axes, strict=True)))


def _full(value: object, batch: tuple[int, ...], event_dim: int) -> jax.Array:
    """A parameter with all batch axes."""
    value = jnp.asarray(value)
    return jnp.broadcast_to(value, batch + value.shape[value.ndim - event_dim :])


def _refuse(distribution: Any) -> NoReturn:
    raise TypeError(
        "distribution: expected a numpyro distribution of a family of calibjax.distributions, got "
        f"{type(distribution).__name__}; for others draw from it, and hand over "
        "distributions.Ensemble"
    )
