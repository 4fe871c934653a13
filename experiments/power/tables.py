"""Tables of rejection rates, and the bars that they have to meet."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.power import dependence, ensembles, posteriors, w21
from experiments.power.simulation import ALPHA, CALIBRATED, Rate, Study

W21_LEAST = 0.96
CLUSTER_LEVELS = (0.02, 0.065)
PRIOR_LEAST = 0.99


def value(rate: Rate, study: Study) -> float:
    """Rejection rate; of several kernels that of the best one, of calibrated data their mean."""
    if rate.alternative in study.calibrated:
        return float(np.mean(rate.rate))
    return float(np.max(rate.rate))


def table(study: Study, rates: Iterable[Rate]) -> list[dict[str, Any]]:
    """A line for each n, setting and test; alternatives as columns, in percent."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rate in rates:
        place = rate.num_samples, rate.setting, rate.test
        line = {"n": rate.num_samples}
        line |= {"setting": rate.setting} if len(study.settings) > 1 else {}
        line = lines.setdefault(place, line | {"test": rate.test})
        line[rate.alternative] = 100 * value(rate, study)
        others = line.setdefault("data sets", [])
        others.append(rate.number)
        line["undefined"] = line.get("undefined", 0) + rate.undefined
    for line in lines.values():
        numbers = sorted(set(line.pop("data sets")), reverse=True)
        undefined = line.pop("undefined")
        line |= {
            "data sets": " / ".join(map(str, numbers)),
            "s.e. at most": 100 * math.sqrt(0.25 / numbers[-1]),
            "undefined": undefined,
        }
    order = [rate.test for rate in rates]
    return sorted(lines.values(), key=lambda x: (x["n"], str(x.get("setting")), _rank(x, order)))


def _rank(line: dict[str, Any], order: list[str]) -> int:
    """The tests in an order of their own, the same in all tables."""
    parts = [w21.BIASED, "the same, unbiased", "the same, spread"]
    own = [w21.AGGREGATED, ensembles.ENSEMBLE, w21.MEDIAN, ensembles.REDRAWN]
    return [*own, *parts, w21.EXPONENTIAL, *order].index(line["test"])


class Found:
    """Rejection rates of all studies by place."""

    def __init__(self, found: Iterable[tuple[Study, list[Rate]]]) -> None:
        """From the rates of the studies."""
        self._rates = {
            (study.name, r.alternative, r.num_samples, r.setting, r.test): (value(r, study), r)
            for study, rates in found
            for r in rates
        }

    def rate(self, *place: Any) -> float:
        """Rejection rate of a study, alternative, n, setting and test."""
        return self._rates[place][0]

    def error(self, *place: Any) -> float:
        """Standard error of a rate."""
        p, rate = self._rates[place]
        return math.sqrt(p * (1 - p) / rate.number)

    def level_error(self, *place: Any) -> float:
        """Standard error of a rate of 0.05."""
        return math.sqrt(ALPHA * (1 - ALPHA) / self._rates[place][1].number)


def _at_least(found: Found, name: str, bar: float, place: tuple[Any, ...]) -> dict[str, Any]:
    rate = found.rate(*place)
    return {
        "what": name,
        "bar": f"at least {bar}",
        "found": rate,
        "s.e.": found.error(*place),
        "met": rate >= bar,
    }


def _level(found: Found, place: tuple[Any, ...]) -> dict[str, Any]:
    study, _, n, setting, test = place
    rate, error = found.rate(*place), found.level_error(*place)
    name = f"level, {study.replace('_', ' of ')}, n = {n}{f', {setting}' if setting else ''}: "
    return {
        "what": name + test,
        "bar": "within 3 s.e. of 0.05",
        "found": rate,
        "s.e.": error,
        "met": abs(rate - ALPHA) <= 3 * error,
    }


def _clusters(found: Found, place: tuple[Any, ...]) -> dict[str, Any]:
    low, high = CLUSTER_LEVELS
    rate = found.rate(*place)
    return {
        "what": f"level of cluster_skce_test, {place[1]}, {place[3]}",
        "bar": f"{low} to {high}",
        "found": rate,
        "s.e.": found.error(*place),
        "met": low <= rate <= high,
    }


def bars(found: Found) -> list[dict[str, Any]]:
    """The bars of all studies."""
    of_w21 = w21.AGGREGATED, w21.MEDIAN, w21.BIASED, w21.EXPONENTIAL
    levels = [("w21", "calibrated", 4, 1, test) for test in of_w21]
    levels += [
        (study.name, CALIBRATED, 64, study.settings[0], test)
        for study in ensembles.ENSEMBLES
        for test in (ensembles.AGGREGATED, ensembles.ENSEMBLE, ensembles.RANKS)
        if test != ensembles.AGGREGATED or study.settings[0] <= ensembles.LARGEST_AGGREGATED
    ]
    size = next(iter(dependence.CLUSTERS.sizes))
    clusters = [
        ("clusters", name, size, setting, dependence.CLUSTER)
        for setting in dependence.CLUSTERS.settings
        for name in dependence.CORRELATIONS
    ]
    size = next(iter(posteriors.POSTERIORS.sizes))
    prior = "posteriors", posteriors.PRIOR, size, "", posteriors.FEATURES
    place = "w21", "uncalibrated", 4, 1, w21.AGGREGATED
    return [
        *(_level(found, place) for place in levels),
        *(_clusters(found, place) for place in clusters),
        _at_least(found, "aggregated, uncalibrated model of W21, n = 4", W21_LEAST, place),
        _at_least(found, "posterior = prior, kernel on the features", PRIOR_LEAST, prior),
    ]
