"""CPU seconds of some calls, the first in a fresh process and warm ones, of one or two checkouts.

Run: python -m experiments.benchmark.steps [--against OTHER] [--only PATTERN] [--rounds N]

Two checkouts alternate, and the minimum over the rounds counts. CPU time is that of all threads of
the process in user and system mode, so that other work on the machine disturbs little. Nothing is
cached on disk but by the second run of a page. This file measures both checkouts, of which only
`calibjax` is imported.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
CALLS = (
    *(
        f"skce {data} {n}"
        for data in ("normals", "classes", "ensembles")
        for n in (200, 1000, 5000)
    ),
    *(f"slope_of_scale normals {n}" for n in (200, 1000, 5000)),
    *(f"slope_of_predictions normals {n}" for n in (200, 1000, 5000)),
    "slope_of_predictions classes 1000",
    *(f"exact normals {n} {draws}" for n, draws in ((40, 99), (200, 199), (1024, 1000))),
    *("aggregated normals 200", "aggregated normals 1000"),
    *("median_heuristic normals 1000", "median_heuristic normals 5000"),
    *("witness normals 1000", "witness normals 5000"),
    *("ece classes 5000", "crps normals 5000", "crps ensembles 1000"),
    *("temperature classes 1000", "temperature normals 1000"),
    *("training plain 128", "training skce 128", "training mmce 128"),  # 300 steps each
    *("page normals", "page classes"),
)


def arrays(data: str, n: int) -> dict[str, np.ndarray]:
    """Parameters of n predictions, and targets drawn from them."""
    generator = np.random.default_rng(0)
    loc, noise = generator.normal(size=(2, n)).astype(np.float32)
    if data == "normals":
        scale = generator.uniform(0.3, 1.0, n).astype(np.float32)
        return {"loc": loc, "scale": scale, "target": loc + scale * noise}
    if data == "ensembles":
        values = loc[:, None] + generator.normal(size=(n, 10)).astype(np.float32)
        return {"values": values, "target": loc + noise}
    probs = generator.dirichlet(np.ones(10), n)
    chosen = np.sum(generator.random((n, 1)) > np.cumsum(probs, 1)[:, :-1], 1)
    return {"probs": probs.astype(np.float32), "label": chosen.astype(np.int32)}


def prepare(what: str, data: str, n: int, draws: int = 99) -> Callable[[], Any]:
    """A call without arguments, whose data lie on the device."""
    if what == "training":
        return _training(data, n)
    import jax
    import jax.numpy as jnp

    from calibjax import distances, distributions, estimators, kernels, recalibration, scores
    from calibjax import hypothesis_tests as tests

    families = {
        "normals": (distributions.Normal, distances.Wasserstein(), kernels.SquaredExponential),
        "ensembles": (distributions.Ensemble, distances.Wasserstein(), kernels.SquaredExponential),
        "classes": (distributions.Categorical, distances.TotalVariation(), kernels.White),
    }
    make, distance, target_kernel = families[data]
    *parameters, targets = map(jnp.asarray, arrays(data, n).values())
    predictions, key, one = make(*parameters), jax.random.key(0), jnp.float32(1.0)

    def skce(scale: Any, predictions: Any) -> Any:
        kernel = kernels.TensorProduct(kernels.Exponential(scale, distance), target_kernel())
        return estimators.skce(kernel, predictions, targets)

    kernel = kernels.TensorProduct(kernels.Exponential(1.0, distance), target_kernel())
    of_scale, of_predictions = (jax.jit(jax.grad(skce, i)) for i in (0, 1))
    calls: dict[str, Callable[[], Any]] = {
        "skce": lambda: estimators.skce(kernel, predictions, targets),
        "slope_of_scale": lambda: of_scale(one, predictions),
        "slope_of_predictions": lambda: of_predictions(one, predictions),
        "exact": lambda: tests.exact_skce_test(key, kernel, predictions, targets, num_draws=draws),
        "aggregated": lambda: tests.aggregated_skce_test(key, predictions, targets),
        "median_heuristic": lambda: kernels.median_heuristic(distance, predictions),
        "witness": lambda: estimators.witness(kernel, predictions, targets, predictions, targets),
        "ece": lambda: estimators.ece(predictions, targets, notion="canonical"),
        "crps": lambda: scores.crps(predictions, targets),
        "temperature": lambda: recalibration.TemperatureScaling().fit(predictions, targets),
    }
    return lambda: jax.block_until_ready(calls[what]())


def _training(penalty: str, batch_size: int) -> Callable[[], Any]:
    """300 steps of a network with 64 inputs, two layers of 256 and ten classes in one program."""
    import jax
    import jax.numpy as jnp
    import optax

    from calibjax import distances, distributions, estimators, kernels
    from calibjax.estimators.kernel import mmce

    labels = jnp.asarray(arrays("classes", 1797)["label"])
    inputs = jax.random.normal(jax.random.key(0), (1797, 64)) + labels[:, None] / 10
    kernel = kernels.TensorProduct(
        kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
    )

    def of_classes(logits: Any, y: Any) -> Any:
        return estimators.skce(kernel, distributions.CategoricalLogits(logits), y)

    def of_confidences(logits: Any, y: Any) -> Any:
        top = estimators.top_label(distributions.CategoricalLogits(logits), y)
        return mmce(kernels.Exponential(0.4), *top)

    error = {"plain": lambda *_: 0.0, "skce": of_classes, "mmce": of_confidences}[penalty]

    def loss(weights: Any, chosen: Any) -> Any:
        hidden, y = inputs[chosen], labels[chosen]
        for layer in weights[:-1]:
            hidden = jax.nn.relu(hidden @ layer)
        logits = hidden @ weights[-1]
        likelihood = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return likelihood + error(logits, y)

    optimiser = optax.adam(1e-3)

    def step(state: Any, key: Any) -> Any:
        weights, moments = state
        chosen = jax.random.choice(key, len(labels), (batch_size,))
        slopes = jax.grad(loss)(weights, chosen)
        updates, moments = optimiser.update(slopes, moments)
        return (optax.apply_updates(weights, updates), moments), None

    keys = jax.random.split(jax.random.key(1), 300)
    shapes = ((64, 256), (256, 256), (256, 10))
    first = [0.1 * jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=False)]
    run = jax.jit(lambda weights: jax.lax.scan(step, (weights, optimiser.init(weights)), keys)[0])
    return lambda: jax.block_until_ready(run(first))


def measure(name: str) -> dict[str, float]:
    """CPU seconds of the first call in this process, and the median of warm ones."""
    what, data, *numbers = name.split()
    if what == "page":
        return _page(data)
    call = prepare(what, data, *map(int, numbers))
    seconds = []
    while len(seconds) < 6 or (len(seconds) < 40 and sum(seconds[1:]) < 1):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return {"first": seconds[0], "warm": statistics.median(seconds[1:])}


def _page(data: str) -> dict[str, float]:
    """Of the command line with an empty cache, and with what that left there."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        names = {"loc": "mean", "scale": "sd"}
        columns = {names.get(name, name): x for name, x in arrays(data, 285).items()}
        probs = columns.pop("probs", np.zeros((0, 0))).T
        columns |= {f"prob_{i}": x for i, x in enumerate(probs)}
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(map(str, row)) for row in (columns, *rows)]
        Path(folder, "data.csv").write_text("\n".join(lines))
        command = [sys.executable, "-P", "-m", "calibjax", "data.csv", "--report", "page.html"]
        variables = os.environ | {"HOME": folder, "XDG_CACHE_HOME": f"{folder}/cache"}
        variables.pop("JAX_ENABLE_COMPILATION_CACHE", None)
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, cwd=folder, env=variables, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"first": seconds[0], "warm": seconds[1]}


def in_checkout(checkout: Path, name: str) -> dict[str, float]:
    """What a fresh process measures that imports `calibjax` from a checkout."""
    variables = {k: v for k, v in os.environ.items() if k[:4] not in ("JAX_", "XLA_")}
    variables |= {"PYTHONPATH": str(checkout), "JAX_PLATFORMS": "cpu"}
    variables |= {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    variables.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache/matplotlib"))  # lists fonts
    command = [sys.executable, "-P", __file__, "--worker", name]
    result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if result.returncode:
        print(f"{name} in {checkout}:\n{result.stderr[-2000:]}", file=sys.stderr)
        return {"first": np.nan, "warm": np.nan}
    found = json.loads(result.stdout.splitlines()[-1])
    if not Path(found.pop("file")).is_relative_to(checkout):
        raise RuntimeError(f"calibjax was not imported from {checkout}")
    return found


def main() -> None:
    """Prints a line for each call as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="the state before")
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        import calibjax

        print(json.dumps({"file": calibjax.__file__, **measure(options.worker)}))
        return
    checkouts = [ROOT] if options.against is None else [options.against.resolve(), ROOT]
    columns = ["now"] if options.against is None else ["before", "now", "ratio"]
    print("CPU seconds |", *(f"first {x} |" for x in columns), *(f"warm {x} |" for x in columns))
    for name in CALLS:
        if re.search(options.only, name):
            rounds = [[in_checkout(x, name) for x in checkouts] for _ in range(options.rounds)]
            cells = []
            for kind in ("first", "warm"):
                least = [min(x[kind] for x in of_one) for of_one in zip(*rounds, strict=True)]
                cells += [f"{x:.4g}" for x in least]
                cells += [f"{least[1] / least[0]:.2f}"] if len(least) > 1 else []
            print(" | ".join([name, *cells]), flush=True)


if __name__ == "__main__":
    main()
