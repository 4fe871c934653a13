"""Work that the devices of `jax.set_mesh` share gives what one device gives."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from calibjax import estimators, hypothesis_tests
from calibjax.distributions import Categorical, Normal
from tests import oracles

RNG = np.random.default_rng(1)
N = 301
NORMALS = Normal(RNG.normal(size=N), RNG.uniform(0.5, 1, N)), RNG.normal(size=N)
CLASSES = Categorical(RNG.dirichlet(np.ones(3), N)), RNG.integers(0, 3, N)
KERNEL, CLASS_KERNEL = oracles.normal_kernel(), oracles.categorical_kernel(1.0)
KEY = jax.random.key(0)


def of_length_scale(length_scale):
    return estimators.skce(oracles.normal_kernel(1.0, length_scale), *NORMALS)


def exact(kernel, data):
    found = hypothesis_tests.exact_skce_test(KEY, kernel, *data, num_draws=21)
    return found.pvalue, found.estimate, found.null_samples


FUNCTIONS = {
    "skce": lambda: estimators.skce(KERNEL, *NORMALS),
    "biased, weights": lambda: estimators.skce_biased(
        CLASS_KERNEL, *CLASSES, weights=np.arange(N) % 3
    ),
    "blocks": lambda: estimators.skce_block(KERNEL, *NORMALS, block_size=7),
    "gradient by predictions": lambda: jax.grad(lambda p: estimators.skce(KERNEL, p, NORMALS[1]))(
        NORMALS[0]
    ),
    "Hessian": lambda: jax.hessian(of_length_scale)(1.3),
    "exact, features": lambda: exact(CLASS_KERNEL, CLASSES),
    "exact, pairs": lambda: exact(KERNEL, jax.tree.map(lambda x: x[:40], NORMALS)),
    "witness": lambda: estimators.witness(KERNEL, *NORMALS, *NORMALS),
    "mlce": lambda: estimators.mlce(
        estimators.Neighbourhood.laplacian(0.2, 5),
        CLASSES[0].probs,
        CLASSES[0].probs.max(1),
        CLASSES[1] == CLASSES[0].probs.argmax(1),
    ),
}


@pytest.mark.parametrize(
    "axis", [AxisType.Explicit, pytest.param(AxisType.Auto, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_four_devices_equal_one(name, axis):
    expected = FUNCTIONS[name]()
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(axis, axis))
    with jax.set_mesh(mesh):
        found = FUNCTIONS[name]()
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-14)


def test_inside_of_jit():
    with jax.set_mesh(jax.make_mesh((4,), ("devices",))):
        found = jax.jit(lambda p, y: estimators.skce(KERNEL, p, y))(*NORMALS)
    np.testing.assert_allclose(found, FUNCTIONS["skce"](), rtol=1e-12)


def test_each_device_evaluates_a_quarter_of_the_tiles():
    """By the number of turns of the loops: for 15 tiles in a row there are 8 groups of 15 pairs."""

    def num_groups():
        program = jax.jit(lambda p, y: estimators.skce(CLASS_KERNEL, p, y))
        data = Categorical(np.full((1920, 3), 1 / 3)), np.zeros(1920, int)
        text = program.lower(*data).compile().as_text()
        turns = map(int, re.findall(r'known_trip_count":{"n":"(\d+)"', text))
        return max(n for n in turns if n < 15)

    assert num_groups() == 8
    with jax.set_mesh(jax.make_mesh((4,), ("devices",))):
        assert num_groups() == 2
