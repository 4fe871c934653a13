"""Single precision has the numbers of double precision, for every frozen call without draws.

`tests.frozen` holds both, and its own tests say that they are up to date: they are not run here.
Data in single precision have results in single precision, also where JAX has 64 bits.
"""

import jax
import numpy as np
import pytest

from tests import registry
from tests.frozen import values
from tests.laws.test_modes import CALLS, numbers_of_traced, some, traced_arguments

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


# Where they do not: what JAX computes from integers and numbers of Python, constants, and states of
# streams. The composite test computes its dispersion in double precision.
LONG = "Poisson", "of counts", "of numbers", "rank_histogram_test", "monte_carlo[Categorical"
LONG += "default_kernels", "streaming.", "composite_calibration_test"
SHORT = [x for x in CALLS if x.compiled and not any(part in x.name for part in LONG)]


@pytest.mark.filterwarnings("ignore::UserWarning")  # about the data, see other tests
@pytest.mark.parametrize("call", some(1, SHORT, every=6))
def test_single_precision_stays(call):
    arrays, known = traced_arguments(call, np.float32)
    if np.float64 in [x.dtype for x in jax.tree.leaves(arrays)]:
        pytest.skip("takes numbers of Python")
    found = jax.eval_shape(lambda x: numbers_of_traced(call.function(**known, **x)), arrays)
    assert np.float64 not in [x.dtype for x in found]
