import csv
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import norm

from experiments.harness import command_line
from paper_repro.w19 import networks as w19_networks

COMMITTED = Path(w19_networks.__file__).parents[1] / "results" / w19_networks.NAME


@pytest.fixture
def data(tmp_path):
    """A folder like that of the published predictions, with a network of 40 images."""
    folder = tmp_path / "data" / w19_networks.FOLDER
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.savetxt(folder / "labels.csv", rng.integers(1, 11, 40), fmt="%d")
    np.savetxt(folder / "a.csv", rng.dirichlet(np.ones(10), 40), delimiter=",")
    return tmp_path / "data"


def median_variance_bins(probs, samples, min_size):
    """Lists of the samples in each bin."""
    values = probs[samples, probs[samples].var(0).argmax()]
    is_above = values >= np.median(values)
    parts = samples[~is_above], samples[is_above]
    if min(map(len, parts)) < min_size:
        return [samples]
    return [group for part in parts for group in median_variance_bins(probs, part, min_size)]


def estimates(network, min_size):
    """Length scale and estimates by published column, in plain NumPy."""
    probs = np.asarray(network.probs)
    residuals = np.eye(10)[network.labels] - probs
    n = len(probs)
    cells_of = np.unique(np.ceil(10 * probs), axis=0, return_inverse=True)[1].ravel()
    binnings = {
        "ECE_uniform": [np.flatnonzero(cells_of == cell) for cell in set(cells_of)],
        "ECE_dynamic": median_variance_bins(probs, np.arange(n), min_size),
    }
    result = {
        name: sum(np.abs(residuals[group].sum(0)).sum() for group in groups) / (2 * n)
        for name, groups in binnings.items()
    }
    distances = np.abs(probs[:, None] - probs).sum(-1) / 2
    scale = np.median(distances)  # of all entries, the zeros of the diagonal included
    matrix = np.exp(-distances / scale) * (residuals @ residuals.T)
    return result | {
        "scale": scale,
        "SKCEb_median": matrix.mean(),
        "SKCEuq_median": (matrix.sum() - matrix.trace()) / (n * (n - 1)),
        "SKCEul_median": matrix[range(0, n - 1, 2), range(1, n, 2)].mean(),
    }


def test_labels_are_counted_from_zero(data):
    network = w19_networks.read_network(data, "a", 30)
    assert network.probs.shape == (30, 10)
    assert set(np.asarray(network.labels)) <= set(range(10))
    (data / w19_networks.FOLDER / "labels.csv").write_text("1\n2\n3\n")
    with pytest.raises(ValueError, match=r"--data: expected one label for each of the 40"):
        w19_networks.read_network(data, "a", None)


def test_estimates(data, monkeypatch):
    """The length scale is the median of all distances, those of the diagonal included."""
    monkeypatch.setattr(w19_networks, "MIN_BIN_SIZE", 10)
    with jax.enable_x64(True):
        network = w19_networks.read_network(data, "a", None)
        assert w19_networks.estimate(network) == pytest.approx(estimates(network, 10), rel=1e-12)


def test_conventions():
    convert = w19_networks.in_our_convention
    assert convert("ECE_uniform", 0.0, 1.0, 10) == 1 / 1001
    assert convert("SKCEuq_median_asymptotic", 1.0, 1.0, 10) == 1
    z = norm.isf(0.2)
    assert convert("SKCEul_median_asymptotic", 0.2, 1.0, 10) == pytest.approx(
        norm.sf(z * np.sqrt(4 / 5)), rel=1e-5
    )
    assert convert("SKCEul_median_distribution_free", 0.9, -1.0, 10) == 1
    assert convert("SKCEul_median_distribution_free", 0.9, 1.0, 10) == 0.9
    assert convert("SKCEb_median_distribution_free", 0.9, -1.0, 10) == 0.9


def test_the_statements_are_counted(tmp_path):
    """Two networks, on which the estimators disagree and one of six bounds is below 0.99."""
    labels = [*w19_networks.ERRORS.values()]
    errors = [
        w19_networks.ErrorRow(name, label, size, size if label == labels[0] else 1 - size, None)
        for name, size in (("a", 0.25), ("b", 0.5))
        for label in labels
    ]
    pvalues = [
        w19_networks.PvalueRow(name, test.label, 0.0, None, value, None, 1.0)
        for name, value in (("a", 0.001), ("b", 0.002))
        for test in w19_networks.TESTS.values()
    ]
    bounds = [row._replace(ours=1.0) if row.test.startswith("D") else row for row in pvalues]
    bounds[2] = bounds[2]._replace(ours=0.9)
    w19_networks.write_claims(tmp_path, errors, bounds, 1000)
    with (tmp_path / "claims.csv").open() as file:
        found = [(row["published"], row["ours"]) for row in csv.DictReader(file)]
    assert found[0] == ("at most 0 for all 2", "at most 0.002 for all 2")
    assert found[3] == ("0.000 (a) to 0.000 (a)", "0.001 (a) to 0.002 (b)")
    assert found[4] == ("0 of 6, the smallest 0.000", "5 of 6, the smallest 0.900")
    assert found[5] == tuple(f"{n} of 1 pairs of networks are ranked differently" for n in (0, 1))


@pytest.mark.slow
def test_the_published_estimates(data_dir):
    """All 70, within 1e-12, in the table that is committed and computed again for one network."""
    with (COMMITTED / "errors.csv").open() as file:
        rows = list(csv.DictReader(file))
    run = command_line.Run("paper", data_dir, data_dir)
    published = {row["model"]: row for row in run.published(w19_networks.FOLDER, "errors.csv")}
    assert len(rows) == 5 * len(published) == 70
    columns = {label: column for column, label in w19_networks.ERRORS.items()}
    for row in rows:
        theirs = float(published[row["network"]][columns[row["estimator"]]])
        assert float(row["published"]) == theirs
        assert abs(float(row["ours"]) - theirs) < 1e-12
    with jax.enable_x64(True):
        found = w19_networks.estimate(w19_networks.read_network(data_dir, "resnet50", None))
    for column in w19_networks.ERRORS:
        assert abs(found[column] - float(published["resnet50"][column])) < 1e-12
