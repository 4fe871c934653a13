"""What has no unit does not depend on the unit of the targets, also in float32."""

import re

import jax
import numpy as np
import pytest

import calibjax
from calibjax import distributions

N = 60
# Entries in the unit of the targets, by the beginning of their names, and its power.
POWERS = {"mean of the targets": 1, "CRPS": 1, "held-out gain in CRPS": 1, "pinball loss": 1}
POWERS |= {"mean squared error": 2}


def _evaluated(task, unit):
    random = np.random.default_rng(0)
    loc, noise = random.normal(size=N), random.normal(size=(N, 8))
    if task == "normals":
        predictions = distributions.Normal(unit * loc, np.full(N, unit))
    elif task == "ensembles":
        predictions = distributions.Ensemble(unit * (loc[:, None] + noise[:, 1:]))
    else:
        values = loc[:, None] + np.array([-1.64, -0.67, 0, 0.67, 1.64])
        predictions = distributions.Quantiles([0.05, 0.25, 0.5, 0.75, 0.95], unit * values)
    targets, groups = unit * (loc + 2 * noise[:, 0]), np.arange(N) % 2
    with jax.enable_x64(False):
        return calibjax.evaluate(jax.random.key(0), predictions, targets, groups=groups)


@pytest.mark.parametrize(
    "task",
    ["quantiles", *(pytest.param(x, marks=pytest.mark.slow) for x in ("normals", "ensembles"))],
)
def test_evaluation(task):
    one = _evaluated(task, 1.0)
    for unit in (2.0**-40, 2.0**-20, 1e6, 2.0**40):
        other = _evaluated(task, unit)
        for a, b in zip(one.entries, other.entries, strict=True):
            power = next((k for name, k in POWERS.items() if a.name.startswith(name)), 0)
            shift = -np.log(unit) if a.name == "negative log-likelihood" else 0
            for field in ("value", "expected", "standard_error", "low", "high", "pvalue"):
                x, y = getattr(a, field), getattr(b, field)
                assert (x is None) == (y is None), (a, b)
                if x is not None:
                    scale = 1 if field == "pvalue" else unit**power
                    moved = shift if field == "value" else 0
                    near = pytest.approx((x - moved) * scale, rel=2e-3, abs=1e-4 * scale)
                    assert y == near, (unit, a, b)
        # All but numbers in units of the targets.
        told = [re.sub(r"-?\d[\d.e+-]*", "#", " ".join(x.sentences)) for x in (one, other)]
        assert told[0] == told[1]
