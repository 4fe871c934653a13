"""Samples that come in batches."""

import functools

import jax
import numpy as np


def states_of(accumulator, predictions, targets, batches, **others):
    """One state for each batch, which is an array of rows; other arrays are divided likewise."""

    def after(rows):
        data = jax.tree.map(lambda leaf: leaf[np.asarray(rows)], (predictions, targets, others))
        return accumulator.update(accumulator.init(), *data[:2], **data[2])

    return list(map(after, batches))


def merged(accumulator, states):
    """The state of all, each merged with what was merged before."""
    return functools.reduce(accumulator.merge, states, accumulator.init())


def result_of(accumulator, predictions, targets, batches, **others):
    """The result of all batches."""
    states = states_of(accumulator, predictions, targets, batches, **others)
    return accumulator.result(merged(accumulator, states))
