"""Tables of rejection rates, and the bars that they have to meet."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from experiments.power import classes, dependence, ensembles, normals, posteriors
from experiments.power.simulation import ALPHA, CALIBRATED, Rate, Study

SIZE = 64  # n of the bars
ORACLES = (normals.KERNELS, normals.KERNELS_BIASED)
LEAST = {"oscillating": 0.55, "bimodal": 0.17, "too narrow": 0.58}
LARGEST_LOSS = 0.06
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
        line = lines.setdefault(place, line | {"test": _label(rate.test)})
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
    own = [normals.AGGREGATED, ensembles.ENSEMBLE, normals.MEDIAN, ensembles.REDRAWN]
    parts = [normals.BIASED, "the same, unbiased", "the same, spread"]
    first = [*own, *parts, normals.EXPONENTIAL, *ORACLES]
    names = [_label(test) for test in (*first, *order)]
    return names.index(line["test"])


def _label(test: str) -> str:
    return f"{test} (chosen with hindsight)" if test in ORACLES else test


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


def _difference(found: Found, other: str) -> dict[str, Any]:
    """The largest loss of power of the aggregated test, n = 64."""
    losses = {
        name: found.rate("normals", name, SIZE, "", other)
        - found.rate("normals", name, SIZE, "", normals.AGGREGATED)
        for name in normals.NORMALS.alternatives
        if name != CALIBRATED
    }
    worst = max(losses, key=losses.__getitem__)
    variances = [
        found.error("normals", worst, SIZE, "", test) ** 2 for test in (other, normals.AGGREGATED)
    ]
    statistic = "biased" if other == normals.BIASED else "omnibus"
    has_bar = other == normals.BIASED
    return {
        "what": f"largest loss against the median heuristic, {statistic} ({worst}), n = {SIZE}",
        "bar": f"at most {LARGEST_LOSS}" if has_bar else None,
        "found": losses[worst],
        "s.e.": math.sqrt(sum(variances)),  # at most: both tests see the same data
        "met": losses[worst] <= LARGEST_LOSS if has_bar else None,
    }


def _lenses(found: Found, name: str) -> dict[str, Any]:
    """The aggregated test against the worst of the three lenses."""
    place = classes.CLASSES.name, name, next(iter(classes.CLASSES.sizes)), ""
    rates = [
        found.rate(*place, test) for test in (classes.CANONICAL, classes.TOP, classes.CLASS_WISE)
    ]
    found_rate = found.rate(*place, classes.AGGREGATED)
    return {
        "what": f"aggregated, ten classes, {name}",
        "bar": f"not below the worst lens, {min(rates):.3g}",
        "found": found_rate,
        "s.e.": found.error(*place, classes.AGGREGATED),
        "met": found_rate >= min(rates),
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
    of_normals = normals.AGGREGATED, normals.MEDIAN, normals.BIASED, normals.EXPONENTIAL
    levels = [
        ("normals", CALIBRATED, n, "", test) for n in normals.NORMALS.sizes for test in of_normals
    ]
    levels += [
        (study.name, CALIBRATED, SIZE, study.settings[0], test)
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
    w21 = "w21", "uncalibrated", 4, 1, normals.AGGREGATED
    wrong_classes = [name for name in classes.CLASSES.alternatives if name != CALIBRATED]
    return [
        *(_level(found, place) for place in levels),
        *(_clusters(found, place) for place in clusters),
        *(
            _at_least(
                found,
                f"aggregated, {name}, n = {SIZE}",
                bar,
                ("normals", name, SIZE, "", normals.AGGREGATED),
            )
            for name, bar in LEAST.items()
        ),
        *(_difference(found, other) for other in (normals.BIASED, normals.MEDIAN)),
        _at_least(found, "aggregated, uncalibrated model of W21, n = 4", W21_LEAST, w21),
        *(_lenses(found, name) for name in wrong_classes),
        _at_least(found, "posterior = prior, kernel on the features", PRIOR_LEAST, prior),
    ]
