"""All tests of calibration on a simulated data set, in groups that share work.

Some p-values are NaN under `jit`: of a block test whose block estimates are all equal, and of a
CME test with a singular covariance. Such a data set counts as not rejected.

All tests are evaluated within `jit`, where the exact SKCE test of scalar normals works by pairs.
One by one, with concrete values, it would use features: as fast at n = 1024 (0.3 s and 0.37 s for
99 redraws on a busy machine), slower for fewer samples.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax import distances, distributions, estimators, hypothesis_tests, kernels
from experiments.harness.cells import keys_of
from experiments.power.simulation import pvalues, tally
from experiments.synthetic_models import SCALE, Model, median_kernel

EXACT = "exact SKCE"
NUM_LOCATIONS = 5
ECE = functools.partial(estimators.ece, binning=estimators.UniformBins(10), notion="canonical")

Pvalues = dict[str, jax.Array]


def skce_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Tests with asymptotic distributions of the SKCE, or bounds; only the bootstrap draws."""
    arguments = model.kernel, *samples
    size = math.isqrt(samples[1].shape[0])
    test = functools.partial(hypothesis_tests.asymptotic_skce_test, key, *arguments)
    results = {
        "bootstrap": test(num_draws=num_draws),
        "spectrum": test(null="spectrum"),
        "gamma": test(null="gamma"),
        "Pearson": test(null="pearson"),
        "block (B = 2)": test(null="blocks", block_size=2),
        "block (B = √n)": test(null="blocks", block_size=size),
    }
    for name, options in {"biased": {}, "unbiased": {}, "block": {"block_size": 2}}.items():
        results[f"distribution-free ({name})"] = hypothesis_tests.distribution_free_skce_test(
            *arguments, estimator=name, **options
        )
    return {name: result.pvalue for name, result in results.items()}


def few_skce_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """The asymptotic tests of the paper."""
    test = functools.partial(hypothesis_tests.asymptotic_skce_test, key, model.kernel, *samples)
    bootstrap, block = test(num_draws=num_draws), test(null="blocks", block_size=2)
    return {"bootstrap": bootstrap.pvalue, "block (B = 2)": block.pvalue}


def exact_skce_test(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """The exact test with the SKCE, and those of its components."""
    test = hypothesis_tests.exact_skce_test(key, model.kernel, *samples, num_draws=num_draws)
    parts = test.components
    return {EXACT: test.pvalue} | {
        f"{EXACT}, {name}": getattr(parts, name).pvalue
        for name in ("biased", "unbiased", "dispersion")
    }


def cme_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """The CME test, and the exact test with its statistic at the same locations."""
    location_key, redraw_key = jax.random.split(key)
    if model.is_of_classes:
        locations = model.draw(location_key, NUM_LOCATIONS)
    else:
        centers, noise = jax.random.split(location_key)
        loc = jax.random.uniform(centers, (NUM_LOCATIONS,))
        targets = SCALE * jax.random.normal(noise, loc.shape)
        locations = distributions.Normal(loc, jnp.full_like(loc, SCALE)), targets

    def statistic(predictions: Any, targets: Any) -> jax.Array:
        return hypothesis_tests.cme_test(model.kernel, predictions, targets, *locations).statistic

    asymptotic = hypothesis_tests.cme_test(model.kernel, *samples, *locations)
    exact = hypothesis_tests.exact_test(redraw_key, statistic, *samples, num_draws=num_draws)
    return {"CME": asymptotic.pvalue, "exact CME": exact.pvalue}


def consistency_test(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Consistency resampling of the biased SKCE."""
    statistic = functools.partial(estimators.skce_biased, model.kernel)
    test = hypothesis_tests.consistency_test(key, statistic, *samples, num_draws=num_draws)
    return {"consistency SKCE": test.pvalue}


def ece_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Consistency resampling and exact test of the ECE, ten uniform bins per class."""
    keys = jax.random.split(key)
    tests = hypothesis_tests
    resampled = tests.consistency_test(keys[0], ECE, *samples, num_draws=num_draws)
    exact = tests.exact_test(keys[1], ECE, *samples, num_draws=num_draws)
    return {"consistency ECE": resampled.pvalue, "exact ECE": exact.pvalue}


def chosen_kernels(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Exact tests with kernels that are chosen from the predictions, not by the model."""
    predictions = samples[0]
    if model.is_of_classes:
        distance = distances.TotalVariation()
        near = kernels.Exponential(kernels.median_heuristic(distance, predictions), distance)
        median = kernels.TensorProduct(near, kernels.White())
    else:
        median = median_kernel(kernels.Exponential, predictions)
    default = kernels.default_kernel(predictions)
    run = functools.partial(hypothesis_tests.exact_skce_test, key, num_draws=num_draws)
    many = hypothesis_tests.aggregated_skce_test(key, *samples, num_draws=num_draws)
    return {
        f"{EXACT}, median heuristic": run(median, *samples).pvalue,
        f"{EXACT}, default_kernel": run(default, *samples).pvalue,
        "exact aggregated": many.pvalue,
    }


GROUPS: dict[str, Callable[..., Pvalues]] = {
    "exact": exact_skce_test,
    "few": few_skce_tests,
    "skce": skce_tests,
    "cme": cme_tests,
    "consistency": consistency_test,
    "ece": ece_tests,
    "chosen": chosen_kernels,
}
_SIMULATED = ("exact", "bootstrap", "consistency")  # what the names of simulated tests begin with


def is_simulated(test: str) -> bool:
    """Whether a test draws, by its name."""
    return test.startswith(_SIMULATED)


def _of_group(
    data_key: jax.Array, test_key: jax.Array, _: Any, group: str, model: Model, n: int, draws: int
) -> Pvalues:
    return GROUPS[group](test_key, model, model.draw(data_key, n), draws)


def counts(
    name: str, group: str, model: Model, num_samples: int, num_draws: int, span: tuple[int, int]
) -> dict[str, Any]:
    """How often each test of a group rejects, and has no p-value, on the given data sets."""
    keys = keys_of(name, "data", span), keys_of(name, group, span)  # all groups see the same data
    arguments = group, model, num_samples, num_draws
    return tally(pvalues(_of_group, keys, 0, arguments, num_draws * num_samples**2))
