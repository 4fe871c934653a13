"""Calls of what is not in a subpackage."""

import functools

import numpy as np

import calibjax
from calibjax import distributions, recalibration
from tests.registry import arguments as a
from tests.registry.arguments import call
from tests.registry.families import NORMAL

_OPEN = {
    "reason": "it takes decisions that depend on the values, and refuses traced ones",
    "one_of": 8,
    "slow": True,
}


def _read(function, read):
    """A public function, of whose result something is read."""

    @functools.wraps(function)
    def evaluate(*args, **options):
        return read(function(*args, **options))

    return evaluate


def _numbers(found):
    return np.array([entry.value for entry in found.entries])


def _of_quantiles():
    """Of quantiles, for which least is computed."""
    generator = np.random.default_rng(4)
    loc, noise = generator.normal(size=(2, 12)).astype(np.float32)
    levels, values = np.array([0.2, 0.5, 0.8]), np.stack([loc - 1, loc, loc + 1], 1)
    ends = "inf", "-inf"  # which quantiles may be
    names = *a.OPTIONAL, "2^32+1", "-2^32", "nan as int64", "dates", "words"  # all are groups

    def one(values):
        is_single = getattr(values, "dtype", None) == np.float32
        return distributions.Quantiles(levels.astype(np.float32 if is_single else float), values)

    def two(values, others):
        models = {"a": values, "b": others}
        return {name: distributions.Quantiles(levels, each) for name, each in models.items()}

    return [
        call(
            "evaluate",
            "",
            _read(calibjax.evaluate, _numbers),
            predictions=a.made(one, values=a.real(values, without=ends)),
            features=None,
            targets=a.real(loc + noise),
            groups=a.integers(np.arange(12) % 2, without=names),
            **_OPEN,
        ),
        call(
            "compare",
            "",
            _read(calibjax.compare, _numbers),
            models=a.made(
                two, values=a.real(values, without=ends), others=a.real(values + 0.3, without=ends)
            ),
            targets=a.real(loc + noise, "models"),
            weights=a.weights(np.linspace(1, 2, 12), without=a.OPTIONAL),
            clusters=a.integers(np.arange(12), without=a.OPTIONAL),
            **_OPEN,
        ),
    ]


def calls():
    """Calls of `evaluate`, `compare` and `select_recalibration`."""
    return [
        *_of_quantiles(),
        NORMAL.call(
            "select_recalibration",
            None,
            _read(calibjax.select_recalibration, lambda found: (found.pvalues, found.gains)),
            recalibrations={"affine": recalibration.AffineScaling()},
            significance_level=a.proportion(0.1, traced=False),
            one_of=8,
            slow=True,
        ),
    ]
