import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.spatial

from calibjax import distances, distributions, kernels
from calibjax.kernels.defaults import typical_distance

# Coordinates that are multiples of 1/8 have distances without rounding errors.
_POINTS = {
    "spread": lambda rng, n: rng.integers(-(10**4), 10**4, (n, 2)) / 8,
    "few_values": lambda rng, n: rng.integers(0, 4, (n, 2)),
    "two_values": lambda rng, n: np.repeat(rng.integers(0, 2, (n, 1)), 2, 1),
    "sorted": lambda rng, n: np.sort(rng.integers(0, 10**4, (n, 2)), 0) / 8,
    "tree": lambda rng, n: np.where(rng.random((n, 2)) < 0.95, 1, rng.integers(0, 99, (n, 2)) / 8),
}


@pytest.mark.filterwarnings("ignore:xs. .* a distance of zero")
@pytest.mark.parametrize(
    ("n", "dtype"),
    [
        *((n, np.float64) for n in (2, 3, 4, 256)),
        *((n, np.float32) for n in (4, 300)),
        pytest.param(1000, np.float64, marks=pytest.mark.slow),
        pytest.param(1100, np.float32, marks=pytest.mark.slow),
    ],
)
def test_exactly_the_median_whatever_the_points(n, dtype):
    """In two passes over blocks, and traced."""
    traced = jax.jit(kernels.median_heuristic, static_argnames="include_diagonal")
    for name, points in _POINTS.items():
        x = points(np.random.default_rng(n), n).astype(dtype)
        matrix = np.abs(x[:, None] - x).sum(-1, dtype=float)
        pairs = matrix[np.triu_indices(n, 1)]
        for diagonal, entries in ((True, matrix), (False, pairs)) if pairs.any() else ():
            ours = kernels.median_heuristic(distances.Manhattan(), x, include_diagonal=diagonal)
            assert ours == (np.median(entries) or np.median(pairs[pairs > 0])), (name, diagonal)
            assert ours == traced(distances.Manhattan(), x, include_diagonal=diagonal)


def test_values_over_the_whole_range_of_floats():
    x = np.exp(np.random.default_rng(0).uniform(-80, 80, size=300)).astype(np.float32)
    pairs = np.abs(x[:, None] - x)[np.triu_indices(len(x), 1)]
    assert kernels.median_heuristic(distances.Manhattan(), x[:, None]) == np.median(pairs)


def test_positive_where_most_points_are_equal():
    distance = distances.Euclidean()
    median = jax.jit(lambda x: kernels.median_heuristic(distance, x))
    xs = jnp.array([0.0, 0.0, 0.0, 0.0, 0.0, 3.0])
    with pytest.warns(UserWarning, match="10 of 15 pairs of points .* positive distances instead"):
        length_scale = kernels.median_heuristic(distance, xs)
    assert length_scale == median(xs) == 3
    for diagonal in (False, True):
        with pytest.raises(ValueError, match="xs: expected points that differ"):
            kernels.median_heuristic(distance, jnp.ones(5), include_diagonal=diagonal)
    assert jnp.isnan(median(jnp.ones(6)))
    assert jnp.isnan(median(xs.at[0].set(jnp.nan)))


def test_numbers_on_a_line_are_not_thinned():
    probs = np.random.default_rng(0).beta(0.5, 2, 3000)
    found = typical_distance(distances.TotalVariation(), distributions.Bernoulli(probs))
    np.testing.assert_allclose(found, np.median(scipy.spatial.distance.pdist(probs[:, None])))


def test_default_kernels_of_two_classes_and_of_more():
    for size, names in (2, {"residuals", "log-odds"}), (3, {"class-wise", "temperature"}):
        probs = np.random.default_rng(1).dirichlet(np.ones(size), 8)
        assert names <= kernels.default_kernels(distributions.Categorical(probs)).keys()
