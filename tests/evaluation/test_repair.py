import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import what_would_repair
from calibjax.distributions import (
    Bernoulli,
    CategoricalLogits,
    DiagNormal,
    Gamma,
    Normal,
    Samples,
    sample_targets,
)
from calibjax.recalibration import AffineScaling, TemperatureScaling

KEYS = jax.random.split(jax.random.key(0), 4)
N = 100
NORMAL = Normal(jnp.linspace(0, 1, N), jnp.full(N, 0.1))
NOISE = jax.random.normal(KEYS[0], (N,))


@pytest.mark.slow
def test_the_first_that_is_enough():
    shifted = NORMAL.loc + 0.1 * (1.0 + NOISE)
    methods = {"temperature": TemperatureScaling(), "affine": AffineScaling()}
    found = what_would_repair(KEYS[1], NORMAL, shifted, methods)
    assert found.enough == "affine"
    assert list(found.pvalues) == ["nothing", "temperature", "affine"]
    assert found.gains["affine"].low > found.gains["temperature"].mean
    assert "The recalibration 'affine' repairs it (p = " in str(found)
    scores = jax.scipy.special.ndtri((jax.random.permutation(KEYS[2], N) + 0.5) / N)
    right = what_would_repair(KEYS[1], NORMAL, NORMAL.loc + 0.1 * scores, methods)
    assert right.enough == "nothing"
    assert "No sign that it has to be repaired" in right.sentence
    wave = NORMAL.loc + 0.1 * (NOISE + 1.5 * jnp.sign(NORMAL.loc - 0.5))
    assert what_would_repair(KEYS[1], NORMAL, wave, methods).enough is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "predictions",
    [
        Bernoulli(jnp.linspace(0.1, 0.9, 30)),
        CategoricalLogits(jax.random.normal(KEYS[2], (30, 3))),
        Gamma(jnp.linspace(1, 3, 30), jnp.ones(30)),
        DiagNormal(jnp.stack([jnp.linspace(0, 1, 30)] * 2, 1), jnp.ones((30, 2))),
    ],
)
def test_every_kind_of_prediction(predictions):
    targets = sample_targets(KEYS[3], predictions)
    found = what_would_repair(KEYS[1], predictions, targets, num_draws=19, level=0.04)
    assert found.enough == "nothing"
    assert len(found.gains) == len(found.pvalues) - 1 >= 2


def test_wrong_input():
    with pytest.raises(NotImplementedError, match="expected distributions, got Samples"):
        what_would_repair(KEYS[1], Samples(jnp.ones((3, 2))), jnp.ones(3))
    with pytest.raises(ValueError, match="level: expected"):
        what_would_repair(KEYS[1], NORMAL, NORMAL.loc, level=1.5)


def _case(name, key, n=1000):
    keys = jax.random.split(key)
    x = 1.5 * jax.random.normal(keys[0], (n,))
    predictions, p = Bernoulli(jax.nn.sigmoid(x)), jax.nn.sigmoid(x)
    z = {
        "nothing": x,
        "temperature": x / 1.5,
        "affine": x / 1.5 + 0.5,
        "beta": 1.8 * jnp.log(p) - 0.3 * jnp.log1p(-p),
        None: x + 1.2 * jnp.sign(x) * jnp.where(jnp.abs(x) < 1, -1, 1),
    }[name]
    return predictions, sample_targets(keys[1], Bernoulli(jax.nn.sigmoid(z)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "temperature",
        "affine",
        pytest.param("beta", marks=pytest.mark.xfail(reason="58 % of 40 data sets, else affine")),
        None,
    ],
)
def test_right_class_is_named(name):
    """In at least 90 % of 200 data sets, less 2 standard errors."""
    named = []
    for i in range(200):
        predictions, targets = _case(name, jax.random.key(i))
        named.append(what_would_repair(jax.random.key(i), predictions, targets).enough)
    assert np.mean([one == name for one in named]) >= 0.86, named
