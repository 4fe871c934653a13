"""Power of exact tests against closed forms, quadrature and tests of every data set by itself."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from calibjax import distances, distributions, hypothesis_tests, kernels
from calibjax.hypothesis_tests import (
    aggregated_skce_test,
    exact_skce_test,
    exact_test,
    power_curve,
    sample_size,
)
from calibjax.hypothesis_tests._redraw.shared import resampled
from calibjax.hypothesis_tests.simulated_power import checked_study
from calibjax.recalibration import AffineMap, AffineScaling, TemperatureScaling

KEY = jax.random.key(0)
KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
NORMALS = distributions.Normal(jnp.linspace(-1, 1, 12), jnp.full(12, 0.5))
STANDARD = distributions.Normal(jnp.zeros(30), jnp.ones(30))
FAMILY = [KERNEL, [kernels.TensorProduct(kernels.Constant(), kernels.SquaredExponential(0.5))]]
SHIFT = 0.3


def total(predictions, targets, weights=None):
    scores = (targets - predictions.loc) / predictions.scale
    return jnp.sum(scores if weights is None else weights * scores)


TOTAL = functools.partial(exact_test, statistic=total)
ONE_KERNEL = functools.partial(exact_skce_test, kernel=KERNEL)


def shifted(predictions):
    return distributions.Normal(predictions.loc + SHIFT * predictions.scale, predictions.scale)


def power_of_total(n, num_draws=199, significance=0.05):
    """Power of the test with redraws of a sum of normal scores, by quadrature over its value."""
    t = np.linspace(-8, 14, 20001)
    most = math.floor(significance * (num_draws + 1) + 1e-9) - 1
    rejects = scipy.stats.binom.cdf(most, num_draws, scipy.stats.norm.sf(t))
    return np.trapezoid(rejects * scipy.stats.norm.pdf(t - SHIFT * math.sqrt(n)), t)


@pytest.mark.parametrize(
    ("test", "far"),
    [
        (TOTAL, 0.0),
        (ONE_KERNEL, 0.0),
        (ONE_KERNEL, 40.0),  # far beyond the predictions
        (functools.partial(exact_skce_test, kernel=KERNEL, statistic="spread"), 0.0),
        (functools.partial(aggregated_skce_test, kernels=FAMILY), 0.0),
    ],
)
@pytest.mark.parametrize("weights", [None, np.linspace(1, 5, 12)], ids=["plain", "weighted"])
def test_pvalues_are_those_of_each_data_set_by_itself(test, far, weights):
    """With the same keys the redraws are the same, and so is every p-value."""
    truth = distributions.Normal(NORMALS.loc + 0.2 + far, NORMALS.scale)
    study = checked_study(test, NORMALS, truth, 80, 39, 0.05, weights)
    sizes = {"n": 9, "num_data_sets": 4, "num_draws": 39}
    predictions, used, pool = resampled(KEY, *study.given, **sizes)
    [found] = study.pvalues(KEY[None], *study.given, **sizes)
    own = jax.random.split(KEY, 3)[2]
    alone = [
        test(own, predictions=predictions, targets=targets, weights=used, num_draws=39).pvalue
        for targets in pool[:4]
    ]
    np.testing.assert_allclose(found, np.array(alone), rtol=1e-6)
    assert far == 0 or np.allclose(found, 1 / 40)


def test_predictions_are_resampled_with_their_truth():
    truth = distributions.Normal(NORMALS.loc * 1000, jnp.full(12, 1e-3))
    predictions, _, pool = resampled(KEY, NORMALS, truth, n=50, num_data_sets=2, num_draws=3)
    assert pool.shape == (5, 50)
    assert set(predictions.loc.tolist()) <= set(NORMALS.loc.tolist())
    np.testing.assert_allclose(pool[:2], 1000 * np.stack([predictions.loc] * 2), atol=0.01)
    assert (np.abs(pool[2:] - predictions.loc) < 5).all()


def test_power_of_a_sum_by_quadrature():
    sizes = [10, 40]
    found = power_curve(KEY, TOTAL, STANDARD, shifted, sizes, num_data_sets=2000)
    expected = [power_of_total(n) for n in sizes]
    assert (np.abs(found.power - expected) < 3.5 * found.standard_error).all()
    assert (found.standard_error < 0.03).all()
    level = power_curve(KEY, TOTAL, STANDARD, STANDARD, [10], num_data_sets=2000)
    assert abs(level.power[0] - 0.05) < 3.5 * level.standard_error[0]


def test_power_with_weights():
    """A weight of 1 or 3: in the weighted sum n counts as (Σ w)² / Σ w² samples, .8 n."""
    weights = np.where(np.arange(30) % 2, 1.0, 3.0)
    found = power_curve(KEY, TOTAL, STANDARD, shifted, [50], weights=weights, num_data_sets=2000)
    assert abs(found.power[0] - power_of_total(40)) < 3.5 * found.standard_error[0] + 0.01
    with pytest.raises(ValueError, match="weights: expected at least 2 positive"):
        power_curve(KEY, TOTAL, STANDARD, shifted, [10], weights=1.0 * (np.arange(30) == 3))
    test = functools.partial(exact_test, statistic=lambda p, y: jnp.sum(y))
    with pytest.raises(TypeError, match="weights"):
        power_curve(KEY, test, STANDARD, shifted, [10], weights=np.ones(30))


def test_sizes_do_not_depend_on_the_others():
    one = power_curve(KEY, TOTAL, STANDARD, shifted, [10], num_data_sets=2000)
    two = power_curve(KEY, TOTAL, STANDARD, shifted, np.array([40, 10]), num_data_sets=2000)
    assert two.sizes.tolist() == [10, 40]
    assert one.power[0] == two.power[0]
    assert str(two).splitlines()[0] == str(one)


def test_sample_size_by_quadrature():
    exact = next(n for n in range(8, 1000) if power_of_total(n) >= 0.8)
    found = sample_size(KEY, TOTAL, STANDARD, shifted, num_data_sets=2000)
    assert found.low <= exact <= found.high
    assert abs(found.num_samples - exact) < 0.08 * exact
    assert found.high - found.low < 0.4 * exact
    assert f"{found.num_samples} samples are needed for a power of 0.8" in str(found)
    assert "more than the 30 predictions" in str(found)


def test_sample_sizes_at_the_ends():
    small = sample_size(KEY, TOTAL, STANDARD, shifted, max_size=30, num_data_sets=200)
    assert small.num_samples == small.high == math.inf
    assert str(small).startswith("More than 30 samples, the limit, are needed for a power of 0.8")
    truth, seen = {"loc": STANDARD.loc + 5}, []
    large = sample_size(
        KEY, TOTAL, STANDARD, truth, num_data_sets=200, on_size=lambda *one: seen.append(one)
    )
    assert sorted(n for n, _, _ in seen) == large.curve.sizes.tolist()
    assert large.num_samples == large.low == large.high == 8
    assert "8 samples at most are needed" in str(large)


def test_alternatives_of_all_kinds():
    truth = distributions.Normal(STANDARD.loc, STANDARD.scale * math.sqrt(1.5))
    found = [
        power_curve(KEY, TOTAL, STANDARD, alternative, [10], num_data_sets=200).power[0]
        for alternative in (
            truth,
            (TemperatureScaling(), 1.5),
            {"scale": truth.scale},
            lambda p: TemperatureScaling().apply(1.5, p),
            (AffineScaling(), AffineMap(truth.loc[0], truth.scale[0])),
        )
    ]
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"test": hypothesis_tests.cluster_skce_test},
            TypeError,
            "^test: expected aggregated",
        ),
        ({"test": exact_test}, TypeError, "^test: .* got exact_test with no options"),
        (
            {"test": functools.partial(TOTAL, weights=[1])},
            TypeError,
            "^test: .*c, weights",
        ),
        ({"test": functools.partial(exact_skce_test, KEY)}, TypeError, "^test: expected"),
        (
            {"test": functools.partial(exact_test, statistic=lambda p, y: y)},
            ValueError,
            "^test: expected a statistic that is one number, got shapes",
        ),
        (
            {"test": functools.partial(exact_test, statistic=lambda p, y: jnp.log(-jnp.abs(y[0])))},
            ValueError,
            "^test: expected a number for every data set, got nan for 20 of 20 data sets of 9",
        ),
        (
            {"predictions": distributions.Samples(jnp.zeros((4, 3)))},
            TypeError,
            "^predictions: .* got ensembles",
        ),
        ({"alternative": {"sd": 1}}, TypeError, "^alternative: expected parameters"),
        ({"alternative": (1, 2)}, TypeError, r"^alternative\[0\]: .* apply"),
        ({"alternative": 1.1}, TypeError, "^alternative: expected a function of predictions"),
        (
            {"alternative": distributions.Normal(jnp.zeros(3), jnp.ones(3))},
            ValueError,
            "^alternative: expected 30 distributions",
        ),
        (
            {"alternative": distributions.DiagNormal(jnp.zeros((30, 2)), jnp.ones((30, 2)))},
            ValueError,
            "^draws of alternative: ",
        ),
        ({"sizes": []}, ValueError, "^sizes: expected at least one"),
        ({"sizes": [1]}, ValueError, r"^sizes\[0\]: expected an integer >= 2, got 1"),
        ({"num_data_sets": 0}, ValueError, "^num_data_sets: "),
        ({"num_draws": 18}, ValueError, "^num_draws: expected at least 19"),
        ({"significance": 1.5}, ValueError, "^significance: "),
    ],
)
def test_refused_by_name(change, error, message):
    arguments = {
        "test": TOTAL,
        "predictions": STANDARD,
        "alternative": STANDARD,
        "sizes": [9],
        "num_data_sets": 20,
        "num_draws": 19,
        **change,
    }
    with pytest.raises(error, match=message):
        power_curve(KEY, **arguments)


def test_sample_sizes_that_are_refused():
    for change, message in (
        ({"power": 0.05}, r"^power: expected a number in \(0.05, 1\)"),
        ({"power": 80}, "^power: "),
        ({"max_size": 7}, "^max_size: expected an integer >= 8"),
    ):
        with pytest.raises(ValueError, match=message):
            sample_size(KEY, TOTAL, STANDARD, shifted, **change)
    with pytest.raises(TypeError, match="^predictions: expected values that are known"):
        jax.jit(lambda p: power_curve(KEY, TOTAL, p, STANDARD, [9]).power)(STANDARD)


@pytest.mark.slow
def test_standard_errors_are_those_of_repetitions():
    def curve(key):
        found = power_curve(key, TOTAL, STANDARD, shifted, [40], num_data_sets=400)
        return found.power[0], found.standard_error[0]

    power, error = np.array([curve(key) for key in jax.random.split(KEY, 200)]).T
    ratio = power.std(ddof=1) / np.sqrt(np.mean(error**2))
    assert 0.8 < ratio < 1.1  # the larger of two estimates is stated
    assert abs(power.mean() - power_of_total(40)) < 4 * power.std() / math.sqrt(200)


@pytest.mark.slow
@pytest.mark.parametrize("n", [12, 64])
def test_power_is_that_of_brute_force(n):
    """A test of every data set, each with predictions and redraws of its own."""
    hits, number = 0, 400
    for key in jax.random.split(jax.random.key(1), number):
        predictions, _, pool = resampled(
            key, NORMALS, shifted(NORMALS), n=n, num_data_sets=1, num_draws=1
        )
        test = ONE_KERNEL(key, predictions=predictions, targets=pool[0], num_draws=199)
        hits += int(test.pvalue <= 0.05 + 1e-6)
    found = power_curve(KEY, ONE_KERNEL, NORMALS, shifted, [n])
    brute = hits / number
    error = math.hypot(found.standard_error[0], math.sqrt(brute * (1 - brute) / number))
    assert abs(found.power[0] - brute) < 3 * error
