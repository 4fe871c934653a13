"""The authors' own curves: how often their ensemble is better than the mean of their networks."""

import csv

import numpy as np
import pytest

from experiments.harness import command_line, source
from paper_repro.w21 import friedman_published as published
from paper_repro.w21.friedman import SPLITS
from paper_repro.w21.friedman_statistics import STATISTICS
from paper_repro.w21.friedman_tables import Results


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


@pytest.mark.parametrize(("ours", "theirs"), [(10, 7), (3, 7), (2, 3)])
def test_probability_of_a_median_inside_a_range(ours, theirs):
    """By simulation; of an even number, the mean of both middle draws."""
    rng = np.random.default_rng(0)
    repeats = 40_000
    others = rng.random((repeats, theirs))
    low, high = others.min(1), others.max(1)
    draws = np.sort(rng.random((repeats, ours)), 1)
    shares = [
        np.mean((low < x) & (x < high)) for x in (draws[:, (ours - 1) // 2], draws[:, ours // 2])
    ]
    expected = published.probability_inside(ours, theirs)
    error = np.sqrt(expected * (1 - expected) / repeats)
    assert abs(np.mean(shares) - expected) < 3.5 * error


def test_ranges_by_plain_loops(tmp_path):
    """Shares of iterations with our median in the authors' range, and of our other data sets."""
    rng = np.random.default_rng(1)
    draw = lambda *shape: {  # noqa: E731
        split: {name: rng.random(shape) for name in STATISTICS} for split in SPLITS
    }
    networks, others, theirs = draw(1600, 4), draw(5, 2, 3), draw(2000, 7)
    for split, edge, others_at in (("train", 0, 1), ("test", 1, 0)):  # inside, up to rounding
        networks[split]["p-value"][:] = (edge * 1000 + 1) / 1001 * (1 - (1 - 2 * edge) * 1e-12)
        theirs[split]["p-value"][:] = others_at
        theirs[split]["p-value"][:, 0] = edge
    results = Results([0, 1500], networks, draw(1600), {}, {})
    published.write_ranges(tmp_path, results, others, theirs)
    with open(tmp_path / "published_ranges.csv", newline="") as file:
        rows = {(row["data"], row["statistic"]): row for row in csv.DictReader(file)}
    row = rows["test", "MSE"]
    counts = {"below": 0, "above": 0, "late": 0}
    for i in range(1600):
        median = sorted(networks["test"]["MSE"][i])
        median = (median[1] + median[2]) / 2
        counts["below"] += median < min(theirs["test"]["MSE"][i])
        counts["above"] += median > max(theirs["test"]["MSE"][i])
        is_late = i > 1500
        if is_late and min(theirs["test"]["MSE"][i]) <= median <= max(theirs["test"]["MSE"][i]):
            counts["late"] += 1
    assert float(row["below"]) == pytest.approx(counts["below"] / 1600)
    assert float(row["above"]) == pytest.approx(counts["above"] / 1600)
    assert float(row["inside"]) == pytest.approx(1 - float(row["below"]) - float(row["above"]))
    assert float(row["inside after 1500"]) == pytest.approx(counts["late"] / 99)
    inside = 0
    for data_set in range(5):
        for i, iteration in enumerate((0, 1500)):
            ours = networks["test"]["MSE"][iteration]
            inside += min(ours) <= sorted(others["test"]["MSE"][data_set, i])[1] <= max(ours)
    assert float(row["our data sets in range"]) == pytest.approx(inside / 10)
    assert all(float(rows[split, "p-value"]["inside"]) == 1 for split in SPLITS)


def test_committed_ensembles_are_those_of_the_authors(data_dir):
    """The last values in the authors' files, and ours in the table of our ensemble."""
    results = source.ROOT / "paper_repro/results/w21_friedman"
    with open(results / "published_ensemble.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(results / "ensemble.csv", newline="") as file:
        header, *lines = csv.reader(file)  # in which each "ensemble" follows a mean
    ours = {line[0]: line for line in lines if line[1] == "5000"}
    for split in SPLITS:
        path = data_dir / published.FOLDER / f"statistics_ensembles_dataset={split}.csv"
        if not path.is_file():
            pytest.skip("the curves of the authors' ensemble are not in the data")
        last = {x.split(",")[1]: x.split(",")[2] for x in path.read_text().splitlines()[-6:]}
        chosen = {row["statistic"]: row for row in rows if row["data"] == split}
        assert chosen.keys() == last.keys() == set(STATISTICS)
        for name, row in chosen.items():
            value = float(last[name])
            value = (1 + 1000 * value) / 1001 if name == "p-value" else value
            assert float(row["published ensemble"]) == pytest.approx(value, rel=1e-12)
            if name != "p-value":
                expected = float(ours[split][header.index(f"{name}, mean") + 1])
                assert float(row["our ensemble"]) == pytest.approx(expected, rel=1e-12)


def test_without_data(tmp_path):
    run = command_line.Run(preset="paper", output=tmp_path, data=None)
    assert published.read_curves(run, SPLITS) is None
