"""Beta calibration of confidences."""

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import tensordot
from calibjax._core.fitting import has_maximum, log_odds, newton_minimum
from calibjax._core.pytree import parameter, record
from calibjax.distributions.constraints import nonnegative, real
from calibjax.recalibration.base import ConfidenceRecalibrator
from calibjax.recalibration.sigmoid import refuse_without_maximum
from calibjax.scores.base import weighted_mean

# Which of the slopes are fitted; the best of those that do not decrease is the best of all.
_FACES = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 1]], float)


@record
class BetaMap:
    """The map r → sigmoid(a log r − b log(1 − r) + c) of confidences.

    Attributes:
        rise: a ≥ 0, slope of the log-odds at small confidences.
        fall: b ≥ 0, slope of the log-odds at large confidences.
        intercept: c.
    """

    rise: jax.Array = parameter(nonnegative)
    fall: jax.Array = parameter(nonnegative)
    intercept: jax.Array = parameter(real)


@record
class BetaCalibration(ConfidenceRecalibrator):
    """Beta calibration: a monotone map of confidences with three parameters, by maximum likelihood.

        r → sigmoid(a log r − b log(1 − r) + c),   a, b ≥ 0,

    which is what makes confidences calibrated that are beta distributed among correct and among
    wrong predictions. For a = b it is `PlattScaling`; other than that it contains the identity,
    and maps that are steep at one end only. Confidences are clipped as there.

    With a batch of class predictions, such as `Categorical`, and labels [n] in place of confidences
    and `correct`, each class is recalibrated against the rest and the probabilities are normalised:
    `fit` returns `ClassWiseParams`, `apply` a batch of `Categorical`s.

    `fit(confidences, correct)` returns a `BetaMap`, `apply(params, confidences)` confidences [n].
    The confidences are an array [n] or a batch of n `Bernoulli`s, as `estimators.top_label` returns
    them; `correct` is 0 or 1, [n].

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if shapes or values are wrong; by `fit` if there is no maximum,
            as in `PlattScaling`. If the arrays are traced, the params are NaN instead.

    Cost: O(n) for each of about 8 iterations of Newton's method.

    References: Kull, Silva Filho and Flach (2017), Beta calibration: a well-founded and easily
    implemented improvement on logistic calibration for binary classifiers, §4.

    >>> import jax.numpy as jnp
    >>> method, correct = BetaCalibration(), jnp.array([0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1])
    >>> params = method.fit(jnp.repeat(jnp.array([0.2, 0.5, 0.9]), 4), correct)
    >>> print([f"{r:.2f}" for r in method.apply(params, jnp.array([0.2, 0.5, 0.9]))])
    ['0.22', '0.53', '0.99']
    """

    _learns = BetaMap

    def _identity(self, one: jax.Array) -> BetaMap:
        return BetaMap(one, one, jnp.zeros_like(one))

    def _fit(
        self, confidences: jax.Array, correct: jax.Array, weights: jax.Array | None
    ) -> BetaMap:
        params = _most_likely(confidences, correct, weights)
        if checks.is_concrete(params) and not np.isfinite(params.intercept):
            refuse_without_maximum(confidences, correct, weights)
        return params

    def _apply(self, params: BetaMap, confidences: jax.Array) -> tuple[jax.Array, None]:
        return _mapped(params, confidences), None


@jax.jit
def _mapped(params: BetaMap, confidences: jax.Array) -> jax.Array:
    fields = jnp.stack([params.rise, params.fall, params.intercept]).astype(confidences.dtype)
    return jax.nn.sigmoid(tensordot(fields, _features(confidences), 1))


def _features(confidences: jax.Array) -> jax.Array:
    """Log r, −log(1 − r) and 1, [3, n]."""
    eps = jnp.finfo(confidences.dtype).eps
    inside = jnp.clip(confidences, eps, 1 - eps)
    return jnp.stack([jnp.log(inside), -jnp.log1p(-inside), jnp.ones_like(inside)])


@jax.jit
def _most_likely(confidences: jax.Array, correct: jax.Array, weights: jax.Array | None) -> BetaMap:
    """Map with the largest likelihood, NaN if there is none."""
    x = log_odds(confidences)
    exists = ~jnp.any(jnp.isnan(x + correct)) & has_maximum(x, correct == 1, weights)
    features = _features(confidences)

    def loss(parameters: jax.Array) -> jax.Array:
        z = tensordot(parameters, features, 1)
        return weighted_mean(jax.nn.softplus(z) - correct * z, weights)

    def best(face: jax.Array) -> tuple[jax.Array, jax.Array]:
        fields = face * newton_minimum(lambda free: loss(face * free), jnp.zeros_like(face), exists)
        return fields, jnp.where(jnp.all(fields[:2] >= 0), loss(fields), jnp.inf)

    candidates, losses = jax.vmap(best)(jnp.asarray(_FACES, x.dtype))
    return BetaMap(*jnp.where(exists, candidates[jnp.argmin(losses)], jnp.nan))
