"""Recalibration of all classes together: temperatures and linear maps."""

import contextlib
import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from calibjax import scores
from calibjax.distributions import (
    Bernoulli,
    Categorical,
    CategoricalLogits,
    Normal,
    with_features,
)
from calibjax.recalibration import MatrixScaling, TemperatureScaling, temperature_interval
from calibjax.recalibration.classes import _root

RNG = np.random.default_rng(0)
N, M = 300, 3
LOGITS = log_softmax(2 * RNG.normal(size=(N, M)), 1)
_TRUTH = np.exp(log_softmax(LOGITS * [0.5, 0.8, 1.1] + [0.5, 0, -0.5], 1))
LABELS = np.array([RNG.choice(M, p=p) for p in _TRUTH])
CLASSES = CategoricalLogits(LOGITS)
FIT = TemperatureScaling().fit


def best_temperature(logits, labels, shares):
    """Temperature of the least mean loss, by SciPy."""
    rows = np.arange(len(labels))

    def loss(log_temperature):
        return -shares @ log_softmax(logits * np.exp(-log_temperature), 1)[rows, labels]

    options = {"bounds": (-5, 5), "method": "bounded", "options": {"xatol": 1e-10}}
    found = minimize_scalar(loss, **options)
    return np.exp(found.x), found.fun


@pytest.mark.parametrize("temperature", [20105.0, 22000.0, 4.6e-5])
def test_temperatures_near_the_ends_of_the_range(temperature):
    """That of normals with scale 1 is the mean square of the residuals."""
    targets = np.sqrt(temperature) * np.array([-1.2, 0.4, 1.0, np.sqrt(1.4)])
    found = FIT(Normal(np.zeros(4), np.ones(4)), targets)
    np.testing.assert_allclose(found, temperature, rtol=1e-4)


@pytest.mark.parametrize("start", [5.0, 0.1, -5.0, 0.3])
def test_roots_between_steep_and_flat_slopes(start):
    """Where the secant hardly moves there need not be a root; one that is found is not left."""
    ends = jnp.array([start, -10.0, 10.0])
    for rate in (30, -30):
        slope = lambda x, r=rate: np.sign(r) * jnp.expm1(r * (x - 0.3))  # noqa: E731
        np.testing.assert_allclose(_root(slope, *ends), 0.3, rtol=1e-14)
    assert jax.grad(lambda t: _root(lambda x: 0 * t * x, *ends))(1.0) == 0  # a flat slope


def test_logits_where_probabilities_underflow():
    """Against SciPy's minimum, and with the order of the classes kept."""
    logits = (60 * RNG.normal(size=(500, 100))).astype(np.float32)
    labels = (RNG.gumbel(size=logits.shape) + logits / 40).argmax(1)
    predictions = CategoricalLogits(logits)
    assert np.mean(predictions.class_probs[np.arange(500), labels] == 0) > 0.1
    expected, loss = best_temperature(logits.astype(float), labels, np.full(500, 1 / 500))
    temperature = FIT(predictions, labels)
    assert temperature.dtype == np.float32
    np.testing.assert_allclose(temperature, expected, rtol=1e-5)
    scaled = TemperatureScaling().apply(temperature, predictions)
    value = scores.negative_log_likelihood(scaled, labels)
    np.testing.assert_allclose(value, loss, rtol=1e-5)
    np.testing.assert_array_equal(jnp.argsort(scaled.logits, 1), jnp.argsort(logits, 1))


SEPARATED, INVERTED, CERTAIN = np.array([0, 1, 1]), np.array([1, 0, 0]), [0.3, 1, 0.8]
_INFINITE = "finite values at some temperature, .* pass logits in distributions.CategoricalLogits"


@pytest.mark.parametrize(
    ("probs", "targets", "message"),
    [
        ([0.3, 0.6, 0.8], SEPARATED, r"smallest value at T = 4.5e-05; .* separate the classes"),
        ([0.3, 0.6, 0.8], INVERTED, r"smallest value at T = 2.2e\+04; the likelihood"),
        (CERTAIN, INVERTED, _INFINITE),
    ],
)
def test_losses_without_a_minimum(probs, targets, message):
    """Compiled, the temperature is NaN, and that of equal losses is 1."""
    predictions = Bernoulli(np.asarray(probs))
    with pytest.raises(ValueError, match=message):
        FIT(predictions, targets)
    both = jax.jit(jax.vmap(FIT, (None, 0)))(predictions, np.stack([targets, [0, 0, 1]]))
    assert np.isnan(both).tolist() == [True, probs is CERTAIN]
    equal = Categorical(np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]]))
    assert FIT(equal, np.array([0, 1, 2])) == 1


LOSSES = {  # of u = log T − shift, by shift
    1.234: lambda u: jnp.sqrt(1 + 100 * u**2),
    -3.3: lambda u: jnp.where(u > -0.1, u**2, jnp.inf),
    -3.4: lambda u: jnp.where(u > -0.1, u**2, jnp.nan),
    0.21: lambda u: jnp.expm1(30 * u) - 30 * u,  # steep on one side
    -3.1: lambda u: jnp.expm1(100 * u) - 100 * u,  # overflows there
    0.0: lambda u: -jnp.cos(2 * u) + 0.01 * u**2,  # six minima
    2.6: lambda u: u**2 * jnp.exp(-(u**2) / 2),  # smaller, or equal, at both ends
}


def test_minimum_of_a_loss():
    def loss(predictions, targets):
        shift, index = predictions.loc
        u = 2 * jnp.log(predictions.scale[0]) - shift
        return jax.lax.switch(index.astype(int), list(LOSSES.values()), u)

    for index, shift in enumerate(LOSSES):
        predictions = Normal(np.array([shift, index]), np.ones(2))
        temperature = TemperatureScaling(loss).fit(predictions, np.zeros(2))
        np.testing.assert_allclose(np.log(temperature), shift, atol=1e-9)


@pytest.mark.parametrize("weights", [None, RNG.integers(0, 4, 60)])
def test_interval_of_a_temperature(weights):
    """l(θ) = θ / 2 + z² exp(−θ) / 2 + const of normals, whose minimum is exp(θ) = mean z².

    The slopes have the weights, and the error their squares.
    """
    scale = RNG.uniform(0.5, 2.0, 60)
    y = 1.5 * scale * RNG.normal(size=60)
    squares, w = (y / scale) ** 2, np.ones(60) if weights is None else weights
    temperature = np.average(squares, weights=w)
    slopes = w * (0.5 - 0.5 * squares / temperature)
    error = np.sqrt((slopes**2).sum()) / (w * 0.5 * squares / temperature).sum()
    reach = scipy.stats.norm.ppf(0.95) * error
    options = {"confidence_level": 0.9, "weights": weights}
    found = temperature_interval(Normal(np.zeros(60), scale), y, **options)
    expected = temperature * np.exp([-reach, 0, reach])
    np.testing.assert_allclose([found.low, found.estimate, found.high], expected, rtol=1e-6)
    np.testing.assert_allclose(found.standard_error, temperature * error, rtol=1e-6)


FREE = {x: MatrixScaling(None, structure=x) for x in ("bias", "diagonal", "full")}
SLOW = pytest.mark.slow


def test_probabilities_of_two_classes():
    method = FREE["diagonal"]
    probs, labels = softmax(LOGITS[:, :2], 1), (LABELS == 0).astype(int)
    one, two = Bernoulli(probs[:, 1]), Categorical(probs)
    found, expected = (method.apply(method.fit(x, labels), x) for x in (one, two))
    assert isinstance(found, Bernoulli)
    np.testing.assert_allclose(found.probs, expected.class_probs[:, 1], rtol=1e-5)


def apart(kind):
    """Labels of which one class, or a part of two, is linearly apart, and the others overlap."""
    if kind == "class":
        return np.where(LOGITS[:, 2] > np.log(0.6), 2, RNG.integers(0, 2, N))
    if kind == "one sample of a class":  # beyond all others of its probability
        return np.where(np.arange(N) == LOGITS[:, 2].argmax(), 2, RNG.integers(0, 2, N))
    return np.where(LOGITS[:, 0] + LOGITS[:, 1] > 2 * LOGITS[:, 2], RNG.integers(0, 2, N), 2)


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=SLOW)])
@pytest.mark.parametrize(
    ("structure", "kind"),
    [
        ("diagonal", "class"),
        pytest.param("diagonal", "one sample of a class", marks=SLOW),
        pytest.param("full", "class", marks=SLOW),
        pytest.param("full", "half-space", marks=SLOW),
    ],
)
def test_classes_that_are_apart(structure, kind, dtype):
    """The likelihood grows without end, though other classes overlap."""
    with jax.enable_x64(dtype == jnp.float64):
        predictions, labels = CategoricalLogits(jnp.asarray(LOGITS, dtype)), apart(kind)
        with pytest.raises(ValueError, match="linear maps of log-probabilities separate"):
            FREE[structure].fit(predictions, labels)
        params = jax.jit(FREE[structure].fit)(predictions, labels)
        assert np.isnan(params.slopes).all()
        if not kind.startswith("one sample"):  # which slopes alone tell apart, but for rounding
            assert np.isfinite(MatrixScaling(0.01).fit(predictions, labels).slopes).all()


@pytest.mark.parametrize(
    "name", ["bias", *(pytest.param(x, marks=SLOW) for x in ("diagonal", "full"))]
)
def test_maps_that_exist(name):
    """Of one sample of 2000 in single precision, of good classifiers, and of zeros."""
    logits = log_softmax(RNG.normal(size=(2000, M)), 1)
    labels = np.where(np.arange(2000) == logits[:, 2].argsort()[1000], 2, RNG.integers(0, 2, 2000))
    method = MatrixScaling() if name == "full" else FREE[name]  # it is linearly apart
    params = method.fit(CategoricalLogits(logits.astype(np.float32)), labels)
    assert np.isfinite(params.biases).all()
    if name == "bias":  # which have a maximum wherever every class occurs
        zeros = Categorical(np.array([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5], [0.3, 0.7]]))
        assert np.isfinite(method.fit(zeros, np.array([1, 0, 1, 0])).biases).all()
        labels = np.arange(N) % M
        probs = np.where(np.arange(M) == labels[:, None], 1 - 1e-4, 5e-5)
        params = method.fit(CategoricalLogits(np.log(probs)), labels)
        np.testing.assert_allclose(params.biases, 0, atol=1e-3)  # by symmetry


def best_structure(structure, logits, labels, copies, penalty):
    """Minimum of the definition, by SciPy: temperature, and the new logits of all samples."""
    n, m = copies.sum(), logits.shape[1]
    shares, rows = copies / n, np.arange(len(labels))
    temperature, _ = best_temperature(logits, labels, shares)
    z = np.log((n * softmax(logits / temperature, 1) + 1 / m) / (n + 1))
    off = 1 - np.eye(m)

    def map_of(theta):
        if structure == "full":
            return theta[: m * m].reshape(m, m), theta[-m:]
        return np.diag(theta[:m]) if structure == "diagonal" else np.eye(m), theta[-m:]

    def loss(theta):
        slopes, biases = map_of(theta)
        ridge = np.sum(biases**2) + np.sum((np.diag(slopes) - 1) ** 2)
        ridge = m / n * (ridge + (m - 1) * np.sum((slopes * off) ** 2))
        losses = -log_softmax(z @ slopes.T + biases, 1)[rows, labels]
        return shares @ losses + penalty * ridge

    first = {"bias": (), "diagonal": np.ones(m), "full": np.eye(m).ravel()}[structure]
    best = minimize(loss, np.r_[first, np.zeros(m)], tol=1e-12, options={"gtol": 1e-8})
    slopes, biases = map_of(best.x)
    return temperature, log_softmax(z @ slopes.T + biases, 1)


@pytest.mark.parametrize("weights", [None, np.arange(60) % 3])
@pytest.mark.parametrize("structure", FREE)
def test_structured_scaling(structure, weights):
    """Integer weights are copies, logits have no origin, and a class may be missing."""
    logits, labels = LOGITS[:60], np.where(LABELS[:60] == 2, 1, LABELS[:60])
    method = MatrixScaling(0.7, structure=structure)
    params = method.fit(CategoricalLogits(logits + 3.0), labels, weights)
    moved = with_features(CategoricalLogits(logits - np.arange(60)[:, None]), np.ones(60))
    found = method.apply(params, moved)
    copies = np.ones(60) if weights is None else weights
    temperature, expected = best_structure(structure, logits, labels, copies, 0.7)
    np.testing.assert_allclose(params.temperature, temperature, rtol=1e-6)
    np.testing.assert_allclose(params.share, 1 / (copies.sum() + 1))
    np.testing.assert_allclose(log_softmax(found.logits, 1), expected, atol=1e-5)
    assert isinstance(found.distribution, CategoricalLogits)
    np.testing.assert_array_equal(found.features, 1)


@pytest.mark.parametrize("structure", FREE)
def test_structured_scaling_of_separated_classes(structure):
    """There are maps where the likelihood has no maximum, and where predictions say nothing."""
    labels, method = np.arange(12) % M, MatrixScaling(structure=structure)
    fit = jax.jit(method.fit)
    for logits in (50.0 * np.eye(M)[labels], np.zeros((12, M)), -9.0 * np.eye(M)[labels]):
        predictions = CategoricalLogits(jnp.asarray(logits, jnp.float32))
        params = fit(predictions, labels)
        found = method.apply(params, predictions).class_probs[np.arange(12), labels]
        assert np.isfinite(params.slopes).all()
        assert (found >= 0.33).all()
        assert (found < 1).all()
    params = fit(predictions, np.zeros(12, int))  # one class only
    assert np.isfinite(params.slopes).all()


def test_more_parameters_than_samples():
    few, expected = CategoricalLogits(LOGITS[:11]), "12 parameters for 11 samples; use a penalty"
    apart = contextlib.suppress(ValueError)
    with pytest.warns(UserWarning, match=expected) as found, apart:
        FREE["full"].fit(few, np.arange(11) % M)
    assert len(found) == 1
    assert found[0].filename == __file__
    with pytest.warns(UserWarning, match=expected), contextlib.suppress(ValueError):
        FREE["full"].fit(CategoricalLogits(LOGITS[:20]), np.arange(20) % M, np.arange(20) < 11)
    with warnings.catch_warnings(action="error"):
        MatrixScaling().fit(few, np.arange(11) % M)
        FREE["full"].fit(CLASSES, LABELS)


def test_params_of_other_origin():
    params = MatrixScaling().fit(CLASSES, LABELS)
    for changes in ({"temperature": -1.0}, {"share": 2.0}, {"share": None}):
        changed = dataclasses.replace(params, **changes)
        with pytest.raises((ValueError, TypeError), match=rf"params\.{next(iter(changes))}"):
            MatrixScaling().apply(changed, CLASSES)
    for penalty in (0.0, -1.0):
        with pytest.raises(ValueError, match="penalty"):
            MatrixScaling(penalty).fit(CLASSES, LABELS)


def test_rounding_does_not_move_along_shifts_of_all_classes():
    """Shifts of all biases change no prediction and have no curvature; in single precision."""
    rng, n, m = np.random.default_rng(2), 2000, 10
    logits = log_softmax(3 * rng.normal(size=(n, m)), 1)
    labels = (logits / 2 + rng.gumbel(size=(n, m))).argmax(1)

    def loss(params):
        slopes, biases = params.reshape(2, m)
        return -np.mean(log_softmax(slopes * logits + biases, 1)[np.arange(n), labels])

    expected = minimize(loss, np.repeat([0.5, 0.0], m), method="BFGS").fun
    with jax.enable_x64(False):
        predictions = CategoricalLogits(logits.astype(np.float32))
        moved = FREE["diagonal"].apply(FREE["diagonal"].fit(predictions, labels), predictions)
        found = scores.negative_log_likelihood(moved, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["diagonal", "full"])
def test_very_overconfident_predictions_have_the_same_maximum(name):
    """The mean probabilities are the frequencies; a bias of certain ones has no curvature."""
    logits, method, frequencies = LOGITS.astype(np.float32), FREE[name], np.bincount(LABELS) / N
    hard = Categorical(np.eye(M, dtype=np.float32)[logits.argmax(1)])
    for predictions in (CategoricalLogits(logits), CategoricalLogits(1000 * logits), hard):
        probs = method.apply(method.fit(predictions, LABELS), predictions).class_probs
        np.testing.assert_allclose(probs.mean(0), frequencies, atol=1e-5)
    with pytest.raises(ValueError, match="probabilities of 0 and 1"):
        FREE["bias"].fit(hard, LABELS)
    assert np.isfinite(MatrixScaling(structure="bias").fit(hard, LABELS).biases).all()


def test_a_class_that_is_neither_predicted_nor_seen():
    """The likelihood is largest far away, and Newton's method ends where it began."""
    two = RNG.uniform(0.1, 0.9, 40)
    predictions = Categorical(np.stack([two, 1 - two, 0 * two], 1))
    labels, method = RNG.integers(0, 2, 40), MatrixScaling(None, structure="bias")
    with pytest.raises(ValueError, match="targets: expected every class, got none of class 2"):
        method.fit(predictions, labels)
    assert np.isnan(jax.jit(method.fit)(predictions, labels).biases).all()
