"""What a registered call is made of: arguments with a kind, which says what is wrong for them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Kinds of arguments that are arrays of numbers, all of which may be traced.
ARRAYS = (
    "real",
    "positive",
    "weights",
    "unit",
    "simplex",
    "spd",
    "matrix",
    "labels",
    "truths",
    "counts",
    "integers",
    "groups",
)
NUMBERS = ("number", "scale", "proportion", "at_least_one")  # scalars


@dataclasses.dataclass(frozen=True)
class Argument:
    """A valid value, what kind of thing it is, and the names that an error may give it.

    `limit` is the number of classes of labels; for options that are integers, the value that a
    huge one stands for, if it is allowed. `traced` is False where a value must be known when
    compiling. `without` are the mutants that are not wrong for this argument; why stands where
    they are given.
    """

    kind: str
    value: Any
    called: tuple[str, ...] = ()
    limit: Any = None
    traced: bool = True
    without: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Call:
    """One valid call: `function(**values)` of a public function, named as `room.function`.

    Attributes:
        covers: public names that the call is about.
        label: tells the calls of one function apart.
        function: called with the arguments' values.
        arguments: by name.
        compiled: False, with a reason, for functions that are no functions of arrays.
        one_of: for functions that compile anew in every call, which takes seconds: of the mutants
            that mean a right value only one of so many is tried.
        slow: whether it takes seconds to compile, so that the fast suite leaves it out.
    """

    covers: tuple[str, ...]
    label: str
    function: Callable[..., Any]
    arguments: dict[str, Argument]
    compiled: bool = True
    reason: str = ""
    one_of: int = 1
    slow: bool = False

    @property
    def name(self) -> str:
        return f"{self.covers[0]}[{self.label}]" if self.label else self.covers[0]

    def values(self, dtype: Any) -> dict[str, Any]:
        """The valid values; floating-point arrays in the precision asked for."""
        return {name: in_precision(arg.value, dtype) for name, arg in self.arguments.items()}


def in_precision(value: Any, dtype: Any) -> Any:
    """A value, or a record of values, with NumPy's floating-point arrays of that precision."""

    def convert(leaf: Any) -> Any:
        is_floating = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
        return leaf.astype(dtype) if is_floating else leaf

    return jax.tree.map(convert, value)


def call(
    covers: str, function: Callable[..., Any], label: str = "", /, **arguments: Argument
) -> Call:
    """A registered call; several public names are separated by spaces."""
    options = {
        k: arguments.pop(k) for k in ("compiled", "reason", "one_of", "slow") if k in arguments
    }
    return Call(tuple(covers.split()), label, function, arguments, **options)


def _argument(kind: str) -> Callable[..., Argument]:
    def make(value: Any, *called: str, **rest: Any) -> Argument:
        if kind in ARRAYS:
            value = np.asarray(value)
            value = value.astype(np.int32 if value.dtype.kind in "iu" else np.float32)
        return Argument(kind, value, called, **rest)

    return make


real, positive, weights, unit, simplex, spd, matrix, labels, truths, counts, integers, groups = map(
    _argument, ARRAYS
)
number, scale, proportion, at_least_one = map(_argument, NUMBERS)
integer, truth, choice = map(_argument, ("integer", "truth", "choice"))
kernel, distance, binning, function = map(_argument, ("kernel", "distance", "binning", "function"))
predictions, record = map(_argument, ("predictions", "record"))


def key(seed: int = 0) -> Argument:
    """A random key."""
    return Argument("key", jax.random.key(seed))


OPTIONAL = ("None",)  # which has a meaning of its own
# Of one array alone, these are other data sets and not wrong ones.
ALONE = ("one row less", "one row more", "one row")

N, M = 8, 3
_random = np.random.default_rng(1)
LOC = _random.normal(size=N).round(2)
SCALE = _random.uniform(0.4, 1.2, N).round(2)
Y = (LOC + 0.7 * _random.normal(size=N)).round(2)
PROBS = _random.dirichlet(np.ones(M), N)
LABELS = np.array([0, 2, 1, 1, 1, 1, 0, 2])
CONFIDENCES = np.array([0.55, 0.71, 0.93, 0.62, 0.88, 0.42, 0.97, 0.35])
CORRECT = np.array([1, 0, 1, 1, 0, 0, 1, 1])
FEATURES = _random.normal(size=(N, 2)).round(2)
VECTORS = _random.normal(size=(N, 2)).round(2)
FACTORS = _random.normal(size=(N, 2, 2)).round(2)
COVARIANCES = FACTORS @ np.swapaxes(FACTORS, 1, 2) + 0.5 * np.eye(2)
