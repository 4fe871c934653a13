"""Single precision has the numbers of double precision, for every frozen call without draws.

`tests.frozen` holds both, and its own tests say that they are up to date: nothing is run here.
"""

import numpy as np
import pytest

from tests import registry
from tests.frozen import values

NUMBERS = values.read()
# Fits whose optimum is flat: the loss is as exact as elsewhere.
FLAT = "recalibration.confidences.MMCEScaling", "recalibration.confidences.QuadraticScaling"


# Random bits of the two precisions differ, and so does what is drawn with a key of their own.
DRAWN = "evaluate[", "distributions.monte_carlo[", "hypothesis_tests.exact_skce_test["


def has_draws(name):
    call = registry.calls().get(name)
    has_key = call is not None and any(x.kind == "key" for x in call.arguments.values())
    return has_key or name.startswith(DRAWN)


NAMES = [name.removesuffix(" float32") for name in NUMBERS if name.endswith(" float32")]


@pytest.mark.parametrize("name", [x for x in NAMES if not has_draws(x) and x not in FLAT])
def test_single_precision(name):
    single, double = (NUMBERS[f"{name} {precision}"] for precision in values.PRECISIONS)
    assert single.keys() == double.keys()
    for place in double.keys() - {"sample"}:
        found, expected = (np.atleast_1d(x[place]) for x in (single, double))
        scale = np.abs(expected[np.isfinite(expected)].astype(float)).max(initial=0)
        np.testing.assert_allclose(found, expected, 0, 1e-4 * scale + 1e-6, err_msg=place)
