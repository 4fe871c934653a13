"""What a registered call is made of: arguments with a kind, which says what is wrong for them."""

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

# Kinds of arguments that are arrays of numbers, all of which may be traced.
ARRAYS = ("real", "positive", "weights", "unit", "simplex", "spd", "matrix", "labels", "truths")
ARRAYS += ("counts", "integers", "groups")
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
        reason: why it is not compiled, such as functions that are no functions of arrays.
        one_of: for functions that compile anew in every call, which takes seconds: of the mutants
            that mean a right value only one of so many is tried.
        slow: whether it takes seconds to compile, so that the fast suite leaves it out.
        takes: names of what the public function takes beyond what it is given.
        fixed: what is given and not tried with wrong values; other values may be given as well.
    """

    covers: tuple[str, ...]
    label: str
    function: Callable[..., Any]
    arguments: dict[str, Argument]
    reason: str = ""
    one_of: int = 1
    slow: bool = False
    takes: frozenset[str] = frozenset()
    fixed: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def compiled(self):
        return not self.reason

    @property
    def name(self):
        return f"{self.covers[0]}[{self.label}]" if self.label else self.covers[0]

    def values(self, dtype):
        """The valid values; floating-point arrays in the precision asked for."""
        return {name: in_precision(arg.value, dtype) for name, arg in self.arguments.items()}


def in_precision(value, dtype):
    """A value, or a record of values, with NumPy's floating-point arrays of that precision."""

    def convert(leaf):
        is_floating = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
        return leaf.astype(dtype) if is_floating else leaf

    return jax.tree.map(convert, value)


@dataclasses.dataclass(frozen=True)
class Made:
    """A record that is made of several arguments, such as predictions of their parameters."""

    make: Callable[..., Any]
    parts: dict[str, Argument]


# What makes records in place of something else, for laws of equal predictions; the function of
# None gets each of them.
REPLACED: dict[Any, Callable[..., Any]] = {}


def made(make, **parts):
    """A record, and what it is made of in the order of the function's arguments."""
    return Made(make, parts)


def public(name):
    """The public function of a name `room.function`, or `function`."""
    room, _, function = f"calibjax.{name}".rpartition(".")
    return getattr(importlib.import_module(room), function)


def parameters_of(function):
    """Names of what a function takes."""
    return frozenset(inspect.signature(function).parameters)


def call(covers, label="", function=None, /, **given):
    """A registered call of a function, by default the public one that `covers` names first.

    Each `Argument` that is given is tried with wrong values, a `Made` record in each of its parts;
    anything else is passed as it is. Several public names are separated by spaces. Of the usual
    arguments those that are in the function's signature need not be given.
    """
    names = tuple(covers.split())
    function = public(names[0]) if function is None else function
    options = {k: given.pop(k) for k in ("reason", "one_of", "slow") if k in given}
    takes = parameters_of(function)
    given |= {name: usual for name, usual in USUAL.items() if name in takes - given.keys()}
    fixed = {k: v for k, v in given.items() if not isinstance(v, Argument | Made)}
    records = {k: v for k, v in given.items() if isinstance(v, Made)}
    arguments = {k: v for k, v in given.items() if isinstance(v, Argument)}
    for name, record in records.items():
        for part, argument in record.parts.items():
            arguments[part] = dataclasses.replace(argument, called=(*argument.called, name))

    def evaluate(**values):
        change = REPLACED.get(None, lambda record: record)
        whole = {
            name: change(REPLACED.get(record.make, record.make)(*map(values.pop, record.parts)))
            for name, record in records.items()
        }
        return function(**fixed | whole | values)

    rest = {"takes": takes - given.keys(), "fixed": fixed}
    return Call(names, label, evaluate, arguments, **rest, **options)


def _argument(kind):
    def make(value, *called, **rest):
        if kind in ARRAYS:
            value = np.asarray(value)
            value = value.astype(np.int32 if value.dtype.kind in "iu" else np.float32)
        return Argument(kind, value, called, **rest)

    return make


real, positive, weights, unit, simplex, spd, matrix, *_rest = map(_argument, ARRAYS)
labels, truths, counts, integers, groups = _rest
number, scale, proportion, at_least_one = map(_argument, NUMBERS)
integer, truth, choice = map(_argument, ("integer", "truth", "choice"))
kernel, distance, binning, function = map(_argument, ("kernel", "distance", "binning", "function"))
predictions, record = map(_argument, ("predictions", "record"))


def key(seed=0, **rest):
    """A random key."""
    return Argument("key", jax.random.key(seed), **rest)


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

OPTIONAL = ("None",)  # which has a meaning of its own
# What is given to every function that takes it, if nothing else is.
USUAL = {
    "key": key(),
    "num_draws": integer(9),
    "num_folds": integer(2),
    "batch_size": integer(4, limit=4, without=OPTIONAL),  # how many at once changes nothing
    "confidence_level": proportion(0.9),
    "features": real(FEATURES, without=("first column",)),  # which is one feature
    "confidences": unit(CONFIDENCES),
    "correct": truths(CORRECT),
}
