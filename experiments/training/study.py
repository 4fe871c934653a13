"""One seed of the study: training, what is chosen afterwards, and what is measured."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import estimators, hypothesis_tests, scores
from calibjax.distributions import CategoricalLogits
from calibjax.recalibration import TemperatureScaling
from experiments.harness import cells
from experiments.training.networks import CHECKPOINTS, KERNEL, losses, predict, train
from experiments.training.problems import PROBLEMS, Part, parts

NAME = "training"
WEIGHTS = 0.0, 1.0, 10.0, 100.0, 1000.0  # λ
DRAWS = 999
NUM_BINS = 15


def measured(key: jax.Array, predictions: CategoricalLogits, labels: Any) -> dict[str, float]:
    """What the table says about predictions of the evaluation part."""
    test = hypothesis_tests.exact_skce_test(key, KERNEL, predictions, labels, num_draws=DRAWS)
    top = estimators.top_label(predictions, labels)
    return {
        "accuracy": float(scores.accuracy(predictions, labels)),
        "NLL": float(scores.negative_log_likelihood(predictions, labels)),
        "Brier score": float(scores.brier_score(predictions, labels, scale_by_half=False)),
        "top-label ECE": float(estimators.ece(*top, binning=estimators.UniformBins(NUM_BINS))),
        "1000 SKCE": 1000 * float(test.estimate),
        "exact p": float(test.pvalue),
    }


def found(problem: str, seed: int, num_steps: int) -> dict[str, Any]:
    """Measures of all models of one seed, by name."""
    training, calibration, evaluation = parts(PROBLEMS[problem].draw(seed))
    key, test_key = jax.random.split(cells.key_of(f"{NAME}/{problem}/{seed}"))
    num_classes = PROBLEMS[problem].num_classes
    weights = jnp.array(WEIGHTS)
    fitted = train(key, weights, training.x, training.labels, num_classes, num_steps)
    values = np.asarray(losses(fitted, calibration.x, calibration.labels))
    best_end = int(np.argmin(values[:, -1]))
    best_stop = int(np.argmin(values[0]))
    best = divmod(int(np.argmin(values)), CHECKPOINTS)

    def of(i: int, stop: int, part: Part = evaluation) -> CategoricalLogits:
        return predict(jax.tree.map(lambda leaf: leaf[i, stop], fitted), jnp.asarray(part.x))

    def scaled(i: int, stop: int) -> CategoricalLogits:
        method = TemperatureScaling()
        temperature = method.fit(of(i, stop, calibration), calibration.labels)
        return method.apply(temperature, of(i, stop))

    models = {name(weight): of(i, -1) for i, weight in enumerate(WEIGHTS)}
    models["NLL, then temperature"] = scaled(0, -1)
    models["NLL + chosen λ SKCE"] = of(best_end, -1)
    models["NLL + chosen λ SKCE, then temperature"] = scaled(best_end, -1)
    models["NLL, stopped early"] = of(0, best_stop)
    models["NLL, stopped early, then temperature"] = scaled(0, best_stop)
    models["NLL + chosen λ SKCE, stopped early"] = of(*best)
    models["NLL + chosen λ SKCE, stopped early, then temperature"] = scaled(*best)
    if evaluation.truth is not None:
        models["the truth"] = evaluation.truth
    return {k: measured(test_key, p, evaluation.labels) for k, p in models.items()}


def name(weight: float) -> str:
    """What a network is called that was trained to the end."""
    return "NLL" if weight == 0 else f"NLL + {weight:g} SKCE"
