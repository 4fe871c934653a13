"""Expectations of target kernels under predicted distributions, in one registry.

For a target kernel k and predictions p, q the calibration kernel needs

    m_p(z) = E_{Z~p} k(Z, z)                      `single_expectation`
    M_{p,q} = E_{Z~p, Z'~q} k(Z, Z')              `double_expectation`
    k(y, z) − m_p(z) − m_q(y) + M_{p,q}           `centered_kernel`

The last is the inner product of k(y, ·) − m_p and k(z, ·) − m_q in the Hilbert space of k. Target
kernels do not see the features of predictions that have any.

References: W21 §3.2, eq. (5), and App. D.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax.distributions.base import Distribution
from calibjax.distributions.composed import bare


class TargetKernel(Protocol):
    """What expectations ask of a target kernel: its values.

    A sum or a multiple of kernels has a method `combination()` besides, its factors and terms; a
    kernel whose values k(z, z) are the same for all z has them as attribute `diagonal`.
    """

    def __call__(self, x: Any, y: Any, /) -> jax.Array:
        """Value at two targets."""
        ...


class FeatureRule(NamedTuple):
    """Finitely many features with centered_kernel(k, p, y, q, z) = ⟨f(p, y), f(q, z)⟩.

    Attributes:
        prepare: (kernel, predictions, targets) → a pytree of what the features need, or None
            if this data set has no features that are both cheap and accurate to machine precision.
        evaluate: (kernel, prepared, p, y) → features of one sample, [r].
        few: number of features beyond which evaluating all pairs is cheaper than matrix products,
            unless the kernel on predictions has a matrix of low rank; by default there is none.
        batch: (kernel, prepared, predictions, targets) → features of targets [b, n, ...] of n
            predictions, [r, b, n], where that is faster than mapping `evaluate` over them.
    """

    prepare: Callable[..., Any]
    evaluate: Callable[..., jax.Array]
    few: float = math.inf
    batch: Callable[..., jax.Array] | None = None


class Rules(NamedTuple):
    """The rules for one pair (target kernel, distribution); see `register_expectations`."""

    single: Callable[..., jax.Array]
    double: Callable[..., jax.Array]
    centered: Callable[..., jax.Array] | None = None
    features: FeatureRule | None = None
    check: Callable[..., None] | None = None
    diagonal: Callable[..., jax.Array | float] | None = None


_REGISTRY: dict[tuple[type, type], Rules] = {}


def register_expectations(
    kernel_type: type,
    distribution_type: type,
    *,
    single: Callable[..., jax.Array],
    double: Callable[..., jax.Array],
    centered: Callable[..., jax.Array] | None = None,
    features: tuple[Any, ...] | None = None,
    check: Callable[..., None] | None = None,
    diagonal: Callable[..., jax.Array | float] | None = None,
) -> None:
    """Registers the expectations of a target kernel under a distribution.

    Args:
        kernel_type: class of the target kernel; subclasses inherit the rule.
        distribution_type: class of the predictions; subclasses inherit the rule.
        single: (kernel, p, z) → m_p(z) for one prediction and one target.
        double: (kernel, p, q) → M_{p,q} for one pair of predictions.
        centered: (kernel, p, y, q, z) → k − m − m + M for one pair of samples, if that is
            faster or more accurate than `four_terms`, which cancel to a small number.
        features: two functions (prepare, evaluate), if the centered kernel is the inner product of
            finitely many features, with which `exact_skce_test` evaluates redraws by matrix
            products. `prepare(kernel, predictions, targets)` returns a pytree of what the features
            need, or None if this data set has no features that are both cheap and accurate to
            machine precision; `evaluate(kernel, prepared, p, y)` the features of one sample, [r].
        check: (kernel, predictions) → None; raises a `ValueError` if the kernel has values that
            the rules do not support; called by estimators and tests, also with tracers.
        diagonal: (kernel, p) → E_{Z~p} k(Z, Z), which `estimators.skce_dispersion` needs for
            kernels without a constant `Kernel.diagonal`.

    Rules that are registered again replace earlier ones.

    Raises:
        TypeError: if one of the first two arguments is not a class.

    A runnable example is in `calibjax.distributions`.
    """
    for name, value in (("kernel_type", kernel_type), ("distribution_type", distribution_type)):
        if not isinstance(value, type):
            raise TypeError(f"{name}: expected a class, got {value!r}")
    rule = None if features is None else FeatureRule(*features)
    _REGISTRY[kernel_type, distribution_type] = Rules(
        single, double, centered, rule, check, diagonal
    )


def rules(kernel: TargetKernel, distribution: Distribution) -> Rules:
    """Looks up the rules of a pair: the most specific class of distribution first, then of kernel.

    Raises:
        NotImplementedError: if there are no rules.
    """
    for distribution_type in type(distribution).__mro__:
        for kernel_type in type(kernel).__mro__:
            if (kernel_type, distribution_type) in _REGISTRY:
                return _REGISTRY[kernel_type, distribution_type]
    raise missing(kernel, distribution)


def terms(kernel: TargetKernel) -> Iterator[tuple[Any, Any]]:
    """Factors c and kernels k of a linear combination Σ c k; any other kernel is a single term.

    This is where sums and multiples of kernels are taken apart: everything that is linear in the
    kernel is computed from the terms. A factor of one is None.
    """
    combination = getattr(type(kernel), "combination", None)
    if combination is None:
        yield None, kernel
        return
    for factor, part in combination(kernel):
        for inner, term in terms(part):
            factors = [c for c in (factor, inner) if c is not None]
            yield functools.reduce(operator.mul, factors) if factors else None, term


def combine(kernel: TargetKernel, function: Callable[[Any], Any]) -> PyTree:
    """Σ c function(k) over the terms of a kernel."""
    values = (function(k) if c is None else c * function(k) for c, k in terms(kernel))
    return functools.reduce(operator.add, values)


def check_expectations(kernel: TargetKernel, predictions: Distribution) -> None:
    """Calls the checks of the rules of a target kernel."""
    predictions = bare(predictions)
    for _, term in terms(kernel):
        if (check := rules(term, predictions).check) is not None:
            check(term, predictions)


def missing(kernel: TargetKernel, distribution: Distribution, why: str = "") -> NotImplementedError:
    """Error for a pair without closed-form expectations."""
    if not hasattr(distribution, "sample"):
        return NotImplementedError(
            f"no expectations of the target kernel {type(kernel).__name__} under "
            f"{checks.described(distribution)}, which has no method sample"
        )
    return NotImplementedError(
        f"no closed-form expectations of the target kernel {type(kernel).__name__} under "
        f"{type(distribution).__name__} predictions{why}; register them with "
        "calibjax.kernels.expectations.register_expectations, or estimate them by Monte Carlo: "
        "hand over calibjax.distributions.monte_carlo(key, predictions, num_samples) as predictions"
    )


def single_expectation(kernel: TargetKernel, p: Distribution, z: ArrayLike) -> jax.Array:
    """Expectation m_p(z) = E_{Z~p} k(Z, z), the kernel mean embedding of p at z.

    Args:
        kernel: target kernel k.
        p: one distribution.
        z: one target.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the pair has no closed form.

    References: W21 App. D.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import White
    >>> from calibjax.kernels.expectations import single_expectation
    >>> print(single_expectation(White(), Categorical(jnp.array([0.25, 0.75])), 1))
    0.75
    """
    p = bare(p)
    return combine(kernel, lambda term: rules(term, p).single(term, p, z))


def double_expectation(kernel: TargetKernel, p: Distribution, q: Distribution) -> jax.Array:
    """Expectation M_{p,q} = E_{Z~p, Z'~q} k(Z, Z') with independent Z, Z'.

    Args:
        kernel: target kernel k.
        p: one distribution.
        q: one distribution of the same class.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the pair has no closed form.

    References: W21 App. D.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import White
    >>> from calibjax.kernels.expectations import double_expectation
    >>> p = Categorical(jnp.array([0.25, 0.75]))
    >>> print(double_expectation(White(), p, p))
    0.625
    """
    p, q = bare(p), bare(q)
    return combine(kernel, lambda term: rules(term, p).double(term, p, q))


def diagonal_expectation(kernel: TargetKernel, p: Distribution) -> jax.Array | float:
    """Expectation E_{Z~p} k(Z, Z) of the values of a target kernel on the diagonal.

    Args:
        kernel: target kernel k.
        p: one distribution.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the kernel has no constant diagonal, and the pair no rule.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import LabelKernel
    >>> kernel = LabelKernel(jnp.array([[1.0, 0.0], [0.0, 3.0]]))
    >>> print(diagonal_expectation(kernel, Categorical(jnp.array([0.25, 0.75]))))
    2.5
    """
    return combine(kernel, lambda term: _diagonal_of_term(term, bare(p)))


def centered_norm(kernel: TargetKernel, p: Distribution) -> jax.Array:
    """Expectation E k(Z, Z) − M_{p,p} of the centered kernel on the diagonal for Z ~ p, a scalar.

    Raises NotImplementedError as `diagonal_expectation` and `double_expectation` do.
    """
    return jnp.asarray(diagonal_expectation(kernel, p) - double_expectation(kernel, p, p))


def _diagonal_of_term(kernel: TargetKernel, p: Distribution) -> jax.Array | float:
    if (constant := getattr(kernel, "diagonal", None)) is not None:
        return constant
    if (diagonal := rules(kernel, p).diagonal) is not None:
        return diagonal(kernel, p)
    raise NotImplementedError(
        f"no expectation of k(Z, Z) of the target kernel {type(kernel).__name__} under "
        f"{type(p).__name__} predictions; give the kernel an attribute diagonal, where k(z, z) is "
        "the same for all z, or register it with "
        "calibjax.kernels.expectations.register_expectations(..., diagonal=...)"
    )


def centered_kernel(
    kernel: TargetKernel, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    """Centered kernel k(y, z) − m_p(z) − m_q(y) + M_{p,q}.

    The registered form if there is one, otherwise the sum of the four terms.

    Args:
        kernel: target kernel k.
        p: one distribution.
        y: one target, paired with p.
        q: one distribution of the same class.
        z: one target, paired with q.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if the pair has no closed form.

    References: W21 §3.2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import White
    >>> p = Categorical(jnp.array([0.25, 0.75]))
    >>> print(centered_kernel(White(), p, 1, p, 1))
    0.125
    """
    p, q = bare(p), bare(q)

    def of_term(term: TargetKernel) -> jax.Array:
        centered = rules(term, p).centered or four_terms
        return centered(term, p, y, q, z)

    return combine(kernel, of_term)


def four_terms(
    kernel: TargetKernel, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    """The centered kernel as the sum of its four terms."""
    singles = single_expectation(kernel, p, z) + single_expectation(kernel, q, y)
    return kernel(y, z) - singles + double_expectation(kernel, p, q)


def prepare_features(
    kernel: TargetKernel, predictions: Distribution, targets: ArrayLike
) -> tuple[Any, ...] | None:
    """What `features` needs for each term of a target kernel; None if one has no features."""
    predictions, prepared = bare(predictions), []
    for _, term in terms(kernel):
        rule = rules(term, predictions).features
        one = None if rule is None else rule.prepare(term, predictions, targets)
        if one is None:
            return None
        prepared.append(one)
    return tuple(prepared)


def few_features(kernel: TargetKernel, predictions: Distribution) -> float:
    """Number of features beyond which evaluating all pairs is cheaper than matrix products."""
    rules_of_terms = (rules(term, bare(predictions)).features for _, term in terms(kernel))
    return sum(math.inf if rule is None else rule.few for rule in rules_of_terms)


def features(
    kernel: TargetKernel, prepared: tuple[Any, ...], p: Distribution, y: ArrayLike
) -> jax.Array:
    """Features of one sample, [r], whose inner products are the centered kernel."""
    p = bare(p)
    return _of_terms(lambda rule, term, one: rule.evaluate(term, one, p, y), kernel, prepared, p)


def batch_features(
    kernel: TargetKernel, prepared: tuple[Any, ...], predictions: Distribution, targets: ArrayLike
) -> jax.Array:
    """Features of targets [b, n, ...] of n predictions, [r, b, n]."""
    predictions = bare(predictions)

    def evaluate(rule: FeatureRule, term: Any, one: Any) -> jax.Array:
        if rule.batch is not None:
            return rule.batch(term, one, predictions, targets)
        samples = jax.vmap(functools.partial(rule.evaluate, term, one), out_axes=-1)
        return jax.vmap(samples, (None, 0), out_axes=1)(predictions, targets)

    return _of_terms(evaluate, kernel, prepared, predictions)


def _of_terms(
    evaluate: Callable[[FeatureRule, Any, Any], jax.Array],
    kernel: TargetKernel,
    prepared: tuple[Any, ...],
    p: Distribution,
) -> jax.Array:
    """Features (rule, term, prepared) → [r, ...] of all terms of a kernel."""
    parts = []
    for (factor, term), one in zip(terms(kernel), prepared, strict=True):
        rule = rules(term, p).features
        assert rule is not None, "prepared only where there is a rule"
        values = evaluate(rule, term, one)
        parts.append(values if factor is None else jnp.sqrt(factor).astype(values.dtype) * values)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)
