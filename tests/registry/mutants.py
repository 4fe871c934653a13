"""The fixed table of wrong values."""

from typing import Any

from tests.registry import arrays, options
from tests.registry.arguments import ARRAYS, NUMBERS, Argument
from tests.registry.wrong_values import Mutant

_OF_KIND = {
    "integer": options.of_integer,
    "truth": options.of_truth,
    "choice": options.of_choice,
    "key": options.of_key,
    "kernel": options.of_kernel,
    "distance": options.of_distance,
    "binning": options.of_binning,
    "function": options.of_function,
    "predictions": options.of_predictions,
    "record": options.of_record,
    **dict.fromkeys(ARRAYS, arrays.of_array),
    **dict.fromkeys(NUMBERS, arrays.of_number),
}


def mutants(argument: Argument, valid: Any) -> list[Mutant]:
    """All wrong values in place of a valid one, but for those that the registry leaves out."""
    found = _OF_KIND[argument.kind](argument, valid)
    return [m for m in found if m.name not in argument.without]
