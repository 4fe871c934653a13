"""Is a CIFAR-100 network calibrated: in all classes together, class by class, in its top label?

The data are the logits of a ResNet-50 for the 10 000 test images, as they are and after
temperature scaling with the temperature of largest likelihood on the 5000 validation images. The
same predictions are seen in three ways, each of which is a null hypothesis of its own:

- canonical: the probabilities of all 100 classes are right, together;
- top label: the confidence in the most probable class is right;
- class-wise: the probability of each class alone is right, 100 hypotheses.

Each is tested by `exact_skce_test` with the kernel exp(−TV/ν) δ, ν the median total variation
distance of the predictions that are tested, which no label enters. If the first hypothesis is
true, so are the others. The p-values of the classes are adjusted for their number by Holm's
method, which allows any dependence between them, and have four times as many redraws, so that
adjusted ones can be small. Beside the tests stand the usual estimates.

Run: python -m experiments.cifar100 --data DIR [--num-samples 1000] [--output DIR]
"""

import functools
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from calibjax import (
    distances,
    estimators,
    hypothesis_tests,
    kernels,
    plotting,
    recalibration,
    scores,
)
from calibjax.distributions import Bernoulli, Categorical
from calibjax.hypothesis_tests import holm
from experiments.harness import cells, command_line, data_files
from experiments.harness.cells import Store
from experiments.harness.figures import save_figure
from experiments.harness.tables import note_of, write_table
from paper_repro.data import cifar

NAME = "cifar100"
NUM_BINS = 15
MIN_BIN_SIZE = 100
ORDER = 2  # of the kernel density estimates
NUMBERS_AT_ONCE = 2.5e7  # of redrawn residuals [n, m]
LEVEL = 0.05
REDRAWS_OF_CLASSES = 4  # times those of the other tests


def read(data: Path, part: str) -> tuple[Categorical, jax.Array]:
    """Predictions [n, 100] and labels [n] of the images of a part, "val" or "test"."""
    logits, labels = cifar.read_logits(data, "cifar100_resnet50", part)
    return Categorical(jax.nn.softmax(jnp.asarray(logits, jnp.float64))), jnp.asarray(labels)


def exact_test(name: str, predictions: Any, targets: jax.Array, num_samples: int) -> dict[str, Any]:
    """Length scale, SKCE and p-value of the exact test of one null hypothesis, in float32."""
    start = time.perf_counter()
    predictions = jax.tree.map(lambda x: x.astype(jnp.float32), predictions)
    batch_size = min(num_samples, int(NUMBERS_AT_ONCE) // predictions.class_probs.size)
    distance = distances.TotalVariation()
    scale = kernels.median_heuristic(distance, predictions)
    kernel = kernels.TensorProduct(kernels.Exponential(scale, distance), kernels.White())
    test = hypothesis_tests.exact_skce_test(
        cells.key_of(f"{NAME}/{name}"),
        kernel,
        predictions,
        targets,
        num_draws=num_samples,
        statistic="biased",
        batch_size=batch_size,
    )
    return {
        "scale": float(scale),
        "skce": float(test.estimate),
        "pvalue": float(test.pvalue),
        "seconds": time.perf_counter() - start,
    }


def evaluate(name: str, predictions: Any, targets: jax.Array, num_samples: int) -> dict[str, Any]:
    """The exact test and the estimates of all classes together or of the top label."""
    data = predictions, targets
    variance_bins = estimators.MedianVarianceBins(MIN_BIN_SIZE)
    mass_bins = estimators.EqualMassBins(NUM_BINS)
    bandwidth = estimators.kde_bandwidth(predictions)
    error = estimators.kde_calibration_error(*data, bandwidth=bandwidth, order=ORDER)
    return exact_test(name, *data, num_samples) | {
        "uniform": float(estimators.ece(*data, binning=estimators.UniformBins(NUM_BINS))),
        "median variance": float(estimators.ece(*data, binning=variance_bins)),
        "equal mass": float(estimators.ece(*data, binning=mass_bins)),
        "maximum": float(estimators.mce(*data, binning=variance_bins)),
        "debiased": float(estimators.debiased_squared_ece(*data, binning=variance_bins)),
        "bandwidth": float(bandwidth),
        "density": float(error),
    }


def score(predictions: Any, targets: jax.Array) -> dict[str, float]:
    """Proper scores, and the accuracy."""
    data = predictions, targets
    return {
        "NLL": float(scores.negative_log_likelihood(*data)),
        "Brier score": float(scores.brier_score(*data)),
        "accuracy": float(scores.accuracy(*data)),
        "MMCE": float(estimators.mmce(kernels.Exponential(0.4), *estimators.top_label(*data))),
    }


def evaluate_class(
    name: str, predictions: Any, targets: jax.Array, num_samples: int
) -> dict[str, Any]:
    """The exact test and the ECE of one class against the rest."""
    binning = estimators.EqualMassBins(NUM_BINS)
    row = exact_test(name, predictions, targets, num_samples)
    row["ece"] = float(estimators.ece(predictions, targets, binning=binning))
    return row | {
        "frequency": float(targets.mean()),
        "probability": float(jnp.mean(predictions.probs)),
    }


def write_summary(folder: Path, models: dict[str, Any], temperature: float, redraws: int) -> None:
    """A row for all classes together and one for the top label, before and after scaling."""
    rows = [
        {
            "predictions": model,
            "hypothesis": name,
            "SKCE": row["skce"],
            "length scale": row["scale"],
            "exact p": row["pvalue"],
            "ECE, uniform bins": row["uniform"],
            "ECE, median-variance bins": row["median variance"],
            "ECE, equal-mass bins": row["equal mass"],
            "MCE, median-variance bins": row["maximum"],
            "debiased squared ECE": row["debiased"],
            "KDE bandwidth": row["bandwidth"],
            "KDE squared error": row["density"],
            "seconds of the test": row["seconds"],
        }
        for model, results in models.items()
        for name, row in results["hypotheses"].items()
    ]
    values = {"temperature": temperature, "redraws": redraws, "smallest": 1 / (redraws + 1)}
    note = note_of(__file__, "summary", bins=NUM_BINS, size=MIN_BIN_SIZE, **values)
    write_table(folder, "cifar100", rows, note, show=True)
    rows = [{"predictions": model} | results["scores"] for model, results in models.items()]
    note = "The Brier score is the sum over all classes; the MMCE is that of the top label."
    write_table(folder, "cifar100_scores", rows, note, show=True)


def class_columns(model: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the table of the classes says about one model."""
    adjusted = np.asarray(holm(np.array([row["pvalue"] for row in rows])))
    return [
        {
            f"mean probability, {model}": row["probability"],
            f"SKCE, {model}": row["skce"],
            f"ECE, {model}": row["ece"],
            f"exact p, {model}": row["pvalue"],
            f"adjusted p, {model}": float(p),
        }
        for row, p in zip(rows, adjusted, strict=True)
    ]


def write_classes(folder: Path, models: dict[str, Any], redraws: int) -> None:
    """One row for each class."""
    columns = {model: class_columns(model, results["classes"]) for model, results in models.items()}
    sentences = []
    for model, rows in columns.items():
        alone, together, error = (
            np.array([row[f"{name}, {model}"] for row in rows])
            for name in ("exact p", "adjusted p", "ECE")
        )
        sentences.append(
            f"{model.capitalize()}: {np.sum(alone <= LEVEL)} of {len(rows)} classes have "
            f"p <= {LEVEL}, {np.sum(together <= LEVEL)} after Holm's adjustment; mean ECE "
            f"{error.mean():.3g}."
        )
    first = next(iter(models.values()))["classes"]
    records = [
        {"class": index, "frequency": first[index]["frequency"]}
        | {name: value for rows in columns.values() for name, value in rows[index].items()}
        for index in range(len(first))
    ]
    note = (
        f"{' '.join(sentences)} ECE with equal-mass bins. {redraws} redraws, so that no adjusted "
        f"p-value of the {len(first)} classes is below {len(first) / (redraws + 1):.2g}."
    )
    write_table(folder, "cifar100_classes", records, note, show=True)


def plot(folder: Path, models: dict[str, tuple[Any, jax.Array]]) -> None:
    """Reliability diagrams of the top label."""
    figure = Figure(figsize=(4.5 * len(models), 4.8), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(models)))
    for axis, (name, data) in zip(axes, models.items(), strict=True):
        curve = estimators.reliability_curve(
            cells.key_of(f"{NAME}/bands"),
            *estimators.top_label(*data),
            binning=estimators.UniformBins(NUM_BINS),
        )
        plotting.reliability_diagram(curve, ax=axis)
        axis.set_title(name)
        axis.legend(loc="upper left", fontsize=8)
    save_figure(folder, "cifar100_top_label", figure)


def evaluate_model(
    cell: Any, data: tuple[Categorical, jax.Array], num_samples: int
) -> dict[str, Any]:
    """All tests and estimates of one model; `cell(name, redraws, compute, *arguments)`."""
    hypotheses = {"top label": estimators.top_label(*data), "canonical": data}
    predictions, targets = estimators.class_wise(*data)
    class_wise = enumerate(zip(predictions.probs, targets, strict=True))
    redraws = REDRAWS_OF_CLASSES * num_samples
    return {
        "scores": score(*data),
        "hypotheses": {
            name: cell(name, num_samples, evaluate, *seen) for name, seen in hypotheses.items()
        },
        "classes": [
            cell(f"class {c}", redraws, evaluate_class, Bernoulli(probs), is_class)
            for c, (probs, is_class) in class_wise
        ],
    }


def finished_cells(
    store: Store,
    data: dict[str, tuple[Categorical, jax.Array]],
    temperature: float,
    num_samples: int,
) -> dict[str, Any]:
    """Results of each model, computed or read.

    Args:
        store: store of the cells.
        data: predictions and labels of "network", and of it with a temperature.
        temperature: the temperature.
        num_samples: redraws of the tests.
    """
    predictions, targets = data["network"]
    # With the temperature it identifies the scaled predictions too.
    digest = data_files.digest(predictions.class_probs, targets)

    def run(model: str, name: str, redraws: int, compute: Any, *arguments: Any) -> Any:
        parameters = {"num_samples": redraws, "data": digest}
        if model != "network":
            name, parameters = f"{model}/{name}", parameters | {"temperature": temperature}
        bar.set_description(name)
        compute = functools.partial(compute, name, *arguments, redraws)
        result = cells.cell(store, name, parameters, compute)
        bar.update()
        return result

    num_cells = 2 + predictions.class_probs.shape[1]
    with tqdm(total=len(data) * num_cells, unit="cell") as bar:
        return {
            model: evaluate_model(functools.partial(run, model), seen, num_samples)
            for model, seen in data.items()
        }


@command_line.program
def main() -> None:
    """Writes the tables and the reliability diagrams; finished cells are read again."""
    parser = command_line.option_parser(__file__, __doc__, data="required")
    parser.add_argument("--num-samples", type=command_line.positive_integer, default=1000)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    scaling = recalibration.TemperatureScaling()
    validation, (predictions, targets) = (read(run.data, part) for part in ("val", "test"))
    cifar.check_classes(validation[0].class_probs, predictions.class_probs)
    temperature = scaling.fit(*validation)
    data = {
        "network": (predictions, targets),
        "temperature scaling": (scaling.apply(temperature, predictions), targets),
    }
    folder, num_samples = run.output, options.num_samples
    store = run.store(NAME, __file__)
    models = finished_cells(store, data, float(temperature), num_samples)
    write_summary(folder, models, float(temperature), num_samples)
    write_classes(folder, models, REDRAWS_OF_CLASSES * num_samples)
    plot(folder, data)


if __name__ == "__main__":
    main()
