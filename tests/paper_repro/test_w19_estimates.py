import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, estimators, kernels
from calibjax.distributions import Categorical
from paper_repro import w19_estimates_simulation as simulation
from paper_repro.w19_ground_truth import mean_total_variation
from paper_repro.w19_simulation import w19_kernel


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


def draw_predictions(seed, n, m, a):
    return Categorical(jnp.asarray(np.random.default_rng(seed).dirichlet(np.full(m, a), n)))


def distances_of(probs):
    return jnp.abs(probs[:, None] - probs).sum(-1) / 2


@pytest.mark.parametrize(("m", "a"), [(2, 1.0), (10, 0.1), (10, 1.0), (100, 0.1), (1000, 0.1)])
@pytest.mark.parametrize(("share", "beta"), [(0.0, None), (0.5, "first"), (1.0, "uniform")])
def test_estimates_are_those_of_the_library(m, a, share, beta):
    n = 61  # odd: the last sample has no partner; more than two blocks of rows
    predictions = draw_predictions(m, n, m, a)
    beta = jnp.asarray(simulation.label_distribution(beta, m))
    labels = simulation.draw_labels(jax.random.key(m), predictions, share, beta)
    mean = mean_total_variation(jnp.full(m, a))
    shared = simulation.shared_parts(predictions.probs, mean)
    values = dict(zip(simulation.ESTIMATORS, simulation.estimate(shared, labels), strict=True))

    binnings = {
        "ece_uniform": estimators.uniform_bins(10),
        "ece_median_variance": estimators.median_variance_bins(10),
    }
    expected = {
        name: estimators.ece(predictions, labels, binning=binning)
        for name, binning in binnings.items()
    }
    median = kernels.median_heuristic(distances.TotalVariation(), predictions)
    for bandwidth, scale in (("median", median), ("mean", mean)):
        sample = w19_kernel(scale), predictions, labels
        expected[f"biased_{bandwidth}"] = estimators.skce_biased(*sample)
        expected[f"unbiased_{bandwidth}"] = estimators.skce(*sample)
        expected[f"block_{bandwidth}"] = estimators.skce_block(*sample, block_size=2)
    assert expected.keys() == values.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("share", "beta"), [(0.0, None), (0.25, "first"), (0.75, "uniform")])
def test_expected_skces_are_means_over_all_labels(share, beta):
    n, m = 5, 3
    probs = draw_predictions(0, n, m, 1.0).probs
    kernel = jnp.stack([jnp.exp(-distances_of(probs) / scale) for scale in (0.3, 0.7)])
    shared = simulation.SharedParts(probs, probs @ probs.T, kernel, jnp.ones((2, n, n)))
    beta = jnp.asarray(simulation.label_distribution(beta, m))
    from_labels = np.asarray((1 - share) * probs + share * beta)
    mean = 0
    for labels in itertools.product(range(m), repeat=n):
        weight = np.prod(from_labels[np.arange(n), labels])
        mean += weight * simulation.estimate(shared, jnp.array(labels))
    np.testing.assert_allclose(simulation.expected_skces(shared, share, beta), mean[2:], atol=1e-15)
