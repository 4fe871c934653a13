import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import operators

RNG = np.random.default_rng(0)
SAMPLES, POINTS = RNG.normal(size=(150, 2)), RNG.normal(size=(90, 2))
VALUES = RNG.normal(size=(150, 2))
SAMPLE_GROUPS, POINT_GROUPS = RNG.integers(0, 5, 150), RNG.integers(0, 6, 90)
SCALES = np.array([1e-4, 0.3, 1e4])


def distance(exponent, x, y):
    return jnp.sum(jnp.abs(x - y) ** exponent)


def log_kernel(scale, distance):
    return -distance / scale


def smoothed(tile_size=384, points=POINTS, scales=SCALES, values=VALUES, exponent=1.5):
    return operators.kernel_means(
        distance,
        log_kernel,
        exponent,
        jnp.asarray(scales),
        (jnp.asarray(points), jnp.asarray(POINT_GROUPS)),
        (jnp.asarray(SAMPLES), jnp.asarray(SAMPLE_GROUPS)),
        jnp.asarray(values),
        tile_size=tile_size,
    )


def loop():
    means, totals = np.zeros((3, 90, 2)), np.zeros((3, 90))
    for g, scale in enumerate(SCALES):
        for i, (x, group) in enumerate(zip(POINTS, POINT_GROUPS)):
            inside = group == SAMPLE_GROUPS
            if inside.any():
                distances = (np.abs(x - SAMPLES[inside]) ** 1.5).sum(1)
                weights = np.exp(-(distances - distances.min()) / scale)
                means[g, i] = weights @ VALUES[inside] / weights.sum()
                totals[g, i] = weights.sum()
    return means, totals


@pytest.mark.parametrize("tile_size", [384, 16])
def test_plain_numpy(tile_size):
    assert (POINT_GROUPS == 5).any()  # a group without samples
    for ours, expected in zip(smoothed(tile_size), loop()):
        np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=1e-13)
