"""Image classifiers of --data whose confidences are recalibrated."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from paper_repro.data import cifar

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
