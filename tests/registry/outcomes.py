"""What comes of a call with a wrong value, and whether that is allowed.

Eagerly a wrong value is *refused*, by a TypeError, ValueError or NotImplementedError of anyone; or
it gives NaN, and what is no NaN is the number of the right value; or, if it stands for a right one,
the number of that. A result that looks like another number is a *silent number*, and any other
exception is a *crash*.

Under `jit` wrong numbers cannot be refused. Then every number of the result that depends on the
wrong one is NaN, and every other number is what it was. Which ones depend is found by experiment:
those that change for one of several right values in the same place, so that a result of one row for
each sample is NaN in the row of the wrong sample alone, and a statistic or p-value as a whole.
Anything else is a *plausible number*. Integers and truth values cannot be NaN and do not count:
numbers of the package that are made from them do.
"""

import contextlib
import dataclasses
import enum
import functools
import warnings
import zlib
from typing import Any

import jax
import numpy as np

from tests.registry.arguments import ARRAYS, NUMBERS
from tests.registry.mutants import mutants, row_of, wrong_values

REFUSALS = TypeError, ValueError, NotImplementedError


class Outcome(enum.StrEnum):
    REFUSED = "refused"
    SAME = "the same number"
    NAN = "NaN"
    SILENT = "silent number"
    PLAUSIBLE = "plausible number under jit"
    CRASH = "crash"


ALLOWED = Outcome.REFUSED, Outcome.SAME, Outcome.NAN


def numbers_of(result):
    """Leaves of a result, as arrays."""
    arrays = []
    for leaf in jax.tree.leaves(result):
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        arrays.append(np.asarray(leaf))
    return arrays


def is_same(result, expected):
    """Whether two results are the same up to the rounding of float32."""
    first, second = numbers_of(result), numbers_of(expected)
    return len(first) == len(second) and all(map(_is_close, first, second))


def _is_close(x, y):
    if x.shape != y.shape or "O" in (x.dtype.kind + y.dtype.kind):
        return False
    if {x.dtype.kind, y.dtype.kind} <= set("iub"):
        return np.array_equal(x, y)
    scale = np.abs(y[np.isfinite(y)]).max(initial=0.0)
    return np.allclose(x, y, rtol=1e-3, atol=1e-5 * scale, equal_nan=True)


def _is_same_but_for_nan(leaves, right, valid):
    """Whether the numbers that are left are those of the right values."""
    expected = numbers_of(right(valid))
    if [x.shape for x in leaves] != [x.shape for x in expected]:
        return False
    pairs = zip(leaves, expected, strict=True)
    return is_same([np.where(np.isnan(x), y, x) for x, y in pairs], expected)


def evaluate(call, values):
    """The result; warnings are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jax.block_until_ready(call.function(**values))


def eager_outcome(call, name, mutant, valid, right):
    """Outcome of a call outside of `jit`, and what came."""
    try:
        result = evaluate(call, {**valid, name: mutant.value})
    except Exception as error:  # crashes are outcomes, too
        outcome = Outcome.REFUSED if isinstance(error, REFUSALS) else Outcome.CRASH
        return outcome, f"{type(error).__name__}: {error}"
    leaves = numbers_of(result)
    floats = [leaf for leaf in leaves if leaf.dtype.kind == "f" and leaf.size]
    if floats and all(np.isnan(leaf).all() for leaf in floats):
        return Outcome.NAN, ""
    if any(np.isnan(leaf).any() for leaf in floats) and _is_same_but_for_nan(
        leaves, right, valid[name]
    ):
        return Outcome.NAN, ""
    for meaning in mutant.meanings:
        with contextlib.suppress(*REFUSALS):
            if is_same(result, right(meaning)):
                return Outcome.SAME, ""
    return Outcome.SILENT, ", ".join(str(leaf.ravel()[:3]) for leaf in leaves[:3])


class Compiled:
    """A call compiled once for all values of some of its arguments.

    With `only`, the other arguments are known when compiling.
    """

    def __init__(self, call, valid, only=None):
        self.call, self.valid = call, valid
        traced = [k for k, arg in call.arguments.items() if is_traced(arg)]
        self.traced = [only] if only else traced
        known = {k: v for k, v in valid.items() if k not in self.traced}

        @jax.jit
        def function(given):
            return call.function(**known, **given)

        self.function = function

    @functools.cached_property
    def reference(self):
        return self({})

    def __call__(self, changed):
        given = {k: self.valid[k] for k in self.traced} | changed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return numbers_of(self.function(given))

    def depends(self, name, is_one_row):
        """Which numbers of the result change with right values of an argument."""
        found = [np.zeros(x.shape, bool) for x in self.reference]
        for other in other_right_values(self.call.arguments[name], self.valid[name], is_one_row):
            for where, x, y in zip(found, self({name: other}), self.reference, strict=True):
                where |= ~((x == y) | (np.isnan(x) & np.isnan(y))) if x.dtype.kind == "f" else False
        return found

    def outcome(self, name: str, wrong, depends) -> tuple[Outcome, str]:
        results = self({name: wrong.value})
        for x, y, where in zip(results, self.reference, depends, strict=True):
            if x.dtype.kind != "f":
                continue
            kept = np.isclose(x, y, rtol=1e-3, atol=1e-6, equal_nan=True)
            allowed = np.isnan(x) | (kept & ~where)
            if not allowed.all():
                return Outcome.PLAUSIBLE, f"{x[~allowed][:3]} for {y[~allowed][:3]}"
        return Outcome.NAN, ""


def is_traced(argument):
    return argument.traced and argument.kind in (*ARRAYS, *NUMBERS)


def other_right_values(argument, valid, is_one_row):
    """Other values that are right, in one row or in all."""
    if argument.kind in NUMBERS:
        if argument.kind == "proportion":
            return [type(valid)(0.5 * valid), type(valid)(0.9 * valid)]
        return [type(valid)(1.3 * valid), type(valid)(2 * valid)]
    a = np.asarray(valid)
    if not is_one_row:
        return [a[::-1].copy(), np.roll(a, 1, 0), np.roll(a, 3, 0)]
    found = []
    for row in range(len(a)):
        if not np.array_equal(a[row], a[row_of(a)]):
            other = a.copy()
            other[row_of(a)] = a[row]
            found.append(other)
    return found


@dataclasses.dataclass(frozen=True)
class Tried:
    """One call with one wrong value."""

    call: str
    argument: str
    kind: str
    mutant: str
    outcome: Outcome
    said: str

    def __str__(self):
        place = f"{self.call}({self.argument}={self.mutant})"
        return f"{self.outcome}: {place}: {self.said[:200]}"


def try_eagerly(call, dtype, chosen=lambda *_: True):
    """Yields what came of all wrong values of all arguments, or of those that are chosen.

    The number by which they may be chosen is that of their names, and always the same.
    """
    valid = call.values(dtype)
    reference = functools.cache(lambda: evaluate(call, valid))
    for name, argument in call.arguments.items():
        known: dict[int, Any] = {}

        def right(meaning, name=name, known=known):
            if meaning is valid[name]:
                return reference()
            if id(meaning) not in known:
                known[id(meaning)] = meaning, evaluate(call, {**valid, name: meaning})
            return known[id(meaning)][1]

        for mutant in mutants(argument, valid[name]):
            number = zlib.crc32(f"{call.name}/{name}/{mutant.name}".encode())
            is_left_out = mutant.meanings and number % call.one_of
            if not is_left_out and chosen(number, name, mutant):
                outcome, said = eager_outcome(call, name, mutant, valid, right)
                yield Tried(call.name, name, argument.kind, mutant.name, outcome, said)


def try_compiled(call, dtype, only=None):
    """Yields what came of all wrong numbers under `jit`, of all arguments or of one."""
    compiled = Compiled(call, call.values(dtype), only)
    for name in compiled.traced:
        argument = call.arguments[name]
        depends = functools.cache(functools.partial(compiled.depends, name))
        for wrong in wrong_values(argument, compiled.valid[name]):
            if wrong.name not in argument.without:
                outcome, said = compiled.outcome(name, wrong, depends(wrong.is_one_row))
                yield Tried(call.name, name, argument.kind, wrong.name, outcome, said)
