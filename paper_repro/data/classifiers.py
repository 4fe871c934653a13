"""Classifiers whose confidences are recalibrated: networks of --data, and files of --npz.

A file of --npz holds one classifier. These arrays are needed:

    calibration_features [n, d]     evaluation_features [n', d]    of any network, before t-SNE
    calibration_confidences [n]     evaluation_confidences [n']    in [0, 1]
    calibration_correct [n]         evaluation_correct [n']        0 or 1

and these may be added, for both parts:

    calibration_groups [n]          evaluation_groups [n']         integers: group-wise errors
    calibration_logits [n, m]       evaluation_logits [n', m]      temperature scaling of all
    calibration_labels [n]          evaluation_labels [n']         classes and their NLL; 0, ...

Logits and labels come together. Features that are not vectors are flattened; t-SNE needs more than
30 samples in both parts together, and features of length 3 or more. With logits and labels,
confidences and correctness are derived from them, and need not be in the file. A method that has
no optimum on the calibration part is left out for this file; a line of the output and the notes
below the tables say so. `numpy.savez(FILE, calibration_features=...)` writes such a file.
"""

import dataclasses
import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from experiments.harness.data_files import DataError, refuse_where
from paper_repro.data import cifar

PARTS = ("calibration", "evaluation")
OPTIONAL = ("groups", "logits", "labels")
NETWORKS = ("densenet121", "googlenet", "resnet18", "vgg16_bn")


@dataclasses.dataclass(frozen=True)
class Part:
    """One part of the data.

    Attributes:
        features: [n, d].
        confidences: of the predicted classes, float64 [n].
        correct: 1 where the predicted class came, else 0, [n].
        groups: [n], or None.
        logits: float64 [n, m], or None.
        labels: [n], or None.
    """

    features: np.ndarray
    confidences: np.ndarray
    correct: np.ndarray
    groups: np.ndarray | None = None
    logits: np.ndarray | None = None
    labels: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A classifier on the part that recalibration learns from, and on the one it is judged by."""

    name: str
    calibration: Part
    evaluation: Part


def part_of_logits(
    features: np.ndarray, logits: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None
) -> Part:
    """A part with the largest probability as confidence, in float64."""
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(1, keepdims=True)
    confidences = 1 / np.exp(logits).sum(1)
    correct = (logits.argmax(1) == labels).astype(int)
    return Part(features, confidences, correct, groups, logits, labels)


def read_logits(data: Path, name: str) -> Classifier:
    """A network of `cifar.LOGITS`; its validation part is for recalibration, logits are features.

    Raises:
        DataError: if a file is missing, or holds something else.
    """
    parts = []
    for part in ("val", "test"):
        logits, labels = cifar.read_logits(data, name, part)
        parts.append(part_of_logits(logits, logits, labels))
    cifar.check_classes(name, *(part.logits for part in parts))
    return Classifier(name, *parts)


def read_all(
    data: Path | None, networks: Sequence[str], with_logits: Sequence[str]
) -> Iterator[Classifier]:
    """The networks of --data whose folders are there.

    Args:
        data: folder of --data, if there is one.
        networks: names of networks of `cifar.CIFAR10`.
        with_logits: names of networks of `cifar.LOGITS`.

    Raises:
        DataError: if a file is missing in a folder, or holds something else.
    """
    if data is None:
        return
    for name in with_logits:
        if data.joinpath(*cifar.LOGITS[name]).is_dir():
            yield read_logits(data, name)
    if (data / cifar.CIFAR10).is_dir():
        for name in networks:
            yield read_cifar10(data, name)


def read_cifar10(data: Path, name: str) -> Classifier:
    """A network on CIFAR-10; a random half of the test images is for recalibration.

    The features are the logarithms of the published probabilities: logits up to a constant.

    Raises:
        DataError: if a file is missing, or holds something else.
    """
    probs, labels = cifar.read_cifar10(data, name)
    logits = np.log(np.maximum(probs, np.finfo(np.float32).tiny))
    order = np.random.default_rng([*b"l21_networks/split"]).permutation(len(labels))
    halves = [part_of_logits(logits[i], logits[i], labels[i]) for i in np.array_split(order, 2)]
    return Classifier(f"cifar10_{name}", *halves)


def read_npz(path: Path) -> Classifier:
    """The classifier of a file of --npz, see the module.

    Raises:
        DataError: if the file cannot be read, arrays are missing, or their shapes or values are
            wrong.
    """
    if not zipfile.is_zipfile(path):  # where NumPy would propose to load it unsafely
        raise DataError(f"--npz: expected a file of numpy.savez, got {path} (not a zip archive)")
    try:
        arrays = dict(np.load(io.BytesIO(path.read_bytes())))
    except Exception as error:  # what damaged files raise is no closed list
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"--npz: expected a file of numpy.savez, got {path} ({reason})") from None
    has_logits = any(f"{part}_{key}" in arrays for part in PARTS for key in OPTIONAL[1:])
    keys = ["features", *(OPTIONAL[1:] if has_logits else ("confidences", "correct"))]
    if any(f"{part}_groups" in arrays for part in PARTS):
        keys.append("groups")
    missing = [f"{part}_{key}" for part in PARTS for key in keys if f"{part}_{key}" not in arrays]
    if missing:
        raise DataError(f"--npz: expected arrays {', '.join(missing)} in {path}, got {[*arrays]}")
    parts = [
        _checked_part(path, part, {key: arrays[f"{part}_{key}"] for key in keys}) for part in PARTS
    ]
    one, two = (part.features.shape[1] for part in parts)
    if one != two:
        raise DataError(f"--npz: expected features of one length in {path}, got {one} and {two}")
    return Classifier(path.stem, *_with_numbered_groups(parts))


def _with_numbered_groups(parts: list[Part]) -> list[Part]:
    """The parts with groups 0, ..., g − 1 in place of any numbers."""
    if any(part.groups is None for part in parts):
        return parts
    _, numbers = np.unique(np.concatenate([part.groups for part in parts]), return_inverse=True)
    numbers = np.split(numbers, [len(parts[0].groups)])
    return [dataclasses.replace(x, groups=y) for x, y in zip(parts, numbers, strict=True)]


def _checked_part(path: Path, name: str, arrays: dict[str, np.ndarray]) -> Part:
    num = len(arrays["features"])
    for key, array in arrays.items():
        place = f"{name}_{key} in {path}"
        kinds, expected = ("iu", "integers") if key == "groups" else ("biuf", "numbers")
        if array.dtype.kind not in kinds:
            raise DataError(f"--npz: expected {expected}, got {array.dtype} for {place}")
        if array.ndim == 0 or len(array) != num or num == 0:
            raise DataError(
                f"--npz: expected one entry for each of the {num} features (at least one), "
                f"got {array.shape} for {place}"
            )
        if key not in ("features", "logits") and array.ndim != 1:
            raise DataError(f"--npz: expected shape ({num},), got {array.shape} for {place}")
        refuse_where("--npz", place, ~np.isfinite(array), "finite numbers", array)
    features = arrays["features"].reshape(num, -1)
    groups = arrays.get("groups")
    if "logits" in arrays:
        return _part_with_classes(path, name, features, arrays["logits"], arrays["labels"], groups)
    confidences, correct = arrays["confidences"].astype(np.float64), arrays["correct"]
    wrong = (confidences < 0) | (confidences > 1)
    place = f"{name}_confidences in {path}"
    refuse_where("--npz", place, wrong, "values in [0, 1]", confidences)
    wrong = ~np.isin(correct, (0, 1))
    refuse_where("--npz", f"{name}_correct in {path}", wrong, "0 or 1", correct)
    return Part(features, confidences, correct.astype(int), groups)


def _part_with_classes(
    path: Path,
    name: str,
    features: np.ndarray,
    logits: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None,
) -> Part:
    if logits.ndim != 2 or logits.shape[1] < 2:
        expected = "[n, m] of two or more classes"
        raise DataError(
            f"--npz: expected {expected}, got {logits.shape} for {name}_logits in {path}"
        )
    expected = f"labels 0, ..., {logits.shape[1] - 1}"
    wrong = ~np.isin(labels, np.arange(logits.shape[1]))
    refuse_where("--npz", f"{name}_labels in {path}", wrong, expected, labels)
    return part_of_logits(features, logits, labels.astype(int), groups)
