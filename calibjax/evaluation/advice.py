"""What to do about what was found: calls that repair predictions, and when nothing does."""

from calibjax.evaluation.entries import Advice
from calibjax.evaluation.findings import Findings
from calibjax.evaluation.wording import alike, ends_of, hundredths, score_of

_TEMPERATURE = """\
method = recalibration.TemperatureScaling({loss})
temperature = method.fit(predictions, targets)
repaired = method.apply(temperature, new_predictions)"""
_LOSSES = {"CRPS": "scores.crps", "Brier score": "scores.brier_score"}
_MAP_OF_CLASSES = """\
method = recalibration.{method}()
params = method.fit(predictions, targets)
repaired = method.apply(params, new_predictions)"""
_GROUPS = """\
method = recalibration.GroupWise(recalibration.PlattScaling())
params = method.fit(predictions, targets, groups)  # of integers
repaired = method.apply(params, new_predictions, new_groups)"""
_SHIFTS = """\
errors = targets[:, None] - predictions.values
shifts = [jnp.quantile(e, level) for e, level in zip(errors.T, levels)]  # levels: [k]
repaired = distributions.Quantiles(levels, new_predictions.values + jnp.stack(shifts))"""
_HELD_OUT = (
    "Fit it to data that the model was not trained on, and judge the result on yet other data."
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
    told = []
    if findings.num_impossible:
        told.append(
            Advice(
                "Give everything that may happen a probability above 0: no temperature changes a "
                "probability of 0. Mixing the predictions with the frequencies of the outcomes in "
                "the training data does."
            )
        )
    if not found:
        nothing = "Nothing has to be repaired, as far as these data can tell. More samples would "
        return (*told, *[Advice(f"{nothing}show smaller errors.")] * (not told))
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
        why = "A temperature does not repair these errors. "
        text = f"{why}A map of the probability of each class may: whether it does was not "
        text += f"computed, so compare scores on held-out data. {_HELD_OUT}"
        told.append(Advice(text, _MAP_OF_CLASSES.format(method=method)))
    if any(group.pvalue <= 0.05 for group in findings.groups):
        text = "The errors differ between groups. Recalibrating within groups may repair them, if "
        text += (
            f"the groups of new samples are known; whether it does was not computed. {_HELD_OUT}"
        )
        told.append(Advice(text, _GROUPS))
    return told


def _of_numbers(findings: Findings) -> list[Advice]:
    """Shifts, and families of other shapes."""
    told = []
    if findings.task == "quantiles":
        text = "Shift the quantiles of each level by that quantile of the errors on held-out data "
        text += "(conformal prediction): each level is then right on average over all samples; "
        text += "errors that differ between samples remain. "
        told.append(Advice(f"{text}{_HELD_OUT}", _SHIFTS))
    for bias in findings.bias:
        error = bias.observed - bias.predicted
        if bias.pvalue <= 0.05:
            where = f" of {bias.name}" if bias.name else ""
            text = (
                f"Add {error:.3g} to the predicted means{where}: that is how far the targets lie "
            )
            told.append(Advice(f"{text}from them on average."))
    if any(place.pvalue <= 0.05 for place in findings.places):
        text = "No shift and no temperature changes the shape of the predicted distributions. "
        text += "Predict with a family that has the shape of the targets, such as LogNormal, "
        text += "Mixture or Quantiles of calibjax.distributions, or predict a function of them."
        told.append(Advice(text))
    return told
