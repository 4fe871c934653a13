"""Sentences on errors that have no name of their own: where they are, and which were not found."""

from calibjax.evaluation.findings import Findings, PlaceError
from calibjax.evaluation.wording import ends_of, hundredths, p_is, percents, points


def places(findings: Findings, level: float) -> list[str]:
    """Where events occur more or less often than predicted, or that no place stands out."""
    wrong = [place for place in findings.places if place.pvalue <= level]
    if wrong:
        return [f"{_capital(_place(place))} ({p_is(place.pvalue)})." for place in wrong]
    if not findings.places:
        return []
    first = findings.places[0]
    return [
        "No single place explains this. The largest difference that was found is one that a "
        f"calibrated model may show by chance ({p_is(first.pvalue)}): {_place(first)}."
    ]


def _place(place: PlaceError) -> str:
    verb = "occur" if place.event.startswith("targets") else "occurs"
    word = "more" if place.observed > place.predicted else "less"
    observed, predicted = percents(place.observed, place.predicted)
    region = f" {place.region}" if place.region else ""
    these = f"these {place.number}" if region else f"the {place.number}"
    told = f"{place.event} {verb} {word} often than predicted{region}: in {observed} of {these} "
    return f"{told}samples, while {predicted} were predicted"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def missed(findings: Findings, level: float) -> list[str]:
    """How large an error would probably have been found, and what else is not excluded."""
    told = [
        f"{what} would have been found with a probability of about 80 %."
        for what in _detectable(findings, level)
    ]
    if not told:
        told = ["How large an error would have been found is not known for such predictions."]
    if ends := ends_of(findings.temperature):
        told.append(
            "The best temperature lies between "
            f"{hundredths(ends[0])} and {hundredths(ends[1])} (95 % interval)."
        )
    return ["This does not show that the model is calibrated.", *told]


def _detectable(findings: Findings, level: float) -> list[str]:
    """Errors found with a probability of about 80 %, at this level for all tests together."""
    told = []
    if findings.detectable is not None:
        error = findings.detectable(findings.adjustment.level("means", level))
        if findings.top_label is not None:
            what = f"A difference of {points(error)} between accuracy and confidence"
        else:
            where = " in any coordinate" if len(findings.bias) > 1 else ""
            what = f"A bias of {error:.3g}{where}"
            if findings.deviation is not None:
                what += f", or {error / findings.deviation:.2g} predicted standard deviations,"
        told.append(what)
    if findings.detectable_coverage is not None:
        nominal, error = findings.detectable_coverage(findings.adjustment.level("coverage", level))
        told.append(f"An error of {points(error)} in the coverage of {nominal}")
    return told
