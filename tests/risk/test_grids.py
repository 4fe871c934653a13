import jax.numpy as jnp
import numpy as np

from calibjax import risk


def test_against_the_appendix():
    """G24 App. B, as printed."""
    np.testing.assert_array_equal(risk.Binning().grid(2), [5 * i for i in range(1, 21)])
    bandwidths = [10 ** (-5 * (i - 1) / 14 - (1 - (i - 1) / 14)) for i in range(1, 16)]
    bandwidths += [0.2 * i for i in range(1, 6)]
    np.testing.assert_allclose(risk.KernelDensity().grid(2), np.sort(bandwidths), rtol=1e-12)
    n = 6400
    for grid, canonical, powers in (
        (risk.KernelRidge().grid, False, [-2 * i + 1 for i in range(1, 10)]),
        (risk.KernelRidge(two_step=True).grid, False, [-i for i in range(1, 10)]),
        (risk.KernelRidge().grid, True, [-i + 9 for i in range(1, 19)]),
        (risk.KernelRidge(two_step=True).grid, True, [-0.5 * i + 4.5 for i in range(1, 19)]),
    ):
        expected = [n**0.5 * 10.0**power for power in powers]
        np.testing.assert_allclose(grid(n, canonical=canonical), expected, rtol=1e-12)
        assert jnp.all(grid(n, canonical=canonical).astype(jnp.float32) > 0)
