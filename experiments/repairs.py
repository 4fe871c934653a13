"""What repairs real models: 22 networks, and forecasts of temperatures after EMOS.

The networks are the 14 of W19 and the 8 with published logits, on a random part of the test images,
the same for all on CIFAR-10: with all images every network is rejected after every recalibration of
few parameters, which says no more than that n is large. They are repaired with a temperature and,
of ten classes, `VectorScaling`: a thousand images often lack one of a hundred classes.

The forecasts are normal distributions whose mean and variance are linear functions of the mean and
the variance of an ensemble of 11 members (EMOS, Gneiting et al. 2005), by maximum likelihood of the
first half of the rows, and are judged by the second half.

Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.repairs --data DIR [--num-samples 1000] [--output DIR]
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from calibjax import what_would_repair
from calibjax.distributions import Categorical, Normal
from calibjax.evaluation.repair import Repairs
from calibjax.recalibration import TemperatureScaling, VectorScaling
from experiments import ensemble_scaling
from experiments.chance import networks
from experiments.chance.__main__ import ORDER
from experiments.harness import cells, command_line, data_files
from experiments.harness.tables import write_table

NAME = "repairs"
METHODS = {"temperature": TemperatureScaling(), "vector": VectorScaling()}
MOST_CLASSES = (
    10  # of which redraws of a thousand images have all, without which vectors have no fit
)
EVERY = 2  # row of the forecasts that are judged
DRAWS = 99


def line_of(found: Repairs) -> dict[str, Any]:
    """p-values after each recalibration, its gain in nats, and what is enough."""
    line: dict[str, Any] = {"enough": found.enough or "none"}
    missing = dict(found.not_fitted)  # whose places stay empty
    for name, p in found.pvalues.items():
        if name in missing:
            line |= dict.fromkeys((f"p {name}", f"gain {name}", f"s.e. {name}"))
            continue
        line[f"p {name}"] = float(p)
        if name in found.gains:
            line[f"gain {name}"] = float(found.gains[name].mean)
            line[f"s.e. {name}"] = float(found.gains[name].standard_error)
    return line


def emos(members: np.ndarray, observed: np.ndarray, half: int) -> Normal:
    """Normal forecasts of all rows, fitted to those before `half`."""
    means, variances = members.mean(1), members.var(1, ddof=1)

    def forecasts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x[0] + x[1] * means, np.sqrt(x[2] ** 2 + x[3] ** 2 * variances)

    def loss(x: np.ndarray) -> float:
        loc, scale = (z[:half] for z in forecasts(x))
        return float(np.mean(np.log(scale) + 0.5 * ((observed[:half] - loc) / scale) ** 2))

    best = minimize(loss, [0.0, 1.0, 1.0, 1.0], method="Nelder-Mead", options={"maxiter": 10**4})
    return Normal(*map(jnp.asarray, forecasts(best.x)))


def network_rows(store: cells.Store, data: Path, number: int) -> list[dict[str, Any]]:
    """A line for each network."""
    names = {"CIFAR-10, W19": networks.PUBLISHED}
    names |= {f"{x}, logits": networks.validated(x) for x in ("cifar10", "cifar100")}
    lines = []
    for images, of_images in names.items():
        for name in of_images:
            order = name if images.startswith("cifar100") else ORDER
            part = networks.shuffled(networks.read_part(data, name), order)
            probs, labels = (x[:number] for x in part)

            def compute(probs: Any = probs, labels: Any = labels, name: str = name) -> Any:
                predictions = Categorical(jnp.asarray(probs))
                methods = dict(METHODS)
                if probs.shape[1] > MOST_CLASSES:
                    del methods["vector"]
                data = cells.key_of(f"{NAME}/{name}"), predictions, labels
                return line_of(what_would_repair(*data, methods, num_draws=DRAWS))

            parameters = {"data": data_files.digest(probs, labels), "draws": DRAWS}
            found = cells.cell(store, f"{name}/{number}", parameters, compute)
            lines.append({"images": images, "network": name, "n": len(labels)} | found)
    columns = max(lines, key=len)  # those of few classes have all
    return [{column: line.get(column) for column in columns} for line in lines]


def forecast_rows(store: cells.Store, data: Path) -> list[dict[str, Any]]:
    """What repairs the forecasts of temperatures."""
    observed, members = ensemble_scaling.read(data)
    half = len(observed) // 2

    def compute() -> dict[str, Any]:
        forecasts = jax.tree.map(lambda x: x[half::EVERY], emos(members, observed, half))
        key = cells.key_of(f"{NAME}/forecasts")
        return line_of(what_would_repair(key, forecasts, observed[half::EVERY], num_draws=DRAWS))

    parameters = {"data": data_files.digest(observed, members), "draws": DRAWS}
    found = cells.cell(store, "forecasts", parameters, compute)
    return [{"forecasts": "EMOS", "n": len(observed[half::EVERY])} | found]


@command_line.program
def main() -> None:
    """Writes the tables repairs_networks and repairs_forecasts."""
    parser = command_line.option_parser(__file__, __doc__, data="required")
    parser.add_argument("--num-samples", type=command_line.positive_integer, default=1000)
    run, options = command_line.parse(parser)
    store, n = run.store(NAME, __file__), options.num_samples
    note = (
        f"p-values of `what_would_repair`, {DRAWS} redraws, and cross-fitted gains in nats. "
        f"Made by `python -m experiments.{NAME} --data DIR --num-samples {n}`."
    )
    rows = network_rows(store, run.data, n)
    write_table(store.folder, f"{NAME}_networks", rows, note, show=True)
    rows = forecast_rows(store, run.data)
    write_table(store.folder, f"{NAME}_forecasts", rows, note, show=True)


if __name__ == "__main__":
    main()
