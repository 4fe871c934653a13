import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Bernoulli
from experiments.chance import (
    binned_errors,
    comparisons,
    density_errors,
    kernel_errors,
    networks,
    simulation,
    tables,
)

N, M = 300, 4  # more than one tile


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(M, 0.4), (2, N))
    labels = np.array([rng.choice(M, p=p) for p in probs[0]])
    return probs, labels


def h_matrix(probs, labels):
    """h without diagonal, from its definition: four terms with sums over classes."""
    values = np.zeros((N, N))
    for i in range(N):
        for j in range(N):
            p, q, y, z = probs[i], probs[j], labels[i], labels[j]
            bracket = float(y == z) - p[z] - q[y] + sum(a * b for a, b in zip(p, q, strict=True))
            values[i, j] = np.exp(-0.5 * np.sum(np.abs(p - q))) * bracket if i != j else 0
    return values


def binned(probs, outcomes):
    """Σ_b |Σ_{i in b} (p_i − o_i)| / n with intervals [0, 1/15], (1/15, 2/15], …"""
    bins = np.maximum(np.ceil(15 * probs).astype(int), 1)
    return sum(abs(np.sum((probs - outcomes)[bins == b])) for b in range(1, 16)) / len(probs)


def class_wise(probs, labels):
    return np.mean([binned(probs[:, c], labels == c) for c in range(M)])


def test_estimates(data):
    probs, labels = data
    found = comparisons.compare(jax.random.key(0), jnp.asarray(probs), jnp.asarray(labels), 20)
    for k, p in enumerate(probs):
        skce = h_matrix(p, labels).sum() / N / (N - 1)
        expected = binned(p.max(1), p.argmax(1) == labels), class_wise(p, labels), skce
        np.testing.assert_allclose(found.estimates[:3, k], expected, rtol=1e-5, atol=1e-9)


def test_variance_of_the_difference(data):
    """methods: g = h_a − h_b as a matrix."""
    probs, labels = data
    one, other = (h_matrix(p, labels) for p in probs)
    moments = kernel_errors.moments(jnp.asarray(probs), jnp.asarray(labels))
    for g, place in ((one - other, (0, 1)), (one, (0, 0)), (other, (1, 1))):
        off = ~np.eye(N, dtype=bool)
        u, zeta_2 = g[off].mean(), (g[off] ** 2).mean()
        square = np.var(g.sum(1) / (N - 1), ddof=1)
        zeta_1 = max(((N - 1) ** 2 * square / (N - 2) - (zeta_2 - u**2)) / (N - 4), 0)
        v = 4 * (N - 2) * zeta_1 / (N * (N - 1)) + 2 * (zeta_2 - u**2) / (N * (N - 1))
        np.testing.assert_allclose(kernel_errors.variances(moments)[place], v, rtol=1e-4)


def test_pool(data):
    """Errors of the observed and of one vector of redrawn labels."""
    probs, labels = data
    key = jax.random.key(1)
    found = comparisons.pool(key, jnp.asarray(probs[0]), jnp.asarray(labels), 5)
    drawn = np.asarray(comparisons.redraw(key, jnp.asarray(probs[0]), 5))
    for place, y in ((0, labels), (3, drawn[2])):
        skce = h_matrix(probs[0], y).sum() / N / (N - 1)
        expected = binned(probs[0].max(1), probs[0].argmax(1) == y), class_wise(probs[0], y)
        np.testing.assert_allclose(found[:2, place], expected, rtol=1e-12)
        np.testing.assert_allclose(found[2, place], skce, atol=1e-6)


def test_redraws_have_the_predicted_frequencies(data):
    probs = data[0][0]
    drawn = np.asarray(comparisons.redraw(jax.random.key(2), jnp.asarray(probs), 400))
    frequencies = np.stack([(drawn == c).mean(0) for c in range(M)], 1)
    errors = np.sqrt(probs * (1 - probs) / 400) + 1e-9
    z = (frequencies - probs)[probs > 0.02] / errors[probs > 0.02]
    assert abs(z.mean()) < 4 / np.sqrt(z.size / M)
    assert abs(z.std() - 1) < 0.1


def test_density(data):
    confidences, correct = data[0][0].max(1), (data[0][0].argmax(1) == data[1]).astype(float)
    counts = np.random.default_rng(3).multinomial(N, np.full(N, 1 / N), 2)
    found = density_errors.errors(*map(jnp.asarray, (confidences, correct, counts, correct[None])))
    whole = estimators.kde_calibration_error(
        Bernoulli(jnp.asarray(confidences)),
        jnp.asarray(correct.astype(int)),
        bandwidth=density_errors.BANDWIDTH,
        order=2,
    )
    np.testing.assert_allclose(found.estimate, whole / 2, rtol=1e-4)
    np.testing.assert_allclose(found.redrawn[0], whole / 2, rtol=1e-4)
    log_weights = np.array(density_errors.log_weights(*2 * [jnp.asarray(confidences)]))
    np.fill_diagonal(log_weights, -np.inf)
    weights = np.exp(log_weights - log_weights.max(1, keepdims=True))
    for w, value in zip(counts, found.resampled, strict=True):
        means = weights @ (w * correct) / (weights @ w)
        np.testing.assert_allclose(value, np.mean(w * (means - confidences) ** 2), rtol=1e-4)


def test_noise_of_bins():
    """By hand: of one bin that is clearly wrong, and one that is not."""
    bins = jnp.array([[[0] * 50 + [3] * 50]])
    predicted = jnp.array([[[0.5] * 50 + [0.2] * 50]])
    observed = jnp.array([[[1.0] * 50 + [0.0] * 40 + [1.0] * 10]])
    counts = np.random.default_rng(4).multinomial(100, np.full(100, 0.01), 3)
    found = binned_errors.resampled(
        binned_errors.Binned(bins, predicted, observed), jnp.asarray(counts)
    )
    residuals = np.asarray(predicted - observed)[0, 0]
    wrong = -(counts[:, :50] @ residuals[:50] - residuals[:50].sum()) / 100
    # The second bin expects a variance of 50 · 0.2 · 0.8 = 8 events, as many as are found.
    noise = wrong + np.abs(counts[:, 50:] @ residuals[50:]) / 100
    np.testing.assert_allclose(found.noise[0], noise, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.estimates, [0.25], rtol=1e-6)


def test_pvalues_are_the_larger_ones():
    found = comparisons.Compared(
        np.array([0.0, 1.0, 1.0]), np.array([0.0, 0.5, 0.0]), np.ones((3, 3)), np.full((3, 3), 0.25)
    )
    d, errors, pvalues = comparisons.differences(found)
    np.testing.assert_allclose(d, [-0.5, -1, -0.5])
    np.testing.assert_allclose(errors, [1, 1, 1])
    np.testing.assert_allclose(pvalues, [0.61708, 0.31731, 1.0], rtol=1e-4)  # z = .5, 1; 0


def test_holm_by_rows():
    pvalues = np.array([[0.01, 0.04, 0.03, 0.005], [0.6, 0.9, 1.0, 0.7]])
    expected = [[0.03, 0.06, 0.06, 0.02], [1, 1, 1, 1]]
    np.testing.assert_allclose(comparisons.holm(pvalues), expected)


def test_new_confidences_keep_the_other_proportions():
    probs = jnp.array([[0.6, 0.3, 0.1], [0.0, 1.0, 0.0]])
    found = networks.with_confidence(probs, jnp.array([0.8, 0.9]))
    np.testing.assert_allclose(found, [[0.8, 0.15, 0.05], [0.05, 0.9, 0.05]])


@pytest.fixture(scope="module")
def network():
    """Overconfident predictions of four classes, of which two halves differ in their error."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(400, M)) * 1.5
    powers = np.exp(logits)
    labels = np.array([rng.choice(M, p=p / p.sum()) for p in powers])
    sharp = np.exp(2 * logits)
    part = networks.Part(sharp / sharp.sum(1, keepdims=True), labels)
    return networks.in_halves("a", part)


def test_all_methods_predict(network):
    probs = np.asarray(networks.recalibrated(network))
    assert probs.shape == (len(networks.METHODS), 200, M)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-9)
    assert probs.min() >= 0
    # The true temperature is 2: where it is fitted, the likelihood of the other half is larger.
    names = list(networks.METHODS)
    picked = probs[:, np.arange(200), network.judging.labels]
    scores = dict(zip(names, np.log(np.maximum(picked, 1e-9)).mean(1), strict=True))
    assert scores["temperature"] > scores["as it is"]


def test_coarse_and_sharp_models_are_calibrated():
    probs, labels = simulation.calibrated(jax.random.key(6), None, 4000)
    for p in np.asarray(probs):
        residuals = p - np.eye(simulation.NUM_CLASSES)[np.asarray(labels)]
        z = residuals.sum(0) / np.sqrt(np.sum(p * (1 - p), 0))
        assert np.abs(z).max() < 4


def test_rows(data):
    probs, labels = map(jnp.asarray, data)
    compared = comparisons.compare(jax.random.key(0), probs, labels, 20)
    compared = comparisons.Compared(*(np.asarray(x)[None] for x in compared))
    pools = [comparisons.pool(jax.random.key(1), p, labels, 19) for p in probs]
    ranges = [comparisons.ranges_of(x) for x in pools]
    ranges = comparisons.Ranges(*(np.stack(x) for x in zip(*ranges, strict=True)))
    found = [tables.Found("f", "all", ("a", "b"), N, compared, ranges)]
    shares = tables.share_rows(found)
    assert [row["measure"] for row in shares] == list(comparisons.MEASURES)
    for row in shares:
        parts = row["neither beyond its range"], row["one beyond"], row["both beyond"]
        assert sum(parts) == row["pairs"] == 1
    rows = tables.model_rows(found)
    assert len(rows) == 2 * len(comparisons.MEASURES)
    # The second model predicts what has nothing to do with the labels.
    assert all(row["exact p"] == 0.05 for row in rows if row["model"] == "b")
    d, pair = compared.estimates[0, 2], tables.pair_rows(found)[0]
    assert pair["SKCE, A - B"] == pytest.approx(d[0] - d[1], rel=1e-2)
    assert tables.published_within(found[0], {"a": 0.0, "b": 0.0}) == (1, 1)
    assert tables.published_within(found[0], {"a": 0.0}) == (0, 0)
