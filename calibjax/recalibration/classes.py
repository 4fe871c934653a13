"""Recalibration of classes by a temperature, and by linear maps of the log-probabilities."""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.environment import jit_quick
from calibjax._core.fitting import Step, newton_step, softmax_minimum
from calibjax._core.gate import Seen, checked, inner, usual
from calibjax._core.pytree import Numbers, PyTree, parameter, part, record, varying_as
from calibjax.distributions import Bernoulli, CategoricalLogits
from calibjax.distributions.base import ClassPredictions, Distribution, Family
from calibjax.distributions.composed import bare, like
from calibjax.distributions.constraints import real
from calibjax.recalibration.base import Recalibrator, Weights, tempered, where_it_exists
from calibjax.scores import negative_log_likelihood

if TYPE_CHECKING:
    from calibjax.hypothesis_tests.result import ConfidenceInterval

_MIN_STEPS, _MAX_STEPS = 4, 50  # of Newton's method; steep slopes need the latter
_NUM_STEPS = 1000  # of expectation maximisation
_MAX_PARAMETERS = 512  # for which curvatures are computed
_FAR = 0.5  # least change of log-odds by a step if there is no maximum


@record
class LogitMap:
    """Map z → A z + b of log-probabilities z, up to a constant.

    With a temperature T and a share u, z are the logarithms of (1 − u) q + u / m with
    q ∝ p^{1/T}.

    Attributes:
        slopes: A, as a matrix [m, m], a diagonal [m], or one factor for all classes, ().
        biases: b, with sum zero, [m].
        temperature: T, positive, a scalar; None if z = log p.
        share: u of the uniform distribution, in (0, 1), a scalar; None if z = log p.
    """

    slopes: jax.Array
    biases: jax.Array = parameter(real.with_axes("m"))
    temperature: jax.Array | None = None
    share: jax.Array | None = None

    def check_values(self, name: str) -> "LogitMap":
        """Refuse slopes and biases that are not finite, and an invalid temperature or share."""
        values = {"slopes": checks.finite(f"{name}.slopes", self.slopes)}
        if self.temperature is not None or self.share is not None:
            values["temperature"] = checks.positive_scalar(f"{name}.temperature", self.temperature)
            values["share"] = checks.proportion(f"{name}.share", self.share)
        return checks.replaced(self, **values)

    def __call__(self, logits: jax.Array) -> jax.Array:
        """Images of the logits of samples, [n, m]."""
        if self.temperature is not None and self.share is not None:
            logits = _smoothed(logits, self.temperature, self.share)
        slopes = self.slopes.astype(logits.dtype)
        scaled = matmul(logits, slopes.T) if slopes.ndim == 2 else slopes * logits
        return scaled + self.biases.astype(logits.dtype)


@record
class MatrixScaling(Recalibrator):
    """Matrix scaling, vector scaling, or a bias of each class, after temperature scaling.

        q ∝ exp(A z + b),   Σ_c b_c = 0,   z = log((n r + 1/m) / (n + 1)),   r ∝ p^{1/T},
        (A, b) minimising NLL(q) + λ m/n (Σ_c b_c² + Σ_c (A_cc − 1)²) + λ m (m − 1)/n Σ_{c≠d} A_cd²,

    with the maximum-likelihood temperature T, the mean negative log-likelihood of n samples, and
    the penalty λ: structured matrix scaling. With few samples for each parameter, or large λ, the
    fit is close to the temperature alone; λ = 1 needs no tuning. Without a penalty, z = log p and
    (A, b) is the maximum-likelihood map: the mean of the new probabilities of each class is its
    frequency.

    | structure | A | parameters, plus the temperature | |
    | --- | --- | --- | --- |
    | `"bias"` | the identity | m | corrects frequencies, such as a change of prevalence |
    | `"diagonal"` | a diagonal matrix | 2 m | vector scaling: a slope of each class |
    | `"full"` | any matrix | m² + m | matrix scaling, or Dirichlet calibration |

    Probabilities of zero are replaced by the smallest normal number. With a penalty, classes that
    do not occur keep a positive probability. Weights are then numbers of copies with sum n, so
    their scale matters.

    `fit(predictions, targets)` returns a `LogitMap`, `apply(params, predictions)` a batch of
    `CategoricalLogits`, or of `Bernoulli`s for `Bernoulli`s. `identity` is a map without
    temperature.

    Attributes:
        penalty: λ, positive, a scalar; None for the maximum-likelihood map.
        structure: "bias", "diagonal" or "full".

    Raises:
        TypeError: by the methods if the predictions are not class predictions.
        ValueError: by the methods if the structure is invalid; by `fit` without a penalty if the
            likelihood has no maximum, because a class does not occur or is separated from the
            others. If the arrays are traced, the map is NaN instead. Separation is not detected
            with more than 512 parameters.

    Warns:
        UserWarning: by `fit` without a penalty if there are more parameters than samples.

    Cost: O(n m), or O(n m²) if the structure is "full", for each of about 50 steps of conjugate
    gradients. Without penalty O(n m²), or O(n m⁴), for each of about 10 steps of Newton's method,
    if there are at most 512 parameters.

    References: Berta, Holzmüller, Jordan and Bach (2025), Structured matrix scaling for multi-class
    calibration; Kull et al. (2019), Beyond temperature scaling: obtaining well-calibrated
    multi-class probabilities with Dirichlet calibration, §3; Guo et al. (2017), On calibration of
    modern neural networks, §4.2, for vector scaling; Alexandari, Kundaje and Shrikumar (2020),
    Maximum likelihood with bias-corrected calibration is hard-to-beat at label shift adaptation.

    >>> import jax.numpy as jnp
    >>> from calibjax.distributions import Categorical
    >>> p = Categorical(jnp.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]))
    >>> for method in (MatrixScaling(), MatrixScaling(None, structure="diagonal")):
    ...     params = method.fit(p, jnp.array([0, 0, 1, 1, 0]))
    ...     print([f"{p:.2f}" for p in method.apply(params, p).class_probs[::3, 0]])
    ['0.63', '0.46']
    ['0.67', '0.50']
    """

    penalty: jax.Array | float | None = part(
        lambda value, name: value if value is None else checks.positive_scalar(name, value),
        default=1.0,
    )
    _: dataclasses.KW_ONLY
    structure: Literal["bias", "diagonal", "full"] = dataclasses.field(
        default="full", metadata={"static": True}
    )

    @property
    def _axes(self) -> int:
        """Number of axes of the slopes."""
        return ("bias", "diagonal", "full").index(self.structure)

    @checked(copies=lambda x: x.penalty is not None)
    def fit(
        self, predictions: ClassPredictions, targets: Numbers, weights: Numbers | None = None
    ) -> LogitMap:
        """Maximum-likelihood map."""
        params, exists = _fitted(self, bare(predictions), targets, weights)
        if self.penalty is None and checks.is_concrete(params):
            n = len(targets) if weights is None else int(np.sum(np.asarray(weights) > 0))
            if (size := params.biases.size + params.slopes.size * (self._axes > 0)) > n:
                got = f"{size} parameters for {n} samples"
                warnings.warn(f"MatrixScaling(None): {got}; use a penalty", stacklevel=3)
        if checks.is_concrete(exists) and not exists:
            _refuse(np.asarray(targets), weights, params.biases.size)
        return params

    @checked
    def apply(
        self, params: LogitMap, predictions: ClassPredictions
    ) -> Bernoulli | CategoricalLogits:
        """Recalibrated predictions: `CategoricalLogits`, or `Bernoulli` for `Bernoulli`."""
        bare_map = LogitMap(params.slopes, params.biases)
        checks.same_kind("params", bare_map, "fit", self.identity(predictions), num_axes=0)
        logits = params(log_probs_of(predictions))
        if isinstance(bare(predictions), Bernoulli):
            return like(predictions, Bernoulli(jax.nn.sigmoid(logits[:, 1] - logits[:, 0])))
        if isinstance(plain := bare(predictions), CategoricalLogits):  # keeps masked classes
            logits = jnp.where(plain.logits == -jnp.inf, -jnp.inf, logits)
        return like(predictions, CategoricalLogits(logits))

    def identity(self, predictions: ClassPredictions) -> LogitMap:
        """Slopes 1 and biases 0."""
        return self._identity(predictions.class_probs.shape[-1], floating_dtype(predictions))

    def _identity(self, m: int, dtype: DTypeLike) -> LogitMap:
        slopes = (jnp.ones((), dtype), jnp.ones(m, dtype), jnp.eye(m, dtype=dtype))[self._axes]
        return LogitMap(slopes, jnp.zeros(m, dtype))

    def _ridge(self, logits: jax.Array) -> jax.Array:
        """Multiples of m / n that penalise changes of slopes and bias of each class, [m, s]."""
        m = logits.shape[1]
        if self._axes < 2:
            return jnp.ones((m, self._axes + 1), logits.dtype)
        off_diagonal = jnp.pad(1 - jnp.eye(m, dtype=logits.dtype), ((0, 0), (0, 1)))
        return 1 + (m - 2) * off_diagonal


@jit_quick
def _fitted(
    method: MatrixScaling, predictions: ClassPredictions, labels: jax.Array, weights: Weights
) -> tuple[LogitMap, jax.Array]:
    """The map, NaN if it does not exist, and whether it exists."""
    logits = log_probs_of(predictions)
    n, m = logits.shape
    dtype, eps = logits.dtype, float(jnp.finfo(logits.dtype).eps)
    weights = jnp.ones(n, dtype) if weights is None else weights
    total = jnp.sum(weights)
    shares = weights / total
    exists = ~jnp.any(checks.missing_rows((logits, weights)))
    smoothing, ridge, scale = (), jnp.zeros_like(method._ridge(logits)), jnp.ones((), dtype)
    if method.penalty is not None:
        smoothing = _temperature(logits, labels, shares), 1 / (total + 1)
        logits = _smoothed(logits, *smoothing)
        ridge = method._ridge(logits) * jnp.asarray(method.penalty, dtype) * m / total
    else:
        exists &= jnp.all(jnp.any((labels[:, None] == jnp.arange(m)) & (shares > 0)[:, None], 0))
        if method._axes:  # Newton's steps diverge for overconfident predictions without curvature
            scale = _temperature(logits, labels, shares)
            logits = logits / scale
    identity = method._identity(m, dtype)

    def slopes_of(changes: jax.Array) -> jax.Array:
        return (
            changes[:, :-1].reshape(identity.slopes.shape) if method._axes else jnp.zeros((), dtype)
        )

    def moves(logits: jax.Array, changes: jax.Array) -> jax.Array:
        """Change of the logits by changes of slopes and a bias of each class, [m, s]."""
        return LogitMap(slopes_of(changes), changes[:, -1])(logits)

    if method.penalty is not None or ridge.size > _MAX_PARAMETERS:
        changes = softmax_minimum(moves, logits, labels, shares, ridge)
    else:

        def unfinished(state: tuple) -> jax.Array:
            _, last, count = state
            goes_on = (last.steepest > eps ** (2 / 3)) & (count < _MAX_STEPS)
            return exists & (last.largest > math.sqrt(eps)) & (goes_on | (count < _MIN_STEPS))

        def step(state: tuple) -> tuple:
            x, _, count = state
            newton = newton_step(moves, logits, labels, shares, ridge, x)
            return x + newton.change, newton, count + 1

        ridge = varying_as(ridge, (logits, labels, shares))  # as all that `step` computes
        far = jnp.full((), jnp.inf, dtype)
        first = Step(jnp.zeros_like(ridge), far, far, far)
        start = varying_as((first.change, first, 0), (logits, labels, shares))
        changes, last, _ = lax.while_loop(unfinished, step, start)
        # With slopes, the likelihood of separated classes has no maximum.
        is_apart = (last.missed <= math.sqrt(eps)) & (method._axes > 0)
        # Probabilities of zero and one have no curvature: biases may not be found.
        exists &= (last.largest < _FAR) & ~is_apart & (last.steepest < eps ** (1 / 3))
    biases = changes[:, -1] - jnp.mean(changes[:, -1])
    params = LogitMap((identity.slopes + slopes_of(changes)) / scale, biases, *smoothing)
    return where_it_exists(exists, params), exists


def _smoothed(logits: jax.Array, temperature: jax.Array, share: jax.Array) -> jax.Array:
    """Logarithms of softmax(logits / T) with a share of the uniform distribution."""
    temperature, share = (x.astype(logits.dtype) for x in (temperature, share))
    probs = jax.nn.softmax(logits / temperature, 1)
    # Not centred, unlike the authors' code: the mean log-probability measures certainty.
    return jnp.log((1 - share) * probs + share / logits.shape[1])


def _temperature(logits: jax.Array, labels: jax.Array, weights: jax.Array) -> jax.Array:
    """Maximum-likelihood temperature within the range; weights have sum one."""
    is_own = labels[:, None] == jnp.arange(logits.shape[1])

    def slope(log_temperature: jax.Array) -> jax.Array:
        excess = is_own - jax.nn.softmax(logits * jnp.exp(-log_temperature), 1)
        return jnp.sum(weights[:, None] * excess * logits)

    zero, end = jnp.zeros((), logits.dtype), jnp.asarray(_GRID[-1], logits.dtype)
    zero, end = varying_as((zero, end), (logits, labels, weights))
    return jnp.exp(_root(slope, zero, -end, end))


def log_probs_of(predictions: Any) -> jax.Array:
    """Finite log-probabilities of all classes, [n, m]."""
    plain = bare(predictions)
    smallest = jnp.finfo(floating_dtype(plain)).tiny
    if isinstance(plain, CategoricalLogits):
        logs = jax.nn.log_softmax(plain.logits, 1)
        return jnp.where(logs > -jnp.inf, logs, jnp.log(smallest))
    return jnp.log(jnp.maximum(plain.class_probs, smallest))


def _refuse(labels: np.ndarray, weights: Weights, num_classes: int) -> None:
    """Raise an error that explains why there is no maximum."""
    labels = labels if weights is None else labels[np.asarray(weights) > 0]
    missing = sorted(set(range(num_classes)) - set(labels.tolist()))
    if missing:
        raise ValueError(f"targets: expected every class, got none of class {missing[0]}")
    raise ValueError(
        "predictions: expected classes that overlap, got some that linear maps of "
        "log-probabilities separate, or probabilities of 0 and 1; "
        "MatrixScaling with a penalty has a solution"
    )


# Grid of log T: the range, and a step beyond its ends.
_GRID = np.arange(-21, 22) / 2
_MAX_ITERATIONS = 100

Loss = Callable[..., jax.Array]


@record
class TemperatureScaling(Recalibrator):
    """Temperature scaling: replaces all predictions p by q ∝ p^{1/T} with one T.

    `fit(predictions, targets)` returns the temperature T, a scalar, that minimises the loss of the
    scaled predictions; `apply(T, predictions)` returns these. T > 1 flattens, T < 1 sharpens, T = 1
    is the identity. The density q ∝ p^{1/T} is with respect to a measure for which q is in the
    family of p: Lebesgue or counting measure, and for proportions and positive numbers (`Gamma`,
    `LogNormal`) the measure with density 1 / ∏_k x_k:

    | family | parameters of q |
    | --- | --- |
    | `Categorical`, `Bernoulli` | p^{1/T}, normalised; probabilities of zero stay zero |
    | `CategoricalLogits` | logits / T, shifted so that the largest is zero |
    | `Normal`, `DiagNormal` | scale · √T |
    | `MvNormal` | cov · T |
    | `Laplace` | scale · T |
    | `Beta`, `Dirichlet` | alpha / T, beta / T, concentration / T |
    | `Gamma` | concentration / T, rate / T |
    | `LogNormal` | scale · √T |
    | `GeneralizedNormal` | scale · T^{1 / power} |
    | `StudentT` | df' = (df + 1) / T − 1, scale · √(df / df'); NaN for T ≥ df + 1 |
    | `Uniform` | p itself |
    | `Mixture` | every component at temperature T, with unchanged weights |
    | `Ensemble` | deviations from the mean · √T |

    The last two are conventions: the density of the new mixture is not a power, and draws have no
    density; T multiplies their variance, as for normal distributions. For draws from a density ∝
    exp(−½ s^β), s = (y − μ)ᵀ Σ⁻¹ (y − μ), to represent this density at temperature T, their
    variance must be multiplied by T^{1/β} instead. Means do not change, except for `LogNormal` and
    for classes, which keep the order of their probabilities. Parameters `loc` never change.

    Families without a rule, and families that are not closed under powers, such as Poisson
    distributions, raise an error. A family of your own defines the method `tempered(temperature)`,
    which returns another instance, by a convention if no power of its density is in the family.

    Pass logits of networks as `distributions.CategoricalLogits`: in float32 probabilities
    underflow, and a probability of zero stays zero at every temperature. If a target has
    probability zero, the likelihood has no maximum unless probabilities are clipped.

    The loss may have several minima. It is evaluated at 41 temperatures from e⁻¹⁰ to e¹⁰ and one
    beyond each end. The lowest minimum *between* two of them is refined by the secant method on the
    derivative with respect to log T, safeguarded by bisection. Lower losses at an end are ignored:
    the SKCE, for instance, goes to zero for T → ∞. A constant loss gives T = 1.

    `apply` and, if the loss is twice differentiable, `fit` can be differentiated. `fit` is compiled
    once for each loss object, as by `jax.jit`: values in its closure must not change.

    Attributes:
        loss: function (predictions, targets) → scalar that can be differentiated with respect to
            the predictions. The unbiased SKCE is `functools.partial(estimators.skce, kernel)`. If
            `fit` is given weights, they are passed to the loss as `weights`, [n].

    Raises:
        TypeError: by the methods if the loss is not a function; by `fit` if it does not return a
            scalar, or does not take the given weights.
        ValueError: by `fit` if the loss has no minimum in the range, such as the negative
            log-likelihood of classes that the predictions separate perfectly, or is not finite.
            If the arrays are traced, the temperature is NaN instead.
        NotImplementedError: by the methods if the family has no rule.

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

    loss: Loss = dataclasses.field(
        default=negative_log_likelihood,
        metadata={
            "static": True,
            "check": lambda value, name: usual("score")(name, value, Seen({})),
        },
    )

    @checked
    def fit(
        self, predictions: Distribution, targets: Numbers, weights: Numbers | None = None
    ) -> jax.Array:
        """Temperature with the smallest loss, a scalar."""
        is_likelihood = self.loss is negative_log_likelihood  # no pairs of samples
        find = _likeliest if is_likelihood else functools.partial(_minimise, self.loss)
        temperature, losses = find(predictions, targets, weights)
        if checks.is_concrete(temperature) and not np.isfinite(temperature):
            _refuse_temperature(np.asarray(losses))
        return checks.nan_with(temperature, predictions, targets, weights)

    @checked(params=lambda name, value, seen: checks.positive_scalar(name, value))
    def apply(self, params: Numbers, predictions: Family) -> Family:
        """Predictions at the temperature `params`."""
        return _tempered(predictions, params)

    def identity(self, predictions: Distribution) -> jax.Array:
        """The temperature 1."""
        return jnp.ones((), floating_dtype(predictions))


_tempered = jit_quick(jax.vmap(tempered, (0, None)))


@functools.partial(jax.jit, static_argnums=0)
def _minimise(
    loss: Loss, predictions: Distribution, targets: ArrayLike, weights: Weights
) -> tuple[jax.Array, jax.Array]:
    """Best temperature, NaN if there is none, and the losses on the grid."""
    more = {} if weights is None else {"weights": weights}

    @jax.jit  # traced once, and so is its derivative
    def objective(log_temperature: jax.Array) -> jax.Array:
        moved = jax.vmap(tempered, (0, None))(predictions, jnp.exp(log_temperature))
        value = checks.real("loss(predictions, targets)", loss(moved, targets, **more))
        checks.shape("loss(predictions, targets)", value, (), "() (a scalar)")
        return value * 1.0

    grid = jnp.asarray(_GRID, floating_dtype(predictions))
    losses = lax.map(objective, grid)
    index, exists = _lowest_basin(losses)
    ends = grid[index - 1], grid[index + 1]
    best = _root(jax.jit(jax.grad(objective)), grid[index], *ends)
    return jnp.where(exists, jnp.exp(best), jnp.nan), losses


_likeliest = jit_quick(functools.partial(inner(_minimise), negative_log_likelihood))


def _lowest_basin(losses: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Index of the lowest local minimum in the interior of the range.

    On both sides, the first values that differ by more than rounding errors are larger. Ties are
    broken by the distance to the middle.
    """
    losses = jnp.where(jnp.isfinite(losses), losses, jnp.inf)
    left, right = losses[:-1], losses[1:]
    rounding = 8 * jnp.finfo(losses.dtype).eps * jnp.minimum(jnp.abs(left), jnp.abs(right))
    is_equal = (left == right) | (jnp.abs(right - left) <= rounding)
    signs = jnp.where(is_equal, 0, jnp.sign(right - left))

    # At each interior point: the nearest slope on each side where the loss is not flat.
    places = jnp.arange(signs.size)
    before = signs[lax.cummax(jnp.where(signs == 0, 0, places))][:-1]
    after = signs[lax.cummin(jnp.where(signs == 0, signs.size - 1, places), reverse=True)][1:]
    is_basin = (before < 0) & (after > 0) | jnp.all(signs == 0)
    values = jnp.where(is_basin, losses[1:-1], jnp.inf)
    lowest = jnp.min(values)
    from_the_middle = jnp.abs(jnp.arange(values.size) - values.size // 2)
    index = jnp.argmin(jnp.where(values == lowest, from_the_middle, values.size))
    return index + 1, jnp.isfinite(lowest)


def _root(
    slope: Callable[[jax.Array], jax.Array], start: jax.Array, low: jax.Array, high: jax.Array
) -> jax.Array:
    """Root of an increasing slope, with the derivatives of the implicit function theorem.

    Where the slope is flat the derivatives are zero.
    """

    def solve(linear: Callable[[jax.Array], jax.Array], value: jax.Array) -> jax.Array:
        curvature = linear(jnp.ones_like(value))
        return value / jnp.where(curvature == 0, jnp.inf, curvature)

    search = functools.partial(_search, low=low, high=high)
    return lax.custom_root(slope, start, search, solve)


def _search(
    slope: Callable[[jax.Array], jax.Array], start: jax.Array, low: jax.Array, high: jax.Array
) -> jax.Array:
    """Root of an increasing slope, by the secant method with Brent's safeguards.

    It bisects if the secant leaves the interval or moves by more than half of the change before the
    last, or if a slope is unknown. Points with a slope that is not finite are beyond the minimum.
    Between a steep and a flat slope the secant hardly moves: no step is shorter than the tolerance,
    so that the search ends when two points that are this close have the root between them.
    """
    tolerance = jnp.finfo(start.dtype).eps ** (2 / 3)

    def unfinished(state: tuple) -> jax.Array:
        *_, is_found, num_steps = state
        return ~is_found & (num_steps < _MAX_ITERATIONS)

    def step(state: tuple) -> tuple:
        x, low, high, before, slope_before, last, change, _, num_steps = state
        value = slope(x)
        is_beyond = jnp.where(jnp.isfinite(value), value > 0, x > start)
        low, high = jnp.where(is_beyond, low, x), jnp.where(is_beyond, x, high)
        is_found = (value == 0) | (high - low <= 2 * tolerance)
        secant = x - value * (x - before) / (value - slope_before)
        is_near = (low <= secant) & (secant <= high) & (jnp.abs(secant - x) <= 0.5 * last)
        new = jnp.where(is_near, secant, 0.5 * (low + high))
        new = jnp.where(is_found & jnp.isfinite(secant), jnp.clip(secant, low, high), new)
        is_short = ~is_found & (jnp.abs(new - x) < tolerance)
        new = jnp.where(is_short, x + jnp.where(is_beyond, -tolerance, tolerance), new)
        new = jnp.where(value == 0, x, new)
        return new, low, high, x, value, change, jnp.abs(new - x), is_found, num_steps + 1

    nan, infinity = jnp.full_like(start, jnp.nan), jnp.full_like(start, jnp.inf)
    first = start, low, high, start, nan, infinity, infinity, False, 0
    return lax.while_loop(unfinished, step, varying_as(first, (start, low, high)))[0]


def _refuse_temperature(losses: np.ndarray) -> None:
    """Raise an error that explains why there is no minimum."""
    inside = np.where(np.isfinite(losses), losses, np.inf)[1:-1]
    temperatures = np.exp(_GRID[1:-1])
    ends = f"T = {temperatures[0]:.1e} and {temperatures[-1]:.1e}"
    if np.isinf(inside).all():
        raise ValueError(
            f"loss: expected finite values at some temperature, got {losses[0]} between {ends}; "
            "targets have probability zero; if that is due to rounding, pass logits in "
            "distributions.CategoricalLogits"
        )
    raise ValueError(
        f"loss: expected a minimum between {ends}, got the smallest value at "
        f"T = {temperatures[inside.argmin()]:.1e}; the likelihood has none if predictions "
        "separate the classes (T to 0), or if constant ones are more likely (T to infinity)"
    )


@checked(loss=usual("score"))
def temperature_interval(
    predictions: Distribution,
    targets: Numbers,
    *,
    loss: Loss = negative_log_likelihood,
    weights: Numbers | None = None,
    confidence_level: float = 0.95,
) -> "ConfidenceInterval":
    """Asymptotic confidence interval for the temperature that minimises the expected loss.

    T is the result of `TemperatureScaling`. With θ = log T and the loss l_i(θ) of sample i at this
    temperature, the interval is T exp(± z s) with the sandwich estimate of the standard error

        s² = Σ_i l_i'(θ)² / (Σ_i l_i''(θ))²,

    or with w_i l_i instead of l_i for weights. This does not assume that any temperature makes the
    model calibrated. An interval that contains T = 1 is no evidence of calibration.

    Args:
        predictions: batch of n distributions with `tempered`.
        targets: [n] or [n, d].
        loss: (predictions, targets) → scalar, the mean of a loss over the samples that is twice
            differentiable in T; the CRPS of `Ensemble` is not.
        weights: w ≥ 0 of the samples, [n], which the loss has to take; None for equal weights.
        confidence_level: in (0, 1).

    Returns:
        The interval; `estimate` is T, `standard_error` is T s. All values except T are NaN if the
        loss is not convex at T, or its curvature is not finite.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong, or the loss has no minimum (see
            `TemperatureScaling`).
        NotImplementedError: if the family has no `tempered`.

    Cost: `TemperatureScaling.fit`.

    References: none of the four papers has it; White (1982), Maximum likelihood estimation of
    misspecified models, for the standard error.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distributions, recalibration
    >>> predictions = distributions.Normal(jnp.zeros(200), jnp.ones(200))
    >>> targets = 2 * jax.random.normal(jax.random.key(0), (200,))  # their variance is 4
    >>> interval = recalibration.temperature_interval(predictions, targets)
    >>> print(f"{interval.low:.1f} {interval.estimate:.1f} {interval.high:.1f}")
    3.1 3.8 4.6
    """
    samples = predictions, targets, weights
    temperature = inner(TemperatureScaling.fit)(TemperatureScaling(loss), *samples)
    return _interval(loss, *samples, temperature, confidence_level)


@functools.partial(jax.jit, static_argnums=0)
def _interval(
    loss: Loss,
    predictions: PyTree,
    targets: PyTree,
    weights: Weights,
    temperature: jax.Array,
    level: ArrayLike,
) -> "ConfidenceInterval":
    """Sandwich estimate of the interval around the best temperature."""

    def value(p: Any, y: Any, theta: jax.Array) -> jax.Array:
        sample = tempered(p, jnp.exp(theta)), y
        return loss(*jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], sample))

    both = jax.vmap(jax.value_and_grad(jax.grad(value, 2), 2), (0, 0, None))
    slopes, curvatures = both(predictions, targets, jnp.log(temperature))
    if weights is not None:
        slopes, curvatures = (jnp.where(weights > 0, weights * x, 0) for x in (slopes, curvatures))
    curvature = jnp.sum(curvatures)
    is_convex = (curvature > 0) & jnp.isfinite(curvature)
    error = jnp.sqrt(jnp.sum(jnp.square(slopes))) / jnp.where(is_convex, curvature, jnp.nan)
    from calibjax.hypothesis_tests.result import ConfidenceInterval, asymptotic_interval

    logs = asymptotic_interval(jnp.log(temperature), error, level)
    low, high = jnp.exp(logs.low), jnp.exp(logs.high)
    return ConfidenceInterval(low, high, temperature, temperature * error)
