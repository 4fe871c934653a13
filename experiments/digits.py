"""What do the exact test and a temperature say about three classifiers of scikit-learn's digits?

1797 images of handwritten digits, 8 × 8 pixels, in a random order that was fixed beforehand: half
of them are for training, a quarter is for the temperature, a quarter is for everything else, so
that nothing is evaluated on what it was fitted to. The classifiers are logistic regression, a
random forest and naive Bayes with normal densities, as scikit-learn has them by default, each
before and after temperature scaling.

A temperature below one says that a classifier is underconfident: its probabilities are spread too
widely over the classes, and labels vary less than they say. One above one says that it is
overconfident. The exact test looks at the same thing from the other side, without a family of
alternatives, and sees whatever else is wrong: its p-value is about all of it, and its components
say in which way. Its kernel is exp(−TV/ν) δ, ν the median total variation distance of the
predictions that are tested, which no label enters.

Both agree: logistic regression and the forest are underconfident, naive Bayes is overconfident.
After scaling, the test finds nothing in the first two any more; the spread of naive Bayes is right
then, but one temperature does not make it calibrated.

A probability that is zero stays zero at every temperature, and if its label comes no temperature
has a likelihood: a fifth of the forest's probabilities are zero (classes for which no tree votes),
and a third of those of naive Bayes, to rounding. All predictions are therefore raised to at least
1e-6 and normalised before anything else is done with them. The temperatures of logistic regression
and of the forest hardly depend on this number (three digits are the same for 1e-3 and 1e-10), that
of naive Bayes does: it is 1.8 for 1e-3 and 5 for 1e-10.

Run: python -m experiments.digits [--num-samples 9999] [--output DIR]
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distances, estimators, hypothesis_tests, kernels, recalibration, scores
from calibjax.distributions import Categorical
from experiments.harness import cells, command_line, extras
from experiments.harness.tables import note_of, write_table

NAME = "digits"
NUM_BINS = 15
SMALLEST = 1e-6  # probability
NUM_TREES = 100
LEVEL = 0.05


class Samples(NamedTuple):
    """Predictions and labels, [n]."""

    predictions: Categorical
    labels: jax.Array


def split(num_samples: int) -> list[np.ndarray]:
    """Indices of the images for training, for the temperature, and for the evaluation."""
    order = np.random.default_rng([*b"digits/split"]).permutation(num_samples)
    return np.split(order, [num_samples // 2, num_samples * 3 // 4])


def raised(probs: np.ndarray) -> np.ndarray:
    """Probabilities without zeros, [n, m]."""
    probs = np.maximum(probs, SMALLEST)
    return probs / probs.sum(1, keepdims=True)


def classifiers() -> dict[str, Any]:
    """The classifiers by name, not fitted."""
    linear, ensemble, bayes = (
        extras.imported(f"sklearn.{name}") for name in ("linear_model", "ensemble", "naive_bayes")
    )
    return {
        "logistic regression": linear.LogisticRegression(max_iter=10_000),
        "random forest": ensemble.RandomForestClassifier(NUM_TREES, random_state=0),
        "naive Bayes": bayes.GaussianNB(),
    }


def samples_of(classifier: Any, images: np.ndarray, labels: np.ndarray) -> list[Samples]:
    """What a classifier that is fitted to the first part says about the other two parts."""
    training, *others = split(len(labels))
    classifier.fit(images[training], labels[training])
    return [
        Samples(
            Categorical(jnp.asarray(raised(classifier.predict_proba(images[part])))),
            jnp.asarray(labels[part]),
        )
        for part in others
    ]


def components_of(test: hypothesis_tests.CalibrationTestResult) -> dict[str, Any]:
    """What the components of a test say, one by one and in words."""
    components = test.components
    score = float(components.spread.score)
    is_wide = score < 0
    words = "nothing"
    if float(test.pvalue) <= LEVEL:
        words = "miscalibrated"
        if float(components.spread.pvalue) <= LEVEL:
            words = f"{'under' if is_wide else 'over'}confident"
    return {
        "p of SKCE_b": float(components.biased.pvalue),
        "p of SKCE_u": float(components.unbiased.pvalue),
        "p of the spread": float(components.spread.pvalue),
        "score of the spread": score,
        "the test says": words,
    }


def row(name: str, kind: str, temperature: float, samples: Samples, num_samples: int) -> dict:
    """What is found about predictions, which were scaled by a temperature."""
    predictions, labels = samples
    distance = distances.TotalVariation()
    scale = kernels.median_heuristic(distance, predictions)
    kernel = kernels.TensorProduct(kernels.Exponential(scale, distance), kernels.White())
    test = hypothesis_tests.exact_skce_test(
        cells.key_of(f"{NAME}/{name}/{kind}"), kernel, predictions, labels, num_draws=num_samples
    )
    top = estimators.top_label(predictions, labels)
    best = recalibration.TemperatureScaling().fit(*samples)
    return {
        "classifier": name,
        "temperature scaling": kind,
        "accuracy": float(scores.accuracy(predictions, labels)),
        "T, applied": temperature,
        "best T left": float(best),
        "exact p": float(test.pvalue),
        **components_of(test),
        "SKCE": float(test.estimate),
        "top-label ECE": float(estimators.ece(*top, binning=estimators.UniformBins(NUM_BINS))),
        "NLL": float(scores.negative_log_likelihood(predictions, labels)),
    }


def rows_of(name: str, calibration: Samples, evaluation: Samples, num_samples: int) -> list[dict]:
    """Rows before and after temperature scaling."""
    scaling = recalibration.TemperatureScaling()
    temperature = scaling.fit(*calibration)
    scaled = evaluation._replace(predictions=scaling.apply(temperature, evaluation.predictions))
    return [
        row(name, "before", 1.0, evaluation, num_samples),
        row(name, "after", float(temperature), scaled, num_samples),
    ]


@command_line.program
def main() -> None:
    """Writes the table digits."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-samples", type=command_line.positive_integer, default=9999)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    digits = extras.imported("sklearn.datasets").load_digits()
    records, sizes = [], [len(part) for part in split(len(digits.target))]
    draws = options.num_samples
    for name, classifier in classifiers().items():
        samples = samples_of(classifier, digits.data / 16, digits.target)
        records += rows_of(name, *samples, draws)
    values = dict(zip(("training", "calibration", "evaluation"), sizes, strict=True))
    values |= {"level": LEVEL, "draws": draws, "smallest": 1 / (draws + 1), "bins": NUM_BINS}
    note = note_of(__file__, "digits", **values)
    write_table(run.output, NAME, records, note, show=True)


if __name__ == "__main__":
    main()
