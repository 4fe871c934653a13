import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, plotting
from calibjax.distributions import Categorical, Normal, sample_targets
from calibjax.hypothesis_tests import witness_test
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct, White
from tests.plotting.test_histograms import size_of_png

KEY = jax.random.key(0)
GRID = np.stack(np.meshgrid(np.linspace(0, 1, 6), np.linspace(-2, 2, 5)), -1).reshape(-1, 2)
AT = Normal(jnp.asarray(GRID[:, 0]), jnp.ones(30)), jnp.asarray(GRID.sum(1))
KERNEL = TensorProduct(SquaredExponential(0.1, distances.Wasserstein()), SquaredExponential(0.5))
PREDICTIONS = Normal(jnp.linspace(0, 1, 100), jnp.ones(100))
TARGETS = sample_targets(KEY, PREDICTIONS) + 2.0 * (PREDICTIONS.loc > 0.7)


@pytest.fixture(scope="module")
def scalar():
    return witness_test(KEY, KERNEL, PREDICTIONS, TARGETS, *AT, num_draws=99)


@pytest.fixture(scope="module")
def classes():
    kernel = TensorProduct(Exponential(0.5, distances.TotalVariation()), White())
    predictions = Categorical(jnp.full((50, 3), 1 / 3))
    at = Categorical(jnp.tile(jnp.array([0.5, 0.25, 0.25]), (3, 1))), jnp.arange(3)
    return witness_test(KEY, kernel, predictions, jnp.zeros(50, int), *at, num_draws=99), at


def test_map_of_scalar_predictions(scalar):
    ax = plotting.witness_map(scalar, *AT)
    lines = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(np.stack(lines["locations"].get_data(), 1), GRID, atol=1e-6)
    chosen = np.asarray(scalar.adjusted_pvalue) <= 0.05
    assert 0 < chosen.sum() < 30
    found = np.stack(lines["significant"].get_data(), 1)
    np.testing.assert_allclose(found, GRID[chosen], atol=1e-6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted mean", "target - predicted mean")
    assert ax.figure.axes[1].get_ylabel() == "witness (standard errors)"
    limits = ax.figure.axes[1].get_ylim()
    sizes = np.asarray(scalar.estimate) / np.sqrt(np.mean(np.asarray(scalar.null_samples) ** 2, 0))
    np.testing.assert_allclose(limits, (-np.abs(sizes).max(), np.abs(sizes).max()), rtol=1e-5)
    assert ax.figure.legends
    assert size_of_png(ax) > 5000


def test_bars_of_classes(classes):
    result, at = classes
    ax = plotting.witness_map(result, *at)
    heights = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in ax.patches}
    sizes = np.asarray(result.estimate / result.null_size)
    np.testing.assert_allclose([heights[i] for i in range(3)], sizes, rtol=1e-6)
    assert sizes[0] > 0 > sizes[1]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["class 0\np = 0.5", "class 1\np = 0.25", "class 2\np = 0.25"]
    names = ax.get_legend_handles_labels()[1]
    assert names == ["more frequent than predicted", "less frequent than predicted"]
    assert size_of_png(ax) > 5000


def test_wrong_locations(scalar, classes):
    with pytest.raises(ValueError, match=r"at_targets: expected shape \(30,\), as the result"):
        plotting.witness_map(scalar, *classes[1])
    for at in ((Normal(jnp.zeros(30), jnp.ones(30)), AT[1]), (AT[0], AT[0].loc)):
        with pytest.raises(RuntimeError, match="triangulation"):
            plotting.witness_map(scalar, *at)
