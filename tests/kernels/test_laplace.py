"""Expectations of the exponential kernel under Laplace predictions."""

import decimal
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions, kernels
from calibjax.kernels import expectations
from calibjax.kernels.expectations import double_expectation, single_expectation

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


def test_values_and_gradients_on_and_around_the_singularities():
    """Absolute errors; of the derivatives by a scale below one, times the scale."""
    evaluate = jax.jit(jax.vmap(jax.jacrev(_expectations, has_aux=True)))
    slopes, values = evaluate(jnp.asarray(CASES))
    exact = zip(*map(_exact_with_gradient, CASES), strict=True)
    exact_values, exact_slopes = map(np.array, exact)
    np.testing.assert_allclose(values, exact_values, rtol=0, atol=1e-14)
    unit = np.ones_like(CASES)
    unit[:, [0, 2, 5]] = np.minimum(CASES[:, [0, 2, 5]], 1)
    error = np.abs(slopes - exact_slopes) * unit[:, None]
    assert error.max() < 1e-14


def test_the_exact_formulas_are_the_integrals():
    """Sums over a fine grid, in units of the length scale."""
    z, step = np.linspace(-60, 60, 600_001, retstep=True)
    for a, b, x in ((0.3, 1.7, 0.6), (2.5, 0.8, -1.1)):
        density, u = np.exp(-np.abs(z) / a) / (2 * a), np.abs(z - x)
        embedding = (np.exp(-u) - b * np.exp(-u / b)) / (1 - b**2)  # as W21 D.2 prints it
        sums = step * density @ np.stack([np.exp(-u), embedding], 1)
        with decimal.localcontext(DIGITS):
            exact = _exact_single(Decimal(a), Decimal(x)), _exact_double(*map(Decimal, (a, b, x)))
        np.testing.assert_allclose(sums, np.array(exact, float), rtol=1e-6)
