"""Predictions made with numpyro, which is imported only when `from_numpyro` is called."""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks, extras
from calibjax._core.pytree import PyTree, record
from calibjax.distributions.base import Batch
from calibjax.distributions.categorical import Bernoulli, Categorical
from calibjax.distributions.mixture import Mixture
from calibjax.distributions.negative_binomial import NegativeBinomial
from calibjax.distributions.normal import DiagNormal, Normal
from calibjax.interoperability.families import FAMILIES


@record
class NumpyroDistribution(Batch):
    """A numpyro distribution without a counterpart here, made by `from_numpyro`.

    Its expectations are estimated by `distributions.monte_carlo`.

    Attributes:
        parameters: name → array, with a leading axis n for a batch.
        family: class of the distribution, called with the parameters.
    """

    parameters: dict[str, jax.Array]
    family: type = dataclasses.field(metadata={"static": True})

    def build(self) -> PyTree:
        """The numpyro distribution."""
        return self.family(**self.parameters, validate_args=False)

    def sample(self, key: jax.Array) -> jax.Array:
        """Draws one value."""
        return self.build().sample(key)

    def log_prob(self, y: jax.Array) -> jax.Array:
        """Log-density (or log-probability) at y."""
        return self.build().log_prob(y)

    def mean(self) -> jax.Array:
        """Expectation."""
        return self.build().mean

    def variance(self) -> jax.Array:
        """Variance."""
        return self.build().variance

    def cdf(self, y: jax.Array) -> jax.Array:
        """Probability of values up to y, where numpyro has it."""
        return self.build().cdf(y)

    def icdf(self, level: jax.Array) -> jax.Array:
        """Value y with cdf(y) = level, where numpyro has it."""
        return self.build().icdf(level)

    def check_structure(self, name: str) -> None:
        """Refuses parameters that are not arrays, or do not form a batch [n]."""
        for key, value in self.parameters.items():
            checks.floating(f"{name}.{key}", value)
        expected = (checks.leading_size(name, self.parameters),)
        shapes = {f"{name}.{key}": jnp.shape(value) for key, value in self.parameters.items()}
        try:
            found = self.build().batch_shape
        except ValueError as error:
            raise ValueError(f"{name}: expected shapes that fit, got {shapes}: {error}") from None
        if found != expected:
            raise ValueError(
                f"{name}: expected a batch of shape {expected}, got {found} from {shapes}"
            )

    def check_values(self, name: str) -> "NumpyroDistribution":
        """Refuses parameters that are not finite, or that numpyro refuses."""
        checked = {k: checks.finite(f"{name}.{k}", v) for k, v in self.parameters.items()}
        if checks.is_concrete(checked):
            try:
                self.family(**checked, validate_args=True)
            except ValueError as error:
                expected = f"parameters of a numpyro {self.family.__name__}"
                raise ValueError(f"{name}: expected {expected}, got: {error}") from None
            return self
        for key, constraint in self.family.arg_constraints.items():
            if key in checked:
                is_valid = jnp.asarray(constraint(checked[key]))
                axes = tuple(range(is_valid.ndim, checked[key].ndim))
                is_valid = jnp.expand_dims(is_valid, axes)
                checked[key] = checks.nan_unless(is_valid, checked[key])
        return dataclasses.replace(self, parameters=checked)

    def check_targets(self, name: str, targets: jax.Array) -> jax.Array:
        """Refuses targets of the wrong dtype or shape, or outside the support."""
        distribution = self.build()
        if distribution.support.is_discrete:
            targets = checks.integer(name, targets, "targets")
        else:
            targets = checks.floating(name, targets)
        shape = distribution.batch_shape + distribution.event_shape
        checks.shape(name, targets, shape, f"{shape}, as draws of the predictions")
        is_inside = distribution.support(targets)
        if checks.is_concrete(is_inside):
            checks.refuse_where(~np.asarray(is_inside), name, "values in the support", targets)
            return targets
        is_inside = jnp.expand_dims(is_inside, tuple(range(is_inside.ndim, targets.ndim)))
        if distribution.support.is_discrete:
            return checks.satisfying_integers(name, targets, lambda _: is_inside, "")
        return checks.nan_unless(is_inside, targets)


def from_numpyro(distribution: Any) -> PyTree:
    """Turns a batch of numpyro distributions into predictions.

    Normal, Laplace, MultivariateNormal, Categorical, Bernoulli, Poisson, Beta, Dirichlet, StudentT,
    LogNormal, Gamma, Uniform, NegativeBinomial2, `Normal(...).to_event(1)` (→ `DiagNormal`) and
    `MixtureSameFamily` of these become the records of this package, with expectations in closed
    form where they exist. So do the same distributions under other names: Exponential and Chi2
    (→ `Gamma`), GammaPoisson, the other negative binomial ones and Geometric (→
    `NegativeBinomial`), BetaProportion (→ `Beta`), Cauchy (→ `StudentT`) and
    LowRankMultivariateNormal (→ `MvNormal`). Other distributions that are determined by their
    parameters become a `NumpyroDistribution`, to be passed to `monte_carlo`. Expanded ones become
    what they are expansions of.

    Args:
        distribution: a numpyro distribution with batch shape (n,).

    Returns:
        A batch of n predictions.

    Raises:
        ImportError: if numpyro is not installed (`pip install 'calibjax[numpyro]'`).
        TypeError: if it is not a numpyro distribution, or is a wrapped or transformed one.
        ValueError: if its batch shape is not (n,).

    >>> import jax.numpy as jnp, numpyro.distributions
    >>> from calibjax.interoperability import from_numpyro
    >>> p = from_numpyro(numpyro.distributions.Normal(jnp.array([0.0, 1.0]), 2.0))
    >>> print(type(p).__name__, p.scale)
    Normal [2. 2.]
    """
    use = "from_numpyro reads distributions of numpyro"
    numpyro = extras.imported("numpyro.distributions", use, "numpyro")
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
        return DiagNormal(base.loc, base.scale) if is_normal else _wrap(distribution)
    counts = ("GammaPoisson", *(f"NegativeBinomial{x}" for x in ("Probs", "Logits", "2")))
    families = {
        **{getattr(numpyro, name): family for name, family in FAMILIES.items()},
        numpyro.CategoricalProbs: (Categorical, ("probs",)),
        numpyro.BernoulliProbs: (Bernoulli, ("probs",)),
        numpyro.BetaProportion: FAMILIES["Beta"],
        **{getattr(numpyro, x): (NegativeBinomial, ("mean", "concentration")) for x in counts},
        numpyro.GeometricProbs: (NegativeBinomial, ("mean", 1.0)),
        numpyro.GeometricLogits: (NegativeBinomial, ("mean", 1.0)),
    }
    if kind is numpyro.BernoulliLogits:
        return Bernoulli.of_log_odds(_full(distribution.logits, batch, 0))
    if kind is numpyro.CategoricalLogits:
        logits = _full(distribution.logits, batch, 1)
        return Categorical(jax.nn.softmax(logits), log_probs=jax.nn.log_softmax(logits))
    if kind not in families:
        return _wrap(distribution)
    record, parameters = families[kind]
    constraints = [field.metadata.get("constraint") for field in dataclasses.fields(record)]
    axes = [constraint.axes for constraint in constraints if constraint is not None]
    values = [x if isinstance(x, float) else getattr(distribution, x) for x in parameters]
    return record(*(_full(v, batch, len(k)) for v, k in zip(values, axes, strict=True)))


def _full(value: object, batch: tuple[int, ...], event_dim: int) -> jax.Array:
    """A parameter with all batch axes."""
    value = jnp.asarray(value)
    return jnp.broadcast_to(value, batch + value.shape[value.ndim - event_dim :])


def _wrap(distribution: Any) -> NumpyroDistribution:
    """Parameters of any distribution that can be rebuilt from them."""
    kind, batch = type(distribution), distribution.batch_shape
    names = [k for k in inspect.signature(kind).parameters if k in kind.arg_constraints]
    wrapped = None
    try:
        values = {k: getattr(distribution, k) for k in names}
        parameters = {
            k: _full(v, batch, kind.arg_constraints[k].event_dim) for k, v in values.items()
        }
        wrapped = NumpyroDistribution(parameters, kind)
        built = wrapped.build()
        is_same = (built.batch_shape, built.event_shape) == (batch, distribution.event_shape)
        is_same &= set(inspect.signature(kind).parameters) <= {*names, "validate_args"}
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        is_same = False
    if wrapped is None or not is_same:
        raise TypeError(
            "distribution: expected a numpyro distribution that is determined by its parameters, "
            f"got {kind.__name__}; write a record with a method sample(key) for it, as "
            "calibjax.distributions shows"
        )
    return wrapped
