import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import operators


def softmax_mean(args, x):
    """A ratio of sums over samples, at one point (vector, index of a sample to leave out)."""
    samples, values, rate = args
    point, excluded = x
    logits = jnp.where(jnp.arange(len(samples)) == excluded, -jnp.inf, rate * samples @ point)
    return {"mean": jax.nn.softmax(logits) @ values}


def data(n):
    rng = np.random.default_rng(0)
    xs = jnp.asarray(rng.normal(size=(n, 3)))
    return (xs, jnp.asarray(rng.normal(size=(n, 2))), 0.7), (xs, jnp.arange(n))


@pytest.mark.parametrize(
    ("n", "tile_size"), [(2, 1), (2, 128), (15, 16), (16, 16), (33, 1), (33, 7), (33, 16)]
)
def test_tiled_equals_loop(n, tile_size):
    args, xs = data(n)
    ours = operators.map_rows(softmax_mean, args, xs, tile_size=tile_size)["mean"]
    loop = [softmax_mean(args, jax.tree.map(lambda x, j=j: x[j], xs))["mean"] for j in range(n)]
    np.testing.assert_allclose(ours, np.stack(loop), atol=1e-14)
