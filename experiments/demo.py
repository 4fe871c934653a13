"""The predictions that `python -m calibjax --demo` evaluates, which ship with the package.

digits.csv: Gaussian naive Bayes on scikit-learn's digits, as it comes, fitted to half of the
images; the rows are 300 of the others. Probabilities have four decimals and are at least 0.0001, so
that no label is impossible. The largest remainders are rounded up: rows sum to one as written.

diabetes.csv: a Gaussian process on scikit-learn's diabetes data, a smooth function and normal
noise of one size, fitted to half of the patients; the rows are the others. `target` is how far the
disease has progressed after a year, a score from 25 to 346, and `mean` and `sd` are those of the
predicted normal distribution.

The orders in which images and patients are split are fixed (`IMAGES`, `PATIENTS`).

Run: python -m experiments.demo --output calibjax/command_line
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from experiments.harness import command_line, extras

NAME = "demo"
UNITS = 10_000  # a probability of one
NUM_IMAGES = 300
# Seeds of their orders.
IMAGES = [*b"digits/split"]
PATIENTS = [*b"demo/diabetes"]


def rounded(probs: np.ndarray) -> np.ndarray:
    """Probabilities in whole units, [n, m]: at least one each, `UNITS` in every row."""
    exact = 1 + (UNITS - probs.shape[1]) * probs / probs.sum(1, keepdims=True)
    units = np.floor(exact).astype(int)
    order = np.argsort(units - exact, axis=1, kind="stable")  # the largest remainders first
    is_up = np.argsort(order, axis=1) < UNITS - units.sum(1, keepdims=True)
    return units + is_up


def digits() -> tuple[list[str], Iterable[Sequence[object]]]:
    """Names and rows of the classifier."""
    images, labels = extras.imported("sklearn.datasets").load_digits(return_X_y=True)
    order = np.random.default_rng(IMAGES).permutation(len(labels))
    training, others = np.split(order, [len(labels) // 2])
    rows = others[:NUM_IMAGES]
    classifier = extras.imported("sklearn.naive_bayes").GaussianNB()
    model = classifier.fit(images[training], labels[training])
    units = rounded(model.predict_proba(images[rows]))
    texts = [[f"{unit / UNITS:.4f}" for unit in row] for row in units]
    names = [f"prob_{label}" for label in model.classes_]
    lines = [[*row, label] for row, label in zip(texts, labels[rows], strict=True)]
    return [*names, "label"], lines


def diabetes() -> tuple[list[str], Iterable[Sequence[object]]]:
    """Names and rows of the Gaussian process."""
    features, targets = extras.imported("sklearn.datasets").load_diabetes(return_X_y=True)
    processes = extras.imported("sklearn.gaussian_process")
    kernels = processes.kernels
    training, rows = np.array_split(np.random.default_rng(PATIENTS).permutation(len(targets)), 2)
    kernel = kernels.ConstantKernel() * kernels.RBF(0.1) + kernels.WhiteKernel()
    model = processes.GaussianProcessRegressor(kernel, normalize_y=True)
    mean, sd = model.fit(features[training], targets[training]).predict(
        features[rows], return_std=True
    )
    columns = zip(mean, sd, targets[rows], strict=True)
    return ["mean", "sd", "target"], [[f"{m:.1f}", f"{s:.1f}", f"{y:.0f}"] for m, s, y in columns]


def write(folder: Path) -> None:
    """Writes both files."""
    for name, made in (("digits", digits), ("diabetes", diabetes)):
        text = io.StringIO()
        names, rows = made()
        csv.writer(text, lineterminator="\n").writerows([names, *rows])
        (folder / f"{name}.csv").write_text(text.getvalue(), encoding="utf-8")


@command_line.program
def main() -> None:
    """Writes the files."""
    run, _ = command_line.parse(command_line.option_parser(__file__, __doc__))
    write(run.folder(NAME))


if __name__ == "__main__":
    main()
