import csv
from pathlib import Path

import jax
import numpy as np
import pytest

from calibjax import estimators
from experiments.harness import command_line
from paper_repro.w19 import timings as w19_timings
from paper_repro.w19.simulation import w19_kernel

COMMITTED = Path(w19_timings.__file__).parents[1] / "results" / w19_timings.NAME


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.slow
def test_procedures_are_the_estimators():
    n = 41
    data = w19_timings.draw_sample(3, n)
    probs = data[0].probs
    median = np.median((np.abs(probs[:, None] - probs).sum(-1) / 2)[np.triu_indices(n, 1)])
    expected = {
        f"ECE, {name} bins": estimators.ece(*data, binning=binning, notion="canonical")
        for name, binning in (
            ("uniform", estimators.UniformBins(10)),
            ("data-dependent", estimators.MedianVarianceBins(5)),
        )
    }
    for scale, suffix in ((0.5, ""), (median, " with median heuristic")):
        sample = w19_kernel(scale), *data
        expected |= {
            f"SKCE_b{suffix}": estimators.skce_biased(*sample),
            f"SKCE_uq{suffix}": estimators.skce(*sample),
            f"SKCE_ul{suffix}": estimators.skce_block(*sample, block_size=2),
        }
    assert w19_timings.PROCEDURES.keys() == expected.keys()
    for name, procedure in w19_timings.PROCEDURES.items():
        assert procedure(*data, 0.5) == pytest.approx(float(expected[name]), rel=1e-12), name
    assert len({round(float(value), 6) for value in expected.values()}) == 8  # none is another one


def test_growth():
    """Exponents of powers of n, and the ratios of the times."""
    sizes = (10, 100, 1000)
    published = {("SKCE_b", 2, n): 1e-9 * n**2 for n in sizes}
    times = {("SKCE_b", 2, n): 1e-8 * n for n in sizes}
    (row,) = w19_timings.growth_rows(w19_timings.published_rows(times, published))
    assert row[2:] == pytest.approx((2, 1, 0.01, 1))


def test_published_times(data_dir, tmp_path):
    """All sizes of ours are the authors', and the committed table has their times."""
    published = w19_timings.read_times(command_line.Run("paper", data_dir, tmp_path))
    assert len(published) == 200
    settings = w19_timings.SETTINGS["paper"]
    for name in (*w19_timings.ECES, *w19_timings.SKCES):
        for m in settings.classes:
            assert [key[2] for key in published if key[:2] == (name, m)] == list(settings.sizes)
    with (COMMITTED / "published.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            place = row["estimator"], int(row["m"]), int(row["n"])
            assert published.pop(place) == float(row["published"])
    assert not published
