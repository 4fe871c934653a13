"""A redraw that equals the observed targets has the same value, to the last bit, in every test."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, kernels
from calibjax.hypothesis_tests import ensembles, exact_skce_test, redraws
from calibjax.streaming import skce
from tests.registry import streaming, tests_of_calibration

NUM_DRAWS, EQUAL = 10, 6  # redraws, and the one that is made equal
# These compare with other data sets, or draw something else than targets.
RESAMPLE = "asymptotic_skce_test", "power_curve"  # data, not targets under calibration
CALLS = {
    call.name: call
    for call in [*tests_of_calibration.calls(), *streaming.calls()]
    if "num_draws" in call.arguments and not any(name in call.name for name in RESAMPLE)
}
over_pool = redraws.over_pool


def nan_unless_equal(keys, redraw, evaluate, data, targets, batch_size):
    """Values of a pool with one redraw that equals the observed targets; NaN if theirs differ."""
    chosen = jax.random.key_data(keys[EQUAL])

    def redrawn(data, key):
        is_chosen = jnp.all(jax.random.key_data(key) == chosen)
        return jax.tree.map(lambda y, z: jnp.where(is_chosen, y, z), targets, redraw(data, key))

    values = over_pool(keys, redrawn, evaluate, data, targets, batch_size)
    leaves = jax.tree.leaves(values)
    assert all(len(leaf) == NUM_DRAWS + 1 for leaf in leaves)
    is_equal = jnp.array([jnp.array_equal(leaf[0], leaf[EQUAL + 1]) for leaf in leaves]).all()
    differs = jnp.array([jnp.any(leaf[0] != leaf[EQUAL]) for leaf in leaves]).any()
    return jax.tree.map(lambda leaf: jnp.where(is_equal & differs, leaf, jnp.nan), values)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_equal_data_sets_have_equal_values(name, monkeypatch, request):
    """Of programs that are traced anew, before and after."""
    request.addfinalizer(jax.clear_caches)
    jax.clear_caches()
    seen = []

    def pool(*args, **options):
        seen.append(args)
        return nan_unless_equal(*args, **options)

    for module in (redraws, ensembles, skce):
        monkeypatch.setattr(module, "over_pool", pool)
    values = CALLS[name].values(np.float32) | {"num_draws": NUM_DRAWS}
    if "batch_size" in values:
        values["batch_size"] = 4
    result = CALLS[name].function(**values)  # a NaN is refused, or remains
    assert seen, "in another way"
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(result.statistic))


def test_much_work_is_announced(monkeypatch):
    """Where pairs are evaluated for each redraw, not where features take their place."""
    loc = jnp.linspace(-1, 1, 50)
    predictions, key = distributions.Laplace(loc, jnp.ones(50)), jax.random.key(0)
    by_pairs = kernels.TensorProduct(kernels.Exponential(), kernels.Exponential())
    by_features = kernels.TensorProduct(kernels.Exponential(), kernels.SquaredExponential())
    monkeypatch.setattr(redraws, "_MANY", 1e4)
    with pytest.warns(UserWarning, match=r"^1\.1e\+04 evaluations .* fewer num_draws"):
        exact_skce_test(key, by_pairs, predictions, loc, num_draws=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exact_skce_test(key, by_features, predictions, loc, num_draws=9)
