"""What to do about what was found: calls that repair predictions, and when nothing does."""

from calibjax.evaluation.data import LEVEL
from calibjax.evaluation.entries import Advice
from calibjax.evaluation.findings import Findings
from calibjax.evaluation.wording import alike, ends_of, hundredths, score_of, wrong_shape

_HELD_OUT = (
    "Fit it to data that the model was not trained on, and judge the result on data used for "
    "neither."
)
_LOSSES = {"CRPS": "scores.crps", "Brier score": "scores.brier_score"}
_TEMPERATURE = """\
method = recalibration.TemperatureScaling({loss})
temperature = method.fit(predictions, targets)
repaired = method.apply(temperature, new_predictions)"""
_MAP_OF_CLASSES = """\
method = recalibration.{method}()
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)"""
_GROUPS = Advice(
    "The errors differ between groups. Recalibrating within groups may repair them, if the groups "
    f"of new samples are known; whether it does was not computed. {_HELD_OUT}",
    """\
method = recalibration.GroupWise(recalibration.PlattScaling())
params = method.fit(predictions, targets, groups)  # of integers
repaired = method.apply(params, new_predictions, new_groups)""",
)
_SHIFTS = Advice(
    "Shift the quantiles of each level by that quantile of the errors on held-out data (conformal "
    "prediction): each level is then right on average over all samples; errors that differ between "
    f"samples remain. {_HELD_OUT}",
    """\
errors = targets[:, None] - predictions.values
shifts = [jnp.quantile(e, level) for e, level in zip(errors.T, levels)]  # levels: [k]
repaired = distributions.Quantiles(levels, new_predictions.values + jnp.stack(shifts))""",
)
_SHAPE = Advice(
    "No shift and no temperature changes the shape of the predicted distributions. Predict with a "
    "family that has the shape of the targets, such as LogNormal, Mixture or Quantiles of "
    "calibjax.distributions, or predict a function of them."
)
_QUANTILES = Advice(
    "The shape of the predicted distributions is wrong, on average over all of them. Map their "
    "quantiles by one monotone function, or predict with a family that has the shape of the "
    "targets, such as LogNormal or Mixture of calibjax.distributions; whether that helps was not "
    f"computed. {_HELD_OUT}",
    """\
method = recalibration.QuantileRecalibration("isotonic")
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)""",
)
_POSSIBLE = Advice(
    "Give everything that may happen a probability above 0: no temperature changes a probability "
    "of 0. Mixing the predictions with the frequencies of the outcomes in the training data does."
)
_NOTHING = Advice(
    "Nothing has to be repaired, as far as these data can tell. More samples would show smaller "
    "errors."
)
_OTHERWISE = Advice(
    "No recalibration method of calibjax is known to repair this. The errors say what the model "
    "gets wrong: look at its features and at the family of distributions that it predicts."
)


def advice(findings: Findings, found: list[str]) -> tuple[Advice, ...]:
    """What to do, the most useful first.

    Args:
        findings: with adjusted p-values.
        found: the tests that reject.
    """
    told = [_POSSIBLE] * bool(findings.num_impossible)
    if not found:
        return tuple(told or [_NOTHING])
    repairs = _of_temperature(findings)
    if findings.task in ("classification", "binary"):
        repairs += _of_classes(findings, is_repaired=bool(repairs))
    else:
        repairs += _of_numbers(findings)
    return (*told, *(repairs or [_OTHERWISE]))


def _of_temperature(findings: Findings) -> list[Advice]:
    temperature, gain, ends = findings.temperature, findings.gain, ends_of(findings.gain)
    if temperature is None or gain is None or ends is None or ends[0] <= 0:
        return []
    name = findings.gain_unit.partition(",")[0]
    value, low, high = alike(gain.value, *ends)
    text = f"Scale all predictions by one temperature, T = {hundredths(temperature.value)}: on "
    text += f"held-out data that lowers the {score_of(findings.gain_unit)} by {value} (95 % "
    text += f"interval {low} to {high}). {_HELD_OUT}"
    return [Advice(text, _TEMPERATURE.format(loss=_LOSSES.get(name, "")))]


def _of_classes(findings: Findings, *, is_repaired: bool) -> list[Advice]:
    """Maps of each probability, where one temperature is not enough."""
    told = []
    if not is_repaired:
        method = "PlattScaling" if findings.num_samples < 1000 else "IsotonicRegression"
        text = "A temperature does not repair these errors. A map of the probability of each class "
        text += "may: whether it does was not computed, so compare scores on held-out data. "
        told.append(Advice(text + _HELD_OUT, _MAP_OF_CLASSES.format(method=method)))
    return told + [_GROUPS] * any(group.pvalue <= LEVEL for group in findings.groups)


def _of_numbers(findings: Findings) -> list[Advice]:
    """Shifts, and families of other shapes."""
    told = [_SHIFTS] * (findings.task == "quantiles")
    for bias in findings.bias:
        if bias.pvalue <= LEVEL:
            where = f" of {bias.name}" if bias.name else ""
            text = f"Add {bias.error:.3g} to the predicted means{where}: that is how far the "
            told.append(Advice(f"{text}targets lie from them on average."))
    if wrong_shape(findings) and findings.task == "regression":
        return [*told, _QUANTILES]
    has_place = any(place.pvalue <= LEVEL for place in findings.places)
    return told + [_SHAPE] * bool(has_place or wrong_shape(findings))
