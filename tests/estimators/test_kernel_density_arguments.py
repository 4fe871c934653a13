"""What the kernel density estimators refuse, and what becomes NaN where it cannot be refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Categorical, Normal
from calibjax.estimators import kde_calibration_error
from tests.estimators.test_kernel_density import error
from tests.wrong_data import LABELS, LOC, PROBS, WRONG


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_structure_is_checked_under_jit(wrap):
    evaluate = functools.partial(kde_calibration_error, bandwidth=0.1, order=1)
    for case in ("one class",):
        predictions, targets, kind, message = WRONG[case]
        with pytest.raises(kind, match=message):
            wrap(evaluate)(predictions, targets)
    with pytest.raises(ValueError, match="predictions: expected at least 2 samples, got 1"):
        wrap(evaluate)(Categorical(PROBS[:1]), LABELS[:1])
    with pytest.raises(TypeError, match="expected class predictions such as .*, got Normal"):
        wrap(evaluate)(Normal(LOC, LOC + 1), LOC)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"bandwidth": 0.0}, ValueError, "bandwidth: expected positive finite values, got"),
        ({"bandwidth": jnp.ones(2)}, ValueError, "bandwidth: expected shape () (a scalar)"),
        ({"order": 0.5}, ValueError, "order: expected a finite number >= 1, got order = 0.5"),
        ({"order": np.nan}, ValueError, "order: expected a finite number >= 1, got order = nan"),
        ({"order": "l1"}, TypeError, "order: expected a number, got str"),
    ],
)
def test_wrong_options(options, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        kde_calibration_error(
            Categorical(PROBS), LABELS, **{"bandwidth": 0.1, "order": 1, **options}
        )


def test_what_is_out_of_range_never_becomes_a_number_under_jit():
    evaluate = jax.jit(lambda p, y: error(p, y))
    assert np.isfinite(evaluate(PROBS, LABELS))
    for wrong in (-1, 3):
        assert np.isnan(evaluate(PROBS, LABELS.at[2].set(wrong)))
    assert np.isnan(evaluate(PROBS.at[1, 1].set(jnp.nan), LABELS))
