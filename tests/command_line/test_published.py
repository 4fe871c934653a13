"""The program on published data, as it is published (`make test DATA=DIR`)."""

import json

import numpy as np
import pytest

from calibjax.command_line import load, main


def options_of(data_dir, folder, *names):
    """Paths of files of a folder, or a skip where it is not there."""
    paths = [data_dir / folder / name for name in names]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"no {folder} in the folder of the published data")
    return list(map(str, paths))


@pytest.fixture
def network(data_dir):
    file, labels = options_of(data_dir, "cifar10_networks", "resnet18.csv", "labels.csv")
    return [file, "--task", "classes", "--labels", labels, "--first-label", "1"]


@pytest.fixture
def forecasts(data_dir):
    [file] = options_of(data_dir, "temperature_ensemble", "temp.csv")
    return [file, "--task", "ensemble", "--target", "temp", "--predictions", "tempfc.*"]


def test_classes_in_the_published_format(network):
    data = load(network)
    probs = np.loadtxt(network[0], delimiter=",")
    labels = np.loadtxt(network[4], dtype=int) - 1
    np.testing.assert_array_equal(data.predictions.probs, probs)
    np.testing.assert_array_equal(data.targets, labels)
    assert data.classes == tuple(map(str, range(1, 11)))


def test_ensembles_in_the_published_format(forecasts):
    data = load(forecasts)
    table = np.loadtxt(forecasts[0], delimiter=",", skiprows=1)
    np.testing.assert_array_equal(data.targets, table[:, 0])
    np.testing.assert_array_equal(data.predictions.values, table[:, 1:])


@pytest.mark.slow
def test_report_of_classes(network, data_dir, tmp_path, capsys):
    """The ECE is the one that W19 publishes, to the digits that float32 has."""
    report = tmp_path / "report.html"
    assert main([*network, "--report", str(report), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    entries = {x["name"]: x for section in found["sections"] for x in section["entries"]}
    published = (data_dir / "cifar10_networks" / "errors.csv").read_text().split("\n")
    header, *rows = (row.split(",") for row in published)
    [row] = [dict(zip(header, row)) for row in rows if row[0] == "resnet18"]
    assert entries["ECE, all classes"]["value"] == pytest.approx(
        float(row["ECE_uniform"]), rel=1e-5
    )
    assert 0 < entries["exact p-value"]["value"] < 0.01
    assert found["remarks"][0].startswith("In the file class 0 is 1, class 1 is 2")
    text = report.read_text()
    assert text.count("<figure>") >= 2
    assert "landmarks" in text  # the approximation is named


@pytest.mark.slow
def test_report_of_ensembles(forecasts, tmp_path, capsys):
    report = tmp_path / "report.html"
    assert main([*forecasts, "--report", str(report)]) == 0
    assert "2749 predictions" in capsys.readouterr().out
    assert "PIT histogram" in report.read_text()
