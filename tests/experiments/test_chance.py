import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Bernoulli
from experiments.chance import comparisons, measures, networks, simulation, tables

N, M = 120, 4


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
    """Σ_b |Σ_{i in b} (p_i − o_i)| / n with intervals [0, 1/15], (1/15, 2/15], …

    The influence of a sample is its residual, with the sign of its bin.
    """
    bins = np.maximum(np.ceil(15 * probs).astype(int), 1)
    sums = [np.sum((probs - outcomes)[bins == b]) for b in range(16)]
    return np.abs(sums).sum() / len(probs), np.sign(sums)[bins] * (probs - outcomes)


def top_label(probs, labels):
    return binned(probs.max(1), probs.argmax(1) == labels)


def class_wise(probs, labels):
    found = [binned(probs[:, c], labels == c) for c in range(M)]
    return tuple(np.mean(x, 0) for x in zip(*found, strict=True))


def skce(probs, labels):
    h = h_matrix(probs, labels)
    value = h.sum() / N / (N - 1)
    return value, 2 * h.sum(1) / (N - 1) - value


def density(probs, labels):
    """By the estimator of the library, and its means of others by a loop."""
    confidences, correct = probs.max(1), (probs.argmax(1) == labels).astype(int)
    whole = estimators.kde_calibration_error(
        Bernoulli(jnp.asarray(confidences)),
        jnp.asarray(correct),
        bandwidth=measures.BANDWIDTH,
        order=2,
    )
    x, influences = 1 / measures.BANDWIDTH, []
    for i, c in enumerate(confidences):
        a, b = confidences * x, (1 - confidences) * x
        log = a * np.log(c) + b * np.log(1 - c)
        log = log - np.array([_log_gamma(u) + _log_gamma(v) for u, v in zip(a, b, strict=True)])
        weights = np.exp(log - np.delete(log, i).max())
        weights[i] = 0
        mean = weights @ correct / weights.sum()
        influences.append(2 * (mean - c) * (correct[i] - c) - (mean - c) ** 2)
    return float(whole) / 2, np.array(influences)


def _log_gamma(a):
    """log Γ(a + 1), from Stirling's series far out."""
    shift = sum(np.log(a + k) for k in range(1, 11))
    b = a + 11
    series = 1 / (12 * b) - 1 / (360 * b**3) + 1 / (1260 * b**5)
    return (b - 0.5) * np.log(b) - b + 0.5 * np.log(2 * np.pi) + series - shift


ORACLES = (top_label, class_wise, skce, density)


@pytest.mark.parametrize("model", [0, 1])
def test_values_and_influences(data, model):
    probs, labels = data[0][model], data[1]
    found = measures.measure(np.random.default_rng(1), probs, labels, 5)
    drawn = measures.redrawn(np.random.default_rng(1), probs, 5)
    for i, oracle in enumerate(ORACLES):
        value, influences = oracle(probs, labels)
        np.testing.assert_allclose(found.values[i, 0], value, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(found.influences[i], influences, rtol=1e-4, atol=1e-6)
        redrawn = oracle(probs, drawn[2])[0]
        np.testing.assert_allclose(found.values[i, 3], redrawn, rtol=1e-5, atol=1e-8)


def test_standard_errors_are_those_of_repeated_data_sets():
    """Of a miscalibrated model, where nothing is degenerate, over many data sets."""
    rng, values, errors = np.random.default_rng(2), [], []
    for _ in range(200):
        probs = rng.dirichlet(np.full(3, 0.4), 300)
        labels = simulation.redrawn(rng, probs, 1)[0]
        sharper = probs**3 / np.sum(probs**3, 1, keepdims=True)
        found = comparisons.compare(rng, [sharper], labels, 1)
        values.append(found.estimates[:, 0])
        errors.append(np.sqrt(found.variances[:, 0, 0]))
    # The standard deviation of 200 values is known to 5 %.
    ratio = np.mean(errors, 0) / np.std(values, 0)
    assert np.all((ratio > 0.85) & (ratio < 1.25)), ratio


def test_redraws_have_the_predicted_frequencies(data):
    probs = data[0][0]
    drawn = measures.redrawn(np.random.default_rng(2), probs, 400)
    frequencies = np.stack([(drawn == c).mean(0) for c in range(M)], 1)
    errors = np.sqrt(probs * (1 - probs) / 400) + 1e-9
    z = (frequencies - probs)[probs > 0.02] / errors[probs > 0.02]
    assert abs(z.mean()) < 4 / np.sqrt(z.size / M)
    assert abs(z.std() - 1) < 0.1


def test_variances_of_differences(data):
    probs, labels = data
    found = comparisons.compare(np.random.default_rng(3), list(probs), labels, 9)
    for i, oracle in enumerate(ORACLES):
        one, other = (oracle(p, labels)[1] for p in probs)
        expected = np.var(one - other, ddof=1) / N, np.var(one, ddof=1) / N
        actual = found.variances[i, 0, 1], found.variances[i, 0, 0]
        np.testing.assert_allclose(actual, expected, rtol=1e-3)


def test_ranges(data):
    """The second model predicts what has nothing to do with the labels."""
    probs, labels = data
    found = comparisons.compare(np.random.default_rng(4), list(probs), labels, 19)
    assert np.all(found.low <= found.mean)
    assert np.all(found.mean <= found.high)
    np.testing.assert_allclose(found.pvalues[:, 1], 0.05)
    assert np.all(found.pvalues[:, 0] > 0.05)


def compared(estimates, mean):
    """Three models of which the estimates, and the means by chance, are given for all measures."""
    rows = np.tile(estimates, (4, 1)), np.tile(mean, (4, 1))
    zeros = np.zeros((4, 3))
    return comparisons.Compared(rows[0], zeros, rows[1], zeros, zeros, np.full((4, 3, 3), 0.25))


def test_pvalues_are_the_larger_ones():
    """With s = 1/2: z = 2, 0.5 without the mean by chance, of other sign, and no difference."""
    found = comparisons.differences(compared([1.0, 0.0, 1.0], [0.75, 0.0, 2.5]))
    d, error, pvalues = (x[0] for x in found)
    np.testing.assert_allclose(d, [1, 0, -1])
    np.testing.assert_allclose(error, 0.5)
    np.testing.assert_allclose(pvalues, [0.61708, 1, 1], rtol=1e-4)
    unbiased = found.pvalue[measures.MEASURES.index("SKCE")]
    np.testing.assert_allclose(unbiased, [0.04550, 1, 0.04550], rtol=1e-3)


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
    probs = np.stack(networks.recalibrated(network))
    assert probs.shape == (len(networks.METHODS), 200, M)
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-9)
    assert probs.min() >= 0
    # The true temperature is 2: where it is fitted, the likelihood of the other half is larger.
    names = list(networks.METHODS)
    picked = probs[:, np.arange(200), network.judging.labels]
    scores = dict(zip(names, np.log(np.maximum(picked, 1e-9)).mean(1), strict=True))
    assert scores["temperature"] > scores["as it is"]


def test_coarse_and_sharp_models_are_calibrated():
    probs, labels = simulation.calibrated(np.random.default_rng(6), None, 4000)
    for p in probs:
        residuals = p - np.eye(simulation.NUM_CLASSES)[labels]
        z = residuals.sum(0) / np.sqrt(np.sum(p * (1 - p), 0))
        assert np.abs(z).max() < 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swapped", "calibrated"])
def test_equal_models_are_rarely_called_different(data, name):
    counts = simulation.rejections(np.random.default_rng(7), name, 250, data, 400)
    assert max(counts) / 400 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


def test_rows(data):
    probs, labels = data
    compared = comparisons.compare(np.random.default_rng(8), list(probs), labels, 19)
    found = [tables.Found("f", "all", ("a", "b"), N, [compared, compared], is_largest=True)]
    shares = tables.share_rows(found)
    assert [row["measure"] for row in shares] == list(measures.MEASURES)
    pairs = comparisons.differences(compared)
    for i, row in enumerate(shares):
        assert row["pairs"] == 1
        assert row["nothing to rank"] == 0
        assert row["decided"] == row["decided alone"] == (pairs.pvalue[i, 0] <= 0.05)
        assert row["within chance below"] == pytest.approx(1.96 * pairs.error[i, 0], rel=1e-4)
    rows = tables.model_rows(found)
    assert [row["model"] for row in rows] == ["a", "b"]
    assert all(rows[1][f"{name}, p"] == 0.05 for name in measures.MEASURES)
    d, pair = compared.estimates[2], tables.pair_rows(found)[0]
    assert pair["SKCE, A - B"] == pytest.approx(d[0] - d[1], rel=1e-2)
    for ratio, within in ((1.95, 1), (1.97, 0)):  # half the width is 1.96 standard errors
        published = {"a": 0.0, "b": ratio * pairs.error[2, 0]}
        assert tables.published_within(found[0], published) == (within, 1)
    assert tables.published_within(found[0], {"a": 0.0}) == (0, 0)
