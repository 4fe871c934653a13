"""How good are the approximations of the null distribution of the SKCE, and how fast?

Under calibration n SKCE_u → Σ_i λ_i (z_i² − 1). Approximations of this distribution are compared
with bootstraps of 100 000 resamples (20 000 if n = 2000) on the same data: draws from the leading
eigenvalues ("spectrum, simulated"), their tail function by numerical inversion ("spectrum,
numerical"), the gamma distribution with two moments, and the shifted one with three ("Pearson").
Data are calibrated or mildly uncalibrated, so that p-values are not all tiny:

- scalar normal predictions N(c, 0.1²), c ~ U(0, 1), as in Widmann et al. (2021, App. A.2); the
  targets are drawn from them, or shifted by 0.01, or with standard deviation 0.105;
- ten classes, Dirichlet(1) or Dirichlet(0.1) predictions; labels are drawn from them, or 5 % of
  these are replaced by class 0.

Three tables: p-values and the largest difference of the tail functions between the quantiles 0.01
and 0.99 of the bootstrap; the effect of the number of eigenvalues; times at n = 4096, compared with
all eigenvalues. The latter are minima of interleaved repetitions on whatever machine this is, so
run it on an idle one.

Cells are stored, so that a run that was interrupted goes on where it was.

Run: python -m experiments.null_approximations [--num-draws 100000] [--output DIR]
"""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from calibjax import distributions, estimators, hypothesis_tests, kernels
from calibjax.hypothesis_tests import chi_squared, spectral
from experiments.harness import clocks, command_line
from experiments.harness.cells import Store, cell, key_of
from experiments.harness.command_line import program
from experiments.harness.tables import note_of, write_table
from experiments.synthetic_models import CLASS_KERNEL, NORMAL_KERNEL, SCALE

SIZES = (200, 500, 1000, 2000)
COSTLY_SIZE = 2000  # a fifth of the draws from here on
NUM_EIGENVALUES = 128  # where the approximations are compared; a test takes 64 by default
RANKS = (8, 32, 64, 128)
BAR = 0.03
TIMED_SIZE, SPEED_BAR = 4096, 10
QUANTILES = np.arange(1, 100) / 100
TAILS = {
    "spectrum, numerical": chi_squared.numerical_tail,
    "gamma": chi_squared.gamma_tail,
    "Pearson": chi_squared.pearson_tail,
}


class Normals(NamedTuple):
    """Scalar normal predictions, and targets of another mean and standard deviation."""

    shift: float = 0.0
    scale: float = SCALE

    @property
    def kernel(self) -> kernels.Kernel:
        """Kernel for these data."""
        return NORMAL_KERNEL

    def draw(self, key: jax.Array, num_samples: int) -> tuple[Any, jax.Array]:
        """One data set."""
        loc_key, target_key = jax.random.split(key)
        loc = jax.random.uniform(loc_key, (num_samples,))
        noise = self.scale * jax.random.normal(target_key, (num_samples,))
        predictions = distributions.Normal(loc, jnp.full(num_samples, SCALE))
        return predictions, loc + self.shift + noise


class Classes(NamedTuple):
    """Ten classes, and the share of labels that are replaced by class 0."""

    concentration: float
    replaced: float = 0.0

    @property
    def kernel(self) -> kernels.Kernel:
        """Kernel for these data."""
        return CLASS_KERNEL

    def draw(self, key: jax.Array, num_samples: int) -> tuple[Any, jax.Array]:
        """One data set."""
        keys = jax.random.split(key, 3)
        parameters = jnp.full(10, self.concentration)
        predictions = distributions.Categorical(
            jax.random.dirichlet(keys[0], parameters, (num_samples,))
        )
        labels = distributions.sample_targets(keys[1], predictions)
        is_replaced = jax.random.uniform(keys[2], (num_samples,)) < self.replaced
        return predictions, jnp.where(is_replaced, 0, labels)


DATA = {
    "normal, calibrated": Normals(),
    "normal, shift 0.01": Normals(shift=0.01),
    "normal, scale 0.105": Normals(scale=0.105),
    "Dirichlet(1), calibrated": Classes(1.0),
    "Dirichlet(1), 5 % class 0": Classes(1.0, 0.05),
    "Dirichlet(0.1), calibrated": Classes(0.1),
    "Dirichlet(0.1), 5 % class 0": Classes(0.1, 0.05),
}


def draw(label: str, num_samples: int) -> tuple[Any, ...]:
    """Kernel, predictions and targets."""
    data = DATA[label]
    return data.kernel, *data.draw(key_of(f"null/{label}/{num_samples}"), num_samples)


def share_above(draws: jax.Array, x: jax.Array) -> jax.Array:
    """Shares of draws that are at least x, [len(x)]."""
    draws = jnp.sort(draws)
    return 1 - jnp.searchsorted(draws, x, side="left") / len(draws)


@functools.partial(jax.jit, static_argnames="name")
def tail_values(law: chi_squared.ChiSquaredSum, x: jax.Array, *, name: str) -> jax.Array:
    """Probabilities of values of at least x, [len(x)]."""
    return jax.vmap(TAILS[name], in_axes=(None, 0))(law, x)


def approximate(label: str, num_samples: int, num_draws: int) -> dict[str, Any]:
    """p-values and tail functions at quantiles of the bootstrap, by approximation."""
    samples = draw(label, num_samples)
    keys = jax.random.split(key_of(f"null/{label}/{num_samples}/draws"))
    tests = hypothesis_tests
    bootstrap = tests.bootstrap_skce_test(keys[0], *samples, num_draws=num_draws)
    spectrum = functools.partial(
        tests.spectrum_skce_test, keys[1], *samples, num_eigenvalues=NUM_EIGENVALUES
    )
    simulated, numerical = spectrum(num_draws=num_draws), spectrum(method="numerical")
    pvalues = {
        "bootstrap": bootstrap,
        "spectrum, simulated": simulated,
        "spectrum, numerical": numerical,
        "gamma": tests.gamma_skce_test(*samples),
        "Pearson": tests.pearson_skce_test(*samples, num_eigenvalues=NUM_EIGENVALUES),
    }
    x = jnp.quantile(bootstrap.null_samples, QUANTILES)
    law = null_law(samples, NUM_EIGENVALUES)
    curves = {
        "bootstrap": share_above(bootstrap.null_samples, x),
        "spectrum, simulated": share_above(simulated.null_samples, x),
    }
    curves |= {name: tail_values(law, x, name=name) for name in TAILS}
    return {
        "pvalues": {name: float(test.pvalue) for name, test in pvalues.items()},
        "curves": {name: np.asarray(curve).tolist() for name, curve in curves.items()},
    }


def null_law(samples: tuple[Any, ...], num_eigenvalues: int) -> chi_squared.ChiSquaredSum:
    """The null distribution that the tests approximate further."""
    kernel, *data = samples
    return spectral._null(kernel, tuple(data), num_eigenvalues=num_eigenvalues)[2]


def approximation_rows(store: Store, num_draws: int) -> list[dict[str, Any]]:
    """Differences from the bootstrap in all cases."""
    rows = []
    for n, label in (bar := tqdm(list(itertools.product(SIZES, DATA)), unit="cell")):
        bar.set_description(f"approximations: {label}, n = {n}")
        draws = num_draws if n < COSTLY_SIZE else math.ceil(num_draws / 5)
        compute = functools.partial(approximate, label, n, draws)
        result = cell(store, f"approximations/{n}/{label}", {"draws": draws}, compute)
        pvalues, curves = result["pvalues"], result["curves"]
        reference = np.array(curves.pop("bootstrap"))
        for name, curve in curves.items():
            differences = np.array(curve) - reference
            worst = np.argmax(np.abs(differences))
            change = abs(pvalues[name] - pvalues["bootstrap"])
            rows.append(
                {
                    "data": label,
                    "n": n,
                    "resamples": draws,
                    "approximation": name,
                    "p": pvalues[name],
                    "bootstrap p": pvalues["bootstrap"],
                    "difference": change,
                    "met": change <= BAR,
                    "largest difference of tails": float(differences[worst]),
                    "at bootstrap p": float(reference[worst]),
                    "largest at p <= 0.1": float(np.max(np.abs(differences[reference <= 0.1]))),
                    "met everywhere": bool(abs(differences[worst]) <= BAR),
                }
            )
    return sorted(rows, key=lambda row: (list(DATA).index(row["data"]), row["n"]))


def worst_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The worst cases of each approximation by kind of data, over all n."""
    kinds = {"normal": "scalar normal", "Dirichlet": "ten classes"}
    names = dict.fromkeys(row["approximation"] for row in rows)
    summary = []
    for name, (kind, text) in itertools.product(names, kinds.items()):
        chosen = [
            row for row in rows if row["approximation"] == name and row["data"].startswith(kind)
        ]
        worst = max(chosen, key=lambda row: abs(row["largest difference of tails"]))
        summary.append(
            {
                "approximation": name,
                "predictions": text,
                "largest difference of p-values": max(row["difference"] for row in chosen),
                "largest difference of tails": abs(worst["largest difference of tails"]),
                "at bootstrap p": worst["at bootstrap p"],
                "with": f"{worst['data']}, n = {worst['n']}",
                "largest at p <= 0.1": max(row["largest at p <= 0.1"] for row in chosen),
                "bar": BAR,
                "met": all(row["met everywhere"] for row in chosen),
            }
        )
    return summary


def effect_of_rank(label: str, num_samples: int) -> dict[str, Any]:
    """Numerical p-values and tails at the quantiles of a normal grid, by number of eigenvalues."""
    samples = draw(label, num_samples)
    laws = {r: null_law(samples, r) for r in (*RANKS, num_samples)}
    sd = jnp.sqrt(2 * laws[num_samples].squares)
    x = sd * jnp.linspace(-1.5, 4, 100)
    test = functools.partial(
        hypothesis_tests.spectrum_skce_test, key_of("unused"), *samples, method="numerical"
    )
    name = "spectrum, numerical"
    return {
        "pvalues": [float(test(num_eigenvalues=r).pvalue) for r in laws],
        "curves": [np.asarray(tail_values(law, x, name=name)).tolist() for law in laws.values()],
    }


def rank_rows(store: Store) -> list[dict[str, Any]]:
    """Effect of the number of leading eigenvalues, which are in subspace iteration if n ≥ 4 r."""
    rows = []
    for label in (bar := tqdm(DATA, unit="cell")):
        bar.set_description(f"eigenvalues: {label}")
        n = SIZES[-1]
        compute = functools.partial(effect_of_rank, label, n)
        result = cell(store, f"eigenvalues/{n}/{label}", {}, compute)
        *some, everything = result["pvalues"]
        *curves, full = map(np.array, result["curves"])
        line: dict[str, Any] = {"data": label, "n": n, "p of all eigenvalues": everything}
        for rank, pvalue, curve in zip(RANKS, some, curves, strict=True):
            line[f"r = {rank}: difference of p"] = abs(pvalue - everything)
            line[f"r = {rank}: largest of tails"] = float(np.max(np.abs(curve - full)))
        rows.append(line)
    return rows


@jax.jit
def all_eigenvalues(matrix: jax.Array) -> jax.Array:
    """Eigenvalues of the centered matrix of the calibration kernel over n."""
    rows = matrix.mean(0)
    centered = matrix - rows - rows[:, None] + rows.mean()
    return jnp.linalg.eigvalsh(centered) / len(matrix)


@functools.cache
def timed_functions(label: str, num_samples: int) -> dict[str, Callable[[], Any]]:
    """The test, and all eigenvalues, which have run once to warm up."""
    samples = draw(label, num_samples)
    build = jax.jit(estimators.calibration_kernel_matrix)
    matrix = build(*samples)
    test = functools.partial(hypothesis_tests.spectrum_skce_test, jax.random.key(0), *samples)
    functions = {
        "spectrum_skce_test": test,
        "spectrum_skce_test, numerical": functools.partial(test, method="numerical"),
        "all eigenvalues of the matrix": lambda: all_eigenvalues(matrix),
        "the matrix and its eigenvalues": lambda: all_eigenvalues(build(*samples)),
    }
    clocks.interleaved_seconds(functions)
    return functions


def time_once(label: str, num_samples: int) -> dict[str, Any]:
    """Seconds of the test and of all eigenvalues, one repetition."""
    seconds = clocks.interleaved_seconds(timed_functions(label, num_samples))
    return {"seconds": seconds, "load": clocks.machine_load()}


def times_of(store: Store, label: str, repetitions: int) -> tuple[dict[str, Any], float | None]:
    """Smallest seconds, and the largest load of the machine, over repetitions, a cell each."""
    compute = functools.partial(time_once, label, TIMED_SIZE)
    numbers = tqdm(range(repetitions), desc=f"times: {label}", unit="cell")
    found = [cell(store, f"times/{label}/{i}", {"n": TIMED_SIZE}, compute) for i in numbers]
    loads = [x["load"] for x in found if x["load"] is not None]
    return clocks.smallest([x["seconds"] for x in found]), max(loads, default=None)


def time_rows(store: Store, repetitions: int) -> list[dict[str, Any]]:
    """Times at n = 4096 as multiples of that of the test."""
    rows = []
    for label in ("normal, calibrated", "Dirichlet(1), calibrated"):
        times, load = times_of(store, label, repetitions)
        base = times["spectrum_skce_test"]
        for name, (wall, cpu) in times.items():
            ratio, cpu_ratio = wall / base[0], cpu / base[1]
            is_full = "eigenvalues" in name
            rows.append(
                {
                    "data": label,
                    "n": TIMED_SIZE,
                    "what": name,
                    "seconds": wall,
                    "CPU seconds": cpu,
                    "ratio": ratio,
                    "ratio of CPU": cpu_ratio,
                    "load": load,
                    "bar": f"ratio >= {SPEED_BAR}" if is_full else None,
                    "met": bool(ratio >= SPEED_BAR) if is_full else None,
                }
            )
    return rows


@program
def main() -> None:
    """Writes the tables null_approximations, its summary, eigenvalues and times."""
    parser = command_line.option_parser(__file__, __doc__)
    parser.add_argument("--num-draws", type=command_line.positive_integer, default=100_000)
    parser.add_argument("--repetitions", type=command_line.positive_integer, default=3)
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    store = run.store("null_approximations", __file__)
    draws = options.num_draws
    command = f"Made by `python -m experiments.null_approximations --num-draws {draws}`."
    write = functools.partial(write_table, run.output, show=True)
    rows = approximation_rows(store, draws)
    values = {"draws": draws, "eigenvalues": NUM_EIGENVALUES, "bar": BAR, "command": command}
    values |= {"costly": COSTLY_SIZE, "error": 0.5 / draws**0.5}
    values["costly_error"] = 0.5 / (draws / 5) ** 0.5
    note = note_of(__file__, "approximations", **values)
    write("null_approximations", rows, note)
    write("null_approximations_summary", worst_rows(rows), note)
    note = f"Numerical p-values with r leading eigenvalues against all of them. {command}"
    write("null_eigenvalues", rank_rows(store), note)
    note = note_of(__file__, "times", number=options.repetitions, command=command[:-2])
    write("null_times", time_rows(store, options.repetitions), note)


if __name__ == "__main__":
    main()
