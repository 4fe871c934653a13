"""Temperature scaling of any kind of prediction."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import record
from calibjax.distributions.base import Distribution, Family
from calibjax.recalibration.base import Recalibrator
from calibjax.recalibration.powers import tempered
from calibjax.scores import negative_log_likelihood

# Of log T, on which a minimum is searched first: the range, and a step beyond its ends.
_GRID = np.arange(-21, 22) / 2
_MAX_ITERATIONS = 60

Loss = Callable[..., jax.Array]


@record
class TemperatureScaling(Recalibrator):
    """Temperature scaling: all predictions p are replaced by q ∝ p^{1/T} with one T.

    `fit(predictions, targets)` returns the temperature T, a scalar, that minimises the loss of the
    scaled predictions; `apply(T, predictions)` returns the latter. `tempered` lists q for each
    family. Logits of networks are best passed as `distributions.CategoricalLogits`: in float32
    probabilities underflow, and a probability of zero stays zero at every temperature. If a target
    has probability zero, the likelihood has no maximum unless probabilities are clipped.

    The loss may have several minima. It is evaluated at 41 temperatures from e⁻¹⁰ to e¹⁰ and one
    beyond each end, and the lowest minimum *between* two of them is refined by the secant method on
    the derivative with respect to log T, safeguarded by bisection. Even lower losses at an end are
    ignored: the SKCE, for instance, goes to zero for T → ∞ as predictions get ever wider. A loss
    that does not depend on T gives T = 1.

    `apply` and, if the loss is twice differentiable, `fit` can be differentiated. `fit` is compiled
    once for each loss object, as by `jax.jit`: what the loss reads from outside must not change.

    Attributes:
        loss: function (predictions, targets) → scalar that can be differentiated with respect to
            the predictions. The unbiased SKCE is `functools.partial(estimators.skce, kernel)`. If
            `fit` is given weights, the loss is called with a keyword argument `weights`, [n].

    Raises:
        TypeError: by `fit` if the loss is not a function, does not return a scalar, or takes no
            weights but there are some.
        ValueError: by `fit` if the loss has no minimum in the range, such as the negative
            log-likelihood of classes that the predictions separate perfectly, or is not finite.
            If the arrays are traced, the temperature is NaN instead.

    Cost: 43 evaluations of the loss, and about 8 of its derivative.

    References: W21 App. F; Guo et al. (2017), On calibration of modern neural networks, §4.2.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Normal
    >>> method = TemperatureScaling()
    >>> predictions = Normal(loc=jnp.array([0.0, 0.0]), scale=jnp.array([1.0, 1.0]))
    >>> temperature = method.fit(predictions, jnp.array([2.0, -2.0]))
    >>> print(temperature.round(4), method.apply(temperature, predictions).scale.round(4))
    4.0 [2. 2.]
    """

    loss: Loss = dataclasses.field(default=negative_log_likelihood, metadata={"static": True})

    def fit(
        self, predictions: Distribution, targets: ArrayLike, weights: ArrayLike | None = None
    ) -> jax.Array:
        """The temperature with the smallest loss, a scalar."""
        names = "predictions", "targets"
        keywords = () if weights is None else ("weights",)
        checks.function("loss function", "loss", self.loss, *names, keywords=keywords)
        predictions, targets, weights = checks.weighted_samples(
            predictions, targets, weights, keep_logs=True
        )
        log_temperature, losses = _minimise(self.loss, predictions, targets, weights)
        if checks.is_concrete(log_temperature) and not np.isfinite(log_temperature):
            _refuse(np.asarray(losses))
        return checks.nan_with(jnp.exp(log_temperature), predictions, targets, weights)

    def apply(self, params: jax.Array, predictions: Family) -> Family:
        """All predictions at the temperature `params`."""
        predictions = checks.batch(predictions, keep_logs=True)
        temperature = checks.positive_scalar("params", params)
        return _at_temperature(predictions, temperature)

    def identity(self, predictions: Distribution) -> jax.Array:
        """The temperature 1."""
        return jnp.ones((), floating_dtype(predictions))


def _at_temperature(predictions: Family, temperature: jax.Array) -> Family:
    return jax.vmap(tempered, (0, None))(predictions, temperature)


@functools.partial(jax.jit, static_argnums=0)
def _minimise(
    loss: Loss, predictions: Distribution, targets: ArrayLike, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Logarithm of the best temperature, NaN if there is none, and the losses on the grid."""
    more = {} if weights is None else {"weights": weights}

    @jax.jit  # traced once, and so is its derivative
    def objective(log_temperature: jax.Array) -> jax.Array:
        value = loss(_at_temperature(predictions, jnp.exp(log_temperature)), targets, **more)
        checks.real("loss(predictions, targets)", value)
        if jnp.shape(value) != () or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
            got = f"{jnp.result_type(value)}{list(jnp.shape(value))}"
            raise TypeError(f"loss: expected a function that returns a real scalar, got {got}")
        return value

    grid = jnp.asarray(_GRID, floating_dtype(predictions))
    losses = lax.map(objective, grid)
    index, exists = _lowest_basin(losses)
    neighbours = grid[index - 1], grid[index + 1]
    # The implicit function theorem for derivatives with respect to the data.
    best = lax.custom_root(
        jax.jit(jax.grad(objective)),
        grid[index],
        lambda slope, start: _root(slope, start, *neighbours),
        lambda linear, value: value / linear(jnp.ones_like(value)),
    )
    return jnp.where(exists, best, jnp.nan), losses


def _lowest_basin(losses: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Index of the lowest local minimum in the interior of the range.

    On both sides of it, the first values that differ by more than rounding errors are larger. Among
    equal values, and if all are equal, it is the one closest to the middle.
    """
    num = losses.size
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.inf)
    left, right = losses[:-1], losses[1:]
    rounding = 8 * jnp.finfo(losses.dtype).eps * jnp.minimum(jnp.abs(left), jnp.abs(right))
    is_equal = (left == right) | (jnp.abs(right - left) <= rounding)
    signs = jnp.where(is_equal, 0, jnp.where(right > left, 1, -1))
    steps = jnp.arange(num - 1)
    last = lax.cummax(jnp.where(signs == 0, -1, steps))
    following = lax.cummin(jnp.where(signs == 0, num, steps), reverse=True)
    falls_before = jnp.append(False, (last >= 0) & (signs[last] < 0))
    rises_after = jnp.append((following < num) & (signs[following] > 0), False)
    is_basin = (falls_before & rises_after) | jnp.all(signs == 0)
    values = jnp.where(is_basin, losses, jnp.inf)
    from_the_middle = np.argsort(np.abs(np.arange(num) - num // 2), kind="stable")
    index = jnp.asarray(from_the_middle)[jnp.argmin(values[from_the_middle])]
    return index, jnp.isfinite(values[index])


class _Bracket(NamedTuple):
    """An interval in which the slope changes its sign, and the next point to evaluate."""

    low: jax.Array
    high: jax.Array
    slope_low: jax.Array  # NaN where it is not known
    slope_high: jax.Array
    x: jax.Array
    change: jax.Array  # between the last two points
    went_down: jax.Array | bool  # whether the last point became the upper end
    num_steps: jax.Array | int


def _root(
    slope: Callable[[jax.Array], jax.Array], start: jax.Array, low: jax.Array, high: jax.Array
) -> jax.Array:
    """Where the slope changes from negative to positive, by the Illinois method.

    This is the secant method between the ends of the interval; the slope at an end that is retained
    twice is halved. It bisects while a slope at an end is unknown. Points with a slope that is not
    finite are beyond the minimum.
    """
    tolerance = jnp.finfo(start.dtype).eps ** (2 / 3)

    def unfinished(s: _Bracket) -> jax.Array:
        return (s.change > tolerance) & (s.num_steps < _MAX_ITERATIONS)

    def step(s: _Bracket) -> _Bracket:
        value = slope(s.x)
        is_known = jnp.isfinite(value)
        down = jnp.where(is_known, value > 0, s.x > start)
        known = jnp.where(is_known, value, jnp.nan)
        low, high = jnp.where(down, s.low, s.x), jnp.where(down, s.x, s.high)
        slope_low = jnp.where(down, jnp.where(s.went_down, 0.5, 1) * s.slope_low, known)
        slope_high = jnp.where(down, known, jnp.where(s.went_down, 1, 0.5) * s.slope_high)
        secant = high - slope_high * (high - low) / (slope_high - slope_low)
        x = jnp.where(jnp.isfinite(secant), secant, 0.5 * (low + high))
        x = jnp.where(value == 0, s.x, x)
        change = jnp.abs(x - s.x)
        return _Bracket(low, high, slope_low, slope_high, x, change, down, s.num_steps + 1)

    nan = jnp.full_like(start, jnp.nan)
    first = _Bracket(low, high, nan, nan, start, jnp.full_like(start, jnp.inf), False, 0)
    return lax.while_loop(unfinished, step, first).x


def _refuse(losses: np.ndarray) -> None:
    """Raises an error that explains why there is no minimum."""
    ends = f"T = {np.exp(_GRID[1]):.1e} and {np.exp(_GRID[-2]):.1e}"
    finite = np.isfinite(losses)
    if not finite.any():
        raise ValueError(
            f"loss: expected finite values at some temperature, got {losses[0]} at all between "
            f"{ends}. The negative log-likelihood is infinite where a target has probability zero, "
            "as naive Bayes and rounding predict it: hand over logits in "
            "distributions.CategoricalLogits, or clip the probabilities from below, to 1e-7, say, "
            "and divide them by their sum"
        )
    best = np.exp(_GRID[1:-1][np.argmin(np.where(finite, losses, np.inf)[1:-1])])
    raise ValueError(
        f"loss: expected a minimum at a temperature between {ends}, got the smallest value at "
        f"T = {best:.1e}, at an end of the range where it is finite. The likelihood of classes has "
        "no maximum where the predictions separate them perfectly (T to 0), or where a constant "
        "prediction is more likely (T to infinity)"
    )
