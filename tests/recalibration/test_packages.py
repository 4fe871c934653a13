"""Fits equal those of other packages: the same parameters to 1e-6, or a smaller loss.

The numbers are made by `numbers_by_packages.py`.
"""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import CategoricalLogits
from calibjax.recalibration import (
    BetaCalibration,
    MatrixScaling,
    TemperatureScaling,
    VennAbers,
)
from tests.recalibration import numbers_by_packages as data

NUMBERS = json.loads(data.PLACE.read_text(encoding="utf-8"))
M = data.M


def fit(method):
    return method.fit(CategoricalLogits(jnp.asarray(data.LOGITS)), jnp.asarray(data.LABELS))


def fit_confidences(method):
    return method.fit(jnp.asarray(data.CONFIDENCES), jnp.asarray(data.CORRECT))


def as_good(found, other, loss):
    """Equal to 1e-6, or of a smaller loss: packages in single precision stop earlier."""
    is_close = np.allclose(found, other, rtol=0, atol=1e-6)
    assert is_close or loss(np.asarray(found)) < loss(np.asarray(other)), (found, other)
    assert loss(np.asarray(found)) <= loss(np.asarray(other)) + 1e-14


@pytest.mark.parametrize("package", NUMBERS["temperature"])
def test_temperature(package):
    found = fit(TemperatureScaling())
    as_good(found, NUMBERS["temperature"][package], lambda t: data.nll(np.eye(M) / t, 0))
    if package == "SciPy":
        np.testing.assert_allclose(found, NUMBERS["temperature"][package], rtol=1e-6)


@pytest.mark.parametrize("package", NUMBERS["vector"])
def test_vector(package):
    params = fit(MatrixScaling(structure="diagonal"))
    other = np.array(NUMBERS["vector"][package])
    other[M:] -= other[M:].mean()
    found = np.r_[np.asarray(params.slopes), np.asarray(params.biases)]
    as_good(found, other, lambda x: data.nll(np.diag(x[:M]), x[M:]))
    if package == "SciPy":
        np.testing.assert_allclose(found, other, atol=1e-6)


def test_matrix():
    params = fit(MatrixScaling(data.PENALTY))
    found = np.r_[np.ravel(params.slopes), np.asarray(params.biases)]
    expected = np.array(NUMBERS["matrix"]["SciPy"])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    as_good(found, expected, lambda x: data.odir(x[: M * M].reshape(M, M), x[M * M :]))
    free = MatrixScaling().apply(fit(MatrixScaling()), CategoricalLogits(data.LOGITS[:5]))
    expected = NUMBERS["matrix without penalty"]["scikit-learn"]
    np.testing.assert_allclose(free.class_probs, expected, atol=1e-6)


def test_beta():
    params = fit_confidences(BetaCalibration())

    def design(p):
        return np.stack([np.log(p), -np.log1p(-p), np.ones(len(p))], 1)

    def loss(x):
        scores = design(data.CONFIDENCES) @ x
        return np.mean(np.logaddexp(0, scores) - data.CORRECT * scores)

    found = np.array([params.rise, params.fall, params.intercept])
    as_good(found, NUMBERS["beta"]["betacal"], loss)
    values = np.array(NUMBERS["beta"]["netcal"])  # of the map that netcal fits
    new = np.asarray(data.NEW)
    netcal, rest, *_ = np.linalg.lstsq(design(new), np.log(values) - np.log1p(-values), rcond=None)
    assert np.all(rest < 1e-8)
    as_good(found, netcal, loss)
    np.testing.assert_allclose(BetaCalibration().apply(params, new), values, atol=1e-3)


def test_venn_abers():
    params, new = fit_confidences(VennAbers()), jnp.asarray(data.NEW)
    low, high, values = NUMBERS["venn_abers"]["venn-abers"]
    np.testing.assert_allclose(VennAbers().interval(params, new), (low, high), atol=1e-6)
    np.testing.assert_allclose(VennAbers().apply(params, new), values, atol=1e-6)
