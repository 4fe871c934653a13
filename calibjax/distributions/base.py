"""Base of the families of distributions: parameters, constraints, sampling."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.gate import checked
from calibjax.distributions.constraints import Constraint, real


class Batch:
    """Length and indexing of a batch of predictions, as of an array.

    `len(predictions)` is n, `predictions[3]` is one prediction, and `predictions[:10]`,
    `predictions[order]` and `predictions[mask]` are batches, as for an array [n]. Parameters that
    all predictions share do not change. Indices except masks may be traced; traced indices out of
    range give NaN.

    Raises:
        TypeError: for a single prediction.
        IndexError: if the array [n] has no such rows.
    """

    def __post_init__(self) -> None:
        """Broadcast Python numbers next to parameters of a batch to a row for each prediction."""
        declared = checks.declared(type(self))
        parameters = [(key, getattr(self, key), c) for key, c, _ in declared if c is not None]
        batches = [(x, len(c.axes)) for _, x, c in parameters if np.ndim(x) > len(c.axes)]
        for key, x, c in parameters if batches else ():
            if c.axes or isinstance(x, bool) or not isinstance(x, (int, float, np.number)):
                continue
            array, width = batches[0]
            own = getattr(array, "dtype", None)
            is_float = isinstance(own, np.dtype) and jnp.issubdtype(own, jnp.floating)
            dtype = int if c.is_integer else own if is_float else jnp.result_type(float)
            shape = np.shape(array)[: np.ndim(array) - width]
            full = np.full if all(isinstance(size, int) for size in shape) else jnp.full
            object.__setattr__(self, key, full(shape, x, dtype))  # symbolic sizes are for JAX only

    def __len__(self) -> int:
        leaves: list[Any] = []
        _of_rows(checks.originals("predictions", self), leaves.append)
        if not leaves:
            raise TypeError(f"len() of unsized {type(self).__name__}, one prediction")
        return checks.leading_size("predictions", leaves, 0)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Self:
        size, is_known = len(self), checks.is_concrete(index)
        rows = np.arange(size)[index] if is_known else index

        def taken(leaf: Any) -> Any:
            return leaf[rows] if is_known else jnp.asarray(leaf).at[rows].get(mode="fill")

        return _of_rows(checks.originals("predictions", self), taken)


def _of_rows(record: Any, function: Callable[[Any], Any], axes: int = 0) -> Any:
    """Record with a function applied to each leaf that has a row for each prediction.

    These leaves have more axes than one prediction, by constraints or `axes` of fields.
    """
    changes = {}
    for key, constraint, extra in checks.declared(type(record)):
        value = getattr(record, key)
        width = axes + len(constraint.axes if constraint else extra.get("axes", ()))
        take = lambda x, width=width: function(x) if jnp.ndim(x) > width else x  # noqa: E731
        is_record = dataclasses.is_dataclass(value)
        changes[key] = _of_rows(value, function, width) if is_record else jax.tree.map(take, value)
    return dataclasses.replace(record, **changes)


class Distribution(Batch):
    """Predicted distribution, or a batch of n with a leading axis n on every parameter.

    A family is a subclass, made a pytree by `calibjax.record`, whose parameters are fields
    `parameter(constraint)`. Batches and targets are checked against these constraints and
    `support`, the constraint of the targets: a class attribute without annotation,
    `constraints.real` by default, or a property that depends on the parameters. Formulas are
    methods for one distribution:

    - `sample(key)`: one draw; always required,
    - `log_prob(y)`, `mean()`, `variance()`, `cdf(y)`, `icdf(level)`, `crps(y)`, where they exist,
    - `tempered(temperature)`: another distribution, see `recalibration.TemperatureScaling`.

    A batch has a length, and is indexed like an array [n]: `predictions[3]`, `predictions[:10]`,
    `predictions[mask]`.
    """

    support: Any = real  # a Constraint; if it were a ClassVar, no property could override it

    def check_targets(self, name: str, targets: Any) -> jax.Array:
        """Refuse targets of the wrong shape, or outside the support."""
        return checked_targets(self, name, targets)


def checked_targets(p: Any, name: str, targets: Any, more: tuple[str, ...] = ()) -> jax.Array:
    """Targets of a batch, of declared shape and support, with `more` axes after the first."""
    support: Constraint | None = getattr(p, "support", None)
    if support is None:
        return checks.finite(name, targets)
    if not (lengths := checks.axis_lengths(p)):
        got = f"{type(p).__name__} without; declare them by parameter(constraint)"
        raise TypeError(f"predictions: expected a class with parameters, got {got}")
    if support.optional:
        axes = *support.axes, *(x for x in support.optional if x in lengths)
        support = dataclasses.replace(support, axes=axes, optional=())
    is_integer = support.is_integer
    if is_integer is None:  # integers if the first parameter is
        is_integer = jnp.issubdtype(jax.tree.leaves(p)[0].dtype, jnp.integer)
    checks.an_array(name, targets)
    if is_integer:
        targets = checks.integer(name, targets, support.words)
    elif not jnp.issubdtype(targets.dtype, jnp.floating):
        targets = checks.floating(name, targets, floating_dtype(p))
    checks.of_axes(name, targets, support, ("n", *more), lengths)
    return support.check(name, targets)


class Wrapper(Batch):
    """Prediction with additional data.

    Subclasses are records with a field `distribution`, whose attributes they have.
    """

    def __getattr__(self, name: str) -> Any:
        # Only called for missing attributes; fields are missing only while self is made or copied.
        is_special = name.startswith("__") and name != "__jax_array__"  # confidences are arrays
        if is_special or name in type(self).__dataclass_fields__:  # pyright: ignore
            raise AttributeError(name)
        return getattr(self.distribution, name)


Family = TypeVar("Family", bound=Distribution)
DataSet = tuple[Distribution, jax.Array]  # predictions and targets


def normalised(weights: jax.Array | None, values: Any) -> jax.Array:
    """Weights with sum one even if they are rounded; equal weights for the values by default."""
    if weights is not None:
        return weights / jnp.sum(weights, -1, keepdims=True)
    number = jnp.shape(jax.tree.leaves(values)[0])[0]
    return jnp.full(number, 1 / number, floating_dtype(values))


class Located(Distribution):
    """Family with expectation `loc`."""

    loc: jax.Array

    def mean(self) -> jax.Array:
        """Expectation, a scalar or [d]."""
        return self.loc


class DrawnByInversion(Distribution):
    """Family with draws by inversion, `sample_at` of one uniform number.

    For a batch, the bits of the keys serve as these numbers, which is faster. A `sample` of a
    subclass takes precedence.
    """

    def sample_at(self, level: jax.Array) -> jax.Array:
        """Draw for a uniform number in [0, 1)."""
        raise NotImplementedError

    def sample(self, key: jax.Array) -> jax.Array:
        """Draw one value, by inversion of the distribution function; n values for a batch."""
        dtype = floating_dtype(self)
        shape = jax.eval_shape(self.sample_at, jax.ShapeDtypeStruct((), dtype)).shape
        return self.sample_at(jax.random.uniform(key, shape, dtype))


def centred(level: jax.Array) -> jax.Array:
    """Number in (−1, 1) for a uniform number in [0, 1)."""
    return jnp.maximum(2 * level - 1, jnp.finfo(level.dtype).epsneg - 1)


class ClassPredictions(Protocol):
    """Class predictions: `Bernoulli`, `Categorical`, mixtures of them, or a user's class."""

    @property
    def class_probs(self) -> jax.Array:
        """Probabilities of the classes, [m], or [n, m] for a batch."""
        ...


def has_class_probs(predictions: object) -> bool:
    """Whether these are class predictions, without computing probabilities."""
    inner = getattr(predictions, "components", predictions)  # of mixtures
    return hasattr(type(inner), "class_probs") or hasattr(inner, "class_probs")


@checked(needs=("sample",))
def sample_targets(key: jax.Array, predictions: Distribution) -> jax.Array:
    """Draw one target from each prediction of a batch: y_i ~ p_i, independently.

    Args:
        key: a JAX random key.
        predictions: a batch of n distributions.

    Returns:
        The targets, [n] or [n, d]. Invalid traced parameters give NaN, or the smallest integer,
        which estimators and tests treat as NaN.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if the parameters have wrong shapes or values.

    Cost: n draws.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax.distributions import Normal, sample_targets
    >>> predictions = Normal(loc=jnp.array([1.0, 10.0]), scale=jnp.array([1e-3, 1e-3]))
    >>> sample_targets(jax.random.key(0), predictions).round()
    Array([ 1., 10.], dtype=float32)
    """
    targets = draw(key, predictions)
    if checks.is_concrete(predictions):
        return targets
    # The smallest integer represents NaN of counts and labels.
    return checks.nan_rows(checks.missing_rows(predictions), targets)


def check_draws(predictions: Distribution, targets: jax.Array) -> None:
    """Refuses predictions without `sample`, or whose draws are not shaped like the targets."""
    checks.method("predictions", predictions, "sample")
    drawn = jax.eval_shape(draw, jax.random.key(0), predictions)
    shapes, expected = (jax.tree.map(jnp.shape, tree) for tree in (drawn, targets))
    if shapes != expected:
        of_targets = f"draws with the shape of the targets, {expected} for the batch"
        raise ValueError(f"predictions.sample: expected {of_targets}, got {shapes}")


@jax.jit
def draw(key: jax.Array, predictions: Distribution) -> jax.Array:
    """`sample_targets` without the checks."""
    keys = jax.random.split(key, jax.tree.leaves(predictions)[0].shape[0])
    return draw_each(keys, predictions)


def draw_each(keys: jax.Array, predictions: Distribution) -> jax.Array:
    """One target from each prediction, for random keys [n] that are not used elsewhere."""
    drawn: Any = predictions
    if getattr(drawn.sample, "__func__", None) is not DrawnByInversion.sample:
        return jax.vmap(lambda p, k: p.sample(k))(drawn, keys)
    levels = _uniform(keys, floating_dtype(predictions))
    return jax.vmap(lambda p, level: p.sample_at(level))(drawn, levels)


def _uniform(keys: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Uniform number in [0, 1) from the random bits of each key, [n]."""
    words = jax.random.key_data(keys)
    bits = words[..., 0]
    if jnp.finfo(dtype).bits == 64:
        bits = bits.astype(jnp.uint64) << 32 | words[..., 1]
    digits = jnp.finfo(dtype).nmant
    shift = jnp.iinfo(bits.dtype).bits - digits
    return (bits >> shift).astype(dtype) * jnp.array(2.0**-digits, dtype)
