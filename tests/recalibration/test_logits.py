import contextlib
import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits, with_features
from calibjax.kernels import Fisher
from calibjax.recalibration import MatrixScaling

RNG = np.random.default_rng(0)
N, M = 300, 3
LOGITS = log_softmax(2 * RNG.normal(size=(N, M)), 1)
_TRUTH = np.exp(log_softmax(LOGITS * [0.5, 0.8, 1.1] + [0.5, 0, -0.5], 1))
LABELS = np.array([RNG.choice(M, p=p) for p in _TRUTH])
CLASSES = CategoricalLogits(jnp.asarray(LOGITS))
BIAS, VECTOR, FREE = (MatrixScaling(None, structure=x) for x in ("bias", "diagonal", "full"))
METHODS = {"bias": BIAS, "vector": VECTOR, "matrix": FREE}


def _loss(method, theta, weights):
    """Loss written from the definition, of NumPy's numbers."""
    biases = theta[-M:]
    slopes = {"bias": np.eye(M), "vector": np.diag(theta[:M])}.get(method)
    slopes = theta[: M * M].reshape(M, M) if slopes is None else slopes
    log_probs = log_softmax(LOGITS @ slopes.T + biases, 1)
    return -np.average(log_probs[np.arange(N), LABELS], weights=weights)


@pytest.mark.parametrize("weights", [None, np.arange(N) % 3])
@pytest.mark.parametrize("name", METHODS)
def test_smallest_loss(name, weights):
    start = {"bias": np.zeros(M), "vector": np.r_[np.ones(M), np.zeros(M)]}.get(name)
    start = np.r_[np.eye(M).ravel(), np.zeros(M)] if start is None else start
    best = minimize(lambda theta: _loss(name, theta, weights), start, tol=1e-12)
    params = METHODS[name].fit(CLASSES, jnp.asarray(LABELS), weights)
    slopes = () if name == "bias" else np.ravel(params.slopes)
    found = np.r_[slopes, np.asarray(params.biases)]
    assert _loss(name, found, weights) <= best.fun + 1e-7
    if name != "matrix":  # in which shifts of all logits with one of them are free
        expected = best.x[-M:] - best.x[-M:].mean()
        np.testing.assert_allclose(params.biases, expected, atol=1e-3)
    np.testing.assert_allclose(np.sum(params.biases), 0, atol=1e-6)


def test_frequencies_after_bias_scaling():
    params = BIAS.fit(CLASSES, jnp.asarray(LABELS))
    found = BIAS.apply(params, with_features(CLASSES, jnp.ones(N)))
    frequencies = np.bincount(LABELS) / N
    np.testing.assert_allclose(found.class_probs.mean(0), frequencies, atol=1e-5)
    np.testing.assert_array_equal(found.features, 1)


@pytest.mark.parametrize("name", METHODS)
def test_identity_and_scores(name):
    method = METHODS[name]
    same = method.apply(method.identity(CLASSES), CLASSES)
    np.testing.assert_allclose(same.class_probs, CLASSES.class_probs, rtol=1e-5)
    p = jax.tree.map(lambda x: x[0], CLASSES)
    score = Fisher(method, "biases").score(p, 1)
    np.testing.assert_allclose(score, np.eye(M)[1] - np.exp(LOGITS[0]), atol=1e-5)


def test_probabilities_of_two_classes():
    probs = jax.nn.sigmoid(jnp.asarray(LOGITS[:, 0]))
    labels = jnp.asarray(LABELS == 0, int)
    two = Categorical(jnp.stack([1 - probs, probs], 1))
    one, other = (VECTOR.fit(x, labels) for x in (Bernoulli(probs), two))
    np.testing.assert_allclose(one.slopes, other.slopes, rtol=1e-4)
    found = VECTOR.apply(one, Bernoulli(probs))
    assert isinstance(found, Bernoulli)
    expected = VECTOR.apply(one, two).class_probs[:, 1]
    np.testing.assert_allclose(found.probs, expected, rtol=1e-5)
    zeros = Categorical(jnp.array([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5], [0.3, 0.7]]))
    params = BIAS.fit(zeros, jnp.array([1, 0, 1, 0]))
    assert np.isfinite(params.biases).all()


def test_bias_of_a_good_classifier():
    """A bias has a maximum wherever every class occurs; here it is 0, by symmetry."""
    labels = np.arange(N) % M
    probs = np.where(np.arange(M) == labels[:, None], 1 - 1e-4, 5e-5)
    params = BIAS.fit(CategoricalLogits(jnp.log(probs)), jnp.asarray(labels))
    np.testing.assert_allclose(params.biases, 0, atol=1e-3)


def _apart(kind):
    """Labels of which one class, or a part of two, is linearly apart, and the others overlap."""
    if kind == "class":
        return np.where(LOGITS[:, 2] > np.log(0.6), 2, RNG.integers(0, 2, N))
    if kind == "one sample of a class":  # beyond all others of its probability
        return np.where(np.arange(N) == LOGITS[:, 2].argmax(), 2, RNG.integers(0, 2, N))
    return np.where(LOGITS[:, 0] + LOGITS[:, 1] > 2 * LOGITS[:, 2], RNG.integers(0, 2, N), 2)


_SLOW = pytest.mark.slow


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=_SLOW)])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vector", "class"),
        pytest.param("vector", "one sample of a class", marks=_SLOW),
        pytest.param("free", "class", marks=_SLOW),
        ("free", "half-space"),
    ],
)
def test_classes_that_are_apart(name, kind, dtype):
    """The likelihood grows without end, though other classes overlap."""
    method = FREE if name == "free" else METHODS[name]
    with jax.enable_x64(dtype == jnp.float64):
        predictions, labels = CategoricalLogits(jnp.asarray(LOGITS, dtype)), _apart(kind)
        with pytest.raises(ValueError, match="linear maps of log-probabilities tell apart"):
            method.fit(predictions, labels)
        params = jax.jit(method.fit)(predictions, labels)
        assert np.isnan(params.slopes).all()
        if not kind.startswith("one sample"):  # which slopes alone tell apart, but for rounding
            assert np.isfinite(MatrixScaling(0.01).fit(predictions, labels).slopes).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_class_that_hardly_occurs(name):
    """One sample of 2000 in single precision, within the others, so that there is a maximum."""
    logits = log_softmax(RNG.normal(size=(2000, M)), 1)
    labels = np.where(np.arange(2000) == logits[:, 2].argsort()[1000], 2, RNG.integers(0, 2, 2000))
    method = MatrixScaling() if name == "matrix" else METHODS[name]  # it is linearly apart
    params = method.fit(CategoricalLogits(jnp.asarray(logits, jnp.float32)), labels)
    assert np.isfinite(params.biases).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("method", [BIAS, VECTOR, FREE])
def test_classes_that_overlap_have_a_map(method, dtype):
    """Also where the same shift of both classes, which changes nothing, has rounding errors."""
    generator = np.random.default_rng(9)
    logits = jax.nn.log_softmax(1.5 * generator.normal(size=(30, 100, 2))).astype(dtype)
    labels = generator.uniform(size=(30, 100)) < jax.nn.softmax(logits / 1.5)[..., 1]

    @jax.jit
    @jax.vmap
    def fitted(logits, labels):
        return method.fit(CategoricalLogits(logits), labels)

    found = fitted(logits, labels.astype(int))
    assert np.isfinite(found.biases).all()
    np.testing.assert_allclose(jnp.sum(found.biases, 1), 0, atol=1e-4)


def _structured(structure, logits, labels, copies, penalty):
    """Minimum of the definition, by SciPy: temperature, z, and the new logits of all samples."""
    n, m = copies.sum(), logits.shape[1]
    shares = copies / n
    rows = np.arange(len(labels))

    def likelihood_loss(z):
        return -shares @ log_softmax(z, 1)[rows, labels]

    search = {"bounds": (-5, 5), "method": "bounded", "options": {"xatol": 1e-10}}
    found = minimize_scalar(lambda log: likelihood_loss(logits * np.exp(-log)), **search)
    temperature = np.exp(found.x)
    z = np.log((n * softmax(logits / temperature, 1) + 1 / m) / (n + 1))
    identity, off = np.eye(m), 1 - np.eye(m)

    def parts(theta):
        slopes = np.eye(m)
        if structure == "diagonal":
            slopes = np.diag(theta[:m])
        elif structure == "full":
            slopes = theta[: m * m].reshape(m, m)
        return slopes, theta[-m:]

    def loss(theta):
        slopes, biases = parts(theta)
        ridge = np.sum(biases**2) + np.sum(np.diag(slopes - identity) ** 2)
        ridge = m / n * (ridge + (m - 1) * np.sum((slopes * off) ** 2))
        return likelihood_loss(z @ slopes.T + biases) + penalty * ridge

    first = {"bias": np.zeros(m), "diagonal": np.r_[np.ones(m), np.zeros(m)]}
    start = first.get(structure, np.r_[np.eye(m).ravel(), np.zeros(m)])
    best = minimize(loss, start, tol=1e-12, options={"gtol": 1e-8})
    slopes, biases = parts(best.x)
    return temperature, log_softmax(z @ slopes.T + biases, 1)


@pytest.mark.parametrize("weights", [None, np.arange(60) % 3])
@pytest.mark.parametrize("structure", ["bias", "diagonal", "full"])
def test_structured_scaling(structure, weights):
    """Integer weights are copies, logits have no origin, and a class may be missing."""
    logits, labels = LOGITS[:60], np.where(LABELS[:60] == 2, 1, LABELS[:60])
    with jax.enable_x64():
        method = MatrixScaling(0.7, structure=structure)
        params = method.fit(CategoricalLogits(logits + 3.0), labels, weights)
        found = method.apply(params, CategoricalLogits(logits - np.arange(60)[:, None]))
    copies = np.ones(60) if weights is None else weights
    temperature, expected = _structured(structure, logits, labels, copies, 0.7)
    np.testing.assert_allclose(params.temperature, temperature, rtol=1e-6)
    np.testing.assert_allclose(params.share, 1 / (copies.sum() + 1))
    np.testing.assert_allclose(log_softmax(found.logits, 1), expected, atol=1e-5)
    assert isinstance(found, CategoricalLogits)


@pytest.mark.parametrize("structure", ["bias", "diagonal", "full"])
def test_structured_scaling_of_separated_classes(structure):
    """There are maps where the likelihood has no maximum, and where predictions say nothing."""
    labels = np.arange(12) % M
    for logits in (50.0 * np.eye(M)[labels], np.zeros((12, M)), -9.0 * np.eye(M)[labels]):
        predictions = CategoricalLogits(jnp.asarray(logits, jnp.float32))
        method = MatrixScaling(structure=structure)
        params = jax.jit(method.fit)(predictions, labels)
        found = method.apply(params, predictions).class_probs[np.arange(12), labels]
        assert np.isfinite(params.slopes).all()
        assert (found >= 0.33).all()
        assert (found < 1).all()
    params = method.fit(predictions, np.zeros(12, int))  # one class only
    assert np.isfinite(params.slopes).all()


def test_many_classes_in_single_precision():
    generator = np.random.default_rng(1)
    logits = 2 * generator.normal(size=(500, 40))
    labels = (logits + generator.gumbel(size=(500, 40))).argmax(1)
    new = jnp.asarray(2 * generator.normal(size=(200, 40)))
    logs = []
    for x64 in (False, True):
        with jax.enable_x64(x64):
            method, dtype = MatrixScaling(), float if x64 else np.float32
            params = method.fit(CategoricalLogits(jnp.asarray(logits, dtype)), labels)
            logs.append(method.apply(params, CategoricalLogits(jnp.asarray(new, dtype))).logits)
    logs = [log_softmax(x, 1) for x in logs]
    np.testing.assert_allclose(*logs, atol=2e-3)
    np.testing.assert_allclose(logs[0].mean(), logs[1].mean(), atol=1e-5)


def test_more_parameters_than_samples():
    predictions, labels = CategoricalLogits(LOGITS[:11]), np.arange(11) % M
    apart = contextlib.suppress(ValueError)
    expected = "12 parameters for 11 samples; use a penalty"
    with pytest.warns(UserWarning, match=expected) as found, apart:
        FREE.fit(predictions, labels)
    assert len(found) == 1
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MatrixScaling().fit(predictions, labels)
        FREE.fit(CLASSES, LABELS)


def test_params_of_other_origin():
    params = MatrixScaling().fit(CLASSES, LABELS)
    for changes, name in (({"temperature": -1.0}, "temperature"), ({"share": 2.0}, "share")):
        changed = dataclasses.replace(params, **changes)
        with pytest.raises(ValueError, match=rf"params\.{name}"):
            MatrixScaling().apply(changed, CLASSES)
    with pytest.raises(TypeError, match=r"params\.share"):
        MatrixScaling().apply(dataclasses.replace(params, share=None), CLASSES)
    for penalty in (0.0, -1.0):
        with pytest.raises(ValueError, match="penalty"):
            MatrixScaling(penalty).fit(CLASSES, LABELS)


@pytest.mark.parametrize("name", ["vector", "matrix"])
def test_very_overconfident_predictions_have_the_same_maximum(name):
    logits = jnp.asarray(LOGITS, jnp.float32)
    maps = [CategoricalLogits(logits * factor) for factor in (1, 1000)]
    one, other = (METHODS[name].apply(METHODS[name].fit(p, LABELS), p).class_probs for p in maps)
    frequencies = np.bincount(LABELS) / N
    np.testing.assert_allclose(one.mean(0), frequencies, atol=1e-5)
    np.testing.assert_allclose(other.mean(0), frequencies, atol=1e-5)
    hard = Categorical(jnp.eye(M)[jnp.argmax(logits, 1)])
    probs = METHODS[name].apply(METHODS[name].fit(hard, LABELS), hard).class_probs
    np.testing.assert_allclose(probs.mean(0), frequencies, atol=1e-5)


def test_biases_of_certain_predictions_are_refused():
    """They have no curvature: Newton's method would stay where it started."""
    labels = RNG.integers(0, 3, 60)
    certain = Categorical(np.eye(3)[RNG.integers(0, 3, 60)])
    with pytest.raises(ValueError, match="probabilities of 0 and 1"):
        MatrixScaling(None, structure="bias").fit(certain, labels)
    assert np.isfinite(MatrixScaling(structure="bias").fit(certain, labels).biases).all()
