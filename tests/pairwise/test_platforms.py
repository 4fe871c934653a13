"""How tiles are cut where the program runs: programs are lowered for machines that are not here."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distances, distributions, estimators, kernels, pairwise
from calibjax.pairwise import default_tile_size
from calibjax.pairwise.tiles import TILE_SIZE

SIZES = {"f64": 8, "f32": 4, "i64": 8, "i32": 4, "i1": 1, "ui32": 4}
NORMALS = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
CLASSES = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
)


def normals(loc, scale, targets):
    return estimators.skce(NORMALS, distributions.Normal(loc, scale), targets)


def classes(probs, labels):
    return estimators.skce(CLASSES, distributions.Categorical(probs), labels)


def lowered(function, platform, *shapes):
    arrays = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    return jax.jit(function).trace(*arrays).lower(lowering_platforms=(platform,)).as_text()


def largest_array(text):
    """Bytes of the largest array in a program."""
    found = re.findall(r"tensor<((?:\d+x)+)(\w+)>", text)
    return max(np.prod([int(d) for d in dims.split("x")[:-1]]) * SIZES[t] for dims, t in found)


def tiles_in_a_row(text, num_samples):
    """Number and length of the tiles that samples are cut into."""
    shapes = {tuple(map(int, s)) for s in re.findall(r"tensor<(\d+)x(\d+)xf32>", text)}
    near = [(k, m) for k, m in shapes if 0 <= k * m - num_samples < m and k > 1 and m > 1]
    assert len(near) == 1, near
    return near[0]


def num_tiles(text, num_samples):
    """Number of tiles that samples are cut into, whatever the number of their components."""
    shapes = {tuple(map(int, s)) for s in re.findall(r"tensor<(\d+)x(\d+)x\w+>", text)}
    numbers = {k for k, m in shapes if 0 <= k * m - num_samples < m and min(k, m) > 1}
    assert len(numbers) == 1, numbers
    return numbers.pop()


N = 100_000
VECTOR = (N,), np.float32


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_few_large_steps_on_accelerators(platform):
    text = lowered(normals, platform, VECTOR, VECTOR, VECTOR)
    number, length = tiles_in_a_row(text, N)
    assert number * (number + 1) / 2 <= 400  # steps one after the other
    assert length % 16 == 0
    assert largest_array(text) <= 8 * length**2  # of indices, with 64 bits in tests
    assert largest_array(text) < 2e8
    # Products that evaluate their tile on the way took a minute to compile on a GPU.
    assert text.count("optimization_barrier") >= text.count("dot_general") > 0


def test_tiles_in_the_cache_of_a_cpu():
    text = lowered(normals, "cpu", VECTOR, VECTOR, VECTOR)
    _, length = tiles_in_a_row(text, N)
    assert length <= default_tile_size("cpu", N, 3)
    assert largest_array(text) <= max(8 * length**2, 8 * 1.01 * N)


def test_gradient_on_accelerators():
    text = lowered(jax.grad(normals), "cuda", VECTOR, VECTOR, VECTOR)
    assert largest_array(text) < 2e8


def median(loc, scale):
    return kernels.median_heuristic(distances.Wasserstein(), distributions.Normal(loc, scale))


def smoothed(points, confidences, correct):
    near = estimators.Neighbourhood.laplacian(jnp.array([0.1, 1.0]), 15)
    return estimators.mlce(near, points[:, None], confidences, correct)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize(("function", "num_arguments"), [(median, 2), (smoothed, 3)])
def test_other_loops_over_pairs(function, num_arguments, platform):
    text = lowered(function, platform, *[VECTOR] * num_arguments)
    assert num_tiles(text, N) <= 25  # their pairs are visited one after the other
    assert num_tiles(lowered(function, "cpu", *[VECTOR] * num_arguments), N) > 250


def test_wide_samples_get_smaller_tiles():
    shapes = ((10_000, 1000), np.float32), ((10_000,), np.int32)
    text = lowered(classes, "cuda", *shapes)
    assert largest_array(text) < 4e8


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu", "rocm"])
def test_default_tile_size(platform):
    for num_samples in (1, 100, 1023, 1024, 2048, 10**4, 10**6):
        for sample_size in (1, 3, 100, 10**4, 10**9):
            size = default_tile_size(platform, num_samples, sample_size, cores=2)
            assert size >= TILE_SIZE
            assert size & (size - 1) == 0
            if platform == "cpu":
                assert size == TILE_SIZE or 8 * size <= num_samples
            elif size > TILE_SIZE:
                assert size**2 * sample_size <= 2**26


def test_tiles_grow_with_the_cores():
    sizes = [default_tile_size("cpu", 10**6, cores=cores) for cores in (1, 2, 4, 16, 64, 256)]
    assert sizes == [256, 256, 256, 512, 1024, 2048]


@pytest.mark.optimised
def test_sizes_agree():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        loc, scale = rng.normal(size=2100), rng.uniform(0.1, 1, 2100)
        samples = distributions.Normal(jnp.array(loc), jnp.array(scale)), jnp.array(loc + scale)
        value = estimators.skce(NORMALS, *samples)
        matrix = np.asarray(estimators.calibration_kernel_matrix(NORMALS, *samples))
        exact = (matrix.sum() - np.trace(matrix)) / 2100 / 2099
        np.testing.assert_allclose(value, exact, rtol=1e-11)


@pytest.mark.parametrize("tile_size", [0, -1, 2.5])
def test_wrong_tile_sizes(tile_size):
    with pytest.raises((ValueError, TypeError), match="tile_size"):
        pairwise.mean_over_pairs(lambda _, x, y: x * y, None, jnp.arange(3.0), tile_size=tile_size)
