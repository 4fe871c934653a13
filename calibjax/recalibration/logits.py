"""Linear maps of the log-probabilities of classes, by maximum likelihood."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.fitting import minimum, newton_step
from calibjax._core.pytree import parameter, record
from calibjax.distributions import Bernoulli, CategoricalLogits
from calibjax.distributions.base import ClassPredictions
from calibjax.distributions.constraints import nonnegative, real
from calibjax.distributions.features import bare, like
from calibjax.recalibration.base import Recalibrator
from calibjax.scores.base import weighted_mean

_MIN_STEPS, _MAX_STEPS = 4, 50  # of Newton's method, which the latter needs while slopes are steep
_MAX_PARAMETERS = 512  # whose curvatures are computed
_FAR = 0.5  # log-odds that a step moves where there is no maximum, or more


@record
class LogitMap:
    """The map z → A z + b of log-probabilities z, up to a constant.

    Attributes:
        slopes: A, a matrix [m, m], factors of a diagonal one, [m], or of all classes alike, ().
        biases: b, with sum zero, [m].
    """

    slopes: jax.Array
    biases: jax.Array = parameter(real.with_axes("m"))

    def __call__(self, logits: jax.Array) -> jax.Array:
        """Images of the logits of samples, [n, m]."""
        slopes = self.slopes.astype(logits.dtype)
        scaled = matmul(logits, slopes.T) if slopes.ndim == 2 else slopes * logits
        return scaled + self.biases.astype(logits.dtype)


@record
class MatrixScaling(Recalibrator):
    """Matrix scaling, vector scaling, or a bias of each class, by maximum likelihood.

        q ∝ exp(A log p + b),   Σ_c b_c = 0,
        (A, b) minimising NLL(q) + penalty · (mean of A_cd² over c ≠ d + mean of b_c²).

    | structure | A | parameters | |
    | --- | --- | --- | --- |
    | `"bias"` | the identity | m | corrects frequencies, such as a change of prevalence |
    | `"diagonal"` | a diagonal matrix | 2 m | vector scaling: a slope of each class |
    | `"full"` | any matrix | m² + m | matrix scaling, or Dirichlet calibration |

    The penalty, of the off-diagonal entries and the biases (ODIR), keeps the m² parameters in
    bounds; the larger it is, the closer to `"diagonal"` without biases. Choose it on other data.
    Without penalty the mean of the new probabilities of each class is its frequency. Probabilities
    of zero count as the smallest normal number.

    `fit(predictions, targets)` returns a `LogitMap`, `apply(params, predictions)` a batch of
    `CategoricalLogits`, or of `Bernoulli`s for such.

    Attributes:
        penalty: λ ≥ 0, a scalar.
        structure: "bias", "diagonal" or "full".

    Raises:
        TypeError: by the methods if the predictions are not of classes.
        ValueError: by the methods if the structure is none of them; by `fit` if a class does not
            occur, or a map with other slopes tells some class, or a part of it, apart from the
            others, so that the likelihood has no maximum. If the arrays are traced, the map is NaN
            instead. With more than 512 parameters only classes that are all apart are noticed.

    Cost: O(n m) for each of 10 to 20 iterations of L-BFGS, and O(n m²) for some steps of Newton's
    method. If the structure is "full", O(n m²) for each of about 30 iterations, at most 100, and
    O(n m⁴) for the steps, if there are at most 512 parameters.

    References: Kull et al. (2019), Beyond temperature scaling: obtaining well-calibrated
    multi-class probabilities with Dirichlet calibration, §3; Guo et al. (2017), On calibration of
    modern neural networks, §4.2, for vector scaling; Alexandari, Kundaje and Shrikumar (2020),
    Maximum likelihood with bias-corrected calibration is hard-to-beat at label shift adaptation.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> p = Categorical(jnp.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]))
    >>> for method in (MatrixScaling(structure="diagonal"), MatrixScaling(penalty=0.01)):
    ...     params = method.fit(p, jnp.array([0, 0, 1, 1, 0]))
    ...     print([f"{p:.2f}" for p in method.apply(params, p).class_probs[::3, 0]])
    ['0.67', '0.50']
    ['0.67', '0.50']
    """

    penalty: jax.Array | float = parameter(nonnegative, default=0.0)
    _: dataclasses.KW_ONLY
    structure: str = dataclasses.field(default="full", metadata={"static": True})

    @property
    def _axes(self) -> int:
        """Number of axes of the slopes."""
        structures = "bias", "diagonal", "full"
        return structures.index(checks.choice("structure", self.structure, structures))

    def fit(
        self, predictions: ClassPredictions, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> LogitMap:
        """The most likely map."""
        checks.class_predictions(predictions)
        predictions, targets, weights = checks.weighted_samples(
            predictions, targets, weights, keep_logs=True
        )
        logits = log_probs_of(predictions)
        params, exists = _fitted(
            checks.record_values(self, "MatrixScaling"), logits, targets, weights
        )
        if checks.is_concrete(exists) and not exists:
            _refuse(np.asarray(targets), weights, logits.shape[1])
        return params

    def apply(
        self, params: LogitMap, predictions: ClassPredictions
    ) -> Bernoulli | CategoricalLogits:
        """New predictions, `CategoricalLogits`, or `Bernoulli` for such."""
        checks.class_predictions(predictions)
        predictions = checks.batch(predictions, keep_logs=True)
        logits = log_probs_of(predictions)
        checks.fitted("params", params, LogitMap)
        params = checks.record_values(checks.as_arrays("params", params), "params")
        m = logits.shape[1]
        checks.shape("params.biases", params.biases, (m,), f"({m},), a bias for each class")
        shape = (m,) * self._axes
        checks.shape("params.slopes", params.slopes, shape, f"{shape}, as fit returns them")
        logits = params(logits)
        if isinstance(bare(predictions), Bernoulli):
            return like(predictions, Bernoulli(jax.nn.sigmoid(logits[:, 1] - logits[:, 0])))
        return like(predictions, CategoricalLogits(logits))

    def identity(self, predictions: ClassPredictions) -> LogitMap:
        """Slopes 1 and biases 0."""
        return self._identity(predictions.class_probs.shape[-1], floating_dtype(predictions))

    def _identity(self, m: int, dtype: DTypeLike) -> LogitMap:
        slopes = (jnp.ones((), dtype), jnp.ones(m, dtype), jnp.eye(m, dtype=dtype))[self._axes]
        return LogitMap(slopes, jnp.zeros(m, dtype))

    def _cost(self, params: LogitMap) -> jax.Array:
        """What is added to the mean negative log-likelihood."""
        cost = jnp.mean(jnp.square(params.biases))
        if self._axes == 2:
            m = params.biases.size
            outside = params.slopes * (1 - jnp.eye(m, dtype=params.slopes.dtype))
            cost = jnp.sum(jnp.square(outside)) / (m * (m - 1)) + cost
        return jnp.asarray(self.penalty, cost.dtype) * cost


@jax.jit
def _fitted(
    method: MatrixScaling, logits: jax.Array, labels: jax.Array, weights: jax.Array | None
) -> tuple[LogitMap, jax.Array]:
    """The map, NaN if it does not exist, and whether it does."""
    m = logits.shape[1]
    start, as_map = ravel_pytree(method._identity(m, logits.dtype))
    all_weights = jnp.ones(len(logits), logits.dtype) if weights is None else weights
    occurs = jax.ops.segment_sum(all_weights, labels, m) > 0
    exists = jnp.all(occurs) & ~jnp.any(jnp.isnan(logits)) & ~jnp.any(jnp.isnan(all_weights))

    def params_of(changes: jax.Array) -> LogitMap:
        params = as_map(start + changes)
        return params if method._axes else LogitMap(jnp.ones_like(params.slopes), params.biases)

    def likelihood_loss(params: LogitMap) -> jax.Array:
        log_probs = jax.nn.log_softmax(params(logits), 1)
        chosen = jnp.take_along_axis(log_probs, labels[:, None], 1)[:, 0]
        return -weighted_mean(chosen, weights)

    def loss_of(params: LogitMap) -> jax.Array:
        return likelihood_loss(params) + method._cost(params)

    def loss(changes: jax.Array) -> jax.Array:
        return loss_of(params_of(changes))

    params = params_of(minimum(loss, jnp.zeros_like(start), exists))
    if method._axes:  # then the likelihood of classes that are apart has no maximum
        exists &= likelihood_loss(params) > math.sqrt(float(jnp.finfo(logits.dtype).eps))
    if start.size <= _MAX_PARAMETERS:
        params, is_close = _polished(method, params, loss_of, logits, labels, all_weights)
        exists &= is_close
    params = LogitMap(params.slopes, params.biases - jnp.mean(params.biases))
    return jax.tree.map(lambda x: jnp.where(exists, x, jnp.nan), params), exists


def _polished(
    method: MatrixScaling,
    params: LogitMap,
    loss: Callable[[LogitMap], jax.Array],
    logits: jax.Array,
    labels: jax.Array,
    weights: jax.Array,
) -> tuple[LogitMap, jax.Array]:
    """The map after Newton's steps, and whether they come to an end."""
    n, m = logits.shape
    ones = jnp.ones((n, m, 1), logits.dtype)
    scaled = logits[..., None] if method._axes < 2 else jnp.broadcast_to(logits[:, None], (n, m, m))
    features = jnp.concatenate([scaled, ones], 2) if method._axes else ones
    shared = 1 if method._axes == 1 else features.shape[2]
    weights = weights / jnp.sum(weights)

    def table(x: LogitMap) -> jax.Array:
        """Parameters of each class, [m, s]."""
        columns = [x.slopes.reshape(m, -1)] if method._axes else []
        return jnp.concatenate([*columns, x.biases[:, None]], 1)

    def added(x: LogitMap, change: jax.Array) -> LogitMap:
        slopes = change[:, :-1].reshape(x.slopes.shape) if method._axes else 0
        return LogitMap(x.slopes + slopes, x.biases + change[:, -1])

    # The cost is a sum of multiples of squares.
    ends = (jax.tree.map(lambda x, v=v: jnp.full_like(x, v), params) for v in (0.0, 1.0))
    low, high = (table(jax.grad(method._cost)(x)) for x in ends)

    eps = float(jnp.finfo(logits.dtype).eps)

    def unfinished(state: tuple) -> jax.Array:
        _, largest, steepest, count = state
        goes_on = (steepest > eps ** (2 / 3)) & (count < _MAX_STEPS)
        return (largest > math.sqrt(eps)) & (goes_on | (count < _MIN_STEPS))

    def step(state: tuple) -> tuple:
        x, _, _, count = state
        log_probs = jax.nn.log_softmax(x(logits), 1)
        slope = table(jax.grad(loss)(x))
        newton = newton_step(features, labels, log_probs, weights, slope, high - low, shared)
        return added(x, newton.change), newton.largest, jnp.max(jnp.abs(slope)), count + 1

    far = jnp.full((), jnp.inf, logits.dtype)
    params, largest, *_ = lax.while_loop(unfinished, step, (params, far, far, 0))
    return params, largest < _FAR


def log_probs_of(predictions: Any) -> jax.Array:
    """Finite log-probabilities of all classes, [n, m]."""
    plain = bare(predictions)
    if isinstance(plain, CategoricalLogits):
        return jax.nn.log_softmax(plain.logits, 1)
    labels = jnp.arange(plain.class_probs.shape[-1])
    log_probs = jax.vmap(lambda p: jax.vmap(p.log_prob)(labels))(plain)
    return jnp.maximum(log_probs, math.log(float(jnp.finfo(log_probs.dtype).tiny)))


def _refuse(labels: np.ndarray, weights: jax.Array | None, num_classes: int) -> None:
    """Raises an error that explains why there is no maximum."""
    labels = labels if weights is None else labels[np.asarray(weights) > 0]
    missing = sorted(set(range(num_classes)) - set(labels.tolist()))
    if missing:
        raise ValueError(
            "targets: expected every class, without which the likelihood has no maximum, got none "
            f"of class {missing[0]}"
        )
    raise ValueError(
        "predictions: expected classes that overlap, without which the likelihood has no maximum, "
        "got some that linear maps of log-probabilities tell apart; TemperatureScaling(), "
        "MatrixScaling(structure='bias'), or MatrixScaling with a penalty may have one"
    )
