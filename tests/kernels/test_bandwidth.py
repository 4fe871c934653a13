import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, kernels
from calibjax.kernels import bandwidth


@pytest.mark.parametrize(
    ("n", "dtype", "include_diagonal"),
    [
        *((n, np.float64, False) for n in (2, 3, 4, 7, 50, 301)),
        *((n, np.float64, True) for n in (2, 3, 7, 301)),
        *((n, np.float32, True) for n in (4, 301)),
    ],
)
def test_median_of_all_distances(n, dtype, include_diagonal):
    x = np.random.default_rng(n).normal(size=(n, 2)).astype(dtype)
    matrix = np.asarray(kernels.gram_matrix(distances.Euclidean(), jnp.asarray(x)))
    entries = matrix if include_diagonal else matrix[np.triu_indices(n, 1)]
    ours = kernels.median_heuristic(distances.Euclidean(), x, include_diagonal=include_diagonal)
    assert ours.dtype == dtype
    np.testing.assert_allclose(ours, np.median(entries), rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_held_and_computed_in_every_pass_have_one_median(dtype, monkeypatch):
    probs = np.random.default_rng(0).dirichlet(np.ones(3), size=300).astype(dtype)
    predictions = distributions.Categorical(jnp.asarray(probs))
    held = kernels.median_heuristic(distances.TotalVariation(), predictions)
    monkeypatch.setattr(bandwidth, "_MANY_POINTS", 0)
    bandwidth._mean_of_order_statistics.clear_cache()
    computed = kernels.median_heuristic(distances.TotalVariation(), predictions)
    bandwidth._mean_of_order_statistics.clear_cache()
    assert held == computed
    matrix = np.abs(probs[:, None] - probs).sum(-1)[np.triu_indices(300, 1)] / 2
    np.testing.assert_allclose(held, np.median(matrix), rtol=4 * np.finfo(dtype).eps)


def test_ties_and_zeros():
    ours = kernels.median_heuristic(distances.Euclidean(), jnp.array([1.0, 1.0, 1.0, 5.0]))
    assert ours == np.median([0, 0, 4, 0, 4, 4])
    assert kernels.median_heuristic(distances.Euclidean(), jnp.ones(5)) == 0


def test_total_variation_between_predictions():
    probs = np.random.default_rng(0).dirichlet(np.ones(4), size=60)
    expected = np.median(
        [np.abs(probs[i] - probs[j]).sum() / 2 for i in range(60) for j in range(i + 1, 60)]
    )
    predictions = distributions.Categorical(jnp.asarray(probs))
    ours = kernels.median_heuristic(distances.TotalVariation(), predictions)
    np.testing.assert_allclose(ours, expected, rtol=1e-14)


def test_works_under_jit_and_vmap():
    xs = np.random.default_rng(0).normal(size=(3, 20))
    one = lambda x: kernels.median_heuristic(distances.Euclidean(), x)  # noqa: E731
    np.testing.assert_array_equal(jax.jit(jax.vmap(one))(xs), [one(x) for x in xs])


def test_wrong_input():
    with pytest.raises(ValueError, match="xs: expected at least 2 samples, got 1"):
        kernels.median_heuristic(distances.Euclidean(), jnp.ones(1))
    with pytest.raises(ValueError, match="xs: expected finite values"):
        kernels.median_heuristic(distances.Euclidean(), jnp.array([0.0, jnp.nan]))
    with pytest.raises(TypeError, match="distance: expected a distance record, got str"):
        kernels.median_heuristic("euclidean", jnp.ones(3))
    with jax.enable_x64(False), pytest.raises(ValueError, match="at most 65536 points"):
        kernels.median_heuristic(distances.Euclidean(), jnp.ones(65537))
