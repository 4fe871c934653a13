"""Every public function with every wrong value: refused by name, NaN under `jit`, or right.

`tests.registry` holds a valid call of each function, and the table of wrong values.
"""

import jax
import numpy as np
import pytest

from tests import registry
from tests.registry.outcomes import (
    ALLOWED,
    evaluate,
    is_traced,
    try_compiled,
    try_eagerly,
)

ROOMS = ("distributions", "distances", "kernels", "estimators", "hypothesis_tests")
ROOMS += ("recalibration", "risk", "scores", "streaming", "interoperability", "calibjax")
COMPILED = [room for room in ROOMS if room != "interoperability"]  # scikit-learn compiles nothing
MODES = {"float32": (False, np.float32), "float64": (True, np.float64)}
QUICK = ("estimators.skce[Normal]", "estimators.skce[Categorical]", "estimators.ece[Categorical]")
LATE = ("new", "p", "q")  # arguments that are looked at when something was fitted
SHARE = 40  # one in so many wrong values is tried in the fast suite
SHARE_COMPILED = 4  # one in so many functions is compiled there


@pytest.fixture(autouse=True)
def _few_programs(request):
    yield
    if request.node.get_closest_marker("slow"):
        jax.clear_caches()  # thousands of programs would run out of memory maps


def _of_room(room):
    calls = registry.calls().values()
    return [
        c for c in calls if (c.covers[0].rpartition(".")[0].partition(".")[0] or "calibjax") == room
    ]


def _refuse(tried):
    """Fails with the list of wrong outcomes."""
    assert tried
    assert not [str(one) for one in tried if one.outcome not in ALLOWED]


def _is_quick(call):
    """Whether a right value is computed in the fast suite, which compiles the call."""
    return call.name in QUICK


@pytest.mark.parametrize("room", ROOMS)
def test_some_wrong_values(room):
    with jax.enable_x64(False):
        tried = []
        for call in _of_room(room):
            if call.covers[0] == "distributions.monte_carlo":  # draws come before the targets
                continue

            def chosen(number, name, mutant, call=call):
                if number % SHARE or (mutant.meanings and not _is_quick(call)):
                    return False
                return not (call.slow and name in LATE)

            tried += try_eagerly(call, np.float32, chosen)
        _refuse(tried)


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
    calls = [c for c in _of_room(room) if c.compiled and not c.slow]
    first = {call.covers[0]: call for call in reversed(calls)}  # one of each function
    step = SHARE_COMPILED if len(first) > 5 else 1
    chosen = [first[name] for name in sorted(first)[::step]]
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
