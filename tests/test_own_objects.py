"""Functions and objects of a user: what cannot be used is refused with a way out."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import (
    distances,
    distributions,
    estimators,
    evaluate,
    hypothesis_tests,
    kernels,
    plotting,
    recalibration,
    record,
    scores,
)
from calibjax.distributions import constraints, parameter
from calibjax.estimators.kernel import mmce
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct, White
from calibjax.kernels.base import Sum
from calibjax.kernels.stationary import PowerExponential
from tests.wrong_data import LABELS, PROBS, Bernoulli, Categorical

KEY = jax.random.key(0)
DATA = Categorical(PROBS), LABELS
BINS = estimators.UniformBins(2)


class PlainKernel(kernels.Kernel):
    def __call__(self, x, y):
        return 1.0


@dataclasses.dataclass(frozen=True)
class PlainDistribution:
    loc: jax.Array

    def sample(self, key):
        return self.loc


RECORD = "decorate its class with calibjax.record.*'A kernel of your own' in .* calibjax.kernels"
NO_KERNELS = {
    "a distance": (distances.Euclidean(), TypeError, "kernel: expected a kernel record, got the "),
    "a distance of predictions": (
        TensorProduct(distances.TotalVariation(), White()),
        TypeError,
        "kernel.prediction: expected a kernel record, got the distance TotalVariation; kernels.Exp",
    ),
    "an empty sum": (Sum(()), ValueError, r"kernel.terms: expected a tuple of at least"),
    "a product of products": (
        TensorProduct(Exponential(), TensorProduct(Exponential(), White())),
        TypeError,
        "kernel.target: expected a kernel on targets, got one with a TensorProduct",
    ),
    "a function": (
        TensorProduct(lambda p, q: 1.0, White()),
        TypeError,
        f"kernel.prediction: expected a record.*, got function; {RECORD}",
    ),
    "a plain class": (
        TensorProduct(PlainKernel(), White()),
        TypeError,
        f"kernel.prediction: expected a record.*, got PlainKernel; {RECORD}",
    ),
}


@pytest.mark.parametrize("case", NO_KERNELS)
def test_what_is_no_kernel_on_pairs(case):
    kernel, error, message = NO_KERNELS[case]
    for function in (
        estimators.skce,
        functools.partial(hypothesis_tests.exact_skce_test, KEY),
        jax.jit(functools.partial(estimators.skce, kernel)),
    ):
        arguments = DATA if hasattr(function, "lower") else (kernel, *DATA)
        with pytest.raises(error, match=message):
            function(*arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: kernels.median_heuristic(f, jnp.arange(3.0)),
        lambda f: estimators.lce(
            estimators.Neighbourhood(Exponential(1.0, f), estimators.UniformBins(1)),
            PROBS,
            PROBS[:, 0],
            LABELS % 2,
        ),
        lambda f: mmce(f, PROBS[:, 0], LABELS % 2),
        lambda f: recalibration.LocalRecalibration(
            estimators.Neighbourhood(f, estimators.UniformBins(1))
        ).fit(PROBS[:, 0], LABELS % 2, PROBS),
    ],
)
def test_functions_are_no_records(call):
    with pytest.raises(TypeError, match=rf"(distance|kernel.*): expected a record.*{RECORD}"):
        call(lambda x, y: jnp.sum(jnp.abs(x - y)))


def test_plain_dataclasses_are_no_distributions():
    kernel = TensorProduct(Exponential(), SquaredExponential())
    message = "predictions: expected a distribution that is a pytree, got PlainDistribution; .*"
    with pytest.raises(TypeError, match=message + "calibjax.record.*calibjax.distributions"):
        estimators.skce(kernel, PlainDistribution(jnp.ones(6)), jnp.ones(6))


WRONG_SIGNATURES = {
    "statistic": lambda f: hypothesis_tests.exact_test(KEY, f, *DATA),
    "distance": lambda f: estimators.ece(*DATA, binning=BINS, distance=f),
    "binning": lambda f: estimators.ece(*DATA, binning=f),
    "kernel": lambda f: kernels.gram_matrix(f, PROBS),
    "loss": lambda f: recalibration.TemperatureScaling(f).fit(*DATA),
}


@pytest.mark.parametrize("name", WRONG_SIGNATURES)
def test_wrong_signatures(name):
    with pytest.raises(
        TypeError, match=rf"{name}: .* called with \(.*, got <lambda>\(\)"
    ) as raised:
        WRONG_SIGNATURES[name](lambda: 0.0)
    assert isinstance(raised.value.__cause__, TypeError)


@pytest.mark.parametrize("name", ["statistic", "distance", "binning", "kernel"])
def test_errors_of_own_functions_arrive_as_they_are(name):
    def function(x, y=None):
        raise TypeError("missing 1 required positional argument")

    with pytest.raises(TypeError, match="^missing 1 required positional argument") as raised:
        WRONG_SIGNATURES[name](function)
    frames = [entry.name for entry in raised.traceback]
    assert frames[-1] == "function"


@pytest.mark.parametrize("estimator", [estimators.ece, estimators.mce])
def test_distances_that_are_no_real_numbers(estimator):
    estimate = functools.partial(estimator, *DATA, binning=BINS)
    with pytest.raises(TypeError, match=r"distance\(p, q\): expected a real number, got complex"):
        estimate(distance=lambda p, q: 1j * jnp.sum(p.probs))
    with pytest.raises(ValueError, match=r"distance\(p, q\): expected a number .* = nan"):
        estimate(distance=lambda p, q: jnp.nan * jnp.sum(p.probs))


MANY = 10**12
DRAWS = {
    "exact_skce_test": lambda: hypothesis_tests.exact_skce_test(
        KEY, TensorProduct(Exponential(), White()), *DATA, num_draws=MANY
    ),
    "exact_test of many statistics": lambda: hypothesis_tests.exact_test(
        KEY, lambda p, y: jnp.zeros(1000), *DATA, num_draws=2**21
    ),
    "monte_carlo": lambda: distributions.monte_carlo(KEY, DATA[0], MANY),
    "null_distribution": lambda: plotting.null_distribution(
        CalibrationTestResult(*np.ones(3), np.arange(3.0)), bins=MANY
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_that_no_memory_holds(name):
    with pytest.raises(
        ValueError, match="expected an integer between . and .*, got (10{12}|2097152)$"
    ):
        DRAWS[name]()


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
@pytest.mark.parametrize(
    "predictions",
    [
        DATA[0],
        distributions.CategoricalLogits(jnp.log(PROBS)),
        Bernoulli(PROBS[:, 0]),
        distributions.Mixture(None, Categorical(jnp.stack([PROBS, PROBS], 1))),
        distributions.monte_carlo(KEY, DATA[0], 2),
    ],
    ids=["categorical", "logits", "Bernoulli", "mixture", "draws"],
)
def test_distances_between_labels_are_refused(predictions, wrap):
    for target in (
        SquaredExponential(),
        2.0 * Exponential(1.0, distances.Manhattan()) + White(),
        White() * PowerExponential(),
        Exponential(1.0, distances.Manhattan(mean=True)),
    ):
        kernel = TensorProduct(Exponential(), target)
        with pytest.raises(ValueError, match=r"kernel.target: expected .* LabelKernel\(gram_"):
            wrap(functools.partial(estimators.skce, kernel))(predictions, LABELS % 2)


def test_distances_between_labels_can_be_asked_for():
    target = kernels.LabelKernel(kernels.gram_matrix(SquaredExponential(), jnp.arange(3.0)))
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    ours = estimators.skce(TensorProduct(Exponential(1e9), target), Categorical(probs), LABELS)
    matrix = np.exp(-0.5 * np.subtract.outer(np.arange(3), np.arange(3)) ** 2)
    residuals = np.eye(3)[LABELS] - probs
    h = residuals @ matrix @ residuals.T
    np.testing.assert_allclose(ours, (h.sum() - np.trace(h)) / 30, rtol=1e-6)


@record
class RationalQuadratic(kernels.Kernel):
    alpha: jax.Array | float = parameter(constraints.positive, default=1.0)

    def __call__(self, x, y):
        return (1 + (x - y) ** 2 / 2 / self.alpha) ** -self.alpha


@pytest.mark.parametrize(
    ("alpha", "error", "message"),
    [
        (-1.0, ValueError, "kernel.alpha: expected positive finite values, got .*-1.0"),
        (np.nan, ValueError, "kernel.alpha: expected positive finite values, got .*nan"),
        (np.ones(2), ValueError, r"kernel.alpha: expected shape \(\) \(a scalar\), got \(2,\)"),
        ("a", TypeError, "kernel.alpha: expected"),
    ],
)
def test_constraints_of_a_kernel(alpha, error, message):
    with pytest.raises(error, match=message):
        kernels.gram_matrix(RationalQuadratic(alpha), jnp.arange(3.0))


def test_constraints_of_a_kernel_under_jit():
    matrix = jax.jit(lambda alpha: kernels.gram_matrix(RationalQuadratic(alpha), jnp.arange(3.0)))
    assert np.isnan(matrix(-1.0)).all()
    np.testing.assert_allclose(matrix(2.0)[0, 2], (1 + 4 / 4) ** -2)


@record
class Vector(kernels.Kernel):
    def __call__(self, x, y):
        return jnp.stack([x, y])


def test_a_kernel_whose_value_is_no_scalar():
    message = r"kernel Vector: expected a scalar as its value at one pair of points, got shape \(2,"
    with pytest.raises(ValueError, match=message):
        kernels.gram_matrix(Vector(), jnp.arange(3.0))


@record
class Pair(distributions.Distribution):
    loc: jax.Array = parameter(constraints.real)

    def sample(self, key):
        return self.loc

    def log_prob(self, y):
        return jnp.stack([y, self.loc])

    crps = log_prob


@pytest.mark.parametrize(
    ("score", "method"), [(scores.negative_log_likelihood, "log_prob"), (scores.crps, "crps")]
)
def test_scores_that_are_no_scalars(score, method):
    message = rf"predictions.{method}: expected a scalar for one .* got shape \(2,\) from Pair"
    with pytest.raises(ValueError, match=message):
        score(Pair(jnp.zeros(3)), jnp.ones(3))


def test_distances_that_redefine_one_method_of_another():
    @record
    class Halved(distances.Wasserstein):
        def squared(self, p, q):
            return 0.25 * super().squared(p, q)

    p, q = distributions.Normal(0.0, 1.0), distributions.Normal(3.0, 1.0)
    assert float(Halved()(p, q)) == pytest.approx(1.5)
    assert float(Exponential(1.0, Halved())(p, q)) == pytest.approx(np.exp(-1.5))
    assert float(SquaredExponential(1.0, Halved())(p, q)) == pytest.approx(np.exp(-1.125))


@pytest.mark.slow
def test_what_evaluate_needs_of_a_family():
    """As docs/your_own.md says it."""

    @record
    class Rayleigh(distributions.Distribution):
        scale: jax.Array = parameter(constraints.positive)

        def sample(self, key):
            return self.scale * jnp.sqrt(2 * jax.random.exponential(key, dtype=self.scale.dtype))

        def log_prob(self, y):
            return jnp.log(y / self.scale**2) - 0.5 * (y / self.scale) ** 2

        def mean(self):
            return self.scale * jnp.sqrt(jnp.pi / 2)

    @record
    class WithVariance(Rayleigh):
        def variance(self):
            return (2 - jnp.pi / 2) * self.scale**2

    scale, targets = jnp.linspace(0.5, 2.0, 12), jnp.linspace(0.3, 3.0, 12)
    with pytest.raises(TypeError, match="a method variance"):
        evaluate(KEY, Rayleigh(scale), targets)
    assert evaluate(KEY, WithVariance(scale), targets).num_samples == 12
