"""Which recalibration of classes, by the number of samples n and of classes m?

Five classifiers on data that come with scikit-learn, and with `--data` networks on CIFAR-10 and
CIFAR-100. Each model learns from samples of its own, the recalibrations from n others, and the rest
judges them. Beside ours are those of scikit-learn's `CalibratedClassifierCV`, and, where it is
installed, structured matrix scaling by its authors (`probmetrics`).

Run: python -m experiments.recalibration_table [--data DIR] [--output DIR]
"""

import importlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from calibjax import distributions, recalibration
from experiments.harness import command_line
from experiments.harness.command_line import program
from experiments.harness.extras import imported
from experiments.harness.messages import log
from experiments.harness.tables import write_table

SMALLEST = 1e-6  # forests and naive Bayes predict zeros, of which one costs more than all else
METHODS: dict[str, Any] = {
    "temperature": recalibration.TemperatureScaling(),
    "bias": recalibration.MatrixScaling(structure="bias"),
    "diagonal": recalibration.MatrixScaling(structure="diagonal"),
    "full": recalibration.MatrixScaling(),
}
PEERS = {"sklearn temperature": "temperature", "sklearn isotonic": "isotonic"}
NOTE = """Log loss, and Brier score, of the predictions as they are, and how much each recalibration
adds, in thousandths: negative is better. Standard errors are those of the mean over test samples of
the paired difference, averaged over the models; they do not include that of the fit. `worst` is the
largest increase of the log loss of one model."""


class Task(NamedTuple):
    """Logits and labels to learn from, those that judge, and new logits of peers by name."""

    data: str
    model: str
    logits: np.ndarray
    labels: np.ndarray
    new_logits: np.ndarray
    new_labels: np.ndarray
    peers: dict[str, np.ndarray]


def networks(folder: Path) -> Iterator[Task]:
    """Networks whose logits are below the folder."""
    for path in sorted(folder.glob("cifar*_logits/*/test_logits.npy")):
        names = "val_logits", "val_labels", "test_logits", "test_labels"
        x, y, new, labels = (np.load(path.with_name(f"{name}.npy")) for name in names)
        data = path.parts[-3].removesuffix("_logits")
        yield Task(data, path.parts[-2], x, y.ravel(), new, labels.ravel(), {})


def tables() -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """Name, number of calibration samples, features and labels, in a random order."""
    datasets = imported("sklearn.datasets")
    real = {"iris": [50], "wine": [59], "breast_cancer": [200], "digits": [200, 500]}
    for name, sizes in real.items():
        features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))
        yield from ((name, n, features[order], labels[order]) for n in sizes)
    for m in (2, 4, 10):
        for n in (200, 1000, 5000):
            features, labels = datasets.make_classification(
                2 * n + 5000,
                n_features=20,
                n_informative=10,
                n_classes=m,
                flip_y=0.05,
                weights=None if m == 2 else np.arange(1, m + 1) / (m * (m + 1) / 2),
                random_state=m,
            )
            yield f"synthetic {m}", n, features, labels


def classifiers() -> dict[str, Any]:
    """Classifiers of several kinds, by name."""
    of = lambda module, name: getattr(imported(f"sklearn.{module}"), name)  # noqa: E731
    return {
        "logistic": of("linear_model", "LogisticRegression")(max_iter=300),
        "naive Bayes": of("naive_bayes", "GaussianNB")(),
        "forest": of("ensemble", "RandomForestClassifier")(100, random_state=0),
        "boosting": of("ensemble", "HistGradientBoostingClassifier")(max_iter=50, random_state=0),
        "neighbours": of("neighbors", "KNeighborsClassifier")(10),
    }


def models() -> Iterator[Task]:
    """Classifiers on tables, in which every class occurs in the first part."""
    calibration, frozen = imported("sklearn.calibration"), imported("sklearn.frozen")
    for data, n, features, labels in tables():
        train, some, rest = slice(0, n), slice(n, 2 * n), slice(2 * n, None)
        for name, model in classifiers().items():
            model.fit(features[train], labels[train])
            peers = {}
            for peer, method in PEERS.items():
                theirs = calibration.CalibratedClassifierCV(
                    frozen.FrozenEstimator(model), method=method
                )
                theirs.fit(features[some], labels[some])
                peers[peer] = _logits(theirs.predict_proba(features[rest]))
            old, new = (_logits(model.predict_proba(features[x])) for x in (some, rest))
            yield Task(data, name, old, labels[some], new, labels[rest], peers)


def _logits(probs: np.ndarray) -> np.ndarray:
    probs = np.maximum(probs, SMALLEST)
    return np.log(probs / probs.sum(1, keepdims=True))


def _authors() -> Callable[[Task], np.ndarray] | None:
    """Structured matrix scaling of `probmetrics`, if it can be imported."""
    try:
        calibrators = importlib.import_module("probmetrics.calibrators")
    except ImportError:
        return None

    def apply(task: Task) -> np.ndarray:
        probs = (np.asarray(jax.nn.softmax(x, 1)) for x in (task.logits, task.new_logits))
        method = calibrators.get_calibrator("sms").fit(next(probs), task.labels)
        return _logits(method.predict_proba(next(probs)))

    return apply


def losses(logits: Any, labels: np.ndarray) -> np.ndarray:
    """Log loss and Brier score of each sample, [2, n]."""
    logs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32), 1), float)
    own = logs[np.arange(len(labels)), labels]
    return np.stack([-own, np.exp(2 * logs).sum(1) - 2 * np.exp(own) + 1])


def results(task: Task) -> dict[str, np.ndarray]:
    """Losses by method; "none" is of the predictions as they are."""
    old, new = (
        distributions.CategoricalLogits(jnp.asarray(x, jnp.float32))
        for x in (task.logits, task.new_logits)
    )
    found = {"none": task.new_logits}
    for name, method in METHODS.items():
        try:
            found[name] = method.apply(method.fit(old, jnp.asarray(task.labels)), new).logits
        except ValueError as error:  # of classes that are apart there is no temperature
            log(f"{task.data}, {task.model}, {name}: {error}")
    found |= task.peers
    if authors := _authors():
        found["probmetrics"] = authors(task)
    return {name: losses(x, task.new_labels) for name, x in found.items()}


def row(data: str, n: int, m: int, by_model: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """Means over models, with standard errors over test samples."""
    mean = np.mean([x["none"] for x in by_model], 0).mean(1)
    line = {"data": data, "n": n, "m": m, "models": len(by_model)}
    line |= {"log loss": mean[0], "Brier": mean[1]}
    for name in (*METHODS, *PEERS, "probmetrics"):
        # Where there is no temperature, predictions stay as they are.
        all_of = [x.get(name, x["none"]) - x["none"] for x in by_model]
        is_known = any(name in x for x in by_model)
        gain, error = np.mean(all_of, 0).mean(1), np.mean(all_of, 0).std(1, ddof=1)
        error = 1000 * error / np.sqrt(all_of[0].shape[1])
        for k, short in enumerate(("", ", Brier")):
            cell = f"{1000 * gain[k]:+.1f} ± {error[k]:.1f}"
            line[f"{name}{short}"] = cell if is_known else None
    worst = max(float((x["full"] - x["none"])[0].mean()) for x in by_model)
    return line | {"worst": f"{1000 * worst:+.1f}"}


@program
def main() -> None:
    """Writes the table recalibration."""
    run, _ = command_line.parse(command_line.option_parser(__file__, __doc__, data="optional"))
    warnings.filterwarnings("ignore", module="sklearn")
    groups: dict[tuple[str, int, int], list[dict[str, np.ndarray]]] = {}
    for source in (networks(run.data) if run.data else (), models()):
        for task in source:
            key = task.data, len(task.labels), task.logits.shape[1]
            groups.setdefault(key, []).append(results(task))
            log(f"{key}: {task.model}")
    rows = [row(*key, by_model) for key, by_model in groups.items()]
    write_table(run.output, "recalibration", rows, NOTE, show=True)


if __name__ == "__main__":
    main()
