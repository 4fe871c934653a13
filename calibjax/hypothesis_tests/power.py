"""How often exact tests detect an error of a known size, and how many samples they need for it."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from calibjax._core import checks
from calibjax._core.batches import default_batch_size
from calibjax._core.compilation import compiled_once, jit
from calibjax._core.lengths import filled
from calibjax._core.pytree import PyTree, record
from calibjax._core.sharding import follows_data
from calibjax.distributions import Samples
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.sampling import check_draws, draw
from calibjax.hypothesis_tests._redraw.components import STATISTICS, skce_components
from calibjax.hypothesis_tests._redraw.plan import family_of
from calibjax.hypothesis_tests._redraw.pvalues import simulated_pvalue
from calibjax.hypothesis_tests.aggregated import aggregated_skce_test
from calibjax.hypothesis_tests.checked_kernels import checked_family
from calibjax.hypothesis_tests.exact import exact_skce_test, exact_test
from calibjax.hypothesis_tests.kernel_groups import default_kernels
from calibjax.hypothesis_tests.result import skce_result
from calibjax.hypothesis_tests.simulation import bytes_of_tile, checked_statistic

_SETS = 10  # of predictions of each size, each with its own redraws
_FEWEST = 8  # samples that `sample_size` looks at
_REFINED = 3  # sizes that it looks at between two that are twice as large as one another
_BAND = 1.96  # standard errors


@record
class PowerCurve:
    """Power of a test by the number of samples.

    Attributes:
        sizes: numbers of samples n, [k].
        power: how often the test rejects, [k].
        standard_error: Monte Carlo standard error of the power, [k].
        significance: the level α of the test.
    """

    sizes: Any
    power: Any
    standard_error: Any
    significance: float = dataclasses.field(default=0.05, metadata={"static": True})

    def __str__(self) -> str:
        """A line for each size."""
        rows = zip(self.sizes, self.power, self.standard_error, strict=True)
        return "\n".join(f"{n:>8} samples: power {p:.3f} ± {error:.3f}" for n, p, error in rows)


@record
class SampleSize:
    """How many samples a test needs.

    Attributes:
        num_samples: n, infinite if no size up to the limit is enough.
        low, high: limits of a 95 % interval for n, from the Monte Carlo errors of the power.
        power: the power that is asked for.
        curve: the sizes that were looked at.
        num_predictions: how many predictions were given.
    """

    num_samples: Any
    low: Any
    high: Any
    power: Any
    curve: PowerCurve
    num_predictions: int = dataclasses.field(metadata={"static": True})

    def __str__(self) -> str:
        """The answer in a sentence, with what limits it."""
        largest, smallest = int(self.curve.sizes[-1]), int(self.curve.sizes[0])
        if math.isinf(self.num_samples):
            reached = f"{self.curve.power[-1]:.2f} ± {self.curve.standard_error[-1]:.2f}"
            return (
                f"More than {largest} samples, the limit, are needed for a power of "
                f"{self.power:.2g}: with these it is {reached}."
            )
        high = f"{self.high:.0f}" if math.isfinite(self.high) else f"more than {largest}"
        most = " at most" if self.num_samples <= smallest else ""
        found = f"{self.num_samples:.0f} samples{most} are needed for a power of {self.power:.2g}"
        found += f" (95 % interval {self.low:.0f} to {high})."
        if self.num_samples > self.num_predictions:
            found += (
                f" That is more than the {self.num_predictions} predictions that were given: each "
                "stands for several, as if the others were like them."
            )
        return found


class _Study(NamedTuple):
    """What is the same for all sizes.

    Attributes:
        pvalues: (keys of data sets, keys of redraws, predictions, truth) → p-values.
        predictions: the N given ones.
        truth: the distributions of their targets.
        each: number of data sets that share predictions and redraws.
        num_draws: number of redraws.
        significance: the level.
    """

    pvalues: Callable[..., jax.Array]
    predictions: Any
    truth: Any
    each: int
    num_draws: int
    significance: float


@follows_data
@checks.key_first
def power_curve(
    key: jax.Array,
    test: Callable[..., Any],
    predictions: Distribution,
    alternative: Any,
    sizes: Sequence[int],
    *,
    num_data_sets: int = 1000,
    num_draws: int = 199,
    significance: float = 0.05,
) -> PowerCurve:
    """How often an exact test rejects predictions that are wrong in a known way, by sample size.

    For each size n the given predictions are resampled: 10 sets of n predictions are drawn from
    them with replacement, with keys that depend on `key` and n only. Given its predictions a set
    has one null distribution, so that B redraws from them serve the R / 10 data sets whose targets
    are drawn from the alternative: 10 B + R statistics instead of the R B of as many tests, whose
    p-values they are. The standard error is the larger of that between the sets, and of

        √(π (1 − π) / R + d² / 10),   d = (π(α + s) − π(α − s)) / 2,   s² = α (1 − α) / (B + 2),

    where π(α) is the share of p-values up to α: the second term is that of the critical value,
    which is estimated from B redraws.

    Args:
        key: a JAX random key.
        test: `aggregated_skce_test`, `functools.partial(exact_skce_test, kernel=kernel)` or
            `functools.partial(exact_test, statistic=statistic)`; also with `kernels` of the first
            and with `statistic` of the second.
        predictions: batch of N ≥ 2 distributions, such as those of a pilot study.
        alternative: the distributions of the targets, if predictions are as wrong as that: a batch
            of N distributions, or what makes it of the predictions: a function of them, a pair
            (recalibration, params) such as (recalibration.TemperatureScaling(), 1.1), or a
            dictionary of parameters that replace those of the predictions.
        sizes: numbers of samples n ≥ 2, [k].
        num_data_sets: R, which is rounded up to a multiple of 10, for each size.
        num_draws: B, the number of redraws of the test. With 999 the power is slightly larger than
            with 199.
        significance: α; a test rejects if its p-value is at most that.

    Returns:
        The power at each size, with standard errors.

    Raises:
        TypeError: if an argument is of the wrong kind, or is traced.
        ValueError: if shapes or values are wrong, B is too small for any test to reject, or a
            statistic is NaN.
        NotImplementedError: if expectations have no closed form.

    Cost: for each size, that of (10 B + R) / B tests.

    References: none of the four papers has it; the second term is the delta method for a quantile,
    as for the power of any Monte Carlo test.

    >>> import functools, jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, recalibration
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.02, 0.98, 50))
    >>> test = functools.partial(hypothesis_tests.exact_test, statistic=hypothesis_tests.cox)
    >>> overconfident = recalibration.TemperatureScaling(), 1.5
    >>> print(hypothesis_tests.power_curve(
    ...     jax.random.key(0), test, predictions, overconfident, [100, 400]
    ... ))
         100 samples: power 0.271 ± 0.016
         400 samples: power 0.821 ± 0.020
    """
    study = _checked(test, predictions, alternative, num_data_sets, num_draws, significance)
    key, sizes = checks.random_key(key), _checked_sizes(sizes)
    return _curve(study, {n: _power(key, study, n) for n in sizes})


@follows_data
@checks.key_first
def sample_size(
    key: jax.Array,
    test: Callable[..., Any],
    predictions: Distribution,
    alternative: Any,
    *,
    power: float = 0.8,
    max_size: int | None = None,
    num_data_sets: int = 1000,
    num_draws: int = 199,
    significance: float = 0.05,
) -> SampleSize:
    """How many samples an exact test needs to detect that predictions are wrong in a known way.

    The power is computed as by `power_curve` for n = 8, 16, 32, … until it is reached, and for
    three sizes in between, each where the curve so far says that it is reached. The curve is the
    isotonic regression of these, its normal quantile linear in √n in between. The interval is where
    the same curves through power ± 1.96 standard errors reach it.

    Args:
        key: a JAX random key.
        test: as in `power_curve`.
        predictions: batch of N ≥ 2 distributions.
        alternative: as in `power_curve`.
        power: in (0, 1), larger than the significance.
        max_size: largest n ≥ 8 to look at; 10 N by default.
        num_data_sets: R for each size.
        num_draws: B, the number of redraws of the test.
        significance: α.

    Returns:
        The number of samples with its interval; it prints as a sentence, which says so if
        `max_size` is not enough, or if n > N.

    Raises:
        TypeError: as `power_curve`.
        ValueError: as `power_curve`, and if the power is not in (α, 1).
        NotImplementedError: as `power_curve`.

    Cost: that of `power_curve` for about log₂ n sizes up to 2 n.

    References: none of the four papers has it.

    >>> import functools, jax, jax.numpy as jnp
    >>> from calibjax import distributions, hypothesis_tests, recalibration
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.02, 0.98, 50))
    >>> test = functools.partial(hypothesis_tests.exact_test, statistic=hypothesis_tests.cox)
    >>> overconfident = recalibration.TemperatureScaling(), 2.0
    >>> print(hypothesis_tests.sample_size(
    ...     jax.random.key(0), test, predictions, overconfident, num_data_sets=400
    ... ))
    """
    study = _checked(test, predictions, alternative, num_data_sets, num_draws, significance)
    key, power = checks.random_key(key), float(checks.proportion("power", power))
    if not significance < power < 1:
        raise ValueError(f"power: expected a number in ({significance}, 1), got {power}")
    number = checks.leading_size("predictions", study.predictions)
    limit = 10 * number if max_size is None else max_size
    limit = checks.size_in_range("max_size", max(limit, _FEWEST) if max_size is None else limit, 8)
    found: dict[int, tuple[float, float]] = {}
    n = _FEWEST
    while True:
        found[n] = _power(key, study, n)
        if found[n][0] >= power or n >= limit:
            break
        n = min(2 * n, limit)
    for _ in range(_REFINED):
        n = _crossing(found, power, 0)
        if not math.isfinite(n) or math.ceil(n) in found:
            break
        found[math.ceil(n)] = _power(key, study, math.ceil(n))
    numbers = (_crossing(found, power, errors) for errors in (0, _BAND, -_BAND))
    return SampleSize(*numbers, power, _curve(study, found), number)


def _curve(study: _Study, found: dict[int, tuple[float, float]]) -> PowerCurve:
    sizes = sorted(found)
    power, error = np.array([found[n] for n in sizes]).T
    return PowerCurve(np.array(sizes), power, error, study.significance)


def _crossing(found: dict[int, tuple[float, float]], power: float, errors: float) -> float:
    """Where the monotone curve, moved up by standard errors, reaches a power; infinity if never."""
    sizes = np.array(sorted(found))
    values, error = np.array([found[n] for n in sizes]).T
    fit = isotonic_regression(values, weights=1 / error**2).x + errors * error
    fit = np.maximum.accumulate(np.clip(fit, 1e-9, 1 - 1e-9))
    above = np.flatnonzero(fit >= power)
    if not above.size:
        return math.inf
    last = above[0]
    if not last:
        return float(sizes[0])
    z, roots = ndtri(fit[last - 1 : last + 1]), np.sqrt(sizes[last - 1 : last + 1])
    return float(np.interp(ndtri(power), z, roots) ** 2)


def _power(key: jax.Array, study: _Study, n: int) -> tuple[float, float]:
    """Power at one size, and its standard error."""
    number = checks.leading_size("predictions", study.predictions)
    found = []
    # A handful, each of which plans anew how its kernels are evaluated.
    for own in jax.random.split(jax.random.fold_in(key, n), _SETS):
        keys = jax.random.split(own, 3)
        rows = jax.random.randint(keys[0], (n,), 0, number)
        data = _rows((study.predictions, study.truth), rows)
        drawn = (
            jax.random.split(k, size)
            for k, size in zip(keys[1:], (study.each, study.num_draws), strict=True)
        )
        found.append(np.asarray(study.pvalues(*drawn, *data), float))
    pvalues = np.stack(found)
    if np.isnan(pvalues).any():
        raise ValueError(
            f"test: expected a number for every data set, got nan for {np.isnan(pvalues).sum()} of "
            f"{pvalues.size} data sets of {n} samples"
        )
    return _rate(pvalues, study.num_draws, study.significance)


def _rate(pvalues: np.ndarray, num_draws: int, significance: float) -> tuple[float, float]:
    """Share of p-values [sets, each] up to a level, and its standard error."""

    def shares(level: float) -> np.ndarray:
        return (pvalues <= level + 1e-6).mean(1)  # p-values are rounded

    own = shares(significance)
    spread = math.sqrt(significance * (1 - significance) / (num_draws + 2))
    of_quantile = (shares(significance + spread) - shares(significance - spread)).mean() / 2
    inside = (own.sum() * pvalues.shape[1] + 1) / (pvalues.size + 2)  # never 0 or 1
    within = inside * (1 - inside) / pvalues.size + of_quantile**2 / len(own)
    return float(own.mean()), math.sqrt(max(within, own.var(ddof=1) / len(own)))


@jit
def _rows(tree: PyTree, rows: jax.Array) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[rows], tree)


def _checked_sizes(sizes: Any) -> list[int]:
    if (
        not isinstance(sizes, Sequence | np.ndarray | jax.Array)
        or isinstance(sizes, str)
        or not len(sizes)
    ):
        raise TypeError(
            f"sizes: expected a list of numbers of samples, got {checks.described(sizes)}"
        )
    return sorted({checks.size_in_range(f"sizes[{i}]", n, 2) for i, n in enumerate(sizes)})


def _checked(
    test: Any,
    predictions: Any,
    alternative: Any,
    num_data_sets: int,
    num_draws: int,
    significance: float,
) -> _Study:
    predictions = checks.batch(predictions, minimum=2)
    if isinstance(bare(predictions), Samples):
        raise TypeError(
            "predictions: expected distributions from which targets are redrawn, got ensembles, "
            "whose null distribution depends on the targets"
        )
    checks.method("predictions", predictions, "sample")
    truth = _truth(predictions, alternative)
    if not checks.is_concrete(predictions, truth):
        raise TypeError("predictions: expected values that are known, got traced ones")
    significance = float(checks.proportion("significance", significance))
    each = -(-checks.size_in_range("num_data_sets", num_data_sets, 1) // _SETS)
    num_draws = checks.number_of_draws("num_draws", num_draws)
    if 1 / (num_draws + 1) > significance + 1e-6:
        least = math.ceil(1 / significance) - 1
        raise ValueError(
            f"num_draws: expected at least {least}, fewer never reject at the level "
            f"{significance}, got {num_draws}"
        )
    return _Study(_pvalues_of(test), predictions, truth, each, num_draws, significance)


def _truth(predictions: Any, alternative: Any) -> Any:
    """The distributions of the targets."""
    name = "alternative"
    if isinstance(alternative, dict):
        try:
            alternative = dataclasses.replace(predictions, **alternative)
        except TypeError as error:
            raise TypeError(f"{name}: expected parameters of the predictions: {error}") from None
    elif isinstance(alternative, tuple) and len(alternative) == 2:
        checks.method(f"{name}[0]", alternative[0], "apply")
        alternative = alternative[0].apply(alternative[1], predictions)
    elif not checks.is_distribution(alternative):
        checks.function("function of predictions", name, alternative, "predictions")
        alternative = alternative(predictions)
    truth = checks.batch(alternative, name=name)
    checks.method(name, truth, "sample")
    found, n = (checks.leading_size(name, x) for x in (truth, predictions))
    if found != n:
        raise ValueError(
            f"{name}: expected {n} distributions, one for each prediction, got {found}"
        )
    drawn = draw(jax.random.key(0), truth)
    checks.predictions_and_targets(predictions, drawn, names=("predictions", f"draws of {name}"))
    check_draws(predictions, drawn)
    return truth


def _pvalues_of(test: Any) -> Callable[..., jax.Array]:
    """p-values of a test for data sets that share their redraws, see `_Study`."""
    is_partial = isinstance(test, functools.partial)
    function, options = (test.func, test.keywords) if is_partial else (test, {})
    known = {
        aggregated_skce_test: ((), ("kernels",)),
        exact_skce_test: (("kernel",), ("statistic",)),
        exact_test: (("statistic",), ()),
    }
    if not any(function is x for x in known):
        raise TypeError(
            "test: expected aggregated_skce_test, or functools.partial of it, of exact_skce_test "
            "with kernel= or of exact_test with statistic=, whose redraws data sets can share, got "
            f"{checks.described(test)}"
        )
    needed, others = known[function]
    wrong = [
        *(x for x in options if x not in (*needed, *others)),
        *map(repr, is_partial and test.args or ()),
    ]
    if wrong or any(x not in options for x in needed):
        words = ", ".join(f"{x}=" for x in (*needed, *others))
        raise ValueError(
            f"test: expected {function.__name__} with {words} and nothing else, got "
            f"{', '.join(wrong) or 'none of them'}"
        )
    if function is exact_test:
        return functools.partial(_of_statistic, checked_statistic(options["statistic"]))
    if function is aggregated_skce_test:
        return functools.partial(_of_kernels, options.get("kernels"), "omnibus", is_one=False)
    ranked = checks.choice("statistic", options.get("statistic", "omnibus"), STATISTICS)
    return functools.partial(_of_kernels, options["kernel"], ranked, is_one=True)


def _of_kernels(
    kernels: Any,
    ranked: str,
    data_keys: Any,
    null_keys: Any,
    predictions: Any,
    truth: Any,
    *,
    is_one: bool,
) -> jax.Array:
    if kernels is None:
        kernels = default_kernels(predictions)
    span = _span(data_keys, truth, draw(null_keys[0], predictions))
    members, structure = checked_family(kernels, predictions, span)
    (seen, law, span), weights = filled((predictions, truth, span), None)
    family = family_of(members, seen, span)
    return _kernel_pvalues(
        (family, weights),
        data_keys,
        null_keys,
        seen,
        law,
        checks.leading_size("predictions", predictions),
        rows=default_batch_size(family.num_bytes),
        ranked=ranked,
        structure=None if is_one else structure,
    )


@jit
def _span(keys: jax.Array, truth: Any, targets: PyTree) -> PyTree:
    """Targets with the smallest and the largest of all data sets: kernels are exact up to there."""

    def ends(key: jax.Array) -> PyTree:
        return jax.tree.map(lambda y: jnp.stack([y.min(0), y.max(0)]), draw(key, truth))

    found = jax.lax.map(ends, keys)
    widest = jax.tree.map(lambda y: jnp.stack([y[:, 0].min(0), y[:, 1].max(0)]), found)
    return jax.tree.map(lambda y, z: y.at[:2].set(z.astype(y.dtype)), targets, widest)


@functools.partial(jit, static_argnames=("rows", "ranked", "structure"))
def _kernel_pvalues(
    data: Any,
    data_keys: jax.Array,
    null_keys: jax.Array,
    predictions: Any,
    truth: Any,
    n: Any,
    *,
    rows: int,
    ranked: str,
    structure: Any,
) -> jax.Array:
    def evaluate(targets: PyTree) -> Any:
        family, weights = data
        return family(predictions, targets, weights)

    found, null = _values(evaluate, rows, data_keys, null_keys, predictions, truth)

    def pvalue(own: PyTree) -> jax.Array:
        parts = jax.tree.map(lambda x, drawn: jnp.concatenate([x[None], drawn]), own, null)
        if structure is None:
            parts = jax.tree.map(lambda x: x[:, 0], parts)
        pool = skce_components(*parts, num_targets=n, ranked=ranked, family=structure)
        return skce_result(*pool, own[0], draws="redrawn targets").pvalue

    return jax.lax.map(pvalue, found)


def _of_statistic(
    statistic: Callable[..., Any], data_keys: Any, null_keys: Any, predictions: Any, truth: Any
) -> jax.Array:
    number = checks.leading_size("predictions", predictions)
    each = jax.eval_shape(lambda k, p: statistic(None, p, draw(k, p)), null_keys[0], predictions)
    if not jax.tree_util.all_leaves([each]) or each.shape != ():
        raise ValueError(f"test: expected a statistic that is one number, got {each}")
    rows = default_batch_size(bytes_of_tile(number))
    pvalues = functools.partial(_statistic_pvalues, statistic, rows)
    return compiled_once(pvalues, data_keys, null_keys, predictions, truth)


def _statistic_pvalues(statistic: Any, rows: int, *arguments: Any) -> jax.Array:
    predictions = arguments[2]
    evaluate = jax.vmap(lambda y: statistic(None, predictions, y))
    found, null = _values(evaluate, rows, *arguments)
    return simulated_pvalue(found, null[:, None])


def _values(
    evaluate: Callable[[PyTree], PyTree],
    rows: int,
    data_keys: jax.Array,
    null_keys: jax.Array,
    predictions: Any,
    truth: Any,
) -> tuple[PyTree, PyTree]:
    """Values for targets drawn from the truth, and from the predictions, by one program."""
    rows = min(rows, data_keys.size, null_keys.size)
    like = jax.eval_shape(draw, null_keys[0], predictions)

    def batches(keys: jax.Array) -> jax.Array:
        places = np.arange(-(-keys.size // rows) * rows) % keys.size
        return keys[places].reshape(-1, rows)

    def from_truth(keys: jax.Array) -> PyTree:
        drawn = jax.vmap(lambda key: draw(key, truth))(keys)
        return jax.tree.map(lambda y, z: y.astype(z.dtype), drawn, like)

    def from_predictions(keys: jax.Array) -> PyTree:
        return jax.vmap(lambda key: draw(key, predictions))(keys)

    first, second = batches(data_keys), batches(null_keys)
    is_true = np.arange(len(first) + len(second)) < len(first)

    def batch(item: tuple[jax.Array, jax.Array]) -> PyTree:
        keys, is_true = item
        return evaluate(jax.lax.cond(is_true, from_truth, from_predictions, keys))

    values = jax.lax.map(batch, (jnp.concatenate([first, second]), is_true))
    values = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), values)
    found = jax.tree.map(lambda x: x[: data_keys.size], values)
    return found, jax.tree.map(lambda x: x[first.size :][: null_keys.size], values)
