"""Models with a known canonical calibration error, and what the estimators of G24 find in them.

Class distributions P ~ Dir(α), predictions p = softmax(τ log P), and labels that are drawn from β
with probability π, otherwise from P. So E[e_Y | p] = (1 − π) softmax(log p / τ) + π β is known, and

    h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩,   CCE² = E h*(p, p).

With τ = 1 it is the generative model of Widmann et al. (2019, App. J.2), with π = 0 that of G24
§5.1, with both calibrated. Distributions are drawn as logarithms, since powers of small
probabilities underflow.

Of each data set the pipeline of G24 keeps the risk and the estimate at all grid points. Beside them
are, at the grid points of the function that was fitted to the training part of the first fold, its
excess risk E (h(p, q) − h*(p, q))² and its error on the diagonal E h(p, p) − CCE², both on new
predictions.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax import distances, estimators, kernels, risk
from calibjax._core.pytree import record
from calibjax.distributions import Bernoulli, Categorical, CategoricalLogits
from calibjax.kernels.low_rank import numerical_rank
from calibjax.risk.estimation import losses_of_factors
from experiments.harness import cells
from experiments.harness.cells import Store

NUM_FOLDS, TEST_FRACTION = 5, 0.2  # of G24
NUM_POINTS = 500  # new predictions
NUM_BINS = 15
MAX_BINS = 100  # of the grid
# Errors of entries of the kernel matrix. The smallest penalties of kkr, 1.8e-8 for 500 samples, are
# not far above, but are not chosen: against the whole matrix risks differed by 3e-7, estimates by
# 2e-6 of their values (one data set).
TOLERANCES = (1e-8, 1e-5)
KERNEL = kernels.SquaredExponential(1.0)  # exp(−‖p − q‖² / 2)
TUNED = ("bins", "kde", "kkr", "ukkr")
BASELINES = ("kde, untuned", "15 bins", "15 bins, debiased")
_NUMBERS_AT_ONCE = 10**5  # of one batch of predictions of which the error is a mean


@record
class Model:
    """A model with m classes.

    Attributes:
        concentration: α, [m].
        beta: β, [m].
        share: π.
        sharpness: τ > 0: below 1 predictions are not sharp enough, above 1 they are too sharp.
    """

    concentration: jax.Array
    beta: jax.Array
    share: jax.Array
    sharpness: jax.Array

    def draw_predictions(self, key: jax.Array, num_samples: int) -> CategoricalLogits:
        """Predictions, a batch of n."""
        shape = (num_samples, self.concentration.size)
        concentration = jnp.broadcast_to(self.concentration, shape)
        log_probs = jax.nn.log_softmax(jax.random.loggamma(key, concentration))
        return CategoricalLogits(self.sharpness * log_probs)

    def label_probs(self, predictions: CategoricalLogits) -> jax.Array:
        """E[e_Y | p], [n, m]."""
        probs = jax.nn.softmax(predictions.logits / self.sharpness)
        return (1 - self.share) * probs + self.share * self.beta

    def residuals(self, predictions: CategoricalLogits) -> jax.Array:
        """Residuals p − E[e_Y | p], [n, m]."""
        return predictions.class_probs - self.label_probs(predictions)

    def draw_labels(self, key: jax.Array, predictions: CategoricalLogits) -> jax.Array:
        """Labels of predictions, [n]."""
        return jax.random.categorical(key, jnp.log(self.label_probs(predictions)))

    def draw(self, key: jax.Array, num_samples: int) -> tuple[CategoricalLogits, jax.Array]:
        """Predictions and labels of one data set."""
        prediction_key, label_key = jax.random.split(key)
        predictions = self.draw_predictions(prediction_key, num_samples)
        return predictions, self.draw_labels(label_key, predictions)


def model(
    num_classes: int, concentration: float, *, share: float = 0.0, sharpness: float = 1.0
) -> Model:
    """A model with α = (a, ..., a) and β = e_1."""
    return Model(
        jnp.full(num_classes, concentration),
        jnp.asarray(np.eye(1, num_classes)[0]),
        jnp.asarray(share),
        jnp.asarray(sharpness),
    )


def parameters_of(model: Model) -> dict[str, Any]:
    """The numbers that make a model, as JSON has them."""
    return {name: np.asarray(value).tolist() for name, value in vars(model).items()}


def exact_error(model: Model) -> jax.Array:
    """CCE² if τ = 1: π² E‖p − β‖², with E‖p‖² = Σ α_c (α_c + 1) / (α_0 (α_0 + 1))."""
    alpha, total = model.concentration, jnp.sum(model.concentration)
    square = jnp.sum(alpha * (alpha + 1)) / (total * (total + 1))
    product = alpha @ model.beta / total
    return jnp.square(model.share) * (square - 2 * product + model.beta @ model.beta)


@functools.partial(jax.jit, static_argnames=("num_batches", "batch_size"))
def sampled_error(
    key: jax.Array, model: Model, *, num_batches: int, batch_size: int
) -> tuple[jax.Array, jax.Array]:
    """CCE² and its standard error, from many predictions."""

    def one(key: jax.Array) -> jax.Array:
        errors = model.residuals(model.draw_predictions(key, batch_size))
        return jnp.sum(jnp.square(errors), 1)

    values = lax.map(one, jax.random.split(key, num_batches)).ravel()
    return jnp.mean(values), jnp.std(values, ddof=1) / np.sqrt(values.size)


def true_error(store: Store, name: str, model: Model, num_draws: int) -> dict[str, float]:
    """CCE² of a model as `value`, with its standard error `error`, which is 0 where it is exact."""
    if float(model.sharpness) == 1:
        return {"value": float(exact_error(model)), "error": 0.0}

    def compute() -> dict[str, float]:
        batch_size = max(1, _NUMBERS_AT_ONCE // model.concentration.size)
        num_batches = -(-num_draws // batch_size)
        key = cells.key_of(f"estimator_bias/{name}/truth")
        value, error = sampled_error(key, model, num_batches=num_batches, batch_size=batch_size)
        return {"value": float(value), "error": float(error)}

    return cells.cell(store, f"{name}/truth", {"draws": num_draws} | parameters_of(model), compute)


class Functions(NamedTuple):
    """Estimation functions and grids; hashable, so that compiled code depends on them.

    Attributes:
        num_classes: bins are for two classes only.
        num_samples: of a data set.
        rank: number of pivots of kernel ridge regressions; as many as there are samples for none.
    """

    num_classes: int
    num_samples: int
    rank: int

    def of(self, name: str) -> tuple[risk.EstimationFunction, jax.Array]:
        """Function and grid of one of `TUNED`."""
        num_training = training_size(self.num_samples)
        function: risk.EstimationFunction = {
            "bins": risk.Binning(max_bins=MAX_BINS),
            "kde": risk.KernelDensity(),
            "kkr": risk.KernelRidge(KERNEL, rank=self.rank),
            "ukkr": risk.TwoStepKernelRidge(KERNEL, rank=self.rank),
        }[name]
        return function, function.grid(num_training, canonical=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Those of `TUNED` that there are."""
        return TUNED if self.num_classes == 2 else TUNED[1:]


def _fold_size(num_samples: int) -> int:
    """Size of the first fold."""
    return -(-(num_samples - round(num_samples * TEST_FRACTION)) // NUM_FOLDS)


def training_size(num_samples: int) -> int:
    """Number of samples that the function of the first fold is fitted to."""
    return num_samples - round(num_samples * TEST_FRACTION) - _fold_size(num_samples)


def rank_for(predictions: CategoricalLogits) -> int:
    """Number of pivots for kernel matrices of such predictions, all of them if that is best.

    Rank and data are known only where nothing is compiled, so one data set stands for the others.
    """
    points, n = Categorical(predictions.class_probs), len(predictions.logits)
    # Where the first tolerance would need most of the points, a few wrong digits are cheaper.
    for tolerance, limit in zip(TOLERANCES, (n // 4, n // 2), strict=True):
        rank = numerical_rank(KERNEL, points, tolerance, limit)
        if rank is not None:
            return rank
    return n


class Setting(NamedTuple):
    """What does not depend on a data set.

    Attributes:
        model: where the data come from.
        points: new predictions.
        bandwidth: of the kernel density that is not tuned.
    """

    model: Model
    points: CategoricalLogits
    bandwidth: jax.Array


@jax.jit
def size_of_truth(setting: Setting) -> jax.Array:
    """√E h*², the error of h = 0, of which E is over pairs of the new predictions."""
    errors = setting.model.residuals(setting.points)
    zero = jnp.zeros((len(errors), 1))
    return jnp.sqrt(jnp.mean(losses_of_factors(errors, zero, zero)))


def setting_of(name: str, model: Model, num_samples: int) -> Setting:
    """New predictions, and the bandwidth that as many predictions as in a data set suggest."""
    key = cells.key_of(f"estimator_bias/{name}/points")
    predictions = model.draw_predictions(jax.random.fold_in(key, 1), num_samples)
    bandwidth = estimators.kde_bandwidth(Categorical(predictions.class_probs))
    return Setting(model, model.draw_predictions(key, NUM_POINTS), bandwidth)


def evaluate(key: jax.Array, setting: Setting, functions: Functions) -> dict[str, Any]:
    """What the estimators find in one data set.

    Returns:
        For each tuned estimator, with the name in front of " ": `risk`, `estimate`, `excess`,
        `diagonal` and `ratio` at all grid points, [k], and two `errors`; see `evaluate_function`.
        The estimates of `BASELINES`.
    """
    data_key, split_key = jax.random.split(key)
    samples = setting.model.draw(data_key, functions.num_samples)
    found = untuned(*samples, setting.bandwidth)
    for name in functions.names:
        # The same key, and with it the same folds.
        values = evaluate_function(split_key, *functions.of(name), samples, setting)
        found |= {f"{name} {field}": value for field, value in values.items()}
    return found


def evaluate_function(
    key: jax.Array,
    function: risk.EstimationFunction,
    grid: jax.Array,
    samples: Any,
    setting: Setting,
) -> dict[str, jax.Array]:
    """What a tuned estimator finds in one data set.

    Returns:
        risk: by cross-validation, [k].
        estimate: of CCE², the mean over folds and test part, [k].
        excess, diagonal, ratio: `true_errors` of the function of the first fold, [k].
        errors: standard errors that the pipeline reports, over folds and over the test part, [2].
    """
    result = risk.squared_calibration_error(
        key, function, grid, *samples, num_folds=NUM_FOLDS, test_fraction=TEST_FRACTION
    )
    validation = result.cross_validation
    num_training = training_size(len(samples[1]))
    index = result.tuning[jnp.argsort(validation.folds == 0)[:num_training]]
    training = jax.tree.map(lambda leaf: leaf[index], samples)
    first = function.fit(*training, grid[0])

    def at(hyperparameter: jax.Array) -> dict[str, jax.Array]:
        params = function.refit(first, hyperparameter)
        if params is None:
            params = function.fit(*training, hyperparameter)
        return true_errors(function, params, setting)

    return lax.map(at, grid) | {
        "risk": validation.risk,
        "estimate": jnp.mean(validation.test_values, (0, 2)),
        "errors": jnp.stack([result.standard_error, result.sampling_error]),
    }


def true_errors(
    function: risk.EstimationFunction, params: Any, setting: Setting
) -> dict[str, jax.Array]:
    """Errors of a function that was fitted, from new predictions.

    Returns:
        excess: E (h − h*)² over pairs of different predictions.
        diagonal: E (h − h*)(p, p).
        ratio: diagonal / √((m − 1) E (h − h*)²), of which E is over all pairs.
    """
    errors = setting.model.residuals(setting.points)
    n, m = errors.shape
    left, right = function.factors(params, setting.points)
    # The risk with E[e_Y | p] in place of the labels.
    excess = jnp.mean(losses_of_factors(errors, left, right))
    on_diagonal = jnp.sum(left * right, 1) - jnp.sum(jnp.square(errors), 1)
    diagonal, square = jnp.mean(on_diagonal), jnp.mean(jnp.square(on_diagonal))
    ratio = diagonal / jnp.sqrt((m - 1) * ((n - 1) * excess + square) / n)
    return {"excess": excess, "diagonal": diagonal, "ratio": ratio}


def untuned(
    predictions: CategoricalLogits, labels: jax.Array, bandwidth: jax.Array
) -> dict[str, jax.Array]:
    """Estimates of CCE² without tuning by risk, those of `BASELINES` that there are."""
    probs = predictions.class_probs
    classes = Categorical(probs)
    values = [estimators.kde_calibration_error(classes, labels, bandwidth=bandwidth, order=2)]
    if probs.shape[1] == 2:
        samples, binning = (Bernoulli(probs[:, 1]), labels), estimators.UniformBins(NUM_BINS)
        square = distances.SquaredEuclidean()
        values.append(estimators.ece(*samples, binning=binning, distance=square))
        values.append(estimators.debiased_squared_ece(*samples, binning=binning))
    return dict(zip(BASELINES, values, strict=False))


@functools.partial(jax.jit, static_argnames="functions")
def evaluate_all(
    keys: jax.Array, setting: Setting, *, functions: Functions
) -> dict[str, jax.Array]:
    """What `evaluate` returns, with a leading axis of data sets."""
    return lax.map(lambda key: evaluate(key, setting, functions), keys)


def simulate(
    store: Store, name: str, model: Model, functions: Functions, first: int, last: int
) -> dict[str, np.ndarray]:
    """What is found in the data sets first, ..., last − 1 of a model, [data sets, ...] each."""
    n = functions.num_samples

    def compute() -> dict[str, np.ndarray]:
        keys = jax.random.split(cells.key_of(f"estimator_bias/{name}/{n}/{first}"), last - first)
        found = evaluate_all(keys, setting_of(name, model, n), functions=functions)
        return jax.tree.map(np.asarray, found)

    parameters = functions._asdict() | {"last": last, "points": NUM_POINTS}
    parameters |= parameters_of(model)
    return cells.arrays(store, f"{name}/{n}/{first}", parameters, compute)
