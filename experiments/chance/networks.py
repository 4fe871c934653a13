"""The networks, and what the recalibration methods of the library make of their predictions."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from calibjax import distances, estimators, kernels, recalibration
from calibjax.distributions import Categorical
from experiments.chance.measures import NUM_BINS
from experiments.harness import cells
from paper_repro.data import cifar

# The 14 of W19, whose softmax outputs are published without those of validation images.
PUBLISHED = (
    *("densenet121", "densenet161", "densenet169", "googlenet", "inception_v3", "mobilenet_v2"),
    *("resnet18", "resnet34", "resnet50", "resnet_orig"),
    *("vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"),
)
NUM_FEATURES = 10  # principal components, for local recalibration
SMALLEST = 1e-12  # probability whose logarithm is a feature
KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
)


class Part(NamedTuple):
    """Predictions [n, m] and labels [n] of some images."""

    probs: np.ndarray
    labels: np.ndarray


class Network(NamedTuple):
    """A network with images that recalibration is fitted to, and others that all are judged by."""

    name: str
    fitting: Part
    judging: Part


def validated(images: str) -> list[str]:
    """Names in `cifar.LOGITS` of the networks on "cifar10" or "cifar100"."""
    return sorted(name for name in cifar.LOGITS if name.startswith(f"{images}_"))


def read_part(data: Path, name: str, part: str = "test") -> Part:
    """Images of one of `PUBLISHED`, or of a part, "val" or "test", of one of `cifar.LOGITS`."""
    if name in PUBLISHED:
        return Part(*cifar.read_cifar10(data, name))
    logits, labels = cifar.read_logits(data, name, part)
    return Part(softmax(logits.astype(float), 1), labels)


def shuffled(part: Part, name: str) -> Part:
    """The images in an order that belongs to the name of the data."""
    order = np.asarray(jax.random.permutation(cells.key_of(f"chance/{name}"), len(part.labels)))
    return Part(part.probs[order], part.labels[order])


def in_halves(name: str, part: Part) -> Network:
    """A network without validation images: one half of the test images takes their place."""
    half = len(part.labels) // 2
    fitting, judging = (Part(*(x[s] for x in part)) for s in (np.s_[:half], np.s_[half:]))
    return Network(name, fitting, judging)


def _top_label_method(recalibrator: recalibration.Recalibrator) -> Callable[[Network], jax.Array]:
    """Recalibrates the confidence in the top label; the rest is shared in proportion."""

    def apply(network: Network) -> jax.Array:
        further = _further_arguments(recalibrator, network)
        confidences, correct = estimators.top_label(
            Categorical(jnp.asarray(network.fitting.probs)), jnp.asarray(network.fitting.labels)
        )
        params = recalibrator.fit(confidences.probs, correct, *further[0])
        probs = jnp.asarray(network.judging.probs)
        new = recalibrator.apply(params, jnp.max(probs, 1), *further[1])
        return with_confidence(probs, new)

    return apply


def _further_arguments(
    recalibrator: recalibration.Recalibrator, network: Network
) -> tuple[tuple, tuple]:
    """Features or groups of the images to fit to, and of those to judge by.

    The two groups are the images that are taken for one of the first, or the last, half of the
    classes: one group for each class would compile a program for each size.
    """
    parts = network.fitting.probs, network.judging.probs
    if isinstance(recalibrator, recalibration.LocalRecalibration):
        fitting, judging = features(*parts)
        return (jnp.asarray(fitting),), (jnp.asarray(judging),)
    if isinstance(recalibrator, recalibration.GroupWise):
        half = parts[0].shape[1] // 2
        return (parts[0].argmax(1) // half,), (parts[1].argmax(1) // half,)
    return (), ()


def with_confidence(probs: jax.Array, confidences: jax.Array) -> jax.Array:
    """Predictions whose top label has another probability, the others being rescaled."""
    num_classes = probs.shape[1]
    is_top = jnp.arange(num_classes) == jnp.argmax(probs, 1)[:, None]
    rest = jnp.where(is_top, 0, probs)
    total = jnp.sum(rest, 1, keepdims=True)
    shares = jnp.where(
        total > 0, rest / jnp.where(total > 0, total, 1), ~is_top / (num_classes - 1)
    )
    return jnp.where(is_top, confidences[:, None], (1 - confidences[:, None]) * shares)


def features(fitting: np.ndarray, judging: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardised principal components of the log-probabilities of the images to fit to."""
    logs = [np.log(np.maximum(probs, SMALLEST)) for probs in (fitting, judging)]
    mean = logs[0].mean(0)
    _, _, axes = np.linalg.svd(logs[0] - mean, full_matrices=False)
    first, second = ((x - mean) @ axes[:NUM_FEATURES].T for x in logs)
    return first / first.std(0), second / first.std(0)


def _method(recalibrator: recalibration.Recalibrator) -> Callable[[Network], jax.Array]:
    """Recalibrates all classes."""

    def apply(network: Network) -> jax.Array:
        fitting = Categorical(jnp.asarray(network.fitting.probs))
        params = recalibrator.fit(fitting, jnp.asarray(network.fitting.labels))
        judging = Categorical(jnp.asarray(network.judging.probs))
        return recalibrator.apply(params, judging).class_probs

    return apply


_SKCE = functools.partial(estimators.skce_block, KERNEL, block_size=50)
METHODS: dict[str, Callable[[Network], jax.Array]] = {
    "as it is": lambda network: jnp.asarray(network.judging.probs),
    "temperature": _method(recalibration.TemperatureScaling()),
    "temperature by SKCE": _method(recalibration.TemperatureScaling(_SKCE)),
    "Platt": _method(recalibration.PlattScaling(smooth_targets=True)),
    "isotonic": _method(recalibration.IsotonicRegression()),
    "histogram": _method(recalibration.HistogramBinning(NUM_BINS)),
    "MMCE": _top_label_method(recalibration.MMCEScaling()),
    "local": _top_label_method(
        recalibration.LocalRecalibration(estimators.Neighbourhood.laplacian(0.2, NUM_BINS))
    ),
    "Platt by group": _top_label_method(
        recalibration.GroupWise(recalibration.PlattScaling(smooth_targets=True))
    ),
}


def recalibrated(network: Network) -> list[np.ndarray]:
    """Predictions of all methods for the images to judge by, [n, m] each."""
    with warnings.catch_warnings():
        # Empty bins keep their confidences, which is part of these methods.
        warnings.filterwarnings("ignore", message="(?s).*calibration samples")
        return [np.asarray(apply(network)) for apply in METHODS.values()]
