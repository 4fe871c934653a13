import numpy as np
import pytest
from scipy.stats import norm

from experiments.harness import command_line
from paper_repro.w19 import networks as w19_networks
from tests.paper_repro import committed, write_cifar10


def test_estimates(tmp_path, monkeypatch):
    """The length scale is the median of all distances, the zeros of the diagonal included."""
    monkeypatch.setattr(w19_networks, "MIN_BIN_SIZE", 10)
    data = write_cifar10(tmp_path, "a", num=40)
    network = w19_networks.read_network(data, "a", None)
    found = w19_networks.estimate(network)
    probs = np.asarray(network.probs)
    residuals = np.eye(10)[network.labels] - probs
    distances = np.abs(probs[:, None] - probs).sum(-1) / 2
    matrix = np.exp(-distances / np.median(distances)) * (residuals @ residuals.T)
    expected = {
        "scale": np.median(distances),
        "SKCEb_median": matrix.mean(),
        "SKCEuq_median": (matrix.sum() - matrix.trace()) / (40 * 39),
        "SKCEul_median": matrix[range(0, 39, 2), range(1, 40, 2)].mean(),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


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


@pytest.mark.slow
def test_the_published_estimates(data_dir):
    """All 70, within 1e-12, in the table that is committed and computed again for one network."""
    rows = committed(w19_networks.NAME, "errors")
    run = command_line.Run("paper", data_dir, data_dir)
    published = {row["model"]: row for row in run.published(w19_networks.FOLDER, "errors.csv")}
    assert len(rows) == 5 * len(published) == 70
    columns = {label: column for column, label in w19_networks.ERRORS.items()}
    for row in rows:
        theirs = float(published[row["network"]][columns[row["estimator"]]])
        assert float(row["published"]) == theirs
        assert abs(float(row["ours"]) - theirs) < 1e-12
    found = w19_networks.estimate(w19_networks.read_network(data_dir, "resnet50", None))
    for column in w19_networks.ERRORS:
        assert abs(found[column] - float(published["resnet50"][column])) < 1e-12
