"""Reports of published data."""

import json

import pytest

from calibjax.command_line import main

pytestmark = [pytest.mark.slow, pytest.mark.optimised]


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
    assert found["input"]["classes in the names of kernels"].startswith("0: 1, 1: 2, ")
    text = report.read_text()
    assert text.count("<figure>") >= 2
    assert "landmarks" in text  # the approximation is named


def test_report_of_ensembles(forecasts, tmp_path, capsys):
    report = tmp_path / "report.html"
    assert main([*forecasts, "--report", str(report)]) == 0
    assert "2749 predictions" in capsys.readouterr().out
    assert "PIT histogram" in report.read_text()
