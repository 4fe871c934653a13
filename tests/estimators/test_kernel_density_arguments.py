"""What the kernel density estimators refuse, and what becomes NaN where it cannot be refused."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibjax.distributions import Categorical, Normal
from calibjax.estimators import kde_bandwidth, kde_calibration_error
from tests.wrong_data import LABELS, LOC, PROBS, WRONG


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_structure_is_checked_under_jit(wrap):
    evaluate = functools.partial(kde_calibration_error, bandwidth=0.1, order=1)
    for case in ("complex labels", "one class", "one-hot targets"):
        predictions, targets, kind, message = WRONG[case]
        with pytest.raises(kind, match=message):
            wrap(evaluate)(predictions, targets)
    with pytest.raises(ValueError, match="predictions: expected at least 2 samples, got 1"):
        wrap(evaluate)(Categorical(PROBS[:1]), LABELS[:1])
    with pytest.raises(ValueError, match="predictions: expected at least 2 samples, got 1"):
        wrap(kde_bandwidth)(Categorical(PROBS[:1]))
    for function, arguments in ((evaluate, (LOC,)), (kde_bandwidth, ())):
        with pytest.raises(TypeError, match="expected class predictions such as .*, got Normal"):
            wrap(function)(Normal(LOC, LOC + 1), *arguments)


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
