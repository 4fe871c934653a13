"""The gate of all public functions: what passes it, and what it says of wrong values.

`tests.registry` holds a valid call of each function, and the table of wrong values.
"""

import importlib
import inspect
import pkgutil
import re

import jax
import numpy as np
import pytest

import calibjax
from calibjax._core.gate import _TOGETHER, checked
from tests import registry
from tests.registry.outcomes import ALLOWED, evaluate, is_traced, try_compiled, try_eagerly

GATE = checked(lambda: None).__code__  # of every function that passes its arguments through it
# Methods of public records that are called with data; others are called on one pair inside `vmap`.
METHODS = {"fit", "apply", "evaluate", "diagonal", "cross_fitted", "interval", "from_predictions"}
METHODS |= {"update", "merge", "result", "laplacian"}
UNGATED = {
    "checked": "is the gate",
    "record": "declares a class",
    "command_line.load": "reads files",
    "distributions.parameter": "declares a field of a class",
    "estimators.calibration_kernel": "is called on one pair inside of `vmap`",
    "operators.mean_over_pairs": "is called with any function and pytree",
    "operators.weighted_sums": "is called with any function and pytree",
    "plotting.": "draws what the library returned",
    "interoperability.": "converts objects of other libraries, which check what they are",
    "recalibration.Recalibrator.fit": "is abstract",
    "recalibration.Recalibrator.apply": "is abstract",
    "risk.EstimationFunction.fit": "is abstract",
    "risk.EstimationFunction.evaluate": "is abstract",
    "risk.EstimationFunction.diagonal": "is abstract",
    "streaming.Accumulator.update": "is abstract",
    "streaming.Accumulator.result": "is abstract",
}
# Rooms that still check by hand.
NOT_YET = ("",)
# Arguments that may be anything that their functions can use.
UNCHECKED: dict[str, str] = {}

# What is said of the ordinary faults of a user, by kind of argument and wrong value.
NUMBERS = {"words": "numbers", "string": "", "None": ""}
ROWS = {"nan": "", "one row less": "", "table, missing": ""} | NUMBERS
SAID = {
    "real": {"nan": "finite", "dates": "subtract a date"} | ROWS,
    "positive": {"negative": "positive|values|>= 0"} | ROWS,
    "weights": {"-0.1": "finite weights >= 0", "all zero": "positive weight|weight > 0"} | ROWS,
    "unit": {"percent": r"(probabilities|proportions) in \[0, 1\]"} | ROWS,
    "truths": {"2": "0 or 1", "one row less": ""} | NUMBERS,
    "simplex": {"percent": "not logits or percentages", "twice": "sum to one|not logits"} | ROWS,
    "spd": {"indefinite": "positive definite", "asymmetric": "symmetric"} | ROWS,
    "labels": {
        "from one": "subtract 1 from labels|among the classes",
        "one-hot": "argmax|one axis",
        "words": "label_indices|among the classes",
        "float 0.5": "integer class labels|among the classes",
        "m": r"labels in 0, \.\.\.|among the classes",
        "one row less": "",
    },
    "counts": {"-1": "", "float 0.5": ""} | ROWS,
    "groups": {"-1": "", "float 0.5": "", "one row less": ""},
    "proportion": {"0": "positive", "1.5": r"values in \(0, 1\)", "string": "a number"},
    "scale": {"0": "positive", "-1": "positive|>= 0", "string": ""},
    "integer": {"0": "an integer", "half": "an integer", "string": "integer"},
    "truth": {"2": "True or False", "False as string": "True or False"},
    "choice": {"string": "one of '"},
    "key": {"0": "one random key such as", "None": "one random key such as"},
    "kernel": {
        "class": "a kernel",
        "distance": "a kernel",
        "length scale 0.0": "positive",
        "string": "a kernel",
    },
    "distance": {"class": "a distance", "kernel": "a distance"},
    "predictions": {"array": "a batch of distributions", "class": "a batch of distributions"},
    "binning": {"number": "", "too large": "bins in 0|UniformBins"},
    "function": {"no arguments": "can be called with"},
}
LENGTHS = "one row less"  # of two lengths, one is wrong
LATE = "new", "p", "q"  # arguments that are looked at when something was fitted

ROOMS = ("distributions", "distances", "kernels", "estimators", "hypothesis_tests")
ROOMS += ("recalibration", "risk", "scores", "streaming", "interoperability", "calibjax")
COMPILED = [room for room in ROOMS if room != "interoperability"]  # scikit-learn compiles nothing
MODES = {"float32": (False, np.float32), "float64": (True, np.float64)}
SHARE = 40  # one in so many wrong values is tried in the fast suite


def _names():
    yield from ((name, getattr(calibjax, name)) for name in calibjax.__all__)
    for module in pkgutil.iter_modules(calibjax.__path__):
        if not module.name.startswith("_"):
            package = importlib.import_module(f"calibjax.{module.name}")
            for name in getattr(package, "__all__", ()):
                yield f"{module.name}.{name}", getattr(package, name)


def _functions():
    """All public functions, and methods of public records, by name."""
    for name, value in _names():
        if not isinstance(value, type):
            yield name, value
        for method in METHODS & set(dir(value) if isinstance(value, type) else ()):
            yield f"{name}.{method}", inspect.unwrap(getattr(value, method), stop=_is_gated)


def _is_gated(function):
    return getattr(function, "__code__", None) is GATE


def test_every_public_function_has_passed_through_the_gate():
    ungated, unchecked = set(), set()
    for name, function in _functions():
        if not callable(function) or name.startswith(tuple(UNGATED)):
            continue
        if not _is_gated(function):
            ungated.add(name)
            continue
        known = inspect.getclosurevars(function).nonlocals["known"]()
        together = {x for names in _TOGETHER for x in names}
        missing = inspect.signature(function).parameters.keys() - known.keys() - together
        unchecked |= {f"{name}({argument})" for argument in missing - UNCHECKED.keys()}
    assert sorted(unchecked) == []
    assert sorted(name for name in ungated if not name.startswith(NOT_YET)) == []


def test_public_functions_are_functions_with_docstrings_and_signatures():
    for name, function in _functions():
        if callable(function):
            assert inspect.isfunction(function) or inspect.ismethod(function), name
            assert inspect.getdoc(function), name
            parameters = inspect.signature(function).parameters.values()
            assert all(one.kind is not one.VAR_POSITIONAL for one in parameters), name


def _of_room(room):
    calls = registry.calls().values()
    return [
        c for c in calls if (c.covers[0].rpartition(".")[0].partition(".")[0] or "calibjax") == room
    ]


def _refuse(tried):
    """Fails with the list of wrong outcomes."""
    assert tried
    assert not [str(one) for one in tried if one.outcome not in ALLOWED]


def _is_named(one):
    """Whether an ordinary fault is named in the form that all messages have."""
    call = registry.calls()[one.call]
    names = (one.argument, *call.arguments[one.argument].called)
    names = (*names, "state") if one.mutant == "all zero" else names  # of accumulators
    names = (*names, *call.arguments) if one.mutant == LENGTHS else names
    called = "|".join(map(re.escape, names))
    form = rf"\w+: (.*\W)?({called})(\W.*)?: expected .*({SAID[one.kind][one.mutant]}).*, got .*"
    return re.match(form, one.said, re.DOTALL)


def _first_of_each(room, is_chosen):
    """One call of each function of a subpackage."""
    calls = reversed([call for call in _of_room(room) if is_chosen(call)])
    return list({call.covers[0]: call for call in calls}.values())


@pytest.mark.parametrize("room", ROOMS)
def test_ordinary_faults_are_named(room):
    """And some of the others are refused."""
    calls = _first_of_each(room, lambda call: call.covers[0] != "distributions.monte_carlo")
    with jax.enable_x64(False):
        _try_ordinary(calls, lambda name: name not in LATE)


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_ordinary_faults_are_named_by_all_calls(room):
    with jax.enable_x64(False):
        _try_ordinary(_of_room(room), lambda name: True)


def _try_ordinary(calls, is_tried):
    tried = []
    for call in calls:

        def chosen(number, name, mutant, call=call):
            is_known = mutant.name in SAID.get(call.arguments[name].kind, ())
            is_known |= not (number % SHARE or mutant.meanings)
            return is_known and is_tried(name)

        tried += try_eagerly(call, np.float32, chosen)
    _refuse(tried)
    ordinary = [one for one in tried if one.mutant in SAID.get(one.kind, ())]
    assert not [str(one) for one in ordinary if not _is_named(one)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("room", ROOMS)
def test_all_wrong_values(room, mode):
    x64, dtype = MODES[mode]
    with jax.enable_x64(x64):
        for call in _of_room(room):
            evaluate(call, call.values(dtype))  # the right ones are taken
        _refuse([t for call in _of_room(room) for t in try_eagerly(call, dtype)])


# Compiling what plots are drawn from is slow, and what scikit-learn calls is not compiled.
@pytest.mark.parametrize("room", ROOMS[:-2])
def test_some_wrong_numbers_under_jit(room):
    calls = _first_of_each(room, lambda call: call.compiled and not call.slow)
    chosen = sorted(calls, key=lambda call: call.name)[:: 4 if len(calls) > 5 else 1]
    with jax.enable_x64(False):
        _refuse([t for call in chosen for t in try_compiled(call, np.float32)])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("room", COMPILED)
def test_all_wrong_numbers_under_jit(room, mode):
    x64, dtype = MODES[mode]
    calls = [c for c in _of_room(room) if c.compiled]
    with jax.enable_x64(x64):
        _refuse([t for call in calls for t in try_compiled(call, dtype)])


@pytest.mark.slow
@pytest.mark.parametrize("room", COMPILED)
def test_wrong_numbers_of_one_traced_argument(room):
    """Where only one argument is traced, and everything else is known when compiling."""
    with jax.enable_x64(False):
        tried = []
        for call in _of_room(room):
            traced = [k for k in call.arguments if call.compiled and is_traced(call.arguments[k])]
            for name in traced if len(traced) > 1 else ():
                tried += try_compiled(call, np.float32, only=name)
        _refuse(tried)
