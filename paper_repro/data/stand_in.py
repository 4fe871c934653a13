"""Data that come with scikit-learn, in place of those of the papers where these are not there.

The classifier is linear, and trained in a second on 397 of 1797 handwritten digits; it is
overconfident. The other digits are for recalibration and evaluation. Of 442 patients with diabetes
it is asked whether the disease progresses by more than the median; their groups are the sexes, and
halves by age.
"""

import functools

import numpy as np

from experiments.harness import extras
from paper_repro.data.classifiers import Classifier, part_of_logits
from paper_repro.data.communities_crime import GROUPINGS, Communities

WHAT = "handwritten digits of scikit-learn"
DIABETES = "diabetes patients of scikit-learn"
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


def diabetes() -> Communities:
    """The patients in place of communities; 120 are for recalibration and 120 for evaluation."""
    features, progress = extras.imported("sklearn.datasets").load_diabetes(return_X_y=True)
    age, sex = features[:, 0], features[:, 1]
    groups = dict(zip(GROUPINGS, ((sex > 0).astype(int), (age > 0).astype(int)), strict=True))
    features = (10 * features).astype(np.float32)  # of mean square 0.2
    labels = (progress > np.median(progress)).astype(int)
    return Communities(features, labels, groups, (120, 120))
