"""W21, Fig. 12 in words, on the authors' files: python -m paper_repro.w21.friedman_published DIR.

The ensemble of all ten networks against the mean of networks 1 to 7, the ones with files.
"""

import csv
import pathlib
import sys

import numpy as np

RESULT = pathlib.Path("paper_repro/results/w21_friedman/published_claims.md")


def read(path):
    """Estimates by statistic, in the order of the iterations."""
    curves = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            curves.setdefault(row["statistic"], []).append(float(row["estimate"]))
    return {name: np.array(values) for name, values in curves.items()}


def shares(folder):
    """Lines of the table: the share of iterations at which the ensemble is better."""
    for data in ("train", "test"):
        ensemble = read(folder / f"statistics_ensembles_dataset={data}.csv")
        networks = [read(folder / f"statistics_id={i}_dataset={data}.csv") for i in range(1, 8)]
        for name, values in sorted(ensemble.items()):
            mean = np.mean([network[name] for network in networks], axis=0)
            if name == "p-value":
                better = values > mean
            elif name == "SKCE (unbiased)":
                better = abs(values) < abs(mean)
            else:
                better = values < mean
            yield f"| {data} | {name} | {better.mean():.3f} | {values[-1]:.4g} |"


if __name__ == "__main__":
    head = "| data | statistic | ensemble better | ensemble at 5000 |\n| --- | --- | --- | --- |\n"
    note = (
        "\n\nThe authors' files: their ensemble of ten against the mean of networks 1 to 7,"
        "\nas the share of 5001 iterations (unbiased SKCE: by size). Equal values are not better.\n"
    )
    RESULT.write_text(head + "\n".join(shares(pathlib.Path(sys.argv[1]) / "w21_friedman")) + note)
