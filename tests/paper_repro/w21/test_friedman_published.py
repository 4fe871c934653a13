"""The authors' own curves: how often their ensemble is better than the mean of their networks."""

import csv

import numpy as np
import pytest

from experiments.harness import command_line
from paper_repro.w21 import friedman_published as published
from paper_repro.w21.friedman import SPLITS


def test_shares_are_those_of_a_plain_loop(data_dir, tmp_path):
    folder = data_dir / published.FOLDER
    if not (folder / "statistics_id=7_dataset=test.csv").is_file():
        pytest.skip("the curves of the authors' networks are not in the data")
    run = command_line.Run(preset="paper", output=tmp_path, data=data_dir)
    published.write_published(tmp_path, *published.read_curves(run, SPLITS))
    with open(tmp_path / "published_claims.csv", newline="") as file:
        shares = {(x["data"], x["statistic"]): x["ensemble better"] for x in csv.DictReader(file)}

    def pvalues(source):
        with open(folder / f"statistics_{source}_dataset=train.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["statistic"] == "p-value"]
        return np.array([float(row["estimate"]) for row in rows])

    mean = sum(pvalues(f"id={i}") for i in range(1, 8)) / 7
    expected = np.mean(pvalues("ensembles") > mean)
    np.testing.assert_allclose(float(shares["train", "p-value"]), expected, atol=1e-15)


def test_without_data(tmp_path):
    run = command_line.Run(preset="paper", output=tmp_path, data=None)
    assert published.read_curves(run, SPLITS) is None
