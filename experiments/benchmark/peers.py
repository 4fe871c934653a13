"""Time and memory beside other packages that compute the same number, as samples become more.

A row of the table is one entry of `ENTRIES`: a data set, our function, a peer's, and the tolerance
to which their values agree, without which the run stops. Each side runs in a process of its own, in
float64, on data that are its own kind of array. Seconds are CPU time of all threads, the smallest
of the calls after the first, which compiles (ours, and Numba's); memory is the growth of the peak.
Packages that are not installed are left out: pip install netcal scoringrules numba probcal relplot.

Run: python -m experiments.benchmark.peers [--quick] [--only NAME ...] [--output DIR]
"""

import functools
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import distributions as laws
from calibjax import estimators, recalibration, scores
from calibjax.scores.decomposition import prediction_rejection_ratio
from experiments.benchmark.memory import peak, resident
from experiments.harness import command_line
from experiments.harness.cells import Store, cell
from experiments.harness.figures import add_legend, panels, save_figure
from experiments.harness.tables import write_table

LIMIT, CALLS = 3.0, 7  # CPU seconds of all calls but the first, and their number
SIZES = 10_000, 100_000, 1_000_000


class Entry(NamedTuple):
    """What is compared.

    Attributes:
        data: n to the arguments of both sides, NumPy arrays.
        record: these to our predictions and targets.
        ours: function of predictions and targets.
        package: whose function it is compared with.
        theirs: function of the package and of the data.
        rtol: of the two values; None where they are not of one definition.
        largest: number of samples.
    """

    data: Callable[[int], tuple[np.ndarray, ...]]
    record: Callable[..., tuple[Any, Any]]
    ours: Callable[[Any, Any], Any]
    package: str
    theirs: Callable[..., Any]
    rtol: float | None = 1e-10
    largest: int = SIZES[-1]


def binary(n: int) -> tuple[np.ndarray, ...]:
    """Probabilities of an event, and whether it happened."""
    random = np.random.default_rng(0)
    probs = random.uniform(size=n)
    return probs, (random.uniform(size=n) < probs**1.3).astype(int)


def ten_classes(n: int) -> tuple[np.ndarray, ...]:
    """Overconfident probabilities of ten classes, and labels."""
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(n, 10))
    labels = np.argmax(logits / 1.3 + random.gumbel(size=(n, 10)), 1)
    probs = np.exp(logits)
    return probs / probs.sum(1, keepdims=True), labels


def normals(n: int) -> tuple[np.ndarray, ...]:
    """Means, standard deviations and targets."""
    random = np.random.default_rng(0)
    loc, scale = random.normal(size=n), random.uniform(0.5, 2, n)
    return loc, scale, loc + scale * random.normal(size=n)


def ensembles(n: int, *shape: int) -> tuple[np.ndarray, ...]:
    """Fifty members each, and targets."""
    random = np.random.default_rng(0)
    return random.normal(size=(n, 50, *shape)), random.normal(size=(n, *shape))


def _pair(family: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    return lambda *data: (family(*map(jnp.asarray, data[:-1])), jnp.asarray(data[-1]))


def _temperature(netcal: Any, probs: np.ndarray, labels: np.ndarray) -> Any:
    model = netcal.scaling.TemperatureScaling()
    model.fit(probs, labels)
    return 1 / np.ravel(model.temperature)[0]


def _isotonic(sklearn: Any, x: np.ndarray, y: np.ndarray) -> Any:
    return np.mean(sklearn.isotonic.IsotonicRegression().fit(x, y).predict(x) ** 2)


def _own_isotonic(p: Any, y: jax.Array) -> Any:
    method = recalibration.IsotonicRegression(smooth=False)
    return jnp.mean(jnp.square(method.apply(method.fit(p, y), p)))


def _banded(p: Any, y: jax.Array) -> Any:
    bins = estimators.UniformBins(10)
    return estimators.reliability_curve(jax.random.key(0), p, y, binning=bins).frequency


def _score(name: str, **options: Any) -> Callable[..., Any]:
    """A mean score of scoringrules; arguments of the prediction come before the target."""
    return lambda sr, *data: np.mean(getattr(sr, name)(data[-1], *data[:-1], **options))


BINS = estimators.UniformBins(15)
_BERNOULLI, _CLASSES, _NORMAL, _DRAWS = map(
    _pair, (laws.Bernoulli, laws.Categorical, laws.Normal, laws.Ensemble)
)


def _vectors(n: int) -> tuple[np.ndarray, ...]:
    return ensembles(n, 3)


ENTRIES: dict[str, Entry] = {
    "ece": Entry(
        binary,
        _BERNOULLI,
        functools.partial(estimators.ece, binning=BINS),
        "netcal",
        lambda netcal, p, y: netcal.metrics.ECE(15).measure(p, y),
        None,
    ),
    "ece; calibration_curve": Entry(
        binary,
        _BERNOULLI,
        functools.partial(estimators.ece, binning=BINS),
        "sklearn",
        lambda sklearn, p, y: sklearn.calibration.calibration_curve(y, p, n_bins=15)[0],
        None,
    ),
    # Not the same curve: a smooth one, whose bands are of 200 resamples.
    "reliability_curve, 999 redraws": Entry(
        binary,
        _BERNOULLI,
        _banded,
        "relplot",
        lambda relplot, p, y: relplot.prepare_rel_diagram(p, y)["ce"],
        None,
        10_000,
    ),
    "brier_score": Entry(
        binary,
        _BERNOULLI,
        scores.brier_score,
        "sklearn",
        lambda sklearn, p, y: sklearn.metrics.brier_score_loss(y, p),
    ),
    "prediction_rejection_ratio": Entry(
        binary,
        _BERNOULLI,
        prediction_rejection_ratio,
        "sklearn",
        lambda sklearn, p, y: 2 * sklearn.metrics.roc_auc_score(y, p) - 1,
    ),
    "brier_decomposition": Entry(
        binary,
        _BERNOULLI,
        lambda p, y: scores.brier_decomposition(p, y).miscalibration / 2,
        "probcal",
        lambda probcal, p, y: probcal.corp_reliability(y, p, bands=None).brier_mcb,
        1e-9,
        100_000,
    ),
    "IsotonicRegression": Entry(
        binary, _BERNOULLI, _own_isotonic, "sklearn", _isotonic, largest=100_000
    ),
    "negative_log_likelihood, 10 classes": Entry(
        ten_classes,
        _CLASSES,
        scores.negative_log_likelihood,
        "sklearn",
        lambda sklearn, p, y: sklearn.metrics.log_loss(y, p),
    ),
    "TemperatureScaling, 10 classes": Entry(
        ten_classes,
        _CLASSES,
        recalibration.TemperatureScaling().fit,
        "netcal",
        _temperature,
        1e-4,
    ),
    "crps, normal": Entry(normals, _NORMAL, scores.crps, "scoringrules", _score("crps_normal")),
    "crps, 50 members": Entry(
        ensembles, _DRAWS, scores.crps, "scoringrules", _score("crps_ensemble", backend="numba")
    ),
    "crps, fair, 50 members": Entry(
        ensembles,
        _DRAWS,
        functools.partial(scores.crps, estimator="fair"),
        "scoringrules",
        _score("crps_ensemble", backend="numba", estimator="fair"),
        largest=100_000,
    ),
    "energy_score, 50 x 3": Entry(
        _vectors,
        _DRAWS,
        scores.energy_score,
        "scoringrules",
        _score("es_ensemble", backend="numba"),
        largest=100_000,
    ),
}
MODULES = {
    "sklearn": ("calibration", "metrics", "isotonic"),
    "netcal": ("metrics", "scaling"),
}


def measure(name: str, size: int, side: str) -> dict[str, float]:
    """One side in this process: its value, CPU seconds of the first and of later calls, bytes."""
    entry = ENTRIES[name]
    data = entry.data(size)
    if side == "ours":
        call = functools.partial(entry.ours, *entry.record(*data))
    else:
        package = importlib.import_module(entry.package)
        for module in MODULES.get(entry.package, ()):
            importlib.import_module(f"{entry.package}.{module}")
        call = functools.partial(entry.theirs, package, *data)
    before, seconds, value = resident(), [], np.nan
    while len(seconds) < CALLS + 1 and sum(seconds[1:]) < LIMIT:
        start = time.process_time()
        value = jax.block_until_ready(call())
        seconds.append(time.process_time() - start)
    found = {"value": float(np.mean(np.asarray(value))), "first": seconds[0]}
    return found | {"seconds": min(seconds[1:]), "bytes": peak() - before}


def measured(name: str, size: int, side: str) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "experiments.benchmark.peers", name, str(size), side]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def row(store: Store, name: str, size: int) -> dict[str, Any]:
    """One line of the table."""
    entry, sides = ENTRIES[name], {}
    for side in ("ours", entry.package):
        compute = functools.partial(measured, name, size, side)
        key = {"name": name, "size": size, "side": side}
        sides[side] = cell(store, f"{name}/{size}/{side}".replace(" ", "_"), key, compute)
    ours, theirs = sides.values()
    if entry.rtol is not None:
        np.testing.assert_allclose(ours["value"], theirs["value"], entry.rtol, err_msg=name)
    line: dict[str, Any] = {"what": name, "peer": entry.package, "n": size}
    for side, found in (("ours", ours), ("peer", theirs)):
        line |= {f"{side} (CPU s)": found["seconds"], f"{side}, first call": found["first"]}
        line |= {f"{side} (MB)": found["bytes"] / 1e6}
    return line | {"ours / peer": ours["seconds"] / theirs["seconds"]}


def draw(store: Store, name: str, rows: list[dict[str, Any]]) -> None:
    """Seconds at the largest size of each entry: a dot for us, a ring for the peer."""
    last = list({line["what"]: line for line in rows}.values())[::-1]
    figure, ((panel,),) = panels(1, 1, 0.42 * len(last))
    places = range(len(last))
    ours, theirs = ([line[f"{side} (CPU s)"] for line in last] for side in ("ours", "peer"))
    panel.hlines(places, ours, theirs, color="0.8", zorder=0)
    panel.plot(ours, places, "o", label="calibjax")
    panel.plot(theirs, places, "o", markerfacecolor="none", label="the other package")
    labels = [f"{line['what']}\n{line['peer']}, n = {line['n']:,}" for line in last]
    panel.set_yticks(places, labels)
    panel.set_xscale("log")
    panel.set_xlabel("CPU time of a call after the first (s)")
    panel.grid(axis="x", alpha=0.3)
    panel.margins(y=0.5 / len(last))
    add_legend(figure, 2)
    save_figure(store.folder, name, figure)


@command_line.program
def main() -> None:
    """Writes the table and the figure benchmark_peers."""
    parser = command_line.option_parser(__file__, __doc__, only=ENTRIES)
    parser.add_argument("--quick", action="store_true", help="one size, to see that it runs")
    run, options = command_line.parse(parser)
    store, load = run.store("benchmark", __file__), os.getloadavg()[0]
    packages = sorted({entry.package for entry in ENTRIES.values()})
    missing = [package for package in packages if find_spec(package) is None]
    chosen = [
        (name, size)
        for name, entry in ENTRIES.items()
        for size in (SIZES[:1] if options.quick else SIZES)
        if name in options.only and entry.package not in missing and size <= entry.largest
    ]
    rows = [row(store, *each) for each in tqdm(chosen)]
    pypi = {"sklearn": "scikit-learn"}
    versions = [f"{p} {metadata.version(pypi.get(p, p))}" for p in packages if p not in missing]
    note = f"CPU seconds, float64, {', '.join(['jax ' + jax.__version__, *versions])}"
    note += f"; not installed: {', '.join(missing) or 'none'}; load at the start {load}."
    name = "benchmark_peers_quick" if options.quick else "benchmark_peers"
    write_table(store.folder, name, rows, note, show=True)
    draw(store, name, rows)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    if sys.argv[-1] in ("ours", *(entry.package for entry in ENTRIES.values())):
        print(json.dumps(measure(sys.argv[-3], int(sys.argv[-2]), sys.argv[-1])))
    else:
        main()
