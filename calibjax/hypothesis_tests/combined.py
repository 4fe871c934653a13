"""One result from several runs of the same test."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax.hypothesis_tests._redraw.components import pooled
from calibjax.hypothesis_tests._redraw.pvalues import tolerance
from calibjax.hypothesis_tests.result import CalibrationTestResult, simulated_result, skce_result

_DISTINCT_DRAWS = 10  # this many distinct numbers do not coincide by chance


def combine_results(
    first: CalibrationTestResult, *others: CalibrationTestResult
) -> CalibrationTestResult:
    """One result from several runs of the same simulated test with different keys.

    The draws under calibration are pooled and the p-values computed from all of them: more draws
    refine a result without starting again.

    Args:
        first: a result with `null_samples`.
        others: results of the same test on the same data, each with a different key.

    Returns:
        The result with the draws of all of them; statistic and estimate are those of the first.

    Raises:
        TypeError: if an argument is not a test result.
        ValueError: if a result has no draws, or NaN draws, if the results are not of the same test
            and data (draws or statistics differ in kind, or statistics in value beyond rounding),
            if only some have adjusted p-values, or if two results share draws and hence a key.

    Cost: O(B).

    References: none; see `exact_test` for the p-value.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests
    >>> def test(seed, num_draws):
    ...     return hypothesis_tests.exact_test(
    ...         jax.random.key(seed),
    ...         lambda predictions, targets: jnp.sum(targets),
    ...         distributions.Bernoulli(jnp.full(10, 0.5)),
    ...         jnp.ones(10, int),
    ...         num_draws=num_draws,
    ...     )
    >>> result = hypothesis_tests.combine_results(test(0, 1000), test(1, 9000))
    >>> print(result.null_samples.shape)
    (10000,)
    """
    results = tuple(_checked(f"results[{i}]", r) for i, r in enumerate((first, *others)))
    first = results[0]
    for i, result in enumerate(results):
        _refuse_other_test(f"results[{i}]", first, result)
    for i, result in enumerate(results):
        for j, earlier in enumerate(results[:i]):
            _refuse_same_draws(f"results[{j}] and results[{i}]", earlier, result)
    components = [one.components for one in results if one.components is not None]
    if components:  # then all results have them, since they are of one kind
        return skce_result(*pooled(*components), first.estimate, draws=first.draws)
    null_samples = jax.tree.map(
        lambda *draws: jnp.concatenate(draws), *(result.null_samples for result in results)
    )
    statistic = checks.nan_with(first.statistic, null_samples)  # ranks do not propagate NaN
    result = simulated_result(
        statistic,
        null_samples,
        first.estimate,
        draws=first.draws,
        adjust=first.adjusted_pvalue is not None,
        entries=first.entries,
    )
    return dataclasses.replace(result, textbook_pvalue=first.textbook_pvalue)


def _checked(name: str, result: Any) -> CalibrationTestResult:
    """A checked result of a simulated test without NaN draws, with JAX arrays."""
    if not isinstance(result, CalibrationTestResult):
        raise TypeError(f"{name}: expected a CalibrationTestResult, got {checks.described(result)}")
    if result.null_samples is None:
        raise ValueError(f"{name}.null_samples: expected draws, got None (not a simulated test)")
    result = checks.as_arrays(name, result)
    for path, leaf in jax.tree_util.tree_leaves_with_path(result):
        checks.real(name + jax.tree_util.keystr(path), leaf)
    draws = jax.tree_util.tree_leaves_with_path(result.null_samples)
    checks.leading_size(f"{name}.null_samples", result.null_samples)
    if jax.tree.structure(result.statistic) != jax.tree.structure(result.null_samples):
        raise ValueError(
            f"{name}.null_samples: expected draws of the statistic, got {result.null_samples} of "
            f"{result.statistic}"
        )
    for (path, values), statistic in zip(draws, jax.tree.leaves(result.statistic), strict=True):
        place = f"{name}.null_samples{jax.tree_util.keystr(path)}"
        expected = (None, *jnp.shape(statistic))
        checks.shape(place, values, expected, "[B, ...], a draw of the statistic in each row")
        if checks.is_concrete(values):
            checks.refuse_where(np.isnan(values), place, "numbers", values)
    return result


def _raw(result: CalibrationTestResult) -> tuple[Any, Any]:
    """Statistics and their draws before they are standardised over a pool."""
    if result.components is None:
        return result.statistic, result.null_samples
    parts = result.components.unbiased, result.components.spread
    return [part.statistic for part in parts], [part.null_samples for part in parts]


def _kind(result: CalibrationTestResult) -> str:
    """Description of a kind of result, for error messages."""
    if result.components is not None:
        return f"{result.components.ranked} statistics of the SKCE"
    adjusted = "without" if result.adjusted_pvalue is None else "with"
    return f"{len(jax.tree.leaves(result.statistic))} statistics {adjusted} adjusted p-values"


def _refuse_other_test(
    name: str, first: CalibrationTestResult, other: CalibrationTestResult
) -> None:
    if other.draws != first.draws:
        raise ValueError(
            f"{name}.draws: expected {first.draws!r} as in the first result, got {other.draws!r}"
        )
    if jax.tree.structure(first) != jax.tree.structure(other):
        described = [_kind(result) for result in (first, other)]
        raise ValueError(
            f"{name}: expected a result like the first, of {described[0]} (and the same names), "
            f"got a result of {described[1]}"
        )
    triples = zip(
        *map(jax.tree.leaves, (_raw(first)[0], _raw(other)[0], _raw(first)[1])), strict=True
    )
    for expected, value, draws in triples:
        differs = jnp.abs(expected - value) > tolerance(expected, draws)
        if checks.is_concrete(differs) and np.any(differs):
            place = checks.first_where(differs)
            raise ValueError(
                f"{name}.statistic: expected {np.asarray(expected)[place]} as in the first result "
                f"of the same test and data, got {np.asarray(value)[place]}"
            )


def _refuse_same_draws(names: str, one: CalibrationTestResult, two: CalibrationTestResult) -> None:
    for draws in zip(*map(jax.tree.leaves, (_raw(one)[1], _raw(two)[1])), strict=True):
        if not checks.is_concrete(draws):
            continue
        x, y = sorted(map(np.asarray, draws), key=np.size)
        for columns in zip(*(z.reshape(len(z), -1).T for z in (x, y)), strict=True):
            _refuse_same_column(names, *columns)


def _refuse_same_column(names: str, x: np.ndarray, y: np.ndarray) -> None:
    """Refuses draws of one number that are mostly those of another run, the longer one."""
    size = len(x)
    largest = max(np.nanmax(np.abs(x)), np.nanmax(np.abs(y)), np.finfo(x.dtype).tiny)
    step = 16 * np.finfo(x.dtype).eps * largest
    x, y = (np.unique(np.round(values / step)) for values in (x, y))
    # Draws of a discrete statistic may coincide by chance.
    is_continuous = x.size >= max(_DISTINCT_DRAWS, 0.9 * size)
    neighbours = np.concatenate([y - 1, y, y + 1])
    if is_continuous and np.mean(np.isin(x, neighbours)) > 0.5:
        raise ValueError(f"{names}: expected draws with different keys, got the same draws in both")
