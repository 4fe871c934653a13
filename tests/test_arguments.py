"""Every wrong input gives an error that names the argument, what was expected and what came."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from tests import oracles
from tests.wrong_data import (
    LABELS,
    LOC,
    LOCATIONS,
    PROBS,
    SCALE,
    WRONG,
    Bernoulli,
    Categorical,
    DiagNormal,
    N,
    Normal,
    Y,
)

KEY = jax.random.key(0)
ENTRIES = {
    "skce": estimators.skce,
    "skce_biased": estimators.skce_biased,
    "skce_block": functools.partial(estimators.skce_block, block_size=2),
    "calibration_kernel_matrix": estimators.calibration_kernel_matrix,
    "exact_skce_test": functools.partial(hypothesis_tests.exact_skce_test, KEY),
    "bootstrap_skce_test": functools.partial(hypothesis_tests.bootstrap_skce_test, KEY),
    "block_skce_test": functools.partial(hypothesis_tests.block_skce_test, block_size=2),
    "exact_test": lambda kernel, *data: hypothesis_tests.exact_test(
        KEY, functools.partial(estimators.skce_biased, kernel), *data
    ),
    "consistency_test": lambda kernel, *data: hypothesis_tests.consistency_test(
        KEY, functools.partial(estimators.skce_biased, kernel), *data
    ),
    "spectrum_skce_test": functools.partial(hypothesis_tests.spectrum_skce_test, KEY),
    "gamma_skce_test": hypothesis_tests.gamma_skce_test,
    "pearson_skce_test": hypothesis_tests.pearson_skce_test,
    "distribution_free_skce_test": functools.partial(
        hypothesis_tests.distribution_free_skce_test, estimator="unbiased"
    ),
    "ucme": lambda *arguments: estimators.ucme(*arguments, *LOCATIONS),
    "cme_test": lambda *arguments: hypothesis_tests.cme_test(*arguments, *LOCATIONS),
    "skce_confidence_interval": hypothesis_tests.skce_confidence_interval,
    "bootstrap_skce_confidence_interval": functools.partial(
        hypothesis_tests.bootstrap_skce_confidence_interval, KEY
    ),
}


def _kernel(predictions):
    if isinstance(predictions, Normal | DiagNormal):
        return oracles.normal_kernel()
    return oracles.categorical_kernel()


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_data(entry, name):
    predictions, targets, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        ENTRIES[entry](_kernel(predictions), predictions, targets)


@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in ENTRIES
        if entry
        not in (
            "skce_biased",
            "exact_test",
            "consistency_test",
            "calibration_kernel_matrix",
            "ucme",
            "cme_test",
        )
    ],
)
def test_one_sample(entry):
    with pytest.raises(ValueError, match=r"predictions: expected at least [234] samples, got 1"):
        ENTRIES[entry](oracles.normal_kernel(), Normal(LOC[:1], SCALE[:1]), Y[:1])


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e not in ("exact_test", "consistency_test")]
)
@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (
            kernels.TensorProduct(kernels.Exponential(0.0), kernels.SquaredExponential(1.0)),
            ValueError,
            r"kernel.prediction.length_scale: expected positive",
        ),
        (
            kernels.TensorProduct(kernels.Exponential(1.0), kernels.SquaredExponential(jnp.nan)),
            ValueError,
            r"kernel.target.length_scale: expected positive",
        ),
        ("kernel", TypeError, "kernel: expected a kernel record, got str"),
        (kernels.SquaredExponential(1.0), NotImplementedError, "kernel SquaredExponential"),
        (
            kernels.TensorProduct(kernels.Exponential(1.0), kernels.White()),
            NotImplementedError,
            "White under Normal",
        ),
    ],
)
def test_wrong_kernels(entry, kernel, error, message):
    with pytest.raises(error, match=message):
        ENTRIES[entry](kernel, Normal(LOC, SCALE), Y)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "name",
    ["fewer targets", "vector targets", "complex targets", "one class", "empty"],
)
def test_structure_is_checked_under_jit(entry, name):
    predictions, targets, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        jax.jit(functools.partial(ENTRIES[entry], _kernel(predictions)))(predictions, targets)


def test_labels_out_of_range_never_become_a_number_under_jit():
    for kernel in (oracles.categorical_kernel(), oracles.categorical_kernel(0.5, np.eye(3))):
        estimate = jax.jit(functools.partial(estimators.skce, kernel))
        test = jax.jit(functools.partial(hypothesis_tests.exact_skce_test, KEY, kernel))
        for label in (-1, 3):
            targets = LABELS.at[3].set(label)
            assert jnp.isnan(estimate(Categorical(PROBS), targets))
            assert jnp.isnan(test(Categorical(PROBS), targets).pvalue)


@pytest.mark.parametrize(
    ("size", "error"), [(0, ValueError), (1, ValueError), (N + 1, ValueError), (2.5, TypeError)]
)
def test_block_size(size, error):
    with pytest.raises(error, match="block_size: expected an integer"):
        estimators.skce_block(oracles.normal_kernel(), Normal(LOC, SCALE), Y, block_size=size)


def test_label_matrix_of_another_size_is_refused():
    kernel = oracles.categorical_kernel(0.5, np.eye(4))
    with pytest.raises(ValueError, match=r"matrix: expected shape \[3, 3\]"):
        estimators.skce(kernel, Categorical(PROBS), LABELS)


@pytest.mark.parametrize(
    ("entry", "matrix"),
    [
        *((e, np.eye(2)) for e in ENTRIES if e not in ("block_skce_test", "ucme", "cme_test")),
        ("skce", None),
        ("exact_skce_test", None),  # has features of its own for the white kernel
    ],
)
def test_truth_values_are_labels(entry, matrix):
    kernel, correct = oracles.categorical_kernel(0.5, matrix), LABELS > 0
    one = ENTRIES[entry](kernel, Bernoulli(LOC), correct)
    two = ENTRIES[entry](kernel, Bernoulli(LOC), correct.astype(int))
    jax.tree.map(np.testing.assert_array_equal, one, two)


def _with_statistic(test):
    return lambda key, kernel, *data: test(
        key, functools.partial(estimators.skce_biased, kernel), *data
    )


WITH_KEYS = {
    "exact_skce_test": hypothesis_tests.exact_skce_test,
    "bootstrap_skce_test": hypothesis_tests.bootstrap_skce_test,
    "spectrum_skce_test": hypothesis_tests.spectrum_skce_test,
    "exact_test": _with_statistic(hypothesis_tests.exact_test),
    "consistency_test": _with_statistic(hypothesis_tests.consistency_test),
    "bootstrap_skce_confidence_interval": hypothesis_tests.bootstrap_skce_confidence_interval,
}


@pytest.mark.parametrize("entry", WITH_KEYS)
def test_keys(entry):
    arguments = oracles.normal_kernel(), Normal(LOC, SCALE), Y
    evaluate = lambda k: WITH_KEYS[entry](k, *arguments)  # noqa: E731
    old, new = (jax.eval_shape(evaluate, k) for k in (jax.random.PRNGKey(1), KEY))
    assert jax.tree.leaves(old) == jax.tree.leaves(new)
    for wrong in (0, None, jax.random.split(KEY), jnp.zeros(2)):
        with pytest.raises(TypeError, match="key: expected one random key"):
            WITH_KEYS[entry](wrong, *arguments)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: kernels.SquaredExponential(jnp.ones(2)),
            ValueError,
            "expected shape () (a scalar), got (2,)",
        ),
        (lambda: kernels.SquaredExponential("1"), TypeError, "expected a number, got str"),
        (lambda: kernels.SquaredExponential(None), TypeError, "expected a number, got NoneType"),
        (lambda: kernels.SquaredExponential(jnp.array(1j)), TypeError, "expected a real number"),
        (lambda: kernels.SquaredExponential, TypeError, "expected a kernel record, got the class"),
        (
            lambda: kernels.Exponential(1.0, distances.Wasserstein),
            TypeError,
            "expected a distance record, got the class Wasserstein",
        ),
        (lambda: kernels.Exponential(1.0, "tv"), TypeError, "expected a distance record, got str"),
        (lambda: kernels.LabelKernel(1.0), ValueError, "expected shape [m, m], got ()"),
        (
            lambda: kernels.LabelKernel(jnp.ones((0, 0))),
            ValueError,
            "expected shape [m, m], got (0, 0)",
        ),
    ],
)
def test_malformed_kernels(make, error, message):
    kernel = kernels.TensorProduct(kernels.Exponential(1.0), make())
    with pytest.raises(error, match=re.escape(message)):
        estimators.skce(kernel, Normal(LOC, SCALE), Y)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (Normal, "got the class Normal"),
        (Normal(LOC + 1j, SCALE), "expected real numbers, got complex"),
        (Normal(np.array(["a"] * N), SCALE), "expected numbers, got an array of <U1"),
    ],
)
def test_malformed_predictions(predictions, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        estimators.skce(oracles.normal_kernel(), predictions, Y)


def test_draws_are_checked_too():
    with pytest.raises(ValueError, match="predictions.scale: expected positive"):
        distributions.sample_targets(KEY, Normal(LOC, -SCALE))
    with pytest.raises(TypeError, match="predictions: expected a batch of distributions"):
        distributions.sample_targets(KEY, LOC)


def test_numpy_arrays_are_welcome():
    predictions = Normal(np.linspace(0, 1, N), np.full(N, 0.5))
    ours = estimators.skce(oracles.normal_kernel(), predictions, np.linspace(0, 1, N))
    np.testing.assert_allclose(
        ours, estimators.skce(oracles.normal_kernel(), Normal(LOC, SCALE), Y), rtol=1e-5
    )
