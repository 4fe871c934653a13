"""Tables of rejection rates."""

import math
from collections.abc import Iterable
from typing import Any

from experiments.power import dependence, ensembles
from experiments.power.simulation import Rate, Study


def table(study: Study, rates: Iterable[Rate]) -> list[dict[str, Any]]:
    """A line for each n, setting and test; alternatives as columns, in percent."""
    lines: dict[tuple[Any, ...], dict[str, Any]] = {}
    for rate in rates:
        place = rate.num_samples, rate.setting, rate.test
        line = {"n": rate.num_samples}
        line |= {"setting": rate.setting} if len(study.settings) > 1 else {}
        line = lines.setdefault(place, line | {"test": rate.test})
        line[rate.alternative] = 100 * rate.rate
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
    own = [ensembles.AGGREGATED, ensembles.ENSEMBLE, dependence.MEDIAN, ensembles.REDRAWN]
    parts = [dependence.BIASED, "the same, unbiased", "the same, dispersion"]
    return [*own, *parts, *order].index(line["test"])
