"""A registry of valid calls, with at least one of each public function.

Tests take it as the list of everything that a user can call. `tests.test_gate` puts a fixed
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
_BASE = "is a base class, which raises NotImplementedError"
_ENGINE = "is the engine of pair sums, called with any function by those who checked its arguments"
_DRAWS = "draws only: tests.plotting.test_conventions tries its arguments, and nothing is computed"
EXEMPT = {
    "checked": "is the gate, see tests/test_gate.py",
    "record": "declares a class",
    "command_line.load": "reads files: see tests/command_line",
    "distances.Distance": _BASE,
    "distributions.Distribution": _BASE,
    "distributions.constraints": "is a module",
    "distributions.parameter": "declares a field of a class",
    "estimators.calibration_kernel": "is called on one pair inside of `vmap` by those who check it",
    "interoperability.from_torch": "reads objects of torch: tests/interoperability/test_torch.py",
    "kernels.Kernel": _BASE,
    "operators.mean_over_pairs": _ENGINE,
    "operators.weighted_sums": _ENGINE,
    **{f"plotting.{name}": _DRAWS for name in plotting.__all__},
}


@functools.cache
def calls() -> dict[str, Call]:
    """All calls by name."""
    rooms = families, estimators, kernels, tests_of_calibration, learned
    rooms += scores, streaming, with_sklearn, evaluation
    registered = [call for room in rooms for call in room.calls()]
    registered += weighted.calls(registered)
    found = {call.name: call for call in registered}
    assert len(found) == len(registered), "expected one call of each name"
    return found
