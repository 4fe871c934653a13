"""Test of calibration up to a recalibration: with its parameters fitted anew in every redraw."""

import dataclasses
import functools
from typing import Any

import jax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import PyTree
from calibjax.distributions import Ensemble
from calibjax.distributions.base import Distribution
from calibjax.distributions.features import bare
from calibjax.hypothesis_tests._redraw.pool import over_pool
from calibjax.hypothesis_tests.checked_kernels import checked_family
from calibjax.hypothesis_tests.composite_hypotheses import (
    Hypothesis,
    PartsOfFits,
    as_tested,
    hypothesis_of,
    kernels_under,
    repaired_by,
)
from calibjax.hypothesis_tests.directions import direction_scores, direction_words
from calibjax.hypothesis_tests.ensembles import checked_ensembles
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.hypothesis_tests.simulation import checked_batch_size
from calibjax.kernels import default_kernels


@checks.key_first
def composite_calibration_test(
    key: jax.Array,
    recalibration: Any,
    predictions: Distribution,
    targets: ArrayLike,
    *,
    kernels: PyTree = None,
    weights: ArrayLike | None = None,
    num_draws: int = 999,
    batch_size: int | None = None,
) -> CalibrationTestResult:
    """Test of whether a recalibration is enough: calibration up to its parameters.

        H₀: T_θ(p) is calibrated for some θ,

    with the recalibration T_θ, such as a temperature. It is fitted to the data, and the aggregated
    statistic of `aggregated_skce_test` is computed for the repaired predictions. Its distribution
    is that for targets resampled under the null, from the repaired predictions, to which the
    recalibration
    **is fitted again in every redraw**: without this the test would compare predictions that were
    fitted to their targets with some that were not. Kernels on predictions look at the original
    predictions, not at the repaired ones, which a map with many parameters makes nearly all equal
    where they are wrong.

    For *ensembles*, `Ensemble`, a redraw picks which of the repaired members and the target is the
    target, as in `ensemble_skce_test`; kernels on predictions look at these m + 1 values together.

    It is a parametric bootstrap, whose level is right as n grows, not exact. Measured levels are in
    `docs/recalibration.md`. Maps that are rougher than the true one, as isotonic regression, make
    it conservative. So do redraws to which the recalibration cannot be fitted, such as
    `PlattScaling` to twelve samples, which count as larger: a `UserWarning` says how many there
    are, which compiled code cannot. Kernels whose SKCE is zero after every fit, for
    example the score of a temperature that is fitted, do not contribute.

    The mean D of h on the diagonal (`SKCEComponents.dispersion`) follows closely from the repaired
    predictions q if these are of classes or ensembles, and q varies between the redraws. So D* of a
    redraw is measured from what its own fit q* expects of it, and what the fit to the observed
    targets expects is added,

        D* + E_q D − E_q* D,   E_q D = n⁻¹ Σ_i E_{Y~q_i} h_i(Y),

    with h_i(Y) of sample i with target Y and itself. A target kernel of which E k(Z, Z) is not
    known, as of `skce_dispersion`, keeps D*.

    Args:
        key: a JAX random key.
        recalibration: record with `fit(predictions, targets)` and `apply(params, predictions)`,
            pure functions that return predictions from which targets can be drawn.
        predictions: batch of n ≥ 2 distributions.
        targets: [n] or [n, d].
        kernels: as in `aggregated_skce_test`, tensor products; None for `default_kernels`.
        weights: w ≥ 0 of the samples, [n], also of the fits.
        num_draws: B, number of redraws; the smallest possible p-value is 1 / (B + 1).
        batch_size: number of redraws that are fitted and evaluated at once; by default about 16 MB.

    Returns:
        The result, as that of `aggregated_skce_test`, of the repaired predictions.

    Raises:
        TypeError: if an argument is of the wrong kind, or the recalibration lacks a method.
        ValueError: if shapes or values are wrong, or the recalibration cannot be fitted, to the
            targets or to half of the redraws.

    Cost: that of `aggregated_skce_test`, of B fits, which are mapped over the redraws, and of
    E_q* k(Z, Z′) in each, O(n m²) of m members.

    References: none of the four papers has it; Stute, Manteiga and Quindimil (1993), Bootstrap
    based goodness-of-fit-tests, for refitting.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> wide = distributions.Normal(jnp.linspace(0, 1, 100), jnp.full(100, 0.2))
    >>> narrow = distributions.Normal(wide.loc, wide.scale / 2)
    >>> targets = distributions.sample_targets(keys[0], wide)
    >>> method = recalibration.AffineScaling()
    >>> test = composite_calibration_test(keys[1], method, narrow, targets, num_draws=99)
    >>> print(bool(test.pvalue > 0.05))
    True
    """
    for name in ("fit", "apply"):
        if not callable(getattr(recalibration, name, None)) or isinstance(recalibration, type):
            got = checks.described(recalibration)
            raise TypeError(f"recalibration: expected methods fit and apply, got {got}")
    predictions, targets, weights = checks.weighted_samples(
        predictions, targets, weights, minimum=2
    )
    if isinstance(bare(predictions), Ensemble):
        predictions = checked_ensembles(predictions, 2)
    key, num_draws = checks.random_key(key), checks.number_of_draws("num_draws", num_draws)
    repaired = repaired_by(recalibration, predictions, targets, weights)
    predictions, repaired, drawn = as_tested(predictions, repaired, targets)
    if kernels is None:
        kernels = kernels_under(repaired, default_kernels(predictions))
    members, _ = family = checked_family(kernels, predictions, targets)
    tested = hypothesis_of(recalibration, family, predictions, repaired, targets, weights)
    size = checked_batch_size(batch_size, tested.family.num_bytes)
    parts = _pool(jax.random.split(key, num_draws), tested, drawn, batch_size=size)
    result = tested.result(parts)
    words = direction_words(members, predictions)
    judged = tested.judged(repaired, drawn)
    scores = direction_scores(members, words, predictions, judged, weights)
    components: Any = result.components
    components = dataclasses.replace(components, direction_scores=scores, directions=words)
    return dataclasses.replace(result, components=components)


@functools.partial(jax.jit, static_argnames="batch_size")
def _pool(
    keys: jax.Array, tested: Hypothesis, targets: jax.Array, *, batch_size: int
) -> PartsOfFits:
    """`Hypothesis.parts` of the observed targets, then of resampled ones."""

    def evaluate(tested: Hypothesis, ys: jax.Array) -> PartsOfFits:
        return tested.parts(jax.vmap(tested.fitted)(ys), ys)

    return over_pool(keys, type(tested).redraw, evaluate, tested, targets, batch_size)
