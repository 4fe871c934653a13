"""Power of exact tests by simulation, where data sets with the same predictions share redraws."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax.distributions import Samples
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.distributions.sampling import check_draws, sample_targets
from calibjax.hypothesis_tests._redraw.components import STATISTICS
from calibjax.hypothesis_tests._redraw.shared import (
    pvalues_of_kernels,
    pvalues_of_statistic,
)
from calibjax.hypothesis_tests.aggregated import aggregated_skce_test
from calibjax.hypothesis_tests.exact import exact_skce_test, exact_test
from calibjax.hypothesis_tests.kernel_groups import default_kernels
from calibjax.hypothesis_tests.score_differences import checked_model
from calibjax.hypothesis_tests.simulation import checked_statistic

_SETS = 20  # of predictions of each size, each with its own redraws


class Study(NamedTuple):
    """What is the same for all sizes.

    Attributes:
        pvalues: those of the test, see `pvalues_of_kernels`.
        predictions: the N given ones.
        truth: the distributions of their targets.
        weights: theirs, or None.
        each: number of data sets that share predictions and redraws.
        num_draws: number of redraws.
        significance: the level.
    """

    pvalues: Callable[..., Any]
    predictions: Distribution
    truth: Distribution
    weights: jax.Array | None
    each: int
    num_draws: int
    significance: float

    @property
    def given(self) -> tuple[Any, Any, jax.Array | None]:
        """What is resampled: predictions, truth and weights."""
        return self.predictions, self.truth, self.weights

    def size(self, name: str, n: object, minimum: int) -> int:
        """A number of samples after checking that it is in range, and that memory holds a pool."""
        return checks.number_of_draws(name, n, minimum, numbers_each=self.each + self.num_draws)


def power_of(key: jax.Array, study: Study, n: int) -> tuple[float, float]:
    """Power at one size, and its standard error."""
    keys = jax.random.split(jax.random.fold_in(key, n), _SETS)
    sizes = {"n": n, "num_data_sets": study.each, "num_draws": study.num_draws}
    pvalues = np.asarray(study.pvalues(keys, *study.given, **sizes), float)
    if missing := np.isnan(pvalues).sum():
        raise ValueError(
            f"test: expected a number for every data set, got nan for {missing} of {pvalues.size} "
            f"data sets of {n} samples"
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


def checked_study(
    test: Callable[..., Any],
    predictions: Distribution,
    alternative: Any,
    num_data_sets: int,
    num_draws: int,
    significance: float,
    weights: ArrayLike | None = None,
) -> Study:
    """Checks the arguments that `power_curve` and `sample_size` share."""
    checks.same_rows(predictions=predictions, weights=weights)
    predictions = checks.batch(predictions, minimum=2)
    if isinstance(bare(predictions), Samples):
        raise TypeError(
            "predictions: expected distributions from which targets are redrawn, got ensembles, "
            "whose null distribution depends on the targets"
        )
    truth = _truth(predictions, alternative)
    significance = float(checks.proportion("significance", significance))
    each = -(-checks.number_of_draws("num_data_sets", num_data_sets) // _SETS)
    least = math.ceil(1 / significance - 1e-6) - 1
    num_draws = checks.number_of_draws("num_draws", num_draws)
    if num_draws < least:
        raise ValueError(
            f"num_draws: expected at least {least}, since fewer never reject at the level "
            f"{significance}, got {num_draws}"
        )
    if not checks.is_concrete(weights):
        raise TypeError("weights: expected values that are known, got traced ones")
    weights = checks.sample_weights(weights, predictions, minimum=2)
    pvalues = _pvalues_of(test, with_weights=weights is not None)
    return Study(pvalues, predictions, truth, weights, each, num_draws, significance)


def _truth(predictions: Any, alternative: Any) -> Distribution:
    """The distributions of the targets."""
    name = "alternative"
    if isinstance(alternative, dict):
        try:
            alternative = dataclasses.replace(predictions, **alternative)
        except TypeError as error:
            raise TypeError(
                f"{name}: expected parameters of the predictions, got {error}"
            ) from None
    elif isinstance(alternative, tuple) and len(alternative) == 2:
        checks.method(f"{name}[0]", alternative[0], "apply")
        alternative = alternative[0].apply(alternative[1], predictions)
    elif not checks.is_distribution(alternative):
        checks.function("function of predictions", name, alternative, "predictions")
        law: Any = alternative
        alternative = law(predictions)
    truth = checked_model(name, alternative, predictions)
    if not checks.is_concrete(predictions, truth):
        raise TypeError("predictions: expected values that are known, got traced ones")
    targets = sample_targets(jax.random.key(0), truth)
    checks.predictions_and_targets(predictions, targets, names=("predictions", f"draws of {name}"))
    check_draws(predictions, targets)
    return truth


def _pvalues_of(test: Callable[..., Any], *, with_weights: bool) -> Callable[..., Any]:
    """p-values of a test for data sets that share their redraws, see `Study`."""
    is_partial = isinstance(test, functools.partial)
    function, options = (test.func, dict(test.keywords)) if is_partial else (test, {})
    known: dict[Any, tuple[str, ...]] = {
        aggregated_skce_test: ("kernels",),
        exact_skce_test: ("kernel", "statistic"),
        exact_test: ("statistic",),
    }
    given = [*options, *map(repr, test.args if is_partial else ())]
    needed = known.get(function, ("",))[: 0 if function is aggregated_skce_test else 1]
    if not {*needed} <= {*given} <= {*known.get(function, ())}:
        raise TypeError(
            "test: expected aggregated_skce_test, or functools.partial of it with kernels=, of "
            "exact_skce_test with kernel= (and statistic=) or of exact_test with statistic=, whose "
            f"redraws data sets can share, got {getattr(function, '__name__', function)} with "
            f"{', '.join(given) or 'no options'}"
        )
    if function is exact_test:
        statistic = checked_statistic(options["statistic"], with_weights=with_weights)
        return functools.partial(pvalues_of_statistic, statistic)
    if function is exact_skce_test:
        ranked = checks.choice("statistic", options.get("statistic", "omnibus"), STATISTICS)
        kernel = checks.kernel_values(options["kernel"])
        return functools.partial(pvalues_of_kernels, lambda _: kernel, ranked)
    kernels = options.get("kernels")
    chosen = default_kernels if kernels is None else lambda _: kernels
    return functools.partial(pvalues_of_kernels, chosen, None)
