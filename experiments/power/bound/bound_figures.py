"""Figure of the share of the largest possible power that each test has."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.harness.figures import COLORS, save_figure
from experiments.power.bound.models import MODELS
from experiments.power.bound.shared_redraws import AGGREGATED
from experiments.power.bound.simulation import BOUND
from experiments.power.bound.tables import Found, shares

NAMES = {
    "normals": "normals",
    "heteroscedastic": "normals of many scales",
    "binary": "binary",
    "classes_5": "five classes",
    "classes_10": "ten classes",
    "counts": "counts",
}


def draw(folder: Path, found: Found) -> None:
    """A row for each test, a dot for each kind of error, n and kind of predictions."""
    tests = dict.fromkeys(test for cell in found.values() for test in cell if test != BOUND)
    of_tests = {test: shares(found, test) for test in tests}
    order = sorted(tests, key=lambda test: (test != AGGREGATED, -len(of_tests[test]), test))
    figure = Figure(figsize=(8, 0.42 * len(order) + 1.2), layout="constrained")
    axes, generator = figure.subplots(), np.random.default_rng(0)
    for row, test in enumerate(order):
        for color, model in zip(COLORS, MODELS, strict=False):
            own = [share for place, share in of_tests[test].items() if place[0] == model]
            height = row + generator.uniform(-0.28, 0.28, len(own))
            label = NAMES[model] if test == AGGREGATED else None
            axes.scatter(own, height, 9, color=color, alpha=0.75, linewidths=0, label=label)
        middle = np.median([*of_tests[test].values()])
        axes.plot([middle, middle], [row - 0.38, row + 0.38], color="black", linewidth=1.5)
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.set_xlim(-0.02, 1.05)
    axes.set_xlabel("power ÷ power of the likelihood ratio test (black: median)")
    figure.legend(loc="outside lower center", ncols=4, markerscale=2)
    save_figure(folder, "power_bound", figure)
