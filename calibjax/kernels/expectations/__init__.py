"""Expectations of target kernels under predicted distributions.

Each file registers rules for its families when `calibjax.kernels` is imported.

For a target kernel k and predictions p, q the calibration kernel needs

    m_p(z) = E_{Z~p} k(Z, z)                      `single_expectation`
    M_{p,q} = E_{Z~p, Z'~q} k(Z, Z')              `double_expectation`
    k(y, z) − m_p(z) − m_q(y) + M_{p,q}           `centered_kernel`

The last is the inner product of k(y, ·) − m_p and k(z, ·) − m_q in the Hilbert space of k. Target
kernels ignore the features of predictions.

References: W21 §3.2, eq. (5), and App. D.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.pytree import PyTree
from calibjax.distances import Euclidean
from calibjax.distributions import Categorical, Ensemble, Mixture
from calibjax.distributions.base import Distribution, has_class_probs
from calibjax.distributions.composed import bare

# A kernel has values k(y, z). A sum or a multiple has a method `combination()` besides, its factors
# and terms; kernels whose k(z, z) is the same for all z have it as attribute `diagonal`.
TargetKernel: TypeAlias = Any


class Features(NamedTuple):
    """Residual features f with centered_kernel(k, p, y, q, z) = ⟨f(p, y), f(q, z)⟩.

    Attributes:
        residual: (kernel, prepared, view, y) → f of one sample, [r] or several arrays, with mean
            zero for Y ~ p.
        prepare: (kernel, predictions, targets) → pytree of data for the features, or None if no
            features are both cheap and accurate to machine precision for this data set. By default
            `()`: the features are exact.
        few: number of features beyond which evaluating all pairs is cheaper than matrix products,
            unless the kernel on predictions has a low rank; by default unlimited.
        view: (kernel, prepared, p) → data of a prediction for `residual`, common to all redraws,
            such as a mean; by default p.
        offset: (kernel, prepared, p, view) → difference of the centered kernel of p with itself
            from the inner product; by default zero.
    """

    residual: Callable[..., PyTree]
    prepare: Callable[..., Any] | None = None
    few: float = math.inf
    view: Callable[..., Any] | None = None
    offset: Callable[..., jax.Array] | None = None


class Rules(NamedTuple):
    """The rules for one pair (target kernel, distribution); see `register_expectations`."""

    mean: Callable[..., jax.Array]
    inner: Callable[..., jax.Array]
    centered: Callable[..., jax.Array] | None = None
    features: Features | None = None
    check: Callable[..., None] | None = None


_REGISTRY: dict[tuple[type, type], Rules] = {}


def register_expectations(
    kernel_type: type,
    distribution_type: type,
    *,
    mean: Callable[..., jax.Array],
    inner: Callable[..., jax.Array],
    centered: Callable[..., jax.Array] | None = None,
    features: Features | None = None,
    check: Callable[..., None] | None = None,
) -> None:
    """Register the expectations of a target kernel under a distribution.

    All functions are for one prediction and one target. They may raise a `NotImplementedError` or a
    `ValueError` if the expectations are not supported.

    Args:
        kernel_type: class of the target kernel; subclasses inherit the rule.
        distribution_type: class of the predictions; subclasses inherit the rule.
        mean: (kernel, p, z) → m_p(z), the mean embedding of p at z.
        inner: (kernel, p, q) → M_{p,q}, the inner product of two mean embeddings.
        centered: (kernel, p, y, q, z) → k − m − m + M, if another form is more accurate than the
            sum of these four terms, the default.
        features: `Features`, if the centered kernel is an inner product of finitely many;
            `exact_skce_test` then evaluates redraws by matrix products.
        check: (kernel, predictions) → None; refuses concrete values of the kernel with NaN
            expectations.

    The expectation of k(Z, Z), needed by `estimators.skce_dispersion`, is the attribute `diagonal`
    of a kernel with constant k(z, z). It is known for classes and draws; other kernels have a
    method `expected_norm(p)`. Later registrations replace earlier ones.

    A runnable example is in `calibjax.distributions`.
    """
    _REGISTRY[kernel_type, distribution_type] = Rules(mean, inner, centered, features, check)


def rules(kernel: TargetKernel, distribution: Distribution) -> Rules:
    """Looks up the rules of a pair: the most specific class of kernel first, then of distribution.

    Mixtures of class predictions are class predictions.

    Raises:
        NotImplementedError: if there are no rules.
    """
    is_of_classes = isinstance(distribution, Mixture) and has_class_probs(distribution)
    family = Categorical if is_of_classes else type(distribution)
    for kernel_type in type(kernel).__mro__:
        for distribution_type in family.__mro__:
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
    """Raises the errors of expectations under a batch of predictions, without computing them."""
    p = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), bare(predictions))
    jax.eval_shape(lambda p: double_expectation(kernel, p, p), p)
    check_values(kernel, predictions)


def check_values(kernel: TargetKernel, predictions: Distribution) -> None:
    """Refuses known values of a kernel that the rules do not support."""
    p = bare(predictions)
    p = p.components if isinstance(p, Mixture) else p
    for _, term in terms(kernel):
        if (check := rules(term, p).check) is not None:
            check(term, p)


def has_expectations(kernel: TargetKernel, predictions: Distribution) -> bool:
    """Whether the rules have expectations under predictions like these."""
    try:
        check_expectations(kernel, predictions)
    except NotImplementedError:
        return False
    return True


def missing(kernel: TargetKernel, distribution: Distribution, why: str = "") -> NotImplementedError:
    """Error for a pair without closed-form expectations."""
    return NotImplementedError(
        f"no closed-form expectations of the target kernel {type(kernel).__name__} under "
        f"{type(distribution).__name__} predictions{why}; register_expectations, or estimate them "
        "by Monte Carlo from distributions.monte_carlo(key, predictions, num_samples)"
    )


def length_scale(kernel: Any, p: Distribution) -> jax.Array:
    """Length scale of a kernel, in the precision of predictions; refuses all but Euclidean ones."""
    if not isinstance(kernel.distance, Euclidean):
        raise missing(kernel, p, f" with distance {type(kernel.distance).__name__}")
    xp: Any = np if checks.is_concrete(kernel.length_scale) else jnp  # which runs no program
    return xp.asarray(kernel.length_scale, floating_dtype(p))


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
    return combine(kernel, lambda term: rules(term, p).mean(term, p, z))


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
    return combine(kernel, lambda term: rules(term, p).inner(term, p, q))


def diagonal_expectation(kernel: TargetKernel, p: Any) -> jax.Array | float:
    """Expectation E_{Z~p} k(Z, Z) of the values of a target kernel on the diagonal.

    Args:
        kernel: target kernel k.
        p: one distribution.

    Returns:
        A scalar.

    Raises:
        NotImplementedError: if it is not known (see `register_expectations`).

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> from calibjax.kernels import LabelKernel
    >>> kernel = LabelKernel(jnp.array([[1.0, 0.0], [0.0, 3.0]]))
    >>> print(diagonal_expectation(kernel, Categorical(jnp.array([0.25, 0.75]))))
    2.5
    """
    p = bare(p)

    def of_term(term: Any) -> Any:
        if (constant := getattr(term, "diagonal", None)) is not None:
            return constant
        if hasattr(term, "expected_norm"):
            return term.expected_norm(p)
        if isinstance(draws := getattr(p, "draws", p), Ensemble):
            values, probs = draws.values, draws.probs
        elif has_class_probs(p):
            values, probs = jnp.arange(p.class_probs.shape[-1]), p.class_probs
        elif isinstance(p, Mixture):
            diagonals = jax.vmap(lambda q: diagonal_expectation(term, q))(p.components)
            return matmul(p.mixing_probs, diagonals)
        else:
            raise NotImplementedError(
                f"no expectation of k(Z, Z) under {type(p).__name__} predictions; give kernel "
                f"{type(term).__name__} an attribute diagonal, or a method expected_norm(p)"
            )
        return matmul(probs, jax.vmap(lambda z: term(z, z))(values).astype(probs.dtype))

    return combine(kernel, of_term)


def centered_norm(kernel: TargetKernel, p: Distribution) -> jax.Array:
    """Expectation E k(Z, Z) − M_{p,p} of the centered kernel on the diagonal for Z ~ p, a scalar.

    Raises NotImplementedError as `diagonal_expectation` and `double_expectation` do.
    """
    return jnp.asarray(diagonal_expectation(kernel, p) - double_expectation(kernel, p, p))


def centered_kernel(
    kernel: TargetKernel, p: Distribution, y: ArrayLike, q: Distribution, z: ArrayLike
) -> jax.Array:
    """Centered kernel k(y, z) − m_p(z) − m_q(y) + M_{p,q}.

    It is the inner product of exact features, the registered form, or the sum of the four terms.

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
        rule = rules(term, p)
        if rule.features is not None and rule.features.prepare is None:
            residual = functools.partial(rule.features.residual, term, ())
            return matmul(residual(p, y), residual(q, z))
        return (rule.centered or four_terms)(term, p, y, q, z)

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
        if (rule := rules(term, predictions).features) is None:
            return None
        prepared.append(() if rule.prepare is None else rule.prepare(term, predictions, targets))
    return None if any(one is None for one in prepared) else tuple(prepared)


def few_features(kernel: TargetKernel, predictions: Distribution, *, once: bool) -> float:
    """Number of features beyond which evaluating all pairs is cheaper than matrix products.

    For sums that are evaluated once they are cheaper anyway, unless their expectations are not.
    """
    total = 0.0
    for _, term in terms(kernel):
        rule = rules(term, bare(predictions)).features
        if rule is None or (once and (rule.view is None or rule.few < math.inf)):
            return 0.0
        total += rule.few
    return total


def views(kernel: TargetKernel, prepared: tuple[Any, ...], predictions: Distribution) -> tuple:
    """What `batch_features` needs of n predictions for each term, the same for all targets."""
    return jax.vmap(lambda p: _views_of_one(kernel, prepared, p))(bare(predictions))


def _views_of_one(kernel: TargetKernel, prepared: tuple[Any, ...], p: Any) -> tuple[Any, ...]:
    rules_of_terms = (_features_of(term, p) for _, term in terms(kernel))
    parts = zip(terms(kernel), prepared, rules_of_terms, strict=True)
    return tuple(p if r.view is None else r.view(term, one, p) for (_, term), one, r in parts)


def has_offsets(kernel: TargetKernel, predictions: Distribution) -> bool:
    """Whether the diagonal of h differs from ‖f‖², as for draws."""
    return any(_features_of(term, bare(predictions)).offset for _, term in terms(kernel))


def offsets(
    kernel: TargetKernel,
    prepared: tuple[Any, ...],
    predictions: Distribution,
    seen: tuple[Any, ...],
) -> jax.Array | None:
    """Centered kernel of each prediction with itself, minus ‖f‖², [n]; None: zero."""
    predictions, total = bare(predictions), None
    for (factor, term), one, view in zip(terms(kernel), prepared, seen, strict=True):
        if (offset := _features_of(term, predictions).offset) is not None:
            values = jax.vmap(functools.partial(offset, term, one))(predictions, view)
            values = values if factor is None else factor * values
            total = values if total is None else total + values
    return total


def features(
    kernel: TargetKernel, prepared: tuple[Any, ...], p: Distribution, y: ArrayLike
) -> jax.Array:
    """Features of one sample, [r], whose inner products are the centered kernel."""
    return jnp.concatenate(features_of_terms(kernel, prepared, p, y))


def features_of_terms(
    kernel: TargetKernel, prepared: tuple[Any, ...], p: Distribution, y: ArrayLike
) -> list[jax.Array]:
    """Parts of `features`, which are mapped before they are joined."""
    p = bare(p)
    parts = zip(prepared, _views_of_one(kernel, prepared, p), strict=True)
    return _scaled(kernel, parts, lambda term, of: _features_of(term, p).residual(term, *of, y))


def batch_features(
    kernel: TargetKernel,
    prepared: tuple[Any, ...],
    predictions: Distribution,
    targets: ArrayLike,
) -> jax.Array:
    """Features of targets [b, n, ...] of n predictions, [r, b, n]."""
    predictions = bare(predictions)
    seen = views(kernel, prepared, predictions)

    def of_term(term: Any, of: tuple[Any, Any]) -> PyTree:
        residual = _features_of(term, predictions).residual
        samples = jax.vmap(functools.partial(residual, term, of[0]), out_axes=-1)
        return jax.vmap(samples, (None, 0), out_axes=1)(of[1], targets)

    return jnp.concatenate(_scaled(kernel, zip(prepared, seen, strict=True), of_term))


def _features_of(term: TargetKernel, p: Distribution) -> Features:
    rule = rules(term, p).features
    assert rule is not None, "prepared only where there is a rule"
    return rule


def _scaled(
    kernel: TargetKernel, each: Iterable[Any], of_term: Callable[[Any, Any], PyTree]
) -> list[jax.Array]:
    """Features (term, arguments) → [r, ...] of all terms of a kernel."""
    return [
        values if factor is None else jnp.sqrt(factor).astype(values.dtype) * values
        for (factor, term), one in zip(terms(kernel), each, strict=True)
        for values in jax.tree.leaves(of_term(term, one))
    ]
