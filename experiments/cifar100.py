"""Is a CIFAR-100 network calibrated: in all classes together, class by class, in its top label?

The data are the logits of a ResNet-50 for the 10 000 test images. The same predictions are seen
in three ways, each of which is a null hypothesis of its own:

- canonical: the probabilities of all 100 classes are right, together;
- top label: the confidence in the most probable class is right;
- class-wise: the probability of each class alone is right, 100 hypotheses.

Each is tested by `exact_skce_test` with the kernel exp(−TV/ν) δ, ν the median total variation
distance of the predictions that are tested, which no label enters. If the first hypothesis is
true, so are the others. The p-values of the classes are adjusted for their number by Holm's
method, which allows any dependence between them, and have four times as many redraws, so that
adjusted ones can be small. Beside the tests stand the usual estimates.

Temperature scaling is not part of calibjax yet, so that only the network as it is is evaluated.

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

from calibjax import distances, estimators, hypothesis_tests, kernels, plotting
from calibjax.distributions import Categorical
from experiments import reporting
from paper_repro import cells

NAME = "cifar100"
FOLDER = ("cifar100_logits", "resnet50")
NUM_BINS = 15
MIN_BIN_SIZE = 100
ORDER = 2  # of the kernel density estimates
NUMBERS_AT_ONCE = 2.5e7  # of redrawn residuals [n, m]
LEVEL = 0.05
REDRAWS_OF_CLASSES = 4  # times those of the other tests


def read(data: Path) -> tuple[Categorical, jax.Array]:
    """Predictions [n, 100] and labels [n] of the test images."""
    paths = (reporting.data_file(data, *FOLDER, f"test_{x}.npy") for x in ("logits", "labels"))
    logits, labels = map(np.load, paths)
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise SystemExit(
            f"--data: expected logits [n, m] and labels [n] in {'/'.join(FOLDER)}, "
            f"got {logits.shape} and {labels.shape}"
        )
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
        num_samples=num_samples,
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
    variance_bins = estimators.median_variance_bins(MIN_BIN_SIZE)
    mass_bins = estimators.equal_mass_bins(NUM_BINS)
    bandwidth = estimators.kde_bandwidth(predictions)
    error = estimators.kde_calibration_error(*data, bandwidth=bandwidth, order=ORDER)
    return exact_test(name, *data, num_samples) | {
        "uniform": float(estimators.ece(*data, binning=estimators.uniform_bins(NUM_BINS))),
        "median variance": float(estimators.ece(*data, binning=variance_bins)),
        "equal mass": float(estimators.ece(*data, binning=mass_bins)),
        "maximum": float(estimators.mce(*data, binning=variance_bins)),
        "debiased": float(estimators.debiased_squared_ece(*data, binning=variance_bins)),
        "bandwidth": float(bandwidth),
        "density": float(error),
    }


def evaluate_class(
    index: int, predictions: Any, targets: jax.Array, num_samples: int
) -> dict[str, Any]:
    """The exact test and the ECE of one class against the rest."""
    binning = estimators.equal_mass_bins(NUM_BINS)
    row = exact_test(f"class {index}", predictions, targets, num_samples)
    row["ece"] = float(estimators.ece(predictions, targets, binning=binning))
    return row | {
        "frequency": float(targets.mean()),
        "probability": float(jnp.mean(predictions.probs)),
    }


def holm(pvalues: np.ndarray) -> np.ndarray:
    """p-values adjusted for their number by Holm's method."""
    order = np.argsort(pvalues)
    factors = np.arange(len(pvalues), 0, -1)
    adjusted = np.empty_like(pvalues)
    adjusted[order] = np.minimum(np.maximum.accumulate(pvalues[order] * factors), 1)
    return adjusted


def write_summary(folder: Path, results: dict[str, Any], num_samples: int) -> None:
    """One row for all classes together and one for the top label."""
    rows = [
        {
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
            "MMCE": row.get("mmce"),
            "seconds of the test": row["seconds"],
        }
        for name, row in results.items()
    ]
    note = (
        f"ResNet-50 on CIFAR-100, 10 000 test images, {num_samples} redraws: the smallest possible "
        f"p-value is {1 / (num_samples + 1):.2g}. ECE and MCE with the total variation distance, "
        f"{NUM_BINS} uniform or equal-mass intervals per class, or median-variance bins of at "
        f"least {MIN_BIN_SIZE} images. Squared errors add up over all classes, of which the top "
        "label has two. Made by `python -m experiments.cifar100 --data DIR`."
    )
    reporting.write_records(folder, "cifar100", rows, note)


def write_classes(folder: Path, rows: list[dict[str, Any]], num_samples: int) -> None:
    """One row for each class."""
    adjusted = holm(np.array([row["pvalue"] for row in rows]))
    records = [
        {
            "class": index,
            "mean probability": row["probability"],
            "frequency": row["frequency"],
            "SKCE": row["skce"],
            "ECE, equal-mass bins": row["ece"],
            "exact p": row["pvalue"],
            "adjusted p": float(p),
        }
        for index, (row, p) in enumerate(zip(rows, adjusted, strict=True))
    ]
    alone = sum(row["pvalue"] <= LEVEL for row in rows)
    together = int(np.sum(adjusted <= LEVEL))
    note = (
        f"{alone} of {len(rows)} classes have p <= {LEVEL}, {together} after Holm's adjustment; "
        f"mean ECE {np.mean([row['ece'] for row in rows]):.3g}. {num_samples} redraws, so that no "
        f"adjusted p-value of the {len(rows)} classes is below {len(rows) / (num_samples + 1):.2g}."
    )
    reporting.write_records(folder, "cifar100_classes", records, note)


def plot(folder: Path, confidences: Any, correct: jax.Array) -> None:
    """Reliability diagram of the top label."""
    figure = Figure(figsize=(4.5, 4.8), layout="constrained")
    curve = plotting.reliability_curve(
        cells.key_of(f"{NAME}/bands"),
        confidences,
        correct,
        binning=estimators.uniform_bins(NUM_BINS),
    )
    axis = plotting.reliability_diagram(curve, axis=figure.subplots())
    axis.legend(loc="upper left", fontsize=8)
    cells.save_figure(folder, "cifar100_top_label", figure)


def main() -> None:
    """Writes the tables and the reliability diagram; finished cells are read again."""
    parser = reporting.option_parser(__doc__, needs_data=True)
    parser.add_argument("--num-samples", type=reporting.positive_integer, default=1000)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    data = read(options.data)
    top_label, class_wise = estimators.top_label(*data), estimators.class_wise(*data)
    folder, num_samples = options.output, options.num_samples
    num_classes = class_wise[1].shape[0]

    def cell(name: str, compute: Any, *arguments: Any, redraws: int = num_samples) -> Any:
        bar.set_description(name)
        compute = functools.partial(compute, *arguments, redraws)
        result = cells.cell(folder / NAME, name, {"num_samples": redraws}, compute)
        bar.update()
        return result

    with tqdm(total=2 + num_classes, unit="cell") as bar:
        results = {
            name: cell(name, evaluate, name, *seen)
            for name, seen in (("top label", top_label), ("canonical", data))
        }
        results["top label"]["mmce"] = float(estimators.mmce(kernels.Exponential(0.4), *top_label))
        redraws = REDRAWS_OF_CLASSES * num_samples
        classes = []
        for c in range(num_classes):
            seen = jax.tree.map(lambda x, c=c: x[c], class_wise)
            classes.append(cell(f"class {c}", evaluate_class, c, *seen, redraws=redraws))
    write_summary(folder, results, num_samples)
    write_classes(folder, classes, redraws)
    plot(folder, *top_label)


if __name__ == "__main__":
    main()
