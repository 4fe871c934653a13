"""Calls of what takes weights of samples, of which these are the only argument."""

import dataclasses
import functools

import numpy as np

from tests.registry import arguments as a
from tests.registry.arguments import Call

_WEIGHTS = a.weights(
    np.array([1.5, 0.25, 2.0, 0.5, 3.0, 0.75, 1.25, 2.5]), without=a.OPTIONAL
)  # all different


def calls(registered):
    """A call of each function that takes weights, with the data of a registered one."""
    weighted = [call for call in registered if "weights" in call.takes]
    found: dict[str, Call] = {}
    for call in weighted:
        if "weights" not in call.arguments and call.covers[0] not in found:  # of draws
            found[call.covers[0]] = _weighted(call)
    assert {call.covers[0] for call in weighted} == found.keys(), "expected a call of equal draws"
    return list(found.values())


def _weighted(call):
    data = call.values(np.float32)
    length = max(len(x) for x in data.values() if isinstance(x, np.ndarray) and x.ndim)
    value = np.resize(_WEIGHTS.value, length)
    # An accumulator says only in the end that no sample had a weight.
    called = ("state",) if call.covers[0].startswith("streaming") else ()
    return dataclasses.replace(
        call,
        covers=call.covers[:1],
        label="weights",
        function=functools.partial(call.function, **data),
        arguments={"weights": dataclasses.replace(_WEIGHTS, value=value, called=called)},
    )
