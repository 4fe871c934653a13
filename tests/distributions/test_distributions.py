import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions, estimators, kernels
from calibjax.distances import TotalVariation


def test_logits_are_the_categorical_of_their_softmax():
    probs = np.array([[0.1, 0.2, 0.3, 0.4], [0.25, 0.05, 0.5, 0.2]])
    ours = distributions.CategoricalLogits(jnp.asarray(np.log(probs) + np.array([[3], [-700]])))
    theirs = distributions.Categorical(jnp.asarray(probs))
    labels = np.array([3, 0])

    @jax.jit
    def values(p):
        key = jax.random.key(1)
        first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], p) for i in range(2))
        kernel = kernels.TensorProduct(kernels.Exponential(1.0, TotalVariation()), kernels.White())
        value = estimators.calibration_kernel(kernel, first, 3, second, 0)
        draws = distributions.sample_targets(key, p)
        levels, outside = jnp.array([0.9, 0.9]), jnp.array([4, -1])
        ours = p.class_probs, p.mean(), p.log_prob(labels), p.cdf(labels), p.icdf(levels)
        return *ours, p.log_prob(outside), draws, value

    for a, b in zip(values(ours), values(theirs)):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    far = distributions.CategoricalLogits(np.float32([0, 2000]))
    log_prob, slopes = jax.jit(jax.value_and_grad(lambda p: p.log_prob(0)))(far)
    assert log_prob == -2000
    assert slopes.logits.tolist() == [1, -1]


def test_classes_of_probability_zero_are_never_drawn():
    """A uniform variable of exactly 0, or sums that fall short of 1, must not lead there."""
    p = distributions.Categorical(jnp.array([0.0, 1.0 - 1e-7, 0.0], jnp.float32))
    assert int(p.icdf(jnp.float32(0.0))) == 1
    assert int(p.icdf(jnp.float32(1.0))) == 1


def test_labels_out_of_range_have_no_log_probability():
    for p in (
        distributions.Categorical(jnp.array([0.2, 0.8])),
        distributions.Bernoulli(jnp.array(0.8)),
    ):
        assert [bool(jnp.isnan(p.log_prob(y))) for y in (-1, 0, 1, 2)] == [True, False, False, True]


@pytest.mark.parametrize(
    "p",
    [
        distributions.Poisson(3.0),
        distributions.NegativeBinomial(3.0, 2.0),
        distributions.Mixture(None, distributions.Poisson(np.array([1.0, 3.0]))),
        distributions.Categorical(np.array([0.2, 0.8])),
        distributions.Bernoulli(0.3),
        distributions.Ensemble(np.array([1.0, 2.0])),
        distributions.Ensemble(np.array([1, 2])),
    ],
    ids=lambda p: type(p).__name__,
)
def test_quantiles_at_levels_that_are_missing_are_missing(p):
    """NaN, or the smallest integer, which stands for it."""
    found = jax.jit(lambda p, level: p.icdf(level))(jax.tree.map(jnp.asarray, p), np.nan)
    missing = np.nan if found.dtype.kind == "f" else np.iinfo(found.dtype).min
    np.testing.assert_array_equal(found, missing)
