import jax.numpy as jnp
import numpy as np
import pytest

from calibjax import estimators
from calibjax.distributions import Categorical
from paper_repro.w19 import estimates_panels as panels
from paper_repro.w19 import estimates_simulation as simulation
from paper_repro.w19 import estimates_tables as w19_estimates_tables
from paper_repro.w19.procedures import w19_kernel
from tests.paper_repro import committed, rows_of


@pytest.mark.slow  # to compile; the panels that all estimates make are compared with published ones
@pytest.mark.parametrize(("m", "a"), [(10, 0.1), (1000, 1)])
def test_estimates_are_those_of_the_library(m, a):
    rng, n = np.random.default_rng(m), 61  # the last sample has no partner
    probs, labels = rng.dirichlet(np.full(m, a), n), rng.integers(0, m, n)
    bins = np.array([simulation.bins_of(probs[None], x)[0] for x in simulation.BINNINGS])
    values = simulation.estimate(probs, labels, bins, 0.3)
    values = dict(zip(simulation.ESTIMATORS, values, strict=True))

    predictions = Categorical(jnp.asarray(probs))
    binnings = {
        "ece_uniform": estimators.UniformBins(10),
        "ece_median_variance": estimators.MedianVarianceBins(5),
    }
    expected = {
        name: estimators.ece(predictions, labels, binning=binning, notion="canonical")
        for name, binning in binnings.items()
    }
    # Of all entries, the zeros of the diagonal included.
    median = np.median(np.abs(probs[:, None] - probs).sum(-1) / 2)
    for bandwidth, scale in (("median", median), ("mean", 0.3)):
        sample = w19_kernel(jnp.asarray(scale)), predictions, labels
        expected[f"biased_{bandwidth}"] = estimators.skce_biased(*sample)
        expected[f"unbiased_{bandwidth}"] = estimators.skce(*sample)
        expected[f"block_{bandwidth}"] = estimators.skce_block(*sample, block_size=2)
    assert expected.keys() == values.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-12, atol=1e-12, err_msg=name)


def test_a_panel_is_the_published_one(tmp_path):
    """To 12 digits, from the seed 1234."""
    panels.write_check(tmp_path)
    (row,) = rows_of(tmp_path / "check.csv")
    assert float(row["published"]) == 0.06292972425154188
    assert float(row["ours"]) == pytest.approx(0.06292972425154188, rel=1e-12)
    assert row["equal to 12 digits"] == "yes"


def test_modes_are_counted():
    rng = np.random.default_rng(0)
    normal, number = rng.normal(size=10_000), rng.poisson(0.2, 10_000)
    assert w19_estimates_tables.num_modes(normal) == 1
    assert w19_estimates_tables.num_modes(normal + 5 * (number > 0)) == 2
    assert w19_estimates_tables.num_modes(normal + 8 * np.minimum(number, 2)) == 3


@pytest.fixture(scope="module")
def group():
    estimates = np.random.default_rng(0).uniform(0.1, 0.2, (200, 9, 8))
    return w19_estimates_tables.Group(3, 1.0, estimates)


def test_true_values(group):
    """π = 0 is the same for both β, and the SKCE has the mean of SKCE_uq, as in the paper."""
    column = simulation.ESTIMATORS.index("unbiased_mean")
    mean = group.estimates[:, 0, column].mean()
    for beta in simulation.BETAS:
        assert group.true_value(0.0, beta, "block_mean") == pytest.approx(mean)
    assert group.bias(0.5, "first", "unbiased_median") == 0


def test_panels_beside_the_published_ones(group, monkeypatch):
    """One mean is another one, and ten estimates of that panel are in another bar."""
    published = {}
    for _, estimator, beta, a in panels.figures():
        for share in simulation.SHARES:
            values = group.of(share, beta, estimator)
            counts, edges = np.histogram(values, np.linspace(0.1, 0.2, 11))
            published[estimator, a, beta, 3, share] = panels.Panel(values.mean(), counts, edges)
    place = "block_mean", 1.0, "first", 3, 0.5
    counts = published[place].counts + np.array([10, -10, *[0] * 8])
    mean = published[place].mean
    published[place] = published[place]._replace(mean=1.01 * mean, counts=counts)
    monkeypatch.setattr(panels, "published", lambda: published)
    rows = list(panels.panel_rows([group]))
    assert len(rows) == 8 * 2 * 5  # one m and one a
    *_, block, total = panels.count_rows(rows)
    assert total[1:3] == (80, 79)
    assert total[3] < 1e-14
    assert total[4:] == ("0.01", 79, 10)
    assert block[1:3] == (10, 9)


def test_committed_panels_are_the_published_ones():
    """But for data-dependent bins of two classes, which rounding decides in the paper.

    The mean distance of predictions of 1000 classes is rounded, too.
    """
    rows = committed(simulation.NAME, "panels")
    labels = {label: name for name, label in w19_estimates_tables.LABELS.items()}
    for row in rows:
        place = labels[row["estimator"]], float(row["a"]), row["β"], int(row["m"])
        theirs = panels.published()[*place, float(row["π"])]
        assert float(row["published mean"]) == theirs.mean
        if (row["m"], row["estimator"]) != ("2", "ECE, data-dependent bins"):
            is_rounded = row["m"] == "1000" and "mean distance" in row["estimator"]
            assert float(row["relative difference"]) <= (4 if is_rounded else 1) * panels.DIGITS
            assert row["estimates in other bars"] == "0"
    assert len(rows) >= 560
