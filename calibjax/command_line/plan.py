"""How many rows a test needs, `python -m calibjax plan FILE`."""

import math
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from calibjax.command_line.compilation import suitably
from calibjax.command_line.data import Data
from calibjax.command_line.tables import InputError
from calibjax.distributions.base import Distribution
from calibjax.hypothesis_tests import SampleSize, aggregated_skce_test, sample_size
from calibjax.recalibration import AffineMap, AffineScaling, TemperatureScaling


def needed_rows(options: Namespace, data: Data, say: Callable[[str], None]) -> SampleSize:
    """What `sample_size` finds for the aggregated test, and predictions as wrong as options say.

    It says what was found for each number of rows, since programs are compiled for most of them.

    Raises:
        InputError: if the options do not fit the predictions.
    """

    def law(predictions: Distribution) -> Distribution:
        if options.temperature is not None:
            predictions = TemperatureScaling().apply(jnp.asarray(options.temperature), predictions)
        if options.shift is None and options.scale is None:
            return predictions
        numbers = options.shift or 0.0, 1.0 if options.scale is None else options.scale
        return AffineScaling().apply(AffineMap(*map(jnp.asarray, numbers)), predictions)

    with jax.enable_x64(options.float64), suitably(data.predictions):
        key = jax.random.key(options.seed)
        try:
            return sample_size(
                key,
                aggregated_skce_test,
                data.predictions,
                law,
                power=options.power,
                max_size=options.most,
                on_size=lambda n, power, error: say(f"{n} rows: power {power:.2f} ± {error:.2f}"),
            )
        except (TypeError, ValueError, NotImplementedError) as error:
            raise InputError(f"{options.file}: {error}") from error


def as_json(found: SampleSize) -> dict[str, Any]:
    """The numbers by name; null for sizes beyond the limit."""
    sizes = {"rows": found.num_samples, "low": found.low, "high": found.high}
    curve = found.curve
    return {
        **{name: n if math.isfinite(n) else None for name, n in sizes.items()},
        "power": found.power,
        "curve": [
            {"rows": int(n), "power": float(p), "standard error": float(error)}
            for n, p, error in zip(curve.sizes, curve.power, curve.standard_error, strict=True)
        ],
    }
