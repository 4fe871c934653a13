import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from scipy.special import softmax

from calibjax import distances, distributions, estimators
from calibjax import kernels as K
from calibjax.distributions import Bernoulli, Categorical, Ensemble, Normal
from calibjax.hypothesis_tests import aggregated_skce_test, ensemble_skce_test, exact_skce_test
from calibjax.kernels.residuals import Shape
from calibjax.recalibration import AffineScaling
from calibjax.reductions import OneVersusRest
from tests import oracles

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
PROBS, LABELS = np.array([0.2, 0.7, 0.55, 0.9, 0.35, 0.6, 0.8]), np.array([1, 1, 1, 1, 0, 0, 0])
PAIRS = {
    "wide": K.TensorProduct(K.Exponential(0.4, distances.TotalVariation()), K.White()),
    "narrow": K.TensorProduct(K.Exponential(0.1, distances.TotalVariation()), K.White()),
    "all": K.TensorProduct(K.Constant(), K.White()),
}
LOC, SCALE, TARGETS = RNG.normal(size=40), RNG.uniform(0.5, 1.5, 40), RNG.normal(size=40)


def plain_scores(outcomes, scale):
    """The two means of every outcome; the kernel is constant if the scale is None."""
    n, residuals = len(PROBS), outcomes - PROBS
    weights = np.exp(-np.abs(PROBS[:, None] - PROBS) / (scale or np.inf))
    values = 2 * weights * residuals[:, :, None] * residuals[:, None]
    on = np.trace(values, axis1=1, axis2=2)
    return (values.sum((1, 2)) - on) / (n * (n - 1)), on / n


def test_against_all_outcomes():
    """The ranks among all 2⁷ outcomes, weighted by their probabilities: B → ∞."""
    outcomes = np.array(list(itertools.product([0, 1], repeat=7)))
    weights = np.prod(np.where(outcomes == 1, PROBS, 1 - PROBS), 1)
    place = int(np.flatnonzero((outcomes == LABELS).all(1))[0])

    def score(values):
        mean = weights @ values
        return (values - mean) / np.sqrt(weights @ (values - mean) ** 2)

    largest = {}
    for name, scale in {"wide": 0.4, "narrow": 0.1, "all": None}.items():
        off, on = plain_scores(outcomes, scale)
        both, mean = score(np.cbrt(6 * off + on)), score(np.cbrt(6 * off + weights @ on))
        largest[name] = np.maximum(np.maximum(both, mean), np.abs(score(np.cbrt(on))))
    total = np.max(list(largest.values()), 0)
    test = aggregated_skce_test(KEY, Bernoulli(PROBS), LABELS, kernels=PAIRS, num_draws=20_000)
    atol = 4 * np.sqrt(0.25 / 20_000)
    np.testing.assert_allclose(test.pvalue, weights @ (total >= total[place] - 1e-9), atol=atol)
    for name, values in largest.items():
        expected = weights @ (total >= values[place] - 1e-9)
        if name == "narrow":  # which its own rank would not pass for
            assert expected - weights @ (values >= values[place] - 1e-9) > 2 * atol
        np.testing.assert_allclose(test.adjusted_pvalue[name], expected, atol=2 * atol)
    observed = [plain_scores(outcomes, s)[0][place] for s in (None, 0.1, 0.4)]  # sorted by name
    np.testing.assert_allclose(test.estimate, observed, rtol=1e-9)
    name = test.components.largest_kernel  # several have the same dispersion
    np.testing.assert_allclose(largest[name][place], total[place])


def normals(dtype=np.float64):
    return Normal(jnp.asarray(LOC, dtype), jnp.asarray(SCALE, dtype)), jnp.asarray(TARGETS, dtype)


def mixed():
    """Kernels with and without features, some of which share one of their factors."""
    distance = distances.Wasserstein()
    narrow, wide = K.SquaredExponential(0.3, distance), K.Exponential(2.0, distance)
    near, far = K.SquaredExponential(0.7), K.SquaredExponential(3.0)
    tiny = K.SquaredExponential(0.004)  # more features than worth while: by pairs
    products = [(narrow, near), (wide, tiny), (wide, near), (narrow, tiny), (wide, far)]
    return [K.TensorProduct(*product) for product in products]


@pytest.mark.parametrize("is_traced", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_kernel_sees_the_redraws_of_the_exact_test(is_traced):
    run = functools.partial(aggregated_skce_test, KEY, kernels=mixed(), num_draws=19)
    found = (jax.jit(run) if is_traced else run)(*normals())
    for i, kernel in enumerate(mixed()):
        one = exact_skce_test(KEY, kernel, *normals(), num_draws=19)
        own = found.components.of_kernel(str(i))
        np.testing.assert_allclose(own.unbiased.null_samples, one.components.unbiased.null_samples)
        np.testing.assert_allclose(own.dispersion.z, one.components.dispersion.z, rtol=1e-6)
        np.testing.assert_allclose(found.estimate[i], one.estimate)
        assert one.statistic <= found.statistic + 1e-9


def test_reductions_see_the_same_redraws():
    probs = jnp.asarray(RNG.dirichlet(np.ones(4), 30))
    labels = jnp.asarray(RNG.integers(0, 4, 30))
    product = PAIRS["wide"]
    family = {c: (OneVersusRest(c), product) for c in range(4)}
    family |= {"top": (estimators.top_label, product), "every": product}
    family = {str(name): kernel for name, kernel in family.items()}
    test = aggregated_skce_test(KEY, Categorical(probs), labels, kernels=family, num_draws=19)
    estimates = dict(zip(test.components.kernel_names, test.estimate, strict=True))
    for c in range(4):
        data = Bernoulli(probs[:, c]), (labels == c).astype(int)
        np.testing.assert_allclose(estimates[str(c)], estimators.skce(product, *data))
    data = estimators.top_label(Categorical(probs), labels)
    np.testing.assert_allclose(estimates["top"], estimators.skce(product, *data))
    one = exact_skce_test(KEY, product, Categorical(probs), labels, num_draws=19)
    own = test.components.of_kernel("every")
    np.testing.assert_allclose(own.biased.null_samples, one.components.biased.null_samples)


def test_ensembles_redraw_which_value_is_the_target():
    values = jnp.asarray(RNG.normal(size=(20, 6)))
    data, kernel = (Ensemble(values[:, 1:]), values[:, 0]), oracles.normal_kernel()
    test = aggregated_skce_test(KEY, *data, kernels=[kernel], num_draws=19)
    one = ensemble_skce_test(KEY, kernel, *data, num_draws=19)
    np.testing.assert_allclose(test.pvalue, one.pvalue)
    np.testing.assert_allclose(test.null_samples, one.null_samples, rtol=1e-6)


def test_length_scales_of_default_kernels():
    difference = np.stack([LOC, SCALE], 1)
    distance = np.linalg.norm(difference[:, None] - difference, axis=-1)[np.triu_indices(40, 1)]
    median = np.median(distance)
    one = K.default_kernels(normals()[0])["normal scores 8"]["predictions 1/8 median"]
    np.testing.assert_allclose(one.prediction.length_scale, median / 8)
    assert one.target.kernel.length_scale == 8
    np.testing.assert_allclose(K.default_kernel(normals()[0]).prediction.length_scale, median)
    ensembles = Ensemble(jnp.asarray(LOC.reshape(8, 5)))
    groups = K.default_kernels(ensembles)
    assert [len(group) for group in groups.values()] == [4, 4, 4]
    deviation = np.median(LOC.reshape(8, 5).std(1))
    one = groups["targets 8 deviations"]["all predictions"]
    np.testing.assert_allclose(one.target.length_scale, 8 * deviation)
    np.testing.assert_allclose(K.default_kernel(ensembles).target.length_scale, deviation)
    equal = Normal(jnp.zeros(3), jnp.ones(3))
    for found in (K.default_kernel(equal), K.default_kernels(equal)):
        assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(found))
    with_features = distributions.with_features(normals()[0], jnp.asarray(LOC))
    assert [len(group) for group in K.default_kernels(with_features).values()] == [7, 7, 7, 8, 1]


def test_soft_maximum_by_group():
    """Statistic and p-values from the scores of the kernels, in NumPy."""
    one, two, three = (mixed()[i] for i in (0, 2, 4))
    families = {"flat": [one, two, three], "grouped": {"a": [one, two], "b": {"c": three}}}
    test = lambda kernels: aggregated_skce_test(KEY, *normals(), kernels=kernels, num_draws=49)  # noqa: E731
    found = {name: test(kernels) for name, kernels in families.items()}
    components = found["flat"].components
    parts = components.unbiased, components.dispersion
    unbiased, diagonal = (np.concatenate([x.statistic[None], x.null_samples]) for x in parts)
    score, off = lambda x: (x - x.mean(0)) / x.std(0), 39 * unbiased
    scores = np.maximum(score(np.cbrt(off + diagonal)), score(np.cbrt(off + diagonal.mean(0))))
    scores = np.maximum(scores, np.abs(score(np.cbrt(diagonal))))
    np.testing.assert_allclose(found["flat"].statistic, scores[0].max(), rtol=1e-5)
    groups = np.stack([scores[:, :2].max(1), scores[:, 2]], 1)
    mean, deviation = groups.mean(0), groups.std(0)
    evidence = np.exp(0.5 * np.maximum((groups - mean) / deviation, 0) ** 2)
    largest = ((groups - mean) / deviation).max(1)
    soft = np.sqrt(2 * np.log(evidence.mean(1))) + np.minimum(largest, 0)
    test = found["grouped"]
    np.testing.assert_allclose(test.statistic, soft[0], rtol=1e-5)
    np.testing.assert_allclose(test.pvalue, np.mean(soft >= soft[0] - 1e-9))
    own = (scores[0] - mean[[0, 0, 1]]) / deviation[[0, 0, 1]]
    alone = np.sqrt(np.maximum(np.maximum(own, 0) ** 2 - 2 * np.log(2), 0)) + np.minimum(own, 0)
    expected = [(1 + np.sum(soft[1:] >= a - 1e-9)) / 50 for a in alone]
    np.testing.assert_allclose(jax.tree.leaves(test.adjusted_pvalue), expected)


def test_redraws_do_not_tie():
    """Where no group is above its mean, too: the p-value of a quarter of calibrated data was 1."""
    one, two, three = (mixed()[i] for i in (0, 2, 4))
    family = {"a": [one, two], "b": {"c": three}}
    test = aggregated_skce_test(KEY, *normals(), kernels=family, num_draws=49)
    assert np.mean(test.null_samples < 0) > 0.25
    assert len(np.unique(test.null_samples)) == 49


N = 600  # so many that every direction is plain
WIDE = RNG.normal(size=N)  # locations, and log scales
LOG_SCALES = 0.5 * RNG.permutation(WIDE)
NOISE = RNG.normal(size=N)
LOGITS = 2 * RNG.normal(size=(N, 4))


def _normals_off(kind, sign):
    """Targets that are off in one way."""
    loc, log_scale, e = WIDE, LOG_SCALES, NOISE
    x, v = (loc - loc.mean()) / loc.std(), (log_scale - log_scale.mean()) / log_scale.std()
    level = scipy.stats.norm.cdf(sign * e)
    humps = 0.9 * np.sign(e) + 0.19**0.5 * v, scipy.stats.laplace.ppf(level) / 2**0.5
    e = {
        "skewness": sign * (scipy.stats.gamma.ppf(level, 4) - 4) / 2,
        "peakedness": humps[sign > 0],
        "shift": e + sign * 0.4,
        "scale": e * 1.5**sign,
        "shift by location": e + sign * 0.5 * x,
        "shift by log scale": e + sign * 0.4 * v,
        "scale by location": e * np.exp(sign * 0.4 * x),
        "scale by log scale": e * np.exp(sign * 0.4 * v),
    }[kind]
    return Normal(jnp.asarray(loc), jnp.exp(log_scale)), jnp.asarray(loc + np.exp(log_scale) * e)


def _labels(probs):
    uniform = np.random.default_rng(1).uniform(size=(len(probs), 1))
    return jnp.asarray((probs.cumsum(1) < uniform).sum(1))


def _largest(test):
    components = test.components
    return components.largest_direction, components.direction_of(components.largest_direction)


WORDS = {  # of too large targets, and of too small ones
    "shift": ("too small", "too large"),
    "scale": ("too narrow", "too wide"),
    "skewness": ("not skewed enough to the right", "too skewed to the right"),
    "peakedness": ("not peaked enough", "too peaked"),
}
WHERE = {"": "", "location": " where they are large", "log scale": " where they are wide"}
KINDS = *WORDS, "shift by location", "shift by log scale", "scale by location", "scale by log scale"


def _residuals(kind, z):
    return {
        "shift": z,
        "scale": z**2 - 1,
        "skewness": z**3 / np.sqrt(1 + z**2) - 1.3545308064813153 * z,
        "peakedness": scipy.special.eval_legendre(4, 2 * scipy.stats.norm.cdf(z) - 1),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_directions_of_numbers(kind):
    """Their words, and scores by NumPy."""
    for sign in (1, -1):
        predictions, targets = _normals_off(kind, sign)
        kernels = {"directions": K.default_kernels(predictions)["directions"]}
        kernels["other"] = {"wide": K.TensorProduct(K.Constant(), K.SquaredExponential(100.0))}
        test = aggregated_skce_test(KEY, predictions, targets, kernels=kernels, num_draws=199)
        what, _, by = kind.partition(" by ")
        words = WORDS[what][sign < 0]
        words += WHERE[by]
        name, told = _largest(test)
        assert name == f"directions, {kind}"
        assert told.startswith(f"predictions {words}")
        if not by:  # the other group sees wrong scales in some places, too
            assert test.components.largest_kernel.startswith("directions, ")
        assert min(test.adjusted_pvalue["directions"].values()) == pytest.approx(0.005)
        if sign > 0:  # others are beyond the largest normal scores
            _check_scores(test.components, predictions, np.asarray(targets))


def test_directions_of_a_users_reduction():
    """They are those of the data that it returns."""

    def squared(predictions, targets):
        loc = predictions.loc**2
        return Normal(loc, predictions.scale), loc + targets - predictions.loc

    predictions, targets = normals()
    kernel = K.default_kernels(predictions)["directions"]["shift by location"]
    found = aggregated_skce_test(
        KEY, predictions, targets, kernels={"a": {"b": (squared, kernel)}}, num_draws=9
    )
    data, kernels = squared(predictions, targets), {"a": {"b": kernel}}
    plain = aggregated_skce_test(KEY, *data, kernels=kernels, num_draws=9)
    scores = [x.components.direction_scores for x in (found, plain)]
    np.testing.assert_allclose(*scores, rtol=1e-6)


def _check_scores(components, predictions, targets):
    """Those of directions: the sum of products of residuals and numbers in standard deviations."""
    loc, scale = np.asarray(predictions.loc), np.asarray(predictions.scale)
    numbers = {"location": loc, "log scale": np.log(scale)}
    for name, score in zip(components.kernel_names, components.direction_scores, strict=True):
        group, _, direction = name.partition(", ")
        if group == "directions":
            what, _, by = direction.partition(" by ")
            x = (numbers[by] - numbers[by].mean()) / numbers[by].std() if by else 1
            r = x * _residuals(what, (targets - loc) / scale)
            np.testing.assert_allclose(score, np.sum(r) / np.sqrt(np.sum(r**2)), rtol=1e-6)


@pytest.mark.parametrize(("power", "word"), [(1 / 1.5, "overconfident"), (1.5, "underconfident")])
def test_directions_of_temperatures(power, word):
    probs, labels = softmax(LOGITS, 1), _labels(softmax(power * LOGITS, 1))
    test = aggregated_skce_test(jax.random.key(1), Categorical(probs), labels, num_draws=199)
    assert test.components.largest_kernel.startswith("temperature, ")
    assert _largest(test)[1] == f"{word}: temperature"
    assert f"{word}: temperature, adjusted p = 0.005" in str(test)
    assert min(test.adjusted_pvalue["temperature"].values()) == pytest.approx(0.005)
    assert test.components.groups.keys() == {"bias", "class-wise", "residuals", "temperature"}
    assert test.components.direction_of("residuals, near predictions") == word  # by the spread
    labels = _labels(softmax(np.stack([0 * NOISE, power * LOGITS[:, 0]], 1), 1))
    binary = Bernoulli(scipy.special.expit(LOGITS[:, 0]))
    test = aggregated_skce_test(KEY, binary, labels, num_draws=199)
    assert _largest(test) == ("log-odds, slope", f"{word}: temperature")


@pytest.mark.parametrize(("factor", "word"), [(0.3, "too probable"), (3.0, "too improbable")])
def test_directions_of_frequencies(factor, word):
    probs = softmax(LOGITS, 1)
    truth = probs * np.array([1, 1, 1, factor])
    labels = _labels(truth / truth.sum(1, keepdims=True))
    test = aggregated_skce_test(KEY, Categorical(probs), labels, num_draws=199)
    assert _largest(test)[1] == f"class 3 {word}"
    assert f"class 3: class 3 {word}, adjusted p = 0.005, z = " in str(test)
    is_three = (labels == 3).astype(int)
    test = aggregated_skce_test(KEY, Bernoulli(probs[:, 3]), is_three, num_draws=199)
    words = "too large" if factor < 1 else "too small"
    assert _largest(test) == ("log-odds, intercept", f"probabilities {words}")


def test_errors_without_a_direction():
    """Overconfident for one half of the predictions, and underconfident for the other."""
    predictions, labels = Categorical(softmax(LOGITS, 1)), _labels(softmax(LOGITS, 1))
    near = K.default_kernels(predictions)["temperature"]
    test = aggregated_skce_test(KEY, predictions, labels, kernels=near, num_draws=19)
    score = np.asarray(test.components.direction_scores)
    assert test.components.kernel_names == ("all predictions", "near predictions")
    assert 0 < abs(score[0]) < 2  # of rank one: the sum is all that it sees
    assert score[1] == 0
    flat = [PAIRS["wide"], PAIRS["narrow"]]
    test = aggregated_skce_test(KEY, Bernoulli(PROBS), LABELS, kernels=flat, num_draws=19)
    assert test.components.groups == {"kernels in no group": (0, 1)}


def test_multiples_of_squares_are_squares():
    score, shape = K.NormalScore(K.Fisher(AffineScaling())), K.NormalScore(Shape())
    product = K.TensorProduct(K.Constant(), shape)
    others = 2 * product + product, K.TensorProduct(2 * K.Constant(), 3 * shape)
    near = K.TensorProduct(K.SquaredExponential(1.0, distances.Wasserstein()), shape)
    kernels = [
        product,
        *others,
        near,
        *(K.TensorProduct(K.Constant(), x) for x in (score, Shape())),
    ]
    test = aggregated_skce_test(KEY, *_normals_off("shift", 0.1), kernels=kernels, num_draws=49)
    assert test.components.squares == (True, True, True, False, True, False)
    z = test.components.biased.z
    np.testing.assert_allclose(z[1:3], z[0], rtol=1e-6)


def test_directions_of_counts():
    """The score of a count is the mean over its atom: φ(a) − φ(b) in units of its probability."""
    mean = np.linspace(1, 6, 50)
    predictions = distributions.Poisson(jnp.asarray(mean))
    counts = RNG.poisson(mean)
    shift = K.NormalScore(K.Fisher(AffineScaling(), "shift"))
    kernels = [K.TensorProduct(K.Constant(), shift)]
    test = aggregated_skce_test(KEY, predictions, jnp.asarray(counts), kernels=kernels, num_draws=4)
    cdf = scipy.stats.poisson.cdf([counts - 1, counts], mean)
    density = scipy.stats.norm.pdf(scipy.stats.norm.ppf(cdf))
    r = (density[0] - density[1]) / (cdf[1] - cdf[0])
    expected = r.sum() / np.sqrt((r**2).sum())
    np.testing.assert_allclose(test.components.direction_scores[0], expected, rtol=1e-3)


def test_wrong_families():
    data = normals()
    good = mixed()[0]
    classes = K.TensorProduct(good.prediction, K.White())
    for family, error, message in (
        ({"a": distances.Wasserstein()}, TypeError, r"kernels\['a'\]: expected a kernel"),
        ([classes], NotImplementedError, "no closed-form expectations of .* White"),
        ([(lambda p, y: (Normal(y, p.scale), y), good)], ValueError, "predictions do not depend"),
        ([(_fitted, good)], ValueError, "expected a reduction whose predictions do not depend on"),
        ([(lambda *data: jax.tree.map(lambda x: x[1:], data), good)], ValueError, "all 40 samples"),
    ):
        with pytest.raises(error, match=message):
            aggregated_skce_test(KEY, *data, kernels=family, num_draws=9)


def _fitted(predictions, targets):
    """What it makes of the targets is the same in any order."""
    return Normal(predictions.loc + jnp.mean(targets), predictions.scale), targets
