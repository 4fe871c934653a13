"""Every wrong input gives an error that names the argument, what was expected and what came."""

import functools

import jax
import numpy as np
import pytest

from calibjax import estimators, hypothesis_tests, kernels
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
# One function that estimates and two that test; tests.test_mutations goes through all of them.
ENTRIES = {
    "skce": estimators.skce,
    "exact_skce_test": functools.partial(hypothesis_tests.exact_skce_test, KEY),
    "cme_test": functools.partial(
        hypothesis_tests.cme_test, None, at_predictions=LOCATIONS[0], at_targets=LOCATIONS[1]
    ),
}


def _kernel(predictions):
    if isinstance(predictions, Normal | DiagNormal):
        return oracles.normal_kernel()
    return oracles.categorical_kernel()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_data(name):
    predictions, targets, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        estimators.skce(_kernel(predictions), predictions, targets)


@pytest.mark.parametrize("entry", ["skce", "exact_skce_test"])
def test_one_sample(entry):
    with pytest.raises(ValueError, match="predictions: expected at least 2 samples, got 1"):
        ENTRIES[entry](oracles.normal_kernel(), Normal(LOC[:1], SCALE[:1]), Y[:1])


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (
            kernels.TensorProduct(kernels.Exponential(0.0), kernels.SquaredExponential(1.0)),
            ValueError,
            r"kernel.prediction.length_scale: expected positive",
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


@pytest.mark.parametrize(
    "name", ["fewer targets", "vector targets", "complex targets", "one class", "empty"]
)
def test_structure_is_checked_under_jit(name):
    predictions, targets, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        jax.jit(functools.partial(estimators.skce, _kernel(predictions)))(predictions, targets)


@pytest.mark.parametrize("matrix", [np.eye(2), None])
@pytest.mark.parametrize("entry", ["skce", "exact_skce_test"])
def test_truth_values_are_labels(entry, matrix):
    kernel, correct = oracles.categorical_kernel(0.5, matrix), LABELS > 0
    one = ENTRIES[entry](kernel, Bernoulli(LOC), correct)
    two = ENTRIES[entry](kernel, Bernoulli(LOC), correct.astype(int))
    jax.tree.map(np.testing.assert_array_equal, one, two)


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
