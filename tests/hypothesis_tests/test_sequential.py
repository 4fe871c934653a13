"""Wealth of bets against plain NumPy loops; fair bets, horizons, forgetting; level and power."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from calibjax import distances, distributions, kernels, recalibration, streaming
from calibjax.hypothesis_tests import e_process
from calibjax.hypothesis_tests.sequential import (
    NUM_CELLS,
    EProcessResult,
    Past,
    betting_against,
    forecasts_of,
)

N, M = 12, 3
_random = np.random.default_rng(3)
LOC, SCALE = _random.normal(size=N), _random.uniform(0.5, 1.5, N)
Z = 0.5 + _random.normal(size=N)
NORMAL = distributions.Normal(LOC, SCALE), LOC + SCALE * Z
PROBS = _random.dirichlet(np.ones(M), N)
CLASSES = distributions.Categorical(PROBS), _random.integers(0, M, N)
STAKES = 0.1, 0.2, 0.4, 0.8
NEAR = kernels.SquaredExponential(0.7, distances.Wasserstein())
SHIFT = {"shift": recalibration.AffineScaling()}
TV = kernels.Exponential(0.5, distances.TotalVariation())


def affine_logs(z, known, forget=1.0):
    """Logarithms of likelihood ratios; `known` is the number of scores known before each."""
    logs = []
    for t, k in enumerate(known):
        w = forget ** np.arange(k)[::-1]
        b = np.sum(w * z[:k]) / (w.sum() + 20)
        v = (np.sum(w * (z[:k] - b) ** 2) + 20 - 0 * b) / (w.sum() + 20)
        logs.append(stats.norm.logpdf(z[t], b, np.sqrt(v)) - stats.norm.logpdf(z[t]))
    return np.array(logs)


def local_logs(scale, has_unit):
    """With a unit: the mean, over the earlier forecasts, of mean distances to those before them."""
    logs, means = [], []
    for t in range(N):
        gap = np.sqrt((LOC[:t] - LOC[t]) ** 2 + (SCALE[:t] - SCALE[t]) ** 2)
        unit = (np.mean(means) if means else np.inf) if has_unit else 1.0
        w = np.exp(-0.5 * (gap / unit / scale) ** 2)
        if t:
            means.append(gap.mean())
        b = np.sum(w * Z[:t]) / (w.sum() + 5)
        v = (np.sum(w * (Z[:t] - b) ** 2) + 5) / (w.sum() + 5)
        logs.append(stats.norm.logpdf(Z[t], b, np.sqrt(v)) - stats.norm.logpdf(Z[t]))
    return np.cumsum(logs)


def kernel_wealth(near, outcomes, probs, matrix):
    wealth, found = np.ones(len(STAKES)), []
    for t in range(N):
        g = sum((near(s, t) * matrix @ (outcomes[s] - probs[s]) for s in range(t)), 0 * probs[0])
        g = g - g.mean()
        total = sum(near(s, t) for s in range(t))
        g = g / g.std() * total / (total + 20) if t else g
        for k, stake in enumerate(STAKES):
            wealth[k] *= np.exp(stake * g) @ outcomes[t] / (np.exp(stake * g) @ probs[t])
        found.append(np.log(wealth.mean()))
    return np.array(found)


def temperature_logs():
    total, slope, logs = 20.0, 0.0, []
    for p, y in zip(PROBS, CLASSES[1], strict=True):
        theta, lp = slope / total, np.log(p)
        q = p ** (1 + theta) / np.sum(p ** (1 + theta))
        logs.append(np.log(q[y] / p[y]))
        information = q @ lp**2 - (q @ lp) ** 2
        total += information
        slope += lp[y] - q @ lp + information * theta
    return np.cumsum(logs)


def test_against_loops():
    product = kernels.TensorProduct(NEAR, kernels.NormalScore(kernels.SquaredExponential(1.0)))
    bets = {
        "affine": recalibration.AffineScaling(),
        "local": recalibration.KernelRecalibration(NEAR),
        "default": recalibration.KernelRecalibration(),
        "kernel": product,
    }
    result = e_process(*NORMAL, bets=bets)
    levels = (np.arange(NUM_CELLS) + 0.5) / NUM_CELLS
    points = stats.norm.ppf(levels)
    matrix = np.exp(-0.5 * (points[:, None] - points) ** 2)
    cells = np.eye(NUM_CELLS)[np.floor(NUM_CELLS * stats.norm.cdf(Z)).astype(int)]
    gap = lambda s, t: np.hypot(LOC[s] - LOC[t], SCALE[s] - SCALE[t])  # noqa: E731
    uniform = np.full((N, NUM_CELLS), 1 / NUM_CELLS)
    near = lambda s, t: np.exp(-0.5 * (gap(s, t) / 0.7) ** 2)  # noqa: E731
    expected = {
        "affine": np.cumsum(affine_logs(Z, np.arange(N))),
        "local": local_logs(0.7, has_unit=False),
        "default": local_logs(0.2, has_unit=True),
        "kernel": kernel_wealth(near, cells, uniform, matrix),
    }
    for name, logs in expected.items():
        assert_allclose(result.log_wealths[name], logs, rtol=1e-9, atol=1e-12)
    total = np.log(np.mean([np.exp(x) for x in expected.values()], 0))
    assert_allclose(result.log_wealth, total, rtol=1e-9, atol=1e-12)
    assert_allclose(result.pvalue, min(1, np.exp(-total.max())), rtol=1e-9)


def test_classes_against_loops():
    bets = {
        "temperature": recalibration.TemperatureScaling(),
        "kernel": kernels.TensorProduct(TV, kernels.White()),
    }
    result = e_process(*CLASSES, bets=bets)
    distance = lambda s, t: 0.5 * np.abs(PROBS[s] - PROBS[t]).sum()  # noqa: E731
    near = lambda s, t: np.exp(-distance(s, t) / 0.5)  # noqa: E731
    expected = kernel_wealth(near, np.eye(M)[CLASSES[1]], PROBS, np.eye(M))
    assert_allclose(result.log_wealths["kernel"], expected, rtol=1e-9, atol=1e-12)
    expected = temperature_logs()
    assert_allclose(result.log_wealths["temperature"], expected, rtol=1e-9, atol=1e-12)


def test_biases_come_close_to_the_most_likely_ones():
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 4000)
    truth = probs * [1.0, 2.0, 0.5]
    truth /= truth.sum(1, keepdims=True)
    labels = (np.random.default_rng(1).uniform(size=4000)[:, None] > truth.cumsum(1)).sum(1)
    predictions = distributions.Categorical(probs)
    method = recalibration.MatrixScaling(structure="bias")
    result = e_process(predictions, labels, bets={"m": method})
    assert "class 2 comes more rarely than predicted: odds times 0.50" in repr(result)
    found = result.params["m"]
    fitted = recalibration.MatrixScaling(None, structure="bias").fit(predictions, labels)
    assert_allclose(found.biases - found.biases.mean(), fitted.biases, atol=0.1)
    assert found.slopes == 1


@pytest.mark.parametrize("horizon", [2, 3])
def test_horizon(horizon):
    result = e_process(*NORMAL, bets=recalibration.AffineScaling(), horizon=horizon, forget=0.9)
    logs = affine_logs(Z, np.maximum(np.arange(N) - horizon + 1, 0), 0.9)
    wealth, expected = np.ones(horizon), []
    for t, log in enumerate(logs):
        wealth[t % horizon] *= 0.5 + 0.5 * np.exp(log)
        expected.append(np.log(0.5 * wealth.mean()))
    assert_allclose(result.log_wealth, expected, rtol=1e-9)


def test_window_forgets():
    """Forecasts beyond the window do not count, others as if there were no others."""
    bet = {"local": recalibration.KernelRecalibration(NEAR)}
    forecasts = forecasts_of(*NORMAL)
    logs = []
    for window, first in ((4, 0), (N, N - 5)):
        some = jax.tree.map(lambda x, first=first: x[first:], forecasts)
        betting = betting_against(bet, some.prediction, 1, window, 1.0, 0.05)
        _, found = betting.after(betting.start(some), some)
        logs.append(found["local"])
    assert_allclose(logs[0][-1] - logs[0][-2], logs[1][-1] - logs[1][-2], rtol=1e-9)


def members():
    return distributions.Ensemble(np.random.default_rng(1).normal(size=(N, 5)).round(1))


FAMILIES = {
    "Normal": (*NORMAL, None),
    "Gamma": (distributions.Gamma(SCALE + 1, SCALE), SCALE, None),
    "Poisson": (distributions.Poisson(2 * SCALE), np.arange(N) % 4, np.arange(60)),
    "Ensemble": (members(), np.round(Z, 1), None),
    "Categorical": (*CLASSES, np.arange(M)),
    "Bernoulli": (distributions.Bernoulli(PROBS[:, 0]), CLASSES[1] % 2, np.arange(2)),
}


def test_what_is_learned_from_counts():
    """The score and its square on average between the levels of a count, as scipy has them."""
    predictions, targets, _ = FAMILIES["Poisson"]
    levels = stats.poisson.cdf([targets - 1, targets], predictions.rate)
    law, score = stats.truncnorm(*stats.norm.ppf(levels)), forecasts_of(predictions, targets).view
    assert_allclose(score.mean, law.mean(), rtol=1e-9)
    assert_allclose(score.square, law.var() + law.mean() ** 2, rtol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_bets_are_fair(name):
    """E e = 1 under the prediction, for everything that the past may have taught."""
    predictions, targets, support = FAMILIES[name]
    predictions = jax.tree.map(jnp.asarray, predictions)
    forecasts = forecasts_of(predictions, targets)
    betting = betting_against(None, forecasts.prediction, 1, N, 1.0, 0.05)
    bets = betting.bets
    if name == "Normal":  # and whatever has fit and apply
        own = {"refitted": recalibration.TemperatureScaling()}
        bets = bets | betting_against(own, forecasts.prediction, 1, N, 1.0, 0.05).bets
    betting = dataclasses.replace(betting, bets=bets)
    state, _ = betting.after(betting.start(forecasts), forecasts)
    past = Past(state.forecasts, jnp.ones(N).at[0].set(0.5))
    last = jax.tree.map(lambda x: x[-1:], predictions)
    if name == "Ensemble":  # each of the members and the target may be the target
        pool = np.append(np.asarray(last.values), 0.3)
        values = pool
        rows = distributions.Ensemble(np.stack([np.delete(pool, i) for i in range(6)]))
        weights = np.full(6, 1 / 6)
    elif support is None:
        nodes, weights = np.polynomial.legendre.leggauss(64)
        edges = np.arange(NUM_CELLS) / NUM_CELLS
        levels = (edges[:, None] + (nodes + 1) / 2 / NUM_CELLS).reshape(-1)
        weights = np.tile(weights / 2 / NUM_CELLS, NUM_CELLS)
        values = jax.jit(jax.vmap(jax.tree.map(lambda x: x[0], last).icdf))(jnp.asarray(levels))
    else:
        values = support
        one = jax.tree.map(lambda x: x[0], last)
        weights = np.exp(jax.jit(jax.vmap(one.log_prob))(jnp.asarray(values)))
    if name != "Ensemble":
        rows = jax.tree.map(lambda x: jnp.repeat(x, len(values), 0), last)
    given = forecasts_of(rows, values)
    for key, bet in bets.items():
        ratios = jax.vmap(lambda new, b=bet, k=key: b.log_ratios(state.learned[k], past, new))
        found = np.exp(jax.jit(ratios)(given))
        tolerance = 1e-3 if support is None and name != "Ensemble" else 1e-9  # tails, of quadrature
        assert_allclose(weights @ found, 1, rtol=tolerance, err_msg=key)
        assert np.ptp(found) > 1e-3, key


def test_result():
    result = e_process(NORMAL[0], NORMAL[1] + 3 * SCALE)
    assert isinstance(result, EProcessResult)
    wealth = np.asarray(result.log_wealth)
    assert int(result.crossing) == 1 + np.argmax(wealth >= np.log(20))
    assert "above the predictions" in repr(result)
    last = {name: float(logs[-1]) for name, logs in result.log_wealths.items()}
    assert result.earned_most == max(last, key=last.__getitem__)
    assert f"log wealth {wealth[-1]:.2f}" in repr(result)
    assert all(f"{value:+.2f}" in repr(result) for value in last.values())
    assert set(result.params) == {"shift and scale"}
    assert set(result.log_wealths) == {"shift and scale", "local shift and scale", "kernels"}
    late = e_process(NORMAL[0], NORMAL[1] + 3 * SCALE, significance_level=1e-30)
    assert int(late.crossing) == 0


def test_times_in_order():
    """They change nothing; all that reads a stream refuses others."""
    found = e_process(
        *NORMAL, bets=SHIFT, times=np.datetime64("2026-03-01", "h") + np.arange(N) // 2
    )
    assert found.pvalue == e_process(*NORMAL, bets=SHIFT).pvalue
    watch = streaming.EProcess(NORMAL[0], SHIFT)
    with pytest.raises(ValueError, match=r"^times: .* in the order of time.* times\[1\] = -1"):
        watch.update(watch.init(), *NORMAL, times=-np.arange(N))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outliers_of_counts_are_evidence(dtype):
    """Where the distribution function is rounded to 1, a target is as far out as numbers say."""
    rates, wealth = np.full(40, 5.0, dtype), []
    for target in (5, 20, 60, 1000):
        found = e_process(
            distributions.Poisson(rates),
            np.full(40, target),
            bets={"affine": recalibration.AffineScaling()},
        )
        wealth.append(float(found.log_wealth[-1]))
    assert wealth[0] < wealth[1]
    assert wealth[1] > 50
    assert all(later > 0.8 * wealth[1] for later in wealth[2:])
    assert found.pvalue > 0


def test_the_first_fit_is_to_eight_forecasts():
    """The mixture after it has weights 20 and 8."""
    predictions, targets = NORMAL
    method = recalibration.QuantileRecalibration()
    wealth = e_process(predictions, targets, bets={"refitted": method}).log_wealth
    assert_allclose(wealth[:8], 0)
    ninth, target = predictions[8:9], targets[8:9]
    repaired = method.apply(method.fit(predictions[:8], targets[:8]), ninth)
    ratio = np.exp(jax.jit(repaired.log_prob)(target) - ninth.log_prob(target))
    assert_allclose(wealth[8:9], np.log((20 + 8 * ratio) / 28), rtol=1e-6)
