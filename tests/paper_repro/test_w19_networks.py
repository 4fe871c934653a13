import csv

import jax
import numpy as np
import pytest
from scipy.stats import norm

from paper_repro import cells, w19_networks

CHEAP = ("SKCEb_median_distribution_free", "SKCEul_median_asymptotic", "exact")


@pytest.fixture
def data(tmp_path):
    """A folder like that of the published predictions, with two networks of 40 images."""
    folder = tmp_path / "data" / w19_networks.FOLDER
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.savetxt(folder / "labels.csv", rng.integers(1, 11, 40), fmt="%d")
    for name in ("a", "b"):
        np.savetxt(folder / f"{name}.csv", rng.dirichlet(np.ones(10), 40), delimiter=",")
    columns = [column for column in w19_networks.TESTS if column != "exact"]
    with (folder / "pvalues.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", *columns])
        writer.writerows([name, *[0.25] * len(columns)] for name in ("a", "b"))
    with (folder / "errors.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", *w19_networks.ERRORS])
        writer.writerows([name, *[0.5] * len(w19_networks.ERRORS)] for name in ("a", "b"))
    return tmp_path / "data"


def test_labels_are_counted_from_zero(data):
    network = w19_networks.read_network(data, "a", 30)
    assert network.probs.shape == (30, 10)
    assert set(np.asarray(network.labels)) <= set(range(10))
    (data / w19_networks.FOLDER / "labels.csv").write_text("1\n2\n3\n")
    with pytest.raises(ValueError, match=r"--data: expected one label for each of the 40"):
        w19_networks.read_network(data, "a", None)


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


def test_the_experiment_writes_its_results(tmp_path, data, monkeypatch):
    cheap = {column: w19_networks.TESTS[column] for column in CHEAP}
    monkeypatch.setattr(w19_networks, "TESTS", cheap)
    monkeypatch.setattr(w19_networks, "MIN_BIN_SIZE", 10)
    with jax.enable_x64(True):
        w19_networks.run(cells.Run("quick", data, tmp_path))
    folder = tmp_path / "quick" / w19_networks.NAME
    assert (folder / "figure_35.png").is_file()
    assert (folder / "figure_36.png").is_file()
    with (folder / "errors.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["network"], row["estimator"]) for row in rows] == [
        (name, label) for name in ("a", "b") for label in w19_networks.ERRORS.values()
    ]
    network = w19_networks.read_network(data, "b", None)
    ours = {row["estimator"]: float(row["ours"]) for row in rows if row["network"] == "b"}
    groups = {}
    probs = np.asarray(network.probs)
    for i, p in enumerate(probs):
        groups.setdefault(tuple(np.ceil(10 * p)), []).append(i)
    one_hot = np.eye(10)[network.labels]
    expected = sum(np.abs((probs - one_hot)[g].sum(0)).sum() for g in groups.values()) / 80
    assert ours["ECE, uniform bins"] == pytest.approx(expected, rel=1e-12)
    assert ours["SKCE_b"] > 0
    with (folder / "pvalues.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["network"], row["test"]) for row in rows] == [
        (name, cheap[column].label) for name in ("a", "b") for column in CHEAP
    ]
    for row in rows:
        assert 0 < float(row["ours"]) <= 1
        assert row["published"] == ("" if row["test"] == cheap["exact"].label else "0.25")
        assert row["difference"] == ""  # other samples than the published ones


def test_without_data_it_is_skipped(tmp_path, capsys):
    w19_networks.run(cells.Run("quick", None, tmp_path))
    assert "w19_networks is skipped: it needs the published predictions" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
