"""All families against a table of 60-digit numbers, in both precisions.

The rows of `numbers.json` are [family, method, parameters, point or level, value, size]. They were
made by mpmath from the definitions: probabilities by incomplete functions or plain sums, quantiles
by bisection, scores by quadrature of ∫ (F − 1(y ≤ ·))². Nothing of the library was imported. The
size is |f| + Σ |x ∂f / ∂x|: rounding the inputs once changes a value by about eps times that. The
script takes minutes, needs mpmath, and is in the history:

    git show 87086f62:tests/distributions/numbers_by_mpmath.py
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import distributions as d

ROWS: dict = {}
for family, method, *row in json.loads(
    pathlib.Path(__file__).with_name("numbers.json").read_text()
):
    ROWS.setdefault((family, method), []).append(row)
COUNTS = ("Poisson", "NegativeBinomial", "Bernoulli", "Categorical", "CategoricalLogits")
VECTORS = ("Categorical", "CategoricalLogits", "Dirichlet")
# Multiples of eps times the size of the rows, which counts one rounding of every input.
TOLERANCE = 16
LOOSER = {("Poisson", "cdf"): 64}  # by quadrature
# Differences cancel for scales, shapes and excesses df − 1 of 0.01 and less.
LOOSER |= {("LogNormal", "crps"): 512, ("Gamma", "crps"): 512, ("StudentT", "crps"): 4096}


def _built(family, params):
    if family == "StudentT":
        loc, scale, df = params
        return d.StudentT(df, loc, scale)
    if family in VECTORS:
        return getattr(d, family)(jnp.stack(params))
    if family == "Mixture":
        weights, loc, scale = (jnp.stack(params[i : i + 3]) for i in (0, 3, 6))
        return d.Mixture(weights, d.Normal(loc, scale))
    if family == "Ensemble":
        return d.Ensemble(params[1], params[0] / jnp.sum(params[0]))
    return getattr(d, family)(*params)


@pytest.mark.parametrize(
    ("family", "method", "dtype"),
    [(*key, dtype) for key in ROWS for dtype in (np.float32, np.float64)],
)
def test_agrees_with_the_table(family, method, dtype):
    name, *rest = method.split()
    rows = ROWS[family, method]
    if name == "icdf":  # some levels are not numbers of single precision
        rows = [row for row in rows if float(dtype(row[1])) == row[1]]
    params, points, expected, sizes = zip(*rows, strict=True)

    def value(params, *y):
        p = _built(family, params)
        if name == "tempered":
            return p.tempered(jnp.asarray(float(rest[0]), dtype)).log_prob(*y)
        result = getattr(p, name)(*y)
        return result[int(rest[0])] if rest else result

    if family == "Ensemble":  # all weights zero stand for none
        params = [[[float(w or not any(x[0])) for w in x[0]], x[1]] for x in params]
    params = [jnp.array(x, dtype) for x in zip(*params, strict=True)]
    kind = int if family in COUNTS and name != "icdf" else dtype
    at = () if points[0] is None else (jnp.array(points, kind),)
    found = np.asarray(jax.jit(jax.vmap(value))(params, *at), float)
    error = np.abs(found - expected) / np.finfo(dtype).eps
    limit = LOOSER.get((family, method), TOLERANCE) * np.array(sizes)
    wrong = [(row, x) for row, x, e, s in zip(rows, found, error, limit, strict=True) if not e <= s]
    assert not wrong, wrong[:3]


def test_draws_without_weights_have_an_exact_mean():
    """Weights of 1 / m do not sum to one in single precision."""
    values = (1e5 + np.linspace(-1, 1, 1000)).astype(np.float32)
    p = d.Ensemble(jnp.array(values))
    assert abs(float(p.mean()) - values.astype(float).mean()) <= 2**-7  # one step at 1e5
    np.testing.assert_allclose(p.variance(), values.astype(float).var(), rtol=1e-6)


def test_stein_kernel_of_targets_that_were_rounded_to_the_end():
    """The limit of numbers close to zero, where slopes of the log-density overflow."""
    from calibjax import estimators, kernels

    kernel = kernels.TensorProduct(kernels.Constant(1.0), kernels.Stein())
    p = d.Gamma(jnp.array([0.5, 0.5, 2.0], np.float32), jnp.array([1.0, 2.0, 1.0], np.float32))
    value = jax.jit(lambda y: estimators.skce(kernel, p, y))
    expected = value(jnp.array([1e-10, 0.5, 0.25], np.float32))
    for y in (0.0, 1e-38, 1e-30, 1e-20):
        found = value(jnp.array([y, 0.5, 0.25], np.float32))
        np.testing.assert_allclose(found, expected, rtol=1e-5)
