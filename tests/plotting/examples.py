"""A small valid call of every function of `plotting`, without anything to compile."""

import dataclasses
import json
import pathlib
import re

import numpy as np

from calibjax import plotting
from calibjax.distributions import Categorical, Normal
from calibjax.estimators.curves import IsotonicCurve, ReliabilityCurve
from calibjax.estimators.pit import CoverageCurve, PITHistogram
from calibjax.hypothesis_tests.components import Component
from calibjax.hypothesis_tests.result import CalibrationTestResult
from calibjax.hypothesis_tests.sequential import EProcessResult
from calibjax.scores.decomposition import MurphyCurve, ScoreDecomposition

NUMBERS = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())


def read(kind, name):
    """A record of the numbers of `examples.json`."""
    fields = NUMBERS[name].items()
    return kind(**{k: np.array(v) if isinstance(v, list) else v for k, v in fields})


HISTOGRAM, QUANTILES = read(PITHistogram, "HISTOGRAM"), read(CoverageCurve, "QUANTILES")
RELIABILITY = read(ReliabilityCurve, "RELIABILITY")
ISOTONIC = IsotonicCurve(*np.array([[0.2, 0.7], [0.4, 0.5], *[[0.1, 0.6], [0.3, 0.8]] * 2]), 0.9)
GROUPS, OF_CLASSES = (read(CalibrationTestResult, x) for x in ("GROUPS", "OF_CLASSES"))
INTERVALS = CoverageCurve(**{**vars(QUANTILES), "kind": "interval"})
DRAWS = np.random.default_rng(0).normal(size=99)
ONE = CalibrationTestResult(np.float64(2.5), np.float64(0.02), np.float64(2.5), DRAWS)
DECOMPOSITION = ScoreDecomposition(*np.array([0.3, 0.1, 0.25, 0.45]))
DECOMPOSED = CalibrationTestResult(
    DECOMPOSITION,
    DECOMPOSITION,
    DECOMPOSITION,
    ScoreDecomposition(*(0.2 + np.abs(np.stack([DRAWS] * 4)))),
)
PLACES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
LOCATIONS = CalibrationTestResult(
    statistic=np.abs(DRAWS[:4]),
    pvalue=np.full(4, 0.5),
    estimate=DRAWS[:4],
    null_samples=np.abs(DRAWS[:20]).reshape(5, 4),
    adjusted_pvalue=np.array([0.01, 0.5, 0.5, 0.5]),
    entries="locations",
)
AT = Normal(PLACES[:, 0], np.ones(4)), PLACES.sum(1)

WEALTH = EProcessResult(
    DRAWS, {"shift": DRAWS + 1, "kernels": DRAWS - 1}, np.float64(0.3), np.int32(0), {}
)
MURPHY = {x: MurphyCurve(np.array([0.2, 0.5]), np.array([0.3, 0.1])) for x in "ab"}

ROWS = Categorical(np.tile([0.5, 0.25, 0.25], (3, 1))), np.arange(3)
SIGNED = {
    "signed": True,
    "effective_sizes": np.array([0.0, 6, 15, 60]),
    "pvalues": LOCATIONS.pvalue,
}

# By the name of a figure: the function, its arguments and options.
CALLS = {
    "coverage_curve": (INTERVALS,),
    "coverage_curve of quantiles": (QUANTILES,),
    "e_process_wealth": (WEALTH, {"significance_level": 0.01}),
    "group_errors": (GROUPS, {"groups": ["old", "young"], "residuals": ["A", "B"]}),
    "group_errors without names": (GROUPS,),
    "local_error_map": (PLACES, np.array([0.1, 0.2, 0.0, 0.3])),
    "local_error_map, signed": (PLACES, np.array([0.1, -0.2, 0.0, 0.3]), SIGNED),
    "local_error_map of one": (PLACES[:1], np.zeros(1), {"pvalues": np.ones(1)}),
    "murphy_diagram": (MURPHY,),
    "null_distribution": (ONE, {"bins": 7, "xlabel": "mean"}),
    "null_distribution of a component": (Component(*np.array([-1.0, -1.0, 0.3]), DRAWS),),
    "pit_ecdf": (QUANTILES,),
    "pit_histogram": (HISTOGRAM,),
    "pvalue_ecdf": ({"exact": np.array([0.5, 0.2]), "CME": np.array([0.7])}, {"band": QUANTILES}),
    "pvalue_ecdf without a band": ({"exact": np.array([0.5, 0.2])},),
    "reliability_diagram": (RELIABILITY,),
    "reliability_diagram, isotonic": (ISOTONIC,),
    "reliability_diagram of means": (dataclasses.replace(ISOTONIC, functional="mean"),),
    "score_decomposition": (DECOMPOSED, {"confidence_level": 0.8}),
    "score_decomposition without draws": (DECOMPOSITION, {"ylabel": "CRPS (°C)"}),
    "witness_map": (LOCATIONS, *AT),
    "witness_map of classes": (OF_CLASSES, *ROWS),
}


def drawn(name, **options):
    """The figure."""
    arguments = [*CALLS[name]]
    options |= arguments.pop() if isinstance(arguments[-1], dict) and arguments[1:] else {}
    return getattr(plotting, re.match(r"\w+", name)[0])(*arguments, **options)
