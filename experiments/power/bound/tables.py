"""Tables of the bound study, and the bars that it has to meet."""

import statistics
from typing import Any

from experiments.power.bound.models import CALIBRATED
from experiments.power.bound.shared_redraws import AGGREGATED
from experiments.power.bound.simulation import BOUND, Rate, level_error, size_of

Found = dict[tuple[str, int], dict[str, dict[str, Rate]]]  # (model, n) → test → alternative

LEAST = {
    ("classes_10", 250): {
        "T = 1.25": 0.65,
        "T = 0.8": 0.6,
        "15 % noise": 0.92,
        "exchanged": 0.92,
        "first class x 0.4": 0.42,
    },
    ("normals", 64): {
        "shift +0.3": 0.46,
        "sd x 1.4": 0.92,
        "sd x 0.7": 0.84,
        "local +2": 0.55,
        "oscillating": 0.48,
        "bimodal": 0.7,
        "skewed +": 0.45,
    },
    ("heteroscedastic", 64): {"shift +0.3": 0.43, "sd ∝ scale^1.7": 0.7},
    ("binary", 200): {"T = 1.25": 0.22, "logit +0.3": 0.29, "wave": 0.19},
}
LEVELS = (0.03, 0.07)
FEWEST = 16  # samples of cells whose power is judged; fewer are there for the level
LARGEST_LOSS, MEDIAN_SHARE, WORST_SHARE = 0.12, 0.6, 0.25


def rows(found: Found) -> list[dict[str, Any]]:
    """A line for each model, n and alternative, in percent."""
    tests = dict.fromkeys(test for cell in found.values() for test in cell)
    tests = [BOUND, AGGREGATED, *sorted({*tests} - {BOUND, AGGREGATED})]
    lines = []
    for (model, n), cell in found.items():
        for alternative, own in cell[AGGREGATED].items():
            line = {"predictions": model, "n": n, "targets": alternative}
            line |= {test: _percent(cell, test, alternative) for test in tests}
            line["s.e. of aggregated"] = 100 * own.error
            size = size_of(model, n)
            line["data sets"] = f"{size.sets} x {size.each}"
            lines.append(line)
    return lines


def _percent(cell: dict[str, dict[str, Rate]], test: str, alternative: str) -> float | None:
    return 100 * cell[test][alternative].rate if test in cell else None


def shares(found: Found, test: str) -> dict[tuple[str, int, str], float]:
    """Power divided by the bound, in all cells of wrong targets that are judged.

    In runs of few data sets a bound may be zero, which judges nothing.
    """
    return {
        (model, n, alternative): rate.rate / cell[BOUND][alternative].rate
        for (model, n), cell in found.items()
        for alternative, rate in cell.get(test, {}).items()
        if alternative != CALIBRATED and n >= FEWEST and cell[BOUND][alternative].rate > 0
    }


def _losses(found: Found) -> dict[tuple[str, int, str], tuple[float, float, str]]:
    """How far the aggregated test is below the best other, with standard error and its name."""
    losses = {}
    for (model, n), cell in found.items():
        others = [test for test in cell if test not in (BOUND, AGGREGATED)]
        for alternative, own in cell[AGGREGATED].items():
            if alternative == CALIBRATED or n < FEWEST:
                continue
            best = max(others, key=lambda test: cell[test][alternative].rate)
            rate = cell[best][alternative]
            error = (rate.error**2 + own.error**2) ** 0.5
            losses[model, n, alternative] = rate.rate - own.rate, error, best
    return losses


def _line(what: str, bar: str, value: float, error: float | None, met: bool) -> dict[str, Any]:
    return {"what": what, "bar": bar, "found": value, "s.e.": error, "met": met}


def bars(found: Found) -> list[dict[str, Any]]:
    """The bars; a rate meets its bar if it is at most two standard errors beyond it."""
    lines = []
    for place, least in LEAST.items():
        for alternative, bar in least.items() if place in found else ():
            rate, error = found[place][AGGREGATED][alternative]
            name = f"{place[0]}, n = {place[1]}, {alternative}"
            lines.append(_line(name, f"at least {bar}", rate, error, rate >= bar - 2 * error))
    for (model, n), cell in found.items():
        rate, error = cell[AGGREGATED][CALIBRATED].rate, level_error(model, n)
        met = LEVELS[0] - 2 * error <= rate <= LEVELS[1] + 2 * error
        bar = f"{LEVELS[0]} to {LEVELS[1]}"
        lines.append(_line(f"{model}, n = {n}, {CALIBRATED}", bar, rate, error, met))
    for (model, n, alternative), (loss, error, best) in _losses(found).items():
        if loss > LARGEST_LOSS:
            name = f"{model}, n = {n}, {alternative}: below {best}"
            met = loss <= LARGEST_LOSS + 2 * error
            lines.append(_line(name, f"at most {LARGEST_LOSS}", loss, error, met))
    own = shares(found, AGGREGATED)
    worst = min(own, key=own.__getitem__)
    middle = statistics.median(own.values())
    met = middle >= MEDIAN_SHARE
    lines.append(_line("power ÷ bound, median cell", f"at least {MEDIAN_SHARE}", middle, None, met))
    name = f"power ÷ bound, worst cell ({worst[0]}, n = {worst[1]}, {worst[2]})"
    met = own[worst] >= WORST_SHARE
    return [*lines, _line(name, f"at least {WORST_SHARE}", own[worst], None, met)]
