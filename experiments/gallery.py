"""Every figure of `calibjax.plotting` once, of simulated predictions whose faults are known.

The forecasts of temperatures are too narrow, by a quarter of the standard deviation, and half a
degree too cold where they are above 18 degrees. The classifier is overconfident: its logits are
twice too large. The confidences of the local figures are too high on one side of the plane of
features.

Run: `make gallery`, or python -m experiments.gallery [--only NAME ...] [--output DIR]
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

from calibjax import (
    distances,
    distributions,
    estimators,
    hypothesis_tests,
    kernels,
    plotting,
    recalibration,
    scores,
)
from experiments.harness import cells, command_line
from experiments.harness.figures import save_figure

NAME = "gallery"
SIZE = 600  # samples of the regression model, and of the classifier
FIGURES: dict[str, Callable[[], Axes]] = {}


def figure(function: Callable[[], Axes]) -> Callable[[], Axes]:
    """Adds the figure to those that are written under their names."""
    FIGURES[function.__name__] = function
    return function


def key(name: str) -> jax.Array:
    """A random key of its own for each use."""
    return cells.key_of(f"{NAME}/{name}")


class Data(NamedTuple):
    """Predictions and targets."""

    predictions: Any
    targets: jax.Array


@functools.cache
def temperatures() -> Data:
    """Forecasts of temperatures in °C, and what was measured."""
    loc = 15 + 6 * jax.random.normal(key("loc"), (SIZE,))
    scale = 1 + jax.random.uniform(key("scale"), (SIZE,))
    shift = 0.5 * (loc > 18)
    targets = loc + shift + scale * jax.random.normal(key("noise"), (SIZE,))
    return Data(distributions.Normal(loc, 0.75 * scale), targets)


@functools.cache
def classes() -> Data:
    """Class predictions of an overconfident model."""
    logits = 2 * jax.random.normal(key("logits"), (SIZE, 3))
    labels = jax.random.categorical(key("labels"), logits / 2)
    return Data(distributions.Categorical(jax.nn.softmax(logits)), labels)


@functools.cache
def pit() -> jax.Array:
    """PIT values of the temperatures."""
    return estimators.pit_values(key("pit"), *temperatures())


@functools.cache
def located() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Features, confidences, and whether predictions were right."""
    features = jax.random.normal(key("features"), (300, 2))
    confidences = jax.random.uniform(key("conf"), (300,), minval=0.5, maxval=0.95)
    chances = confidences - 0.35 * jax.nn.sigmoid(4 * features[:, 0])
    return features, confidences, jax.random.bernoulli(key("right"), chances).astype(int)


def neighbourhood(length_scale: Any) -> estimators.Neighbourhood:
    """Neighbourhoods in the plane of features, without bins of the confidences."""
    return estimators.Neighbourhood.laplacian(length_scale, 1)


@figure
def reliability_diagram() -> Axes:
    """Of the top label."""
    curve = estimators.reliability_curve(
        key("curve"), *estimators.top_label(*classes()), binning=estimators.UniformBins(10)
    )
    return plotting.reliability_diagram(curve)


@figure
def isotonic_reliability_diagram() -> Axes:
    """Of temperatures up to 15 °C, without bins."""
    predictions, targets = temperatures()
    event = distributions.Bernoulli(jax.vmap(lambda p: p.cdf(15.0))(predictions))
    happened = (targets <= 15).astype(int)
    return plotting.reliability_diagram(estimators.isotonic_curve(key("isotonic"), event, happened))


@figure
def murphy_diagram() -> Axes:
    """Of the means of the temperatures, before and after recalibration, and of the climate."""
    predictions, targets = temperatures()
    climate = distributions.Normal(jnp.full(SIZE, targets.mean()), jnp.full(SIZE, targets.std()))
    method = recalibration.KernelRecalibration()
    repaired = method.cross_fitted(key("folds"), predictions, targets)
    models = {"forecasts": predictions, "recalibrated": repaired, "climate": climate}
    curves = {name: scores.murphy_curve(p, targets, level=0.9) for name, p in models.items()}
    return plotting.murphy_diagram(curves, xlabel="temperature, °C (quantiles of level 0.9)")


@figure
def pit_histogram() -> Axes:
    """Of the temperatures."""
    return plotting.pit_histogram(estimators.pit_counts(key("hist"), pit()))


@figure
def pit_ecdf() -> Axes:
    """Of the temperatures."""
    levels = np.arange(1, 50) / 50
    curve = estimators.coverage_curve(key("ecdf"), pit(), kind="quantile", levels=levels)
    return plotting.pit_ecdf(curve)


@figure
def coverage_curve() -> Axes:
    """Of the temperatures."""
    return plotting.coverage_curve(estimators.coverage_curve(key("interval"), pit()))


@figure
def score_decomposition() -> Axes:
    """Of the classes."""
    test = hypothesis_tests.exact_test(key("parts"), scores.brier_decomposition, *classes())
    return plotting.score_decomposition(test, ylabel="Brier score")


@figure
def null_distribution() -> Axes:
    """Of the spread of the temperatures."""
    kernel = kernels.TensorProduct(
        kernels.Exponential(5.0, distances.Wasserstein()), kernels.SquaredExponential(2.0)
    )
    test = hypothesis_tests.exact_skce_test(key("null"), kernel, *temperatures())
    return plotting.null_distribution(test.components.dispersion, xlabel="dispersion component")


@figure
def e_process_wealth() -> Axes:
    """Of the first temperatures; with all of them the threshold is at the bottom of the figure."""
    first = jax.tree.map(lambda x: x[:100], temperatures())
    return plotting.e_process_wealth(hypothesis_tests.e_process(*first))


@figure
def pvalue_ecdf() -> Axes:
    """Of the same statistic for calibrated predictions, and for predictions that are too narrow."""
    runs, n = 200, 30

    def pvalue(seed: jax.Array, factor: float) -> jax.Array:
        one, two = jax.random.split(seed)
        predictions = distributions.Normal(jnp.zeros(n), jnp.ones(n))
        targets = factor * jax.random.normal(one, (n,))
        test = hypothesis_tests.exact_test(
            two, lambda p, y: jnp.mean(jnp.square(y - p.loc)), predictions, targets, num_draws=99
        )
        return test.pvalue

    seeds = jax.random.split(key("runs"), runs)
    pvalues = {
        name: jax.vmap(functools.partial(pvalue, factor=factor))(seeds)
        for name, factor in (("calibrated", 1.0), ("too narrow by 20 %", 1.25))
    }
    band = estimators.coverage_curve(key("band"), pvalues["calibrated"], kind="quantile")
    return plotting.pvalue_ecdf(pvalues, band=band)


@figure
def group_errors() -> Axes:
    """Of the classes, in groups, one of which has birds that are labelled as dogs."""
    predictions, targets = classes()
    numbers = jax.random.randint(key("groups"), (SIZE,), 0, 4)
    targets = jnp.where((numbers == 3) & (targets == 2), 1, targets)
    memberships = jax.nn.one_hot(numbers, 4)
    test = hypothesis_tests.group_calibration_test(key("test"), predictions, targets, memberships)
    names = ["cats", "dogs", "birds", "top label"]
    return plotting.group_errors(test, groups=["north", "east", "south", "west"], residuals=names)


@figure
def witness_map() -> Axes:
    """Of the temperatures, over predicted mean and residual."""
    kernel = kernels.TensorProduct(
        kernels.SquaredExponential(2.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
    )
    places = jnp.meshgrid(jnp.linspace(5, 25, 15), jnp.linspace(-4, 4, 15))
    mean, residual = map(jnp.ravel, places)
    at = distributions.Normal(mean, jnp.full(mean.size, 1.1)), mean + residual
    test = hypothesis_tests.witness_test(key("witness"), kernel, *temperatures(), *at)
    axes = plotting.witness_map(test, *at)
    axes.set(xlabel="predicted mean (°C)", ylabel="target - predicted mean (°C)")
    return axes


@figure
def local_error_map() -> Axes:
    """With the points that are significant for all points at once."""
    test = hypothesis_tests.local_calibration_test(key("local"), neighbourhood(0.4), *located())
    found = estimators.local_errors(neighbourhood(0.4), *located())
    return plotting.local_error_map(
        located()[0],
        found.error,
        signed=True,
        effective_sizes=found.effective_size,
        pvalues=test.adjusted_pvalue,
    )


@command_line.program
def main() -> None:
    """Writes all figures, or those that are asked for."""
    run, options = command_line.parse(command_line.option_parser(__file__, __doc__, only=FIGURES))
    for name in options.only:
        has_many_points = name == "local_error_map"
        save_figure(run.folder(NAME), name, FIGURES[name]().figure, dots=has_many_points)


if __name__ == "__main__":
    main()
