"""How numbers are written in sentences, and what is advised."""

import math

from calibjax.evaluation.record import Advice, Entry, numbers

_MOST_DECIMALS = 6  # beyond, numbers are written with exponents
_HELD_OUT = (
    "Fit it to data that the model was not trained on, and judge the result on data used for "
    "neither."
)
_CALL = """\
method = recalibration.{method}
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)"""
GROUPS = Advice(
    "The errors differ between groups. Recalibrating within groups may repair them, if groups do "
    "not overlap and those of new samples are known; whether it does was not computed. "
    f"{_HELD_OUT}",
    """\
method = recalibration.GroupWise(recalibration.PlattScaling())
numbers = result.arrays["memberships"].argmax(1)  # result: this evaluation
params = method.fit(predictions, targets, numbers)
repaired = method.apply(params, new_predictions, new_numbers)""",
)
SHIFTS = Advice(
    "Shift the quantiles of each level by that quantile of the errors on held-out data (conformal "
    "prediction): each level is then right on average over all samples; errors that differ between "
    f"samples remain. {_HELD_OUT}",
    _CALL.format(method="QuantileShift()"),
)
MAP_OF_QUANTILES = Advice(
    "Map the quantiles of all predicted distributions by one monotone function: it repairs what is "
    "wrong on average over all of them. If the shape of the targets is another one, predict with a "
    f"family that has it. Whether that helps was not computed. {_HELD_OUT}",
    _CALL.format(method='QuantileRecalibration("isotonic")'),
)
SCALING = Advice(
    "Shift and scale the deviations of all predictions by the same numbers; whether that helps was "
    f"not computed. {_HELD_OUT}",
    _CALL.format(method="AffineScaling()"),
)
OTHER_COUNTS = Advice(
    "Predict with a family of counts whose variance is not given by its mean, such as "
    "NegativeBinomial of calibjax.distributions."
)
POSSIBLE = Advice(
    "Give everything that may happen a probability above 0: no temperature changes a probability "
    "of 0. Mixing the predictions with the frequencies of the outcomes in the training data does."
)
NOTHING = Advice(
    "Nothing has to be repaired, as far as these data can tell. More samples would show smaller "
    "errors."
)
OTHERWISE = Advice(
    "Which recalibration repairs this was not computed; calibjax.select_recalibration compares "
    "several. The errors say what the model gets wrong: look at its features and at the family of "
    "distributions that it predicts."
)


def map_of_classes(size: int) -> Advice:
    """Maps of each probability, where one temperature is not enough."""
    method = "PlattScaling()" if size < 1000 else "IsotonicRegression()"
    text = (
        "A map of the probability of each class may repair these errors. Whether it does was not "
    )
    text += "computed, so compare scores on held-out data. "
    return Advice(text + _HELD_OUT, _CALL.format(method=method))


def map_of(task: str, size: int) -> Advice:
    """What may repair the predictions of a task, where nothing else is known."""
    if task in ("classification", "binary"):
        return map_of_classes(size)
    maps = {"regression": MAP_OF_QUANTILES, "quantiles": SHIFTS, "counts": OTHER_COUNTS}
    return maps.get(task, SCALING)


def repair_by(option: str) -> Advice:
    """One temperature, whose gain a sentence tells."""
    start = f"Scale all predictions by one temperature. {_HELD_OUT}"
    return Advice(start, _CALL.format(method=f"TemperatureScaling({option})"))


def ends_of(entry: Entry | None) -> tuple[float, float] | None:
    """Both ends of an interval, None if there is none or one of them is not finite."""
    if entry is None or entry.low is None or entry.high is None:
        return None
    is_finite = math.isfinite(entry.low) and math.isfinite(entry.high)
    return (entry.low, entry.high) if is_finite else None


def with_ends(value: float, low: float, high: float) -> list[str]:
    """A number and its interval: two digits of the width, and at least one of the number."""
    return numbers(value, low, high, error=min(high - low, 10 * abs(value)))


def p_is(value: float) -> str:
    """A p-value."""
    return f"p = {value:.2g}"


def percent(share: float) -> str:
    """A share."""
    return f"{100 * share + 0.0:.1f} %".replace(".0 %", " %").replace("-0 %", "0 %")


def percents(one: float, other: float) -> tuple[str, str]:
    """Two shares that are compared, with the same number of decimals, and different if they are."""
    texts: list[str] = []
    for decimals in range(1, _MOST_DECIMALS + 1):
        texts = [f"{round(100 * share, decimals) + 0.0:.{decimals}f}" for share in (one, other)]
        if one == other or texts[0] != texts[1]:
            break
    if all(text.endswith(".0") for text in texts):
        texts = [text.removesuffix(".0") for text in texts]
    return f"{texts[0]} %", f"{texts[1]} %"
