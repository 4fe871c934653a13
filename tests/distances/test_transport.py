import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.distances import wasserstein
from calibjax.distances.wasserstein import transport_cost

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # POT probes for libraries that are not there
    import ot

LARGEST = 10
NUM_PROBLEMS = 1000

# Cost, and its gradients: dual potentials of rows and columns, and the plan.
solve = jax.jit(jax.vmap(jax.value_and_grad(transport_cost, argnums=(0, 1, 2))))
optimal_plan = jax.grad(transport_cost, argnums=2)


def random_weights(rng, size, kind):
    """Uniform, random, or some of them zero, filled up with zeros."""
    weights = np.ones(size) if kind == 0 else rng.dirichlet(np.ones(size))
    if kind == 2:
        weights[rng.permutation(size)[: size // 2]] = 0
    return np.pad(weights / weights.sum(), (0, LARGEST - size))


def random_cost(rng, kind):
    """Random, integers with ties, all equal, of very different sizes, or squared distances."""
    shape = LARGEST, LARGEST
    cost = [
        rng.uniform(size=shape),
        rng.integers(0, 4, shape).astype(float),
        np.full(shape, 0.3),
        rng.uniform(size=shape) * np.where(np.arange(LARGEST**2).reshape(shape) == 37, 1e6, 1),
        np.square(rng.normal(size=LARGEST)[:, None] - rng.normal(size=LARGEST)),
    ]
    return cost[kind]


@functools.cache
def random_problems():
    """Problems with 1, 2, 5, 10 rows and columns of positive weight, in one shape."""
    rng = np.random.default_rng(0)
    sizes = list(itertools.product((1, 2, 5, 10), repeat=2))
    problems = []
    for n in range(NUM_PROBLEMS):
        size_p, size_q = sizes[n % 16]
        kinds = n // 16 % 3, n // 48 % 3
        p, q = (random_weights(rng, s, kind) for s, kind in zip((size_p, size_q), kinds))
        problems.append((p, q, random_cost(rng, n % 5)))
    return tuple(np.stack(x) for x in zip(*problems))


def check_plans(plans, p, q, tolerance):
    assert np.all(plans >= 0)
    np.testing.assert_allclose(plans.sum(2), p, atol=tolerance, rtol=0)
    np.testing.assert_allclose(plans.sum(1), q, atol=tolerance, rtol=0)
    assert np.all(plans[(p == 0)] == 0)
    assert np.all(np.swapaxes(plans, 1, 2)[q == 0] == 0)


def test_potentials_prove_that_the_plan_is_optimal():
    p, q, cost = random_problems()
    values, (left, right, _) = solve(p, q, cost)
    # Weak duality: potentials u_i + v_j <= cost_ij make u p + v q a lower bound. The gradients
    # are the potentials less their means, which add up to the cost.
    slack = cost - (left[:, :, None] + right[:, None, :] + values[:, None, None])
    assert np.all(slack >= -1e-14 * cost.max((1, 2), keepdims=True))
    np.testing.assert_allclose((left * p).sum(1) + (right * q).sum(1), 0, atol=1e-9)


def test_float32():
    p, q, cost = random_problems()
    single = [x.astype(np.float32) for x in (p, q, cost)]
    values, (_, _, plans) = solve(*single)
    assert values.dtype == plans.dtype == jnp.float32
    error = np.abs(np.asarray(values, float) - [ot.emd2(*problem) for problem in zip(p, q, cost)])
    assert np.all(error <= 1e-6 * cost.max((1, 2)))
    check_plans(np.asarray(plans, float), p, q, 1e-6)


def test_weights_are_divided_by_their_sum():
    p, q = np.array([0.5, 0.5 + 1e-7]), np.array([0.25, 0.25, 0.5 - 2e-7])
    np.testing.assert_allclose(jax.jit(optimal_plan)(p, q, np.eye(2, 3)).sum(), 1, rtol=1e-15)


def test_plans_that_are_not_finished_are_nan(monkeypatch):
    monkeypatch.setattr(wasserstein, "_PIVOTS_PER_NODE", 0)
    p, q = np.full(4, 1 / 4), np.full(3, 1 / 3)  # of a shape that is not compiled yet
    assert np.all(np.isnan(optimal_plan(p, q, np.eye(4, 3))))
