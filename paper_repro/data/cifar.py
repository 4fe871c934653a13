"""Predictions and labels of networks on CIFAR-10 and CIFAR-100, below --data."""

from pathlib import Path

import numpy as np

from experiments.harness.data_files import (
    DataError,
    existing_file,
    read_array,
    read_numbers,
    refuse_where,
)

CIFAR10 = "cifar10_networks"
CIFAR100 = ("cifar100_logits", "resnet50")
# Networks with logits for validation and test images: their folders by name. Those for CIFAR-10
# have "logits" in their names, since a network of `CIFAR10` may be of the same architecture.
LOGITS = {
    **{f"cifar100_{x}": ("cifar100_logits", x) for x in ("resnet50", "resnet110", "densenet121")},
    **{
        f"cifar10_logits_{x}": ("cifar10_logits", x)
        for x in ("resnet50", "resnet110", "densenet121", "focal_resnet50", "focal_densenet121")
    },
}
EXPECTED = f"{CIFAR10} or {'/'.join(CIFAR100)} (--data DIR)"  # what a run without them lacks
SUM_TOLERANCE = 1e-6  # of probabilities: as calibjax has it in float64


def _check_labels(path: Path, labels: np.ndarray, first: int, num_classes: int) -> np.ndarray:
    """Labels, of any type, as integers from 0, where `first` is the smallest one in the file."""
    last = first + num_classes - 1
    wrong = ~np.isin(labels, np.arange(first, last + 1))
    refuse_where("--data", path, wrong, f"a label {first}, ..., {last}", labels)
    return labels.astype(int) - first


def _check_one_each(predictions: np.ndarray, path: Path, labels: np.ndarray, other: Path) -> None:
    """Raises a DataError where there is not one label for each prediction."""
    if labels.shape != predictions.shape[:1]:
        raise DataError(
            f"--data: expected one label for each of the {len(predictions)} predictions in "
            f"{path.name}, got {'x'.join(map(str, labels.shape))} in {other}"
        )


def read_cifar10(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Published probabilities [n, 10] of a network, and labels 0, ..., 9, [n].

    The file counts labels from one.

    Raises:
        DataError: if a file is missing, or holds something else.
    """
    path, other = (existing_file(data, CIFAR10, f"{x}.csv") for x in (name, "labels"))
    probs, labels = read_numbers(path), read_numbers(other)
    for file, table, num in ((path, probs, 10), (other, labels, 1)):
        if table.shape[1] != num:
            raise DataError(f"--data: expected {num} columns in {file}, got {table.shape[1]}")
    labels = labels[:, 0]
    _check_one_each(probs, path, labels, other)
    wrong = (probs < 0) | (probs > 1)
    refuse_where("--data", path, wrong, "probabilities in [0, 1]", probs)
    sums = probs.sum(1)
    wrong = np.abs(sums - 1) > SUM_TOLERANCE
    refuse_where("--data", path, wrong, "probabilities with the sum one", sums)
    return probs, _check_labels(other, labels, 1, 10)


def read_logits(data: Path, name: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits [n, m] and labels [n] of a network for the images of a part, "val" or "test".

    Args:
        data: folder of --data.
        name: one of `LOGITS`.
        part: which images.

    Raises:
        DataError: if a file is missing, or holds something else.
    """
    path, other = (
        existing_file(data, *LOGITS[name], f"{part}_{kind}.npy") for kind in ("logits", "labels")
    )
    logits, labels = read_array(path), read_array(other)
    if logits.ndim != 2 or logits.shape[1] < 2 or logits.dtype.kind != "f":
        raise DataError(
            f"--data: expected logits [n, m] of two or more classes in {path}, got "
            f"{logits.dtype} {logits.shape}"
        )
    _check_one_each(logits, path, labels, other)
    refuse_where("--data", path, ~np.isfinite(logits), "finite logits", logits)
    return logits, _check_labels(other, labels, 0, logits.shape[1])


def check_classes(name: str, validation: np.ndarray, test: np.ndarray) -> None:
    """Raises a DataError where the parts of a network have different numbers of classes."""
    if validation.shape[1] != test.shape[1]:
        raise DataError(
            f"--data: expected as many classes in test_logits.npy as in val_logits.npy of "
            f"{'/'.join(LOGITS[name])}, {validation.shape[1]}, got {test.shape[1]}"
        )
