"""Results of tests, and confidence intervals."""

import dataclasses
import functools
import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from calibjax._core import checks, environment
from calibjax._core.gate import checked
from calibjax._core.pytree import PyTree, Text, record
from calibjax.distributions import Normal, StudentT
from calibjax.hypothesis_tests import components as pools

_MOST = 10  # printed adjusted p-values
_MISSING = "look at the statistic of targets drawn by distributions.sample_targets"


@record
class CalibrationTestResult:
    """Result of a test of the null hypothesis that the predictions are calibrated.

    If a test has several statistics, every attribute is an array or a pytree.

    Attributes:
        statistic: value of the test statistic; large values are evidence against calibration.
        pvalue: probability under calibration of a statistic at least as large, in (0, 1].
        estimate: estimate of the calibration error.
        null_samples: draws of the statistic under calibration, [num_draws, ...]; None if the
            test does not draw any.
        adjusted_pvalue: p-value adjusted for the number of statistics; None unless requested.
        draws: description of the draws, such as "targets resampled under the null"; None without
            draws.
        components: the components of `exact_skce_test`, an `SKCEComponents`; None for other tests.
        entries: label of the entries of the arrays: "locations" for `witness_test`, "groups" for
            `group_calibration_test`; None for other tests.
        textbook_pvalue: large-sample p-value; None unless the statistic of `exact_test` has one, as
            `spiegelhalter` does.

    Its string is a summary without the draws.
    """

    statistic: Any
    pvalue: Any
    estimate: Any
    null_samples: Any = None
    adjusted_pvalue: Any = None
    draws: str | None = dataclasses.field(default=None, metadata={"static": True})
    components: pools.SKCEComponents | None = None
    entries: str | None = dataclasses.field(default=None, metadata={"static": True})
    textbook_pvalue: Any = None

    def _numbers(self) -> dict[str, str]:
        """Printed values by attribute name."""
        error = self.pvalue_standard_error
        is_number = error is not None and _is_number(error)
        shown = {"pvalue": _shown(self.pvalue) + (f" ± {_shown(error, 1)}" if is_number else "")}
        for name in ("adjusted_pvalue", "textbook_pvalue", "statistic", "estimate"):
            value = getattr(self, name)
            is_short = name != "adjusted_pvalue" or len(jax.tree.leaves(value)) <= _MOST
            if value is not None and is_short:
                shown[name] = _shown(value)
        return shown

    def __repr__(self) -> str:
        """The numbers on one line; arrays are shown by their shapes."""
        parts = [f"{name}={text}" for name, text in self._numbers().items()]
        if self.null_samples is not None:
            draws, value = (jax.tree.leaves(x)[0] for x in (self.null_samples, self.statistic))
            # Otherwise it is a batch of results, with leading axes from `vmap`.
            if jnp.shape(draws)[1:] == jnp.shape(value):
                parts.append(f"{jnp.shape(draws)[0]} {self.draws or 'draws'}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __str__(self) -> str:
        """The numbers, followed by one line for each component."""
        if self.components is None or not _is_number(self.statistic):
            return repr(self)
        return f"{self!r}\n{self.components.described(jax.tree.leaves(self.adjusted_pvalue))}"

    def _repr_html_(self) -> str:
        """Table for notebooks."""
        lines = [f"<strong>{type(self).__name__}</strong>"]
        lines += environment.table((), [*self._numbers().items()])
        if described := str(self).removeprefix(repr(self))[1:]:
            lines.append(environment.code(described))
        return "\n".join(["<div>", *lines, "</div>"])

    @property
    def pvalue_standard_error(self) -> PyTree:
        """Monte Carlo standard error √(p (1 − p) / (B + 2)) of a simulated p-value, else None.

        p is kept within 1 / (B + 1) of 0 and 1, so the error is never zero.
        """
        if self.null_samples is None:
            return None
        return jax.tree.map(_standard_error, self.pvalue, self.null_samples)

    @property
    def null_size(self) -> PyTree:
        """Root mean square of the draws, else None.

        If the statistic is the absolute value of a signed estimate, as in `group_calibration_test`,
        this is the standard error of the estimate under calibration.
        """
        return jax.tree.map(lambda x: jnp.sqrt(jnp.mean(jnp.square(x), 0)), self.null_samples)

    @checked(self=lambda name, value, seen: value)
    def critical_value(self, significance_level: float = 0.05) -> PyTree:
        """Largest statistics that the test does not reject at this level.

        A statistic exceeds its critical value if and only if its p-value is at most α. The adjusted
        p-value is used if there is one; then, under calibration, no statistic exceeds its critical
        value with probability at least 1 − α.

        Args:
            significance_level: α in (0, 1).

        Returns:
            A pytree with the structure of the statistic; infinite if there are too few draws to
            reject.

        Raises:
            TypeError: if the level is not a number, or the result is traced.
            ValueError: if the level is out of range, or the test draws nothing.

        >>> import jax, jax.numpy as jnp
        >>> from calibjax import distributions, hypothesis_tests
        >>> predictions = distributions.Bernoulli(jnp.full(100, 0.5))
        >>> test = hypothesis_tests.exact_test(
        ...     jax.random.key(0), lambda p, y: jnp.sum(y), predictions, jnp.arange(100) % 2
        ... )
        >>> print(f"{test.statistic:.0f} {test.critical_value():.0f}")
        50 59
        """
        if self.null_samples is None:
            raise ValueError("result: expected a simulated test, got one without draws")
        if not checks.is_concrete(significance_level, self.statistic, self.null_samples):
            raise TypeError("result: expected concrete values, got traced ones")
        options = {"level": float(significance_level), "adjust": self.adjusted_pvalue is not None}
        return pools.critical_values(self.statistic, self.null_samples, **options)


def _is_number(value: Any) -> bool:
    return checks.is_concrete(value) and jax.tree_util.all_leaves([value]) and jnp.ndim(value) == 0


def _shown(value: Any, digits: int = 3) -> str:
    """A number with that many significant digits; dtypes and shapes of arrays."""
    if _is_number(value):
        return f"{float(value):.{digits}g}"
    if hasattr(value, "shape"):
        return f"{value.dtype}{list(value.shape)}"
    leaves, structure = jax.tree.flatten(value)
    return str(jax.tree.unflatten(structure, [Text(_shown(leaf, digits)) for leaf in leaves]))


@jax.jit
def _standard_error(pvalue: jax.Array, null_samples: jax.Array) -> jax.Array:
    num_draws = null_samples.shape[0]
    least = 1 / (num_draws + 1)
    inside = jnp.clip(pvalue, least, 1 - least)
    return jnp.sqrt(inside * (1 - inside) / (num_draws + 2))


def simulated_result(
    statistic: PyTree,
    null_samples: PyTree,
    estimate: Any,
    *,
    adjust: bool = False,
    draws: str = "targets resampled under the null",
    entries: str | None = None,
    missing: str = _MISSING,
) -> CalibrationTestResult:
    """Result with simulated p-values of one statistic, an array, or a pytree of statistics.

    Warns of redraws whose statistic is NaN; `missing` ends the warning. `draws` and `entries` are
    attributes of the result.

    Raises:
        ValueError: if a statistic is a concrete NaN.
    """
    for value in filter(checks.is_concrete, jax.tree.leaves(statistic)):
        checks.refuse_where(np.isnan(value), "statistic", "a number", value)
    draws_known = filter(checks.is_concrete, jax.tree.leaves(null_samples))
    num_missing = sum(np.isnan(x).reshape(len(x), -1).any(1).sum() for x in draws_known)
    if num_missing:
        few = f"statistic: {num_missing} of the statistics under the null are nan"
        warnings.warn(f"{few} and count against rejection; {missing}", UserWarning, stacklevel=5)
    pvalue = jax.tree.map(pools.simulated_pvalue, statistic, null_samples)
    adjusted = pools.adjusted_pvalues(statistic, null_samples) if adjust else None
    pvalue, adjusted = pools.as_arrays((pvalue, adjusted))
    numbers = statistic, pvalue, estimate, null_samples, adjusted
    return CalibrationTestResult(*numbers, draws=draws, entries=entries)


def skce_result(
    pool: jax.Array, components: pools.SKCEComponents, estimate: jax.Array, **options: Any
) -> CalibrationTestResult:
    """Result of a test that ranks the first value of a pool of SKCE statistics.

    The pool is [B + 1], or [B + 1, K] for a family of K kernels, which are combined. The options
    are those of `simulated_result`.
    """
    if components.family is None:
        result = simulated_result(pool[0], pool[1:], estimate, **options)
        return dataclasses.replace(result, components=components)
    groups = tuple(components.groups.values())
    combined, null_samples, adjusted = _of_family(pool, groups)
    result = simulated_result(combined, null_samples, estimate, **options)
    tree = jax.tree.unflatten(components.family, adjusted)
    return dataclasses.replace(result, adjusted_pvalue=tree, components=components)


@functools.partial(environment.jit_quick, static_argnums=1)
def _of_family(
    pool: jax.Array, groups: tuple[tuple[int, ...], ...]
) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
    """Soft maximum over groups, its draws [B], and the adjusted p-values of a pool [B + 1, K].

    With the largest score of each of G groups, standardised over the pool to M_g, it is √(2 log
    (G⁻¹ Σ_g exp(max(M_g, 0)² / 2))) + min(max_g M_g, 0), which is at least the value of any kernel
    alone. For a single group it is the largest score.
    """
    largest = jnp.stack([jnp.max(pool[:, np.array(group)], 1) for group in groups], 1)
    combined, observed = largest[:, 0], pool[0]
    if len(groups) > 1:
        # The maximum over many scores is larger than over a few, and may have a heavier tail.
        group_of = {place: g for g, places in enumerate(groups) for place in places}
        of_group = largest[:, np.array([group_of[place] for place in range(pool.shape[1])])]
        observed = _soft(pools.standardised(of_group, observed)[:, None], len(groups))
        combined = _soft(pools.standardised(largest), len(groups))
    adjusted = jax.vmap(pools.simulated_pvalue, (0, None))(observed, combined[1:])
    adjusted = jnp.where(jnp.isnan(combined[0]), jnp.nan, adjusted)  # the largest is unknown
    return combined[0], combined[1:], list(adjusted)


def _soft(scores: jax.Array, num_groups: int) -> jax.Array:
    """Soft maximum over the last axis; at most one of the two terms is not zero."""
    evidence = logsumexp(0.5 * jnp.square(jnp.maximum(scores, 0)), -1) - math.log(num_groups)
    return jnp.sqrt(2 * jnp.maximum(evidence, 0)) + jnp.minimum(jnp.max(scores, -1), 0)


def standard_law(like: jax.Array, freedom: ArrayLike | None = None) -> Normal | StudentT:
    """N(0, 1), or Student's distribution with these degrees of freedom."""
    zeros, ones = jnp.zeros_like(like), jnp.ones_like(like)
    if freedom is None:
        return Normal(zeros, ones)
    return StudentT(jnp.asarray(freedom, like.dtype), zeros, ones)


def pvalue_of(
    statistic: jax.Array, freedom: ArrayLike | None = None, *, two_sided: bool = False
) -> jax.Array:
    """p-value of a statistic with a standard normal or Student's distribution."""
    value = standard_law(statistic, freedom).cdf(-(abs(statistic) if two_sided else statistic))
    return positive(2 * value if two_sided else value)


def positive(pvalue: jax.Array) -> jax.Array:
    """p-value that does not underflow to zero."""
    return jnp.maximum(pvalue, jnp.finfo(pvalue.dtype).tiny)


@record
class ConfidenceInterval:
    """Confidence interval for the SKCE.

    Attributes:
        low: lower limit; it may be negative, like the estimate.
        high: upper limit.
        estimate: estimate of the SKCE, unbiased unless another estimator was requested.
        standard_error: standard error of the estimate; None for a distribution-free interval.
        effective_size: number of samples or clusters behind the standard error, (Σ_i w_i)² / Σ_i
            w_i² with weights; None if the interval is not for the SKCE.

    Its string is one line.
    """

    low: jax.Array
    high: jax.Array
    estimate: jax.Array
    standard_error: jax.Array | None
    effective_size: jax.Array | int | None = None

    def __repr__(self) -> str:
        """The numbers; arrays are shown by their shapes."""
        error = "" if self.standard_error is None else f" ± {_shown(self.standard_error)}"
        limits = f"low={_shown(self.low)}, high={_shown(self.high)}"
        return f"{type(self).__name__}({_shown(self.estimate)}{error}, {limits})"


@jax.jit
def asymptotic_interval(
    estimate: jax.Array, error: jax.Array, level: ArrayLike, freedom: ArrayLike | None = None
) -> ConfidenceInterval:
    """Interval for an estimate with a normal or Student's distribution."""
    tail = jnp.asarray((1 - level) / 2, estimate.dtype)
    reach = -standard_law(tail, freedom).icdf(tail) * error
    return ConfidenceInterval(estimate - reach, estimate + reach, estimate, error)
