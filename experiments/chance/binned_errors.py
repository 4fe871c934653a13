"""Binned errors of several models on the same samples: bootstrap, and redrawn labels.

A binned error is a sum Σ_b |θ_b|, where θ_b is the mean over all samples of prediction minus
outcome, counted in bin b only. Its plug-in estimate is too large wherever θ_b is small against its
own noise, so that neither its bootstrap nor a normal interval around it is valid. In the bootstrap
of Fang and Santos (2019) the resampled noise h_b of a bin enters as sign(θ_b) h_b where θ_b is
clearly not zero, and as |h_b| elsewhere. Its mean is the bias of the estimate, its spread the
noise.

In a bin that expects few events, the observed ones say little about the noise, and nothing where
there are none: there the noise gets the variance Σ p (1 − p) that the predictions imply.

The top-label error has one vector of bins, the class-wise error one for each class and the mean
over classes. Both use uniform intervals.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax.estimators.binnings import interval_index

NUM_BINS = 15
FEW = 10  # expected variance of the number of events in a bin


class Binned(NamedTuple):
    """Residuals by bins of several models, [M, c, n] each.

    Attributes:
        bins: index of the bin.
        predicted: the probability that is predicted.
        observed: whether it happened, 0 or 1.
    """

    bins: jax.Array
    predicted: jax.Array
    observed: jax.Array


class Resampled(NamedTuple):
    """Errors of M models and their resampled noise.

    Attributes:
        estimates: plug-in errors, [M].
        noise: noise after Fang and Santos, whose mean is the bias of the estimate, [M, R].
        plain: errors of the resampled data minus the estimates, [M, R].
    """

    estimates: jax.Array
    noise: jax.Array
    plain: jax.Array


def top_label_bins(probs: jax.Array, labels: jax.Array) -> Binned:
    """The confidence in the most probable class, c = 1; probabilities [M, n, m], labels [n]."""
    confidences, classes = jnp.max(probs, -1)[:, None], jnp.argmax(probs, -1)[:, None]
    bins = interval_index(confidences, NUM_BINS)
    return Binned(bins, confidences, (classes == labels).astype(probs.dtype))


def class_bins(probs: jax.Array, labels: jax.Array) -> Binned:
    """Each class against the rest, c = m."""
    predicted = jnp.moveaxis(probs, -1, 1)
    classes = jnp.broadcast_to(jnp.arange(probs.shape[-1])[:, None], predicted.shape)
    observed = (labels == classes).astype(probs.dtype)
    return Binned(interval_index(predicted, NUM_BINS), predicted, observed)


def resampled(binned: Binned, counts: jax.Array) -> Resampled:
    """Errors and noise of all models, with the same resamples for all of them.

    Args:
        binned: the residuals.
        counts: how often each sample is in each resample, [R, n].
    """
    n = counts.shape[1]
    threshold = jnp.sqrt(jnp.log(n))

    def of_class(one: Binned) -> tuple[jax.Array, jax.Array, jax.Array]:
        marks = jax.nn.one_hot(one.bins, NUM_BINS, dtype=one.predicted.dtype)
        residuals = one.predicted - one.observed
        parts = marks * residuals[:, None]
        means = jnp.sum(parts, 0) / n
        found = jnp.sum(parts**2, 0)
        implied = jnp.matmul(one.predicted * (1 - one.predicted), marks)
        is_rare = (implied < FEW) & (found > 0)
        scale = jnp.where(is_rare, jnp.sqrt(implied / jnp.where(is_rare, found, 1)), 1)
        drawn = jnp.matmul(counts.astype(parts.dtype), parts) / n
        deviations = scale * (drawn - means)
        is_large = jnp.abs(means) > threshold * jnp.std(deviations, 0)
        noise = jnp.where(is_large, jnp.sign(means) * deviations, jnp.abs(deviations))
        plain = jnp.abs(drawn) - jnp.abs(means)
        return jnp.sum(jnp.abs(means)), jnp.sum(noise, -1), jnp.sum(plain, -1)

    num_models, num_classes, _ = binned.bins.shape
    flat = jax.tree.map(lambda x: x.reshape(-1, n), binned)
    found = lax.map(of_class, flat)
    return Resampled(
        *(jnp.mean(x.reshape(num_models, num_classes, *x.shape[1:]), 1) for x in found)
    )


def redrawn(probs: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Top-label and class-wise errors of one model for many vectors of labels.

    Args:
        probs: [n, m].
        labels: [B, n].

    Returns:
        The errors, [B] each.
    """
    n, num_classes = probs.shape
    confidences, top = jnp.max(probs, 1), jnp.argmax(probs, 1)
    bins = interval_index(confidences, NUM_BINS)
    expected = jax.ops.segment_sum(confidences, bins, NUM_BINS)
    places = interval_index(probs, NUM_BINS) + NUM_BINS * jnp.arange(num_classes)
    size = NUM_BINS * num_classes
    expected_classes = jax.ops.segment_sum(probs.ravel(), places.ravel(), size)

    def errors(y: jax.Array) -> tuple[jax.Array, jax.Array]:
        correct = (y == top).astype(probs.dtype)
        observed = jax.ops.segment_sum(correct, bins, NUM_BINS)
        taken = jnp.take_along_axis(places, y[:, None], 1)[:, 0]
        counts = jax.ops.segment_sum(jnp.ones_like(confidences), taken, size)
        top_label = jnp.sum(jnp.abs(expected - observed)) / n
        return top_label, jnp.sum(jnp.abs(expected_classes - counts)) / n / num_classes

    return lax.map(errors, labels)
