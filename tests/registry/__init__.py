"""A registry of valid calls, with at least one of each public function.

Tests take it as the list of everything that a user can call. `tests.test_mutations` puts a fixed
table of wrong values in the place of each argument.
"""

import functools

from calibjax import plotting
from tests.registry import (
    estimators,
    evaluation,
    families,
    kernels,
    learned,
    scores,
    streaming,
    tests_of_calibration,
    weighted,
    with_sklearn,
)
from tests.registry.arguments import Call

# Public names without a call of their own, and why.
_CORE = (
    "is called on one pair inside of `vmap` and, as its docstring says, checks no values; the "
    "functions that call it do"
)
_DRAWS = "draws only: tests.plotting.test_conventions tries its arguments, and nothing is computed"
_BASE = "is a base class, which raises NotImplementedError"
_ENGINE = (
    "is the engine of pair sums, called with any function and pytree by those who checked them"
)
_FILES = "reads files: see tests/command_line"
EXEMPT = {
    "command_line.load": _FILES,
    "distances.Distance": _BASE,
    "distributions.Distribution": _BASE,
    "distributions.constraints": "is a module",
    "interoperability.from_torch": "reads objects of torch: tests/interoperability/test_torch.py",
    "distributions.parameter": "declares a field of a class",
    "kernels.Kernel": _BASE,
    "streaming.Accumulator": _BASE,
    "estimators.calibration_kernel": _CORE,
    "record": "declares a class",
    "operators.mean_over_pairs": _ENGINE,
    "operators.weighted_sums": _ENGINE,
    **{f"plotting.{name}": _DRAWS for name in plotting.__all__},
}


@functools.cache
def calls() -> dict[str, Call]:
    """All calls by name."""
    rooms = (
        families,
        estimators,
        kernels,
        tests_of_calibration,
        learned,
        scores,
        streaming,
        with_sklearn,
        evaluation,
    )
    registered = [call for room in rooms for call in room.calls()]
    registered += weighted.calls(registered)
    found = {call.name: call for call in registered}
    if len(found) < len(registered):
        names = [call.name for call in registered]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"calls: expected one of each name, got several of {', '.join(twice)}")
    return found
