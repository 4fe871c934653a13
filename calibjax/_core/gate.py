"""The gate: a decorator that checks arguments by their names.

The body of a public function is its formula. Before it, `checked` converts or refuses each
argument that has a check, in the order of the signature. Wrong traced values become NaN. The table
below defines the checks of names. For other names the annotation decides: `Literal` lists the
choices; `bool`, `int` and `float` are options; a record is an instance of its class; a protocol
lists required methods. Inside the library, functions call each other as `inner(function)`, so that
nothing is checked twice.
"""

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype
from calibjax._core.pytree import PyTree

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Seen(dict[str, Any]):
    """The arguments of a call; those before the current one have been checked.

    Attributes:
        minimum, copies, needs: arguments of `checked`.
        lengths: name and number of the first samples, and those of the first `at_` samples.
    """

    def __init__(self, arguments: dict, minimum: int = 1, copies: Any = False, needs: Any = ()):
        super().__init__(arguments)
        self.minimum, self.copies, self.needs = minimum, copies, needs
        self.lengths: dict[str, tuple[str, int]] = {}

    def number(self, name: str) -> int:
        """Number of samples; `name` is the argument that has to have as many."""
        if "" not in self.lengths:
            raise TypeError(f"{name}: expected an argument with samples before it, got none")
        return self.lengths[""][1]

    def before(self, name: str, *places: str) -> Any:
        """First available one of several arguments that the check of `name` needs."""
        for place in places:
            if place in self:
                return self[place]
        raise TypeError(f"{name}: expected an argument {' or '.join(places)} before it, got none")


Check = Callable[[str, Any, Seen], Any]

_TABLE: dict[str, Check] = {
    "key": lambda name, value, seen: checks.random_key(value),
    "kernel": lambda name, value, seen: checks.kernel_values(value, name),
    "distance": lambda name, value, seen: checks.distance_values(value, name),
    "self": lambda name, value, seen: checks.record_values(value, type(value).__name__),
    "neighbourhood": lambda name, value, seen: checks.record_values(value, name),
    "binning": lambda name, value, seen: checks.record_values(
        checks.function("binning such as estimators.UniformBins(10)", name, value), name
    ),
    "score": lambda name, value, seen: checks.function(
        "function (predictions, targets)", name, value
    ),
    "params": lambda name, value, seen: (
        checks.learned(name, value, type(value)) if dataclasses.is_dataclass(value) else value
    ),
    "correct": lambda name, value, seen: _targets(name, value, seen),
    "groups": lambda name, value, seen: group_ids(name, value, seen.number(name)),
    "clusters": lambda name, value, seen: group_ids(name, value, seen.number(name), kind="cluster"),
    "features": lambda name, value, seen: _of_one_length(name, checks.points(name, value), seen),
}
_TOGETHER: dict[tuple[str, ...], Callable[..., tuple[Any, ...]]] = {}
_SAMPLES = {"predictions", "others", "targets", "weights", "features", "confidences", "correct"}
_SAMPLES |= {"groups", "clusters", "times", "values"}


@typing.overload
def checked(function: Callable[Parameters, Result], /) -> Callable[Parameters, Result]: ...


@typing.overload
def checked(
    **options: Any,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...


def checked(
    function: Any = None,
    /,
    *,
    minimum: int = 1,
    copies: bool | Callable[[Any], bool] = False,
    needs: Iterable[str] = (),
    compiled: bool = False,
    static: Iterable[str] = (),
    **own: Check,
) -> Any:
    """Decorator that checks the arguments of a function before each call.

    These names have a fixed meaning: `predictions`, `targets`, both with the prefix
    `at_`, `others`, `weights`, `features`, `confidences`, `correct`, `groups`, `clusters`, `times`,
    `kernel`, `distance`, `binning`, `neighbourhood`, `recalibration`, `score`, `params`, `state`,
    `self`, `key`, `level`, `confidence_level`, `significance_level`, `test_fraction`, `forget`.
    Predictions come before targets and other data of the samples. Lists and arrays of other
    packages become JAX arrays. Wrong shapes, types and values are refused; invalid traced values
    become NaN, which propagates. Options are checked by their annotation: `bool`, `int` (≥ 1),
    `float` (finite), `Literal["a", "b"]`, `Callable`. Arguments of other names are not checked.

    Args:
        function: the function; without it, the result is a decorator.
        minimum: smallest number of samples, and of positive weights.
        copies: whether weights count copies. If not, they are rescaled to sum to the effective
            sample size. For methods it may be a function of the record.
        needs: names of methods that the predictions must have.
        compiled: whether to compile the function by `jax.jit`, after its checks.
        static: names of static arguments.
        own: checks of this function, by argument name, that replace the usual ones: functions
            (name, value, seen) that return the checked value; `seen` has the previous arguments.

    Raises:
        TypeError: by the function, if an argument is missing, unknown, or of the wrong kind.
        ValueError: by the function, if shapes or values are wrong.

    Cost: about 0.3 ms for a call of `estimators.skce` with normal predictions.

    >>> import jax.numpy as jnp
    >>> from calibjax import checked
    >>> from calibjax.distributions import Normal
    >>> @checked(minimum=2)
    ... def mean_error(predictions, targets, *, weights=None):
    ...     return jnp.average(targets - predictions.loc, weights=weights)
    >>> predictions = Normal([0.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    >>> print(mean_error(predictions, [1, 2, 6]))
    2.0
    >>> mean_error(predictions, [1, 2])
    Traceback (most recent call last):
    ValueError: targets: expected one for each of the 3 predictions, got 2
    """
    settings = {"minimum": minimum, "copies": copies, "needs": tuple(needs)}
    if function is None:
        return functools.partial(checked, **settings, compiled=compiled, static=static, **own)
    signature = inspect.signature(function)
    name_of_function = getattr(function, "__qualname__", type(function).__name__)
    if unknown := own.keys() - signature.parameters.keys() - _TABLE.keys():
        expected = f"checks of its arguments {', '.join(signature.parameters)}"
        raise TypeError(f"{name_of_function}: expected {expected}, got {', '.join(unknown)}")
    takes_key = next(iter(signature.parameters), "") == "key"
    if compiled:
        function = jax.jit(function, static_argnames=tuple(static))

    @functools.cache  # at the first call, when all checks are in the table
    def known() -> dict[str, Check]:
        parameters = signature.parameters.items()
        found = {name: _check_of(name, x.annotation, own) for name, x in parameters}
        return {name: check for name, check in found.items() if check is not None}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takes_key and args and checks.is_distribution(args[0]):
            checks.random_key(args[0])  # raises a clear error if the key was left out
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name_of_function}: {error}") from None
        given.apply_defaults()
        arguments = given.arguments
        with usual_modes():
            _same_rows(arguments)
            seen = Seen(arguments, **settings)
            for name, check in known().items():
                seen[name] = check(name, seen[name], seen)
            for names, check in _TOGETHER.items():
                if all(name in arguments for name in names) and names[0] not in own:
                    seen.update(zip(names, check(*(seen[name] for name in names)), strict=True))
            arguments.update((name, seen[name]) for name in arguments)
            return function(*given.args, **given.kwargs)

    return call


@contextlib.contextmanager
def usual_modes() -> Iterator[None]:
    """Context with JAX's default modes, for code of the library.

    The library promotes shapes and dtypes, and has intermediate values that are not finite.
    Stricter modes that users set apply to their own code only.
    """
    with (
        jax.numpy_rank_promotion("allow"),
        jax.numpy_dtype_promotion("standard"),
        jax.debug_nans(False),
        jax.debug_infs(False),
    ):
        yield


def passed(*, minimum: int = 1, copies: bool = False, **arguments: Any) -> tuple[Any, ...]:
    """Checks arguments by their names, without decorating a function."""
    _same_rows(arguments)
    seen = Seen(arguments, minimum, copies)
    for name in arguments:
        if seen[name] is not None:
            seen[name] = _TABLE[name](name, seen[name], seen)
    return tuple(seen[name] for name in arguments)


def _same_rows(arguments: dict[str, Any]) -> None:
    """Refuses tables whose row labels differ between arguments."""
    checks.same_rows(**{x: v for x, v in arguments.items() if x in _SAMPLES or x[:3] == "at_"})


def inner(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The undecorated function, for arguments that have been checked."""
    return getattr(function, "__wrapped__", function)


def argument(*names: str) -> Callable[[Check], Check]:
    """Registers a check (name, value, seen) → value for argument names."""

    def put(check: Check) -> Check:
        _TABLE.update(dict.fromkeys(names, check))
        return check

    return put


def usual(name: str) -> Check:
    """The registered check of a name, for use inside checks of single functions."""
    return _TABLE[name]


def together(*names: str) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Registers a joint check of several arguments, which runs after their single checks."""

    def put(check: Callable[..., Any]) -> Callable[..., Any]:
        _TOGETHER[names] = check
        return check

    return put


def _check_of(name: str, annotation: Any, own: dict[str, Check]) -> Check | None:
    """The check of an argument: one of the function, of its name, or of its annotation."""
    annotation, may_be_none = checks.not_none(annotation)
    expect, check = _expected(annotation), own.get(name) or _TABLE.get(name)
    option = checks.of_annotation(name, annotation) if check is None else None
    if expect is check is option is None:
        return None

    def checked_one(name: str, value: Any, seen: Seen) -> Any:
        if value is None and may_be_none:
            return None
        if expect is not None:
            expect(name, value)
        value = value if option is None else option(name, value)
        return value if check is None else check(name, value, seen)

    return checked_one


def _expected(annotation: Any) -> Callable[[str, Any], None] | None:
    """Check that an argument is an instance of given records, or satisfies a protocol."""
    kinds = typing.get_args(annotation) or (annotation,)
    needed, what = [], " or ".join(getattr(kind, "__name__", "") for kind in kinds)
    if is_protocol := getattr(annotation, "_is_protocol", False):
        needed = [x for x in vars(annotation) if x[0] != "_"]
        what = f"{annotation.__doc__}".split(":")[0].lower()
    elif not all(isinstance(kind, type) and dataclasses.is_dataclass(kind) for kind in kinds):
        return None

    def expect(name: str, value: Any) -> None:
        inside = value
        while "distribution" in getattr(type(inside), "__dataclass_fields__", ()):
            inside = inside.distribution
        is_right = not isinstance(value, type) if is_protocol else isinstance(inside, kinds)
        with contextlib.suppress(Exception):  # wrong parameters, refused later
            is_right = is_right and all(hasattr(value, x) for x in needed)
        if not is_right:
            raise TypeError(f"{name}: expected {what}, got {checks.described(value)}")

    return expect


def unchecked(name: str, value: Any, seen: Seen) -> Any:
    """No check: the function converts this argument itself."""
    return value


@argument("significance_level", "confidence_level", "test_fraction", "level")
def _proportion(name: str, value: Any, seen: Seen) -> Any:
    value = checks.proportion(name, value)
    return float(value) if checks.is_concrete(value) else value


@argument("predictions", "at_predictions", "others", "example_predictions")
def _predictions(name: str, value: Any, seen: Seen) -> Any:
    minimum = 1 if name.startswith("at_") else seen.minimum
    value = checks.batch(value, minimum=minimum, name=name)
    for method in seen.needs:
        checks.method(name, value, method)
    return _of_one_length(name, value, seen)


@argument("targets", "at_targets")
def _targets(name: str, value: Any, seen: Seen) -> Any:
    # Arguments may be swapped: labels for correctness, confidences for predictions.
    place = "confidences" if name == "correct" else name.replace("targets", "predictions")
    predictions = seen.before(name, place)
    if not checks.is_distribution(predictions):
        return _correctness(name, value, predictions)
    if checks.is_distribution(value):
        raise TypeError(f"{name}: expected an array of targets, got {checks.described(value)}")
    received = checks.originals(name, value)
    value = _of_one_length(name, checks.narrowed(name, received), seen)
    models = [x for x in (place, "others") if x in seen]
    possible = {x: checks.targets_of(seen[x], name, value) for x in models}
    for model, checked in possible.items():
        checks.refuse_rounded(name, received, checked, seen[model])
        # Integers cannot be NaN, so their predictions become NaN.
        if not checks.is_concrete(checked):
            seen[model] = checks.nan_rows(checks.missing_rows(checked), seen[model])
    # Booleans are accepted as labels, not as numbers.
    return jax.tree.map(lambda y: y.astype(int) if y.dtype == np.bool_ else y, possible[place])


@argument("weights")
def _weights(name: str, value: Any, seen: Seen) -> Any:
    samples = seen.before(name, "predictions", "confidences", "values", "features", "targets")
    copies: Any = seen.copies
    copies = copies(seen["self"]) if callable(copies) else copies
    return sample_weights(value, samples, minimum=seen.minimum, name=name, as_copies=copies)


def sample_weights(
    weights: Any, samples: PyTree, *, minimum: int = 1, name: str = "weights", as_copies: bool
) -> jax.Array | None:
    """Weights of n samples, scaled so that their sum is that of their squares.

    With u_i = w_i Σ_j w_j / Σ_j w_j² the sum Σ_i u_i = Σ_i u_i² = (Σ_i w_i)² / Σ_i w_i² is the
    effective number of samples (Kish), which replaces n in every formula: means are
    Σ_i u_i x_i / Σ_i u_i, and means over pairs i ≠ j have the divisor n (n − 1). Weights that are
    0 or equal become 0 and 1. The weight of no sample changes if all are multiplied by a constant.

    Args:
        weights: w ≥ 0, [n], or None for equal weights.
        samples: checked data with leading axis n; weights get their precision.
        minimum: smallest number of positive weights.
        name: how messages call them.
        as_copies: whether to return w unscaled, as numbers of copies of the samples.
    """
    if weights is None:
        return None
    array = plain_weights(name, weights, checks.leading_size("samples", samples))
    dtype = floating_dtype(samples)
    is_known = checks.is_concrete(array)
    xp: Any = np if is_known else jnp  # NumPy compiles nothing
    array = xp.asarray(array)
    if is_known and (used := (array > array.max() * jnp.finfo(dtype).tiny).sum()) < minimum:
        least = f"at least {minimum} positive weights in {dtype}"
        raise ValueError(f"{name}: expected {least}, got {used}")
    if as_copies:
        array = array.astype(dtype)
        return jnp.where(jnp.any(array > 0), array, jnp.nan)
    # Scaled so that squares do not overflow or underflow.
    largest = array.max() if is_known else jax.lax.stop_gradient(jnp.max(array))
    array = (array / largest).astype(dtype)
    array = array * (xp.sum(array) / xp.sum(xp.square(array)))
    return jax.device_put(array) if is_known else array


def plain_weights(name: str, weights: Any, n: int) -> Any:
    """Weights of n samples, unscaled, [n]; a mask becomes 0 or 1."""
    array = checks.as_arrays(name, weights)
    is_mask = getattr(array, "dtype", None) == np.bool_
    array = checks.floating(name, array.astype(int) if is_mask else array)
    checks.shape(name, array, (n,), f"({n},), one weight for each sample")
    right = lambda w: (w >= 0) & (w < np.inf)  # noqa: E731
    return checks.satisfying(name, array, right, "finite weights >= 0")


@argument("confidences")
def confidence_array(name: str, value: Any, seen: Seen) -> jax.Array:
    """Confidences, [n], or those of a batch of `Bernoulli`s; traced ones outside [0, 1] are NaN."""
    if checks.is_distribution(value) and not hasattr(value, "__jax_array__"):
        got = f"{checks.described(value)}; estimators.top_label returns them"
        raise TypeError(f"{name}: expected an array [n] or a batch of Bernoulli, got {got}")
    value = checks.narrowed(name, checks.received(name, value, checks.unit_interval))
    checks.an_array(name, value, "an array [n]")
    # Integers are more likely a swapped argument than probabilities 0 and 1.
    if value.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"{name}: expected float32 or float64, got {value.dtype}")
    checks.shape(name, value, (None,), "[n]")
    return _of_one_length(name, checks.unit_interval(name, value), seen)


def _correctness(name: str, value: Any, confidences: jax.Array) -> jax.Array:
    """Whether predictions were correct, 0 or 1, in the dtype of the confidences; NaN for others."""
    value = checks.as_arrays(name, value)
    checks.shape(name, value, confidences.shape, "[n], as the confidences")
    if value.dtype != np.bool_:
        value = checks.satisfying(name, value, lambda x: (x == 0) | (x == 1), "0 or 1")
    return value.astype(confidences.dtype)


def group_ids(name: str, value: Any, n: int, *, kind: str = "group") -> jax.Array:
    """Integers in 0, ..., 2³¹ − 1, [n]; traced ones that are out of range become negative."""
    value = checks.integer(name, checks.as_arrays(name, value), f"{kind}s, one for each sample")
    checks.shape(name, value, (n,), f"({n},), one {kind} for each sample")
    is_right = lambda x: (x >= 0) & (x <= 2**31 - 1)  # noqa: E731
    value = checks.satisfying_integers(name, value, is_right, f"{kind}s in 0, ..., 2³¹ - 1")
    is_narrow = jnp.result_type(value).itemsize <= 4
    return (value if is_narrow else jnp.maximum(value, -1)).astype(jnp.int32)


@argument("times")
def _times(name: str, value: Any, seen: Seen) -> Any:
    """Nondecreasing times of the samples: numbers or NumPy's datetimes."""
    array = np.asarray(value) if checks.is_concrete(value) else np.empty(0, object)
    if array.dtype.kind not in "iufM":
        expected = "numbers or numpy.datetime64 that are known when compiling"
        raise TypeError(f"{name}: expected {expected}, got {checks.described(value)}")
    checks.shape(name, array, (seen.number(name),), "[n], a time for each prediction")
    follows = array >= np.append(array[:1], array[:-1])  # false for missing times
    checks.refuse_where(~follows, name, "forecasts with times, in the order of time", array)
    return value


@argument("recalibration")
def _recalibration(name: str, value: Any, seen: Seen) -> Any:
    if isinstance(value, type) or not (hasattr(value, "fit") and hasattr(value, "apply")):
        got = checks.described(value)
        raise TypeError(f"{name}: expected a record with methods fit and apply, got {got}")
    return value


def fields_checked(name: str, record: Any, seen: Seen) -> Any:
    """A record whose fields are checked as arguments of these names."""
    seen = Seen(vars(record))
    for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
        name, check = field.name, _check_of(field.name, field.type, {})
        is_known = check is not None and checks.is_concrete(seen[name])
        with jax.ensure_compile_time_eval() if is_known else contextlib.nullcontext():
            seen[name] = seen[name] if check is None else check(name, seen[name], seen)
    return checks.replaced(record, **{name: seen[name] for name in vars(record)})


def _of_one_length(name: str, value: Any, seen: Seen) -> Any:
    """The value, refused if its number of samples differs from that of earlier arguments."""
    place = "at_" if name.startswith("at_") else ""
    size = checks.leading_size(name, value)
    first, expected = seen.lengths.setdefault(place, (name, size))
    if size != expected:
        draws = np.shape(getattr(seen.get("predictions"), "values", 0))
        is_other = draws[1:2] == (size,)
        hint = "; transpose draws [m, n] by numpy.swapaxes(values, 0, 1)" if is_other else ""
        each = f"one for each of the {expected} {first}"
        raise ValueError(f"{name}: expected {each}, got {size}{hint}")
    return value
