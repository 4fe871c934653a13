"""A classifier in place of the networks of the papers where these are not there.

It is a linear one, trained in a second on 397 of the 1797 handwritten digits that come with
scikit-learn; it is overconfident. The other digits are for recalibration and evaluation.
"""

import functools

import numpy as np

from experiments.harness import extras
from paper_repro.data.classifiers import Classifier, part_of_logits

WHAT = "handwritten digits of scikit-learn"
NUM_TRAINING, NUM_CALIBRATION = 397, 700


@functools.cache
def digits() -> Classifier:
    """The classifier; its logits are the features, as for the networks of the papers."""
    images, labels = extras.imported("sklearn.datasets").load_digits(return_X_y=True)
    order = np.random.default_rng([*b"digits"]).permutation(len(labels))
    training, *parts = np.split(order, [NUM_TRAINING, NUM_TRAINING + NUM_CALIBRATION])
    model = extras.imported("sklearn.linear_model").LogisticRegression(C=100.0, max_iter=1000)
    model.fit(images[training] / 16, labels[training])
    logits = [model.decision_function(images[part] / 16) for part in parts]
    found = zip(logits, parts, strict=True)
    return Classifier("digits", *(part_of_logits(x, x, labels[part]) for x, part in found))
