"""Predictions that are distributions of numpyro or torch."""

from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from calibjax._core import checks, environment
from calibjax._core.pytree import PyTree
from calibjax.distributions.classes import Bernoulli, Categorical, CategoricalLogits, Dirichlet
from calibjax.distributions.composed import Mixture
from calibjax.distributions.continuous import (
    Beta,
    Gamma,
    Laplace,
    Logistic,
    LogNormal,
    StudentT,
    Uniform,
)
from calibjax.distributions.counts import NegativeBinomial, Poisson
from calibjax.distributions.normal import DiagNormal, MvNormal, Normal

# Name of their class: our class, and its parameters, in our order: their name of it, or a number.
FAMILIES: dict[str, tuple[type, tuple[str | float, ...]]] = {
    "Normal": (Normal, ("loc", "scale")),
    "Laplace": (Laplace, ("loc", "scale")),
    "MultivariateNormal": (MvNormal, ("loc", "covariance_matrix")),
    "Poisson": (Poisson, ("rate",)),
    "Beta": (Beta, ("concentration1", "concentration0")),
    "Dirichlet": (Dirichlet, ("concentration",)),
    "StudentT": (StudentT, ("df", "loc", "scale")),
    "LogNormal": (LogNormal, ("loc", "scale")),
    "Gamma": (Gamma, ("concentration", "rate")),
    "Exponential": (Gamma, (1.0, "rate")),
    "Chi2": (Gamma, ("concentration", "rate")),
    "Cauchy": (StudentT, (1.0, "loc", "scale")),
    "LowRankMultivariateNormal": (MvNormal, ("loc", "covariance_matrix")),
    "Uniform": (Uniform, ("low", "high")),
}


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
        got = checks.described(distribution)
        raise TypeError(f"distribution: expected a numpyro distribution, got {got}")
    if len(distribution.batch_shape) != 1:
        got = distribution.batch_shape
        raise ValueError(f"distribution: expected batch shape (n,), got {got}")
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
        return DiagNormal(base.loc, base.scale) if is_normal else _refuse("distribution", kind)
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
        _refuse("distribution", kind)
    record, parameters = families[kind]
    axes = [constraint.axes for _, constraint, _ in checks.declared(record) if constraint]
    values = [x if isinstance(x, float) else getattr(distribution, x) for x in parameters]
    return record(*(_full(v, batch, len(k)) for v, k in zip(values, axes, strict=True)))


def _full(value: object, batch: tuple[int, ...], event_dim: int) -> jax.Array:
    """A parameter with all batch axes."""
    value = jnp.asarray(value)
    return jnp.broadcast_to(value, batch + value.shape[value.ndim - event_dim :])


def _refuse(name: str, kind: type) -> NoReturn:
    raise TypeError(
        f"{name}: expected one of a family of calibjax.distributions, got {kind.__name__}; hand "
        "over draws of others, in distributions.Ensemble"
    )


def from_torch(value: Any) -> PyTree:
    """Turns a tensor of torch into an array, or a batch of torch distributions into predictions.

    Memory is shared through DLPack, on CPUs and GPUs: nothing is copied as long as the tensor is
    compact (no slice with steps, nothing expanded), its memory begins at an address that XLA
    accepts, as that of whole tensors does, and its dtype needs no conversion. float64 and int64,
    the dtype of torch's labels, are converted, with the checks of every NumPy array, unless
    `jax_enable_x64` is set. Gradients do not flow from one library to the other.

    Do not write to a tensor, as optimizers and `tensor.add_(…)` do, while its array is in use:
    the array changes with it. `from_torch(tensor.clone())` is safe.

    Normal, Laplace, MultivariateNormal, Categorical, Bernoulli, Poisson, Beta, Dirichlet, StudentT,
    LogNormal, Gamma, Uniform, NegativeBinomial, `Independent(Normal(…), 1)` (→ `DiagNormal`) and
    `MixtureSameFamily` of these become the records of this package; a Categorical that was made of
    logits becomes a `CategoricalLogits`, Exponential and Chi2 become a `Gamma`, Cauchy a `StudentT`
    and LowRankMultivariateNormal a `MvNormal`.

    Args:
        value: a tensor of any shape, or a `torch.distributions.Distribution` with batch shape (n,).

    Returns:
        A JAX array with the tensor's shape and dtype, or a batch of n predictions.

    Raises:
        ImportError: if torch is not installed.
        TypeError: if it is neither, a distribution of another family, or a tensor that is sparse or
            on a device that JAX does not see.
        ValueError: if the batch shape is not (n,), or, without `jax_enable_x64`, an integer does
            not fit into 32 bits.

    Cost: O(1) where nothing is copied.

    >>> import torch  # doctest: +SKIP
    >>> from calibjax.interoperability import from_torch  # doctest: +SKIP
    >>> p = from_torch(torch.distributions.Normal(torch.zeros(2), 2.0))  # doctest: +SKIP
    >>> print(type(p).__name__, p.scale)  # doctest: +SKIP
    Normal [2. 2.]
    """
    torch = environment.imported("torch", "from_torch reads what torch made", "torch")
    if isinstance(value, torch.Tensor):
        return _array("value", value)
    if not isinstance(value, torch.distributions.Distribution):
        got = checks.described(value)
        raise TypeError(f"value: expected a tensor or a distribution of torch, got {got}")
    if len(value.batch_shape) != 1:
        raise ValueError(f"value: expected batch shape (n,), got {tuple(value.batch_shape)}")
    return _convert_from_torch(value, torch.distributions)


def _array(name: str, tensor: Any) -> jax.Array:
    """The numbers of a tensor, without a copy where that is possible."""
    tensor = tensor.detach()
    if tensor.element_size() == 8 and not checks.has_64_bits():
        return checks.as_arrays(name, tensor.cpu().numpy())  # which looks before it cuts
    try:
        # Torch's own views, for conjugates and negatives, and what has steps, are written out.
        return jnp.from_dlpack(tensor.resolve_conj().resolve_neg().contiguous())
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        got = f"{tensor.dtype} on {tensor.device}"
        raise TypeError(f"{name}: expected a dense tensor that JAX can read, got {got}") from error


def _convert_from_torch(distribution: Any, torch: Any) -> PyTree:
    """The record of a distribution of any batch shape, of the module `torch.distributions`."""
    kind = type(distribution)
    if kind is torch.MixtureSameFamily:
        weights = _array("value.mixture_distribution", distribution.mixture_distribution.probs)
        return Mixture(weights, _convert_from_torch(distribution.component_distribution, torch))
    is_vector = kind is torch.Independent and distribution.reinterpreted_batch_ndims == 1
    if is_vector and type(distribution.base_dist) is torch.Normal:
        base = _convert_from_torch(distribution.base_dist, torch)
        return DiagNormal(base.loc, base.scale)
    families = {
        **{getattr(torch, name): family for name, family in FAMILIES.items()},
        torch.Bernoulli: (Bernoulli, ("probs",)),
        torch.Categorical: (Categorical, ("probs",)),
        torch.NegativeBinomial: (NegativeBinomial, ("mean", "total_count")),
    }
    record, parameters = families.get(kind, (None, ()))
    if record is None:
        _refuse("value", kind)
    if record is Categorical and "probs" not in vars(distribution):  # it was made of logits
        record, parameters = CategoricalLogits, ("logits",)
    if record is Bernoulli and "probs" not in vars(distribution):
        return Bernoulli.of_log_odds(_array("value.logits", distribution.logits))
    values: dict[Any, Any] = {x: getattr(distribution, str(x), x) for x in parameters}
    if record in (Bernoulli, Categorical) and not checks.has_64_bits():
        doubles = [x.detach().cpu().numpy() for x in values.values() if x.element_size() == 8]
        if doubles:  # their logarithms are taken before they are cut
            axes = tuple(f"axis {i}" for i in range(len(distribution.batch_shape)))
            return checks.checked_batch("value", record(*doubles), axes, {})
    # Numbers, which a family has in place of a parameter, stay as they are.
    return record(*(x if x is k else _array(f"value.{k}", x) for k, x in values.items()))
