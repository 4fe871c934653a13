"""Expectations of the exponential kernel under Laplace predictions."""

import decimal
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from calibjax import distances, distributions, kernels
from calibjax.kernels import expectations
from calibjax.kernels.expectations import double_expectation, single_expectation
from tests import oracles

Decimal = decimal.Decimal
DIGITS = decimal.Context(prec=120)


def _exact_single(a, x):
    """W21 D.2 in units of the length scale; scales of one are moved by 1e-40."""
    a = a + Decimal("1e-40") * a if a == 1 else a
    return ((-abs(x)).exp() - a * (-abs(x) / a).exp()) / (1 - a * a)


def _exact_double(a, b, x):
    """Partial fractions of the three scales, moved apart by 1e-40 where they are equal."""
    shift = Decimal("1e-40")
    a = a + shift * a if a == 1 else a
    b = b - shift * b if b == 1 else b
    b = b - 3 * shift * b if a == b else b
    value = Decimal(0)
    for s, t, u in ((Decimal(1), a, b), (a, b, Decimal(1)), (b, Decimal(1), a)):
        value += s**3 * (-abs(x) / s).exp() / ((s * s - t * t) * (s * s - u * u))
    return value


def _exact(length_scale, m, s, y, n, t, z):
    """m_p(z), M_{p,q} and the centered kernel in 120 digits, from length scale, p, y, q, z."""
    a, b = s / length_scale, t / length_scale
    single = _exact_single(a, (z - m) / length_scale)
    double = _exact_double(a, b, (m - n) / length_scale)
    other = _exact_single(b, (y - n) / length_scale)
    return single, double, (-abs(y - z) / length_scale).exp() - single - other + double


def _exact_with_gradient(case):
    """Values [3] and derivatives [3, 7] by central differences of relative step 1e-20."""
    with decimal.localcontext(DIGITS):
        point = [Decimal(float(v)) for v in case]
        values = _exact(*point)
        slopes = []
        for i, v in enumerate(point):
            step = Decimal("1e-20") * (abs(v) if v else 1)
            ends = (_exact(*point[:i], v + h, *point[i + 1 :]) for h in (step, -step))
            slopes.append([(up - down) / (2 * step) for up, down in zip(*ends, strict=True)])
        return np.array(values, float), np.array(slopes, float).T


def _random_cases():
    rng = np.random.default_rng(0)
    size = 30
    m, n = rng.normal(size=(2, size))
    length_scale, s, t = np.exp(rng.uniform(-2, 1.5, size=(3, size)))
    y, z = m + s * rng.laplace(size=size), n + t * rng.laplace(size=size)
    return np.stack([length_scale, m, s, y, n, t, z], -1)


def _special_cases():
    """On and around the removable singularities, and extreme scales and locations."""
    around = [0, 1e-15, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 0.1]
    rows = []
    for x in (0.0, 0.02, 0.7, 5.0, 30.0):
        for e in around:
            rows += [
                (2.0, x, 2 * (1 + e), 0.3, 0.0, 0.6, 0.1),  # β γ = 1
                (2.0, x, 0.6, 0.3, 0.0, 2 * (1 - e), 0.1),  # β' γ = 1
                (2.0, x, 0.6, 0.3, 0.0, 0.6 * (1 + e), 0.1),  # β = β'
                (2.0, x, 3.6 * (1 - e), 0.3, 0.0, 3.6, 0.1),
                (2.0, x, 2 * (1 + e), 0.3, 0.0, 2 * (1 - e / 3), 0.1),  # all three
            ]
    rows += [(2.0, 0.4, 2.0, 0.4, 0.4, 2.0, 0.4), (2.0, 0.4, 0.1, 0.4, 0.4, 0.1, 0.4)]
    for s, t in itertools.product([1e-6, 1.0, 1e6], repeat=2):
        for x in (0.0, 1e-6, 1.0, 1e6, 1e9):
            rows.append((1.0, x, s, x + s, 0.0, t, -2 * t))
    return np.array(rows)


CASES = np.concatenate([_random_cases(), _special_cases()]).astype(np.float32).astype(float)


@functools.cache
def _exact_cases():
    return tuple(map(np.array, zip(*map(_exact_with_gradient, CASES), strict=True)))


def _expectations(case):
    length_scale, m, s, y, n, t, z = case
    kernel = kernels.Exponential(length_scale)
    p, q = distributions.Laplace(m, s), distributions.Laplace(n, t)
    values = jnp.stack(
        [
            single_expectation(kernel, p, z),
            double_expectation(kernel, p, q),
            expectations.centered_kernel(kernel, p, y, q, z),
        ]
    )
    return values, values


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(jnp.float64, 1e-14), pytest.param(jnp.float32, 1e-6, marks=pytest.mark.slow)],
)
def test_values_and_gradients_on_and_around_the_singularities(dtype, tolerance):
    """Absolute errors; of the derivatives by a scale below one, times the scale."""
    evaluate = jax.jit(jax.vmap(jax.jacrev(_expectations, has_aux=True)))
    slopes, values = evaluate(jnp.asarray(CASES, dtype))
    assert values.dtype == slopes.dtype == dtype
    exact_values, exact_slopes = _exact_cases()
    np.testing.assert_allclose(values, exact_values, rtol=0, atol=tolerance)
    unit = np.ones_like(CASES)
    unit[:, [0, 2, 5]] = np.minimum(CASES[:, [0, 2, 5]], 1)
    error = np.abs(slopes - exact_slopes) * unit[:, None]
    assert error.max() < tolerance


def test_float32_near_the_singularity():
    """The series of float32 has fewer terms; these are the shifts for which it is used."""
    scale, x = np.meshgrid(np.float32([0.6, 0.9, 1.0, 1.1, 1.5]), np.float32([0.1, 1.0, 3.0, 5.0]))
    kernel = kernels.Exponential(jnp.float32(1))

    @jax.jit
    @jax.vmap
    def expectation(scale, x):
        p = distributions.Laplace(jnp.float32(0), scale)
        return single_expectation(kernel, p, x)

    with decimal.localcontext(DIGITS):
        points = zip(scale.ravel(), x.ravel(), strict=True)
        exact = [float(_exact_single(*map(Decimal, map(float, point)))) for point in points]
    ours = expectation(scale.ravel(), x.ravel())
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-6)


def _integral(function, center, scale, kinks):
    """∫ function(z) exp(−|z − center| / scale) / (2 scale) dz, split at the kinks."""
    points = sorted({center, *kinks, *(center + scale * u for u in (-40, -8, 8, 40))})
    density = lambda z: np.exp(-abs(z - center) / scale) / (2 * scale)  # noqa: E731
    parts = [
        integrate.quad(lambda z: function(z) * density(z), low, high, epsabs=1e-13, epsrel=1e-12)[0]
        for low, high in itertools.pairwise(points)
    ]
    return sum(parts)


def _printed_embedding(length_scale, loc, scale, z):
    """E exp(−|Z − z| / length_scale) as W21 D.2 prints it, for βγ ≠ 1."""
    product, x = scale / length_scale, abs(z - loc)
    return (np.exp(-x / length_scale) - product * np.exp(-x / scale)) / (1 - product**2)


def test_random_settings_by_quadrature():
    """30 settings; E k(Z, Z') is the integral of E k(z, Z'), which is checked by itself."""
    cases, points = _random_cases(), np.array([-2.0, 0.3, 1.0])

    @jax.jit
    @jax.vmap
    def evaluate(case):
        length_scale, m, s, _, n, t, _ = case
        kernel = kernels.Exponential(length_scale)
        p, q = distributions.Laplace(m, s), distributions.Laplace(n, t)
        single = jax.vmap(lambda z: single_expectation(kernel, q, z))(jnp.asarray(points))
        return single, double_expectation(kernel, p, q)

    singles, doubles = evaluate(jnp.asarray(cases))
    for case, single, double in zip(cases, singles, doubles, strict=True):
        length_scale, m, s, _, n, t, _ = case
        expected = [
            _integral(lambda z, y=y: np.exp(-abs(z - y) / length_scale), n, t, (y,))  # noqa: B023
            for y in points
        ]
        np.testing.assert_allclose(single, expected, rtol=0, atol=1e-12)
        embedding = lambda z: _printed_embedding(length_scale, n, t, z)  # noqa: B023, E731
        expected = _integral(embedding, m, s, (n,))
        np.testing.assert_allclose(double, expected, rtol=0, atol=1e-12)


def test_calibration_kernel_is_the_printed_one_and_positive_semi_definite():
    rng = np.random.default_rng(1)
    loc, scale, noise = rng.uniform(size=40), rng.uniform(0.05, 0.3, 40), rng.laplace(size=40)
    # Some pairs of equal predictions, and some that differ by rounding errors only.
    loc[20:], scale[20:] = loc[:20], scale[:20]
    scale[30:] *= 1 + 1e-14
    predictions, targets = distributions.Laplace(loc, scale), loc + scale * noise
    kernel = kernels.TensorProduct(
        kernels.Exponential(0.4, distances.Wasserstein()), kernels.Exponential(0.7)
    )
    ours = oracles.calibration_kernel_matrix(kernel, predictions, jnp.asarray(targets))
    np.testing.assert_allclose(ours, ours.T, rtol=0, atol=1e-14)
    assert np.linalg.eigvalsh(ours)[0] > -1e-13
    for i, j in itertools.combinations(range(20), 2):
        (m, s, y), (n, t, z) = ((loc[k], scale[k], targets[k]) for k in (i, j))
        _, _, bracket = _exact(*map(Decimal, map(float, (0.7, m, s, y, n, t, z))))
        w2 = np.sqrt((m - n) ** 2 + 2 * (s - t) ** 2)
        np.testing.assert_allclose(ours[i, j], np.exp(-w2 / 0.4) * float(bracket), atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_whose_squares_overflow(dtype):
    far = np.finfo(dtype).max ** 0.7
    p = distributions.Laplace(*(jnp.asarray(x, dtype) for x in (0, 1)))
    q = distributions.Laplace(*(jnp.asarray(x, dtype) for x in (far, 1)))
    double = functools.partial(double_expectation, kernels.Exponential(1.0))
    value, slopes = jax.value_and_grad(double, argnums=(0, 1))(p, q)
    np.testing.assert_array_equal(jax.tree.leaves((value, slopes)), 0)
