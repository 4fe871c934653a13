"""Sums over pairs of rows that are split over devices, against loops in NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from calibjax import pairwise

TYPES = {"explicit": AxisType.Explicit, "automatic": AxisType.Auto}
RNG = np.random.default_rng(0)
N = 24
X, Z = RNG.normal(size=(2, N, 2))
LABELS = RNG.integers(0, 3, N)
WEIGHTS = RNG.normal(size=(N, 2))


def mesh_of(kind, *shape):
    names = ("rows", "others")[: len(shape)]
    devices = np.array(jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return jax.sharding.Mesh(devices, names, axis_types=(TYPES[kind],) * len(shape))


def split(mesh, *arrays):
    spec = PartitionSpec(mesh.axis_names[0])
    return [jax.device_put(array, NamedSharding(mesh, spec)) for array in arrays]


def pair(scale, x, y):
    """Symmetric, with labels, which have no derivatives."""
    (x, a), (y, b) = x, y
    return jnp.exp(-jnp.sum(jnp.square(x - y)) / scale) * jnp.where(a == b, 2.0, 1.0)


def matrix(scale, x, labels):
    squares = np.square(x[:, None] - x).sum(-1)
    return np.exp(-squares / scale) * np.where(labels[:, None] == labels, 2.0, 1.0)


@pytest.fixture(params=TYPES)
def kind(request):
    return request.param


@pytest.mark.parametrize("number", [2, 3, 4])
@pytest.mark.parametrize("tile_size", [1, 4, 128])
def test_each_pair_counts_once(number, tile_size):
    xs = split(mesh_of("automatic", number), X, LABELS)
    values = matrix(1.5, X, LABELS)
    mean = pairwise.mean_over_pairs(pair, 1.5, tuple(xs), tile_size=tile_size)
    np.testing.assert_allclose(mean, values[np.triu_indices(N, 1)].mean(), rtol=1e-13)


def test_all_reductions(kind):
    mesh = mesh_of(kind, 4)
    x, z, labels, weights = split(mesh, X, Z, LABELS, WEIGHTS)
    xs, values = (x, labels), matrix(1.5, X, LABELS)
    forms = pairwise.quadratic_forms(pair, 1.5, xs, weights, tile_size=4)
    np.testing.assert_allclose(forms, np.diag(WEIGHTS.T @ values @ WEIGHTS), rtol=1e-12)
    every = pairwise.mean_over_all_pairs(pair, 1.5, xs)
    np.testing.assert_allclose(every, values.mean(), rtol=1e-13)
    cross = np.exp(-np.square(X[:, None] - Z).sum(-1) / 1.5)
    cross *= np.where(LABELS[:, None] == LABELS, 2.0, 1.0)
    sums = pairwise.weighted_sums(pair, 1.5, xs, (z, labels), weights, tile_size=4)
    np.testing.assert_allclose(sums, cross @ WEIGHTS, rtol=1e-12)
    assert sums.sharding.is_equivalent_to(x.sharding, 2)
    few = pairwise.weighted_sums(pair, 1.5, (X[:3], LABELS[:3]), (z, labels), weights)
    np.testing.assert_allclose(few, cross[:3] @ WEIGHTS, rtol=1e-12)
    blocks = pairwise.block_means(pair, 1.5, xs, block_size=5)
    ours = [values[i : i + 5, i : i + 5][np.triu_indices(5, 1)].mean() for i in (0, 5, 10, 15)]
    np.testing.assert_allclose(blocks, ours, rtol=1e-13)
    found = pairwise.feature_sums(powers, 2.0, x, weights, weights[:, :1], block_size=4)
    features = np.stack([2 * X[:, 0], X[:, 1] ** 2], 1)
    np.testing.assert_allclose(found[0], WEIGHTS.T @ features, rtol=1e-12)
    np.testing.assert_allclose(found[1], WEIGHTS[:, :1].T @ features**2, rtol=1e-12)
    rows = pairwise.map_rows(nearest, X, z, tile_size=4)
    np.testing.assert_allclose(rows, np.abs(X[:, None] - Z).sum(-1).min(0), rtol=1e-13)
    assert rows.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("rows")), 1)


def powers(scale, x):
    return jnp.stack([scale * x[:, 0], x[:, 1] ** 2])


def nearest(samples, x):
    return jnp.min(jnp.sum(jnp.abs(samples - x), 1))


def distance(scale, x, y):
    return jnp.sum(jnp.abs(x - y)) * scale


def log_kernel(length_scale, distance):
    return -distance / length_scale


def smoothed(scale, length_scales, x, z, values, groups):
    points, samples = (x, groups[0]), (z, groups[1])
    return pairwise.kernel_means(
        distance, log_kernel, scale, length_scales, points, samples, values, tile_size=4
    )


def test_kernel_means(kind):
    scales, other = np.array([0.05, 2.0]), RNG.integers(1, 4, N)
    x, z, weights, *groups = split(mesh_of(kind, 4), X, Z, WEIGHTS, LABELS, other)
    means, totals = smoothed(1.5, scales, x, z, weights, groups)
    away = 1.5 * np.abs(X[:, None] - Z).sum(-1) / scales[:, None, None]
    away = np.where(LABELS[:, None] == other, away, np.inf)
    closest = away.min(-1, keepdims=True)
    kernel = np.exp(-(away - np.where(closest == np.inf, 0, closest)))
    sums = kernel.sum(-1)
    assert np.any(sums == 0)  # group 0 has no samples
    np.testing.assert_allclose(totals, sums, rtol=1e-12)
    ours = kernel @ WEIGHTS / np.where(sums == 0, 1, sums)[..., None]
    np.testing.assert_allclose(means, ours, rtol=1e-12, atol=1e-300)


def mean_of_pairs(scale, x, z, labels, weights):
    del z, weights
    return pairwise.mean_over_pairs(pair, scale, (x, labels), tile_size=4)


def sum_of_forms(scale, x, z, labels, weights):
    del z
    return jnp.sum(jnp.sin(pairwise.quadratic_forms(pair, scale, (x, labels), weights)))


def sum_of_sums(scale, x, z, labels, weights):
    return jnp.sum(jnp.sin(pairwise.weighted_sums(pair, scale, (x, labels), (z, labels), weights)))


def sum_of_means(scale, x, z, labels, weights):
    scales = jnp.stack([0.1, scale])
    means, totals = smoothed(scale, scales, x, z, weights, (labels, labels))
    return jnp.sum(jnp.sin(means)) + jnp.sum(jnp.log1p(totals))


def sum_of_features(scale, x, z, labels, weights):
    del z, labels
    return sum(map(jnp.sum, pairwise.feature_sums(powers, scale, x, weights, weights)))


@pytest.mark.parametrize(
    "value", [mean_of_pairs, sum_of_forms, sum_of_sums, sum_of_means, sum_of_features]
)
def test_gradients_are_those_of_one_device(value):
    args = (np.array(1.5), X, Z, LABELS, WEIGHTS)
    gradient = jax.jit(jax.grad(value, (0, 1, 2, 4)))
    one = gradient(*args)
    mesh = mesh_of("explicit", 4)
    with jax.set_mesh(mesh):
        several = gradient(args[0], *split(mesh, *args[1:]))
    assert float(jnp.abs(one[0])) > 0
    for x, y in zip(one, several, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-11, atol=1e-14)


def test_second_derivatives():
    value = functools.partial(mean_of_pairs, z=None, weights=None, labels=LABELS)
    product = jax.jit(lambda x, t: jax.jvp(jax.grad(lambda x: value(1.5, x)), (x,), (t,))[1])
    one, mesh = product(X, Z), mesh_of("automatic", 4)
    with jax.set_mesh(mesh):
        np.testing.assert_allclose(product(*split(mesh, X, Z)), one, rtol=1e-12)


def test_rows_that_do_not_divide_evenly():
    """JAX splits no such arrays, but a program with a mesh of its own can have them."""
    values = matrix(1.5, X, LABELS)[:23, :23]
    with jax.set_mesh(mesh_of("automatic", 4)):
        xs = X[:23], LABELS[:23]
        mean = jax.jit(lambda xs: pairwise.mean_over_pairs(pair, 1.5, xs, tile_size=2))(xs)
        sums = pairwise.weighted_sums(pair, 1.5, xs, xs, WEIGHTS[:23], tile_size=2)
        means = smoothed(1.5, np.array([0.5]), *(X[:23],) * 2, WEIGHTS[:23], (xs[1], xs[1]))
    np.testing.assert_allclose(mean, values[np.triu_indices(23, 1)].mean(), rtol=1e-13)
    np.testing.assert_allclose(sums, values @ WEIGHTS[:23], rtol=1e-12)
    one = smoothed(1.5, np.array([0.5]), *(X[:23],) * 2, WEIGHTS[:23], (xs[1], xs[1]))
    np.testing.assert_allclose(means[0], one[0], rtol=1e-12)
    np.testing.assert_allclose(means[1], one[1], rtol=1e-12)


def test_a_mesh_with_two_axes(kind):
    mesh = mesh_of(kind, 2, 2)
    (labels,) = split(mesh, LABELS)
    x = jax.device_put(X, NamedSharding(mesh, PartitionSpec("rows", "others")))
    values = matrix(1.5, X, LABELS)
    mean = pairwise.mean_over_pairs(pair, 1.5, (x, labels))
    np.testing.assert_allclose(mean, values[np.triu_indices(N, 1)].mean(), rtol=1e-13)


def test_under_vmap(kind):
    xs = tuple(split(mesh_of(kind, 4), X, LABELS))
    scales = np.array([0.5, 1.5])
    means = jax.vmap(lambda scale: pairwise.mean_over_pairs(pair, scale, xs))(scales)
    for scale, mean in zip(scales, means, strict=True):
        values = matrix(scale, X, LABELS)
        np.testing.assert_allclose(mean, values[np.triu_indices(N, 1)].mean(), rtol=1e-13)


def program(number, num_samples, function):
    """The compiled program of a function of rows, and the bytes that it needs on one device."""
    mesh = mesh_of("explicit", number)
    xs = split(mesh, np.ones((num_samples, 2)), np.zeros(num_samples, int))
    compiled = jax.jit(function).lower(*xs).compile()
    return compiled.as_text(), compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
    "function",
    [
        lambda x, labels: pairwise.mean_over_pairs(pair, 1.5, (x, labels)),
        lambda x, labels: jnp.sum(
            pairwise.weighted_sums(pair, 1.5, (x, labels), (x, labels), jnp.ones((len(x), 1)))
        ),
        lambda x, labels: jnp.sum(
            smoothed(1.5, np.array([0.5]), x, x, x, (labels, labels))[0], axis=(0, 1, 2)
        ),
    ],
    ids=["pairs", "sums", "means"],
)
def test_no_device_holds_all_rows(function):
    """Twice as many samples on twice as many devices need no more memory on any of them."""
    text, few = program(4, 16384, function)
    assert "collective-permute(" in text
    assert "all-gather(" not in text
    assert few < 1.02 * program(2, 8192, function)[1]


def test_one_device_has_no_collectives():
    text, _ = program(1, 64, lambda x, labels: pairwise.mean_over_pairs(pair, 1.5, (x, labels)))
    assert "permute(" not in text
    assert "all-reduce(" not in text
