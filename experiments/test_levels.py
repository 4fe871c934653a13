"""Do the tests hold their level, and what is their power? Are the estimators unbiased?

The simulated data sets are those of `experiments.synthetic_models`. All tests are compared on
scalar normal predictions and on ten classes; with ten-dimensional targets, two classes, and
uncalibrated models, the exact test with the bootstrap and a block test at small n.

The exact test can only reject less often than α where its statistic has ties, so with few class
labels its level lies below 0.05; with continuous targets and (B + 1) α an integer it equals 0.05
for every number B of redraws, which is why there are fewer of them where they cost most.

Some p-values are NaN under `jit`: of a block test whose block estimates are all equal, and of a
CME test with a singular covariance. Such a data set counts as not rejected; the column "undefined"
has their number. CME tests draw five locations anew for each data set: W21's for normal
predictions, predictions and labels of the model itself for classes.

All tests are evaluated within `jit`, where the exact SKCE test of scalar normals works by pairs.
One by one, with concrete values, it would use features: as fast at n = 1024 (0.3 s and 0.37 s for
99 redraws on a busy machine), slower for fewer samples.

Cells are stored, so that a run that was interrupted goes on where it was. On few cores set the
environment variable OPENBLAS_NUM_THREADS=1: threads that wait for each other take most of the
time of the small decompositions.

Run: python -m experiments.test_levels [--num-datasets 2000] [--output DIR]
"""

import functools
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from calibjax import estimators, hypothesis_tests
from experiments import reporting
from experiments.reporting import keys_of, spans
from experiments.synthetic_models import Model
from paper_repro.cells import cell, key_of, program

ALPHA = 0.05
POWER_BARS = {("uncalibrated", 1): 0.965, ("uncalibrated", 10): 0.93}  # exact test, n = 4
EXACT = "exact SKCE"
NUM_LOCATIONS = 5
ECE = functools.partial(estimators.ece, binning=estimators.uniform_bins(10))

# (B + 1) α is an integer.
DRAWS = {4: 999, 16: 999, 64: 199, 256: 99, 1024: 99}
FEWER_DRAWS = {("exact", "calibrated", 1024): 19, ("consistency", "calibrated", 1024): 19} | {
    ("consistency", "classes", 1024): 19
}
MODELS = {"normal": Model("calibrated", 1), "classes": Model("classes", 10)}
OTHER_MODELS = (
    Model("calibrated", 10),
    Model("uncalibrated", 1),
    Model("uncalibrated", 10),
    Model("classes", 2),
)
SIZES = (16, 64, 256, 1024)
NUM_EIGENVALUES = 32  # a p-value differs from that with all of them by less than 1e-3
_BATCH_NUMBERS = 2**20  # numbers that the draws of the data sets evaluated at once may hold

Pvalues = dict[str, jax.Array]


def skce_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Tests with asymptotic distributions of the SKCE, or bounds; only the bootstrap draws."""
    arguments = model.kernel, *samples
    tests = hypothesis_tests
    spectrum = functools.partial(tests.spectrum_skce_test, key, method="numerical")
    size = math.isqrt(samples[1].shape[0])
    results = {
        "bootstrap": tests.bootstrap_skce_test(key, *arguments, num_samples=num_draws),
        "spectrum": spectrum(*arguments, num_eigenvalues=NUM_EIGENVALUES),
        "gamma": tests.gamma_skce_test(*arguments),
        "Pearson": tests.pearson_skce_test(*arguments, num_eigenvalues=NUM_EIGENVALUES),
        "block (B = 2)": tests.block_skce_test(*arguments, block_size=2),
        "block (B = √n)": tests.block_skce_test(*arguments, block_size=size),
    }
    for name, options in {"biased": {}, "unbiased": {}, "block": {"block_size": 2}}.items():
        results[f"distribution-free ({name})"] = tests.distribution_free_skce_test(
            *arguments, estimator=name, **options
        )
    return {name: result.pvalue for name, result in results.items()}


def few_skce_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """The asymptotic tests of the paper."""
    arguments = model.kernel, *samples
    bootstrap = hypothesis_tests.bootstrap_skce_test(key, *arguments, num_samples=num_draws)
    block = hypothesis_tests.block_skce_test(*arguments, block_size=2)
    return {"bootstrap": bootstrap.pvalue, "block (B = 2)": block.pvalue}


def exact_skce_test(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """The exact test with the SKCE."""
    test = hypothesis_tests.exact_skce_test(key, model.kernel, *samples, num_samples=num_draws)
    return {EXACT: test.pvalue}


def cme_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """The CME test, and the exact test with its statistic at the same locations."""
    location_key, redraw_key = jax.random.split(key)
    if model.name == "classes":
        locations = model.draw(location_key, NUM_LOCATIONS)
    else:
        locations = hypothesis_tests.draw_test_locations(location_key, NUM_LOCATIONS)

    def statistic(predictions: Any, targets: Any) -> jax.Array:
        return hypothesis_tests.cme_test(model.kernel, predictions, targets, *locations).statistic

    asymptotic = hypothesis_tests.cme_test(model.kernel, *samples, *locations)
    exact = hypothesis_tests.exact_test(redraw_key, statistic, *samples, num_samples=num_draws)
    return {"CME": asymptotic.pvalue, "exact CME": exact.pvalue}


def consistency_test(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Consistency resampling of the biased SKCE."""
    statistic = functools.partial(estimators.skce_biased, model.kernel)
    test = hypothesis_tests.consistency_test(key, statistic, *samples, num_samples=num_draws)
    return {"consistency SKCE": test.pvalue}


def ece_tests(key: jax.Array, model: Model, samples: Any, num_draws: int) -> Pvalues:
    """Consistency resampling and exact test of the ECE, ten uniform bins per class."""
    keys = jax.random.split(key)
    tests = hypothesis_tests
    resampled = tests.consistency_test(keys[0], ECE, *samples, num_samples=num_draws)
    exact = tests.exact_test(keys[1], ECE, *samples, num_samples=num_draws)
    return {"consistency ECE": resampled.pvalue, "exact ECE": exact.pvalue}


GROUPS: dict[str, Callable[..., Pvalues]] = {
    "exact": exact_skce_test,
    "few": few_skce_tests,
    "skce": skce_tests,
    "cme": cme_tests,
    "consistency": consistency_test,
    "ece": ece_tests,
}
SIMULATED = {EXACT, "bootstrap", "exact CME", "consistency SKCE", "consistency ECE", "exact ECE"}


@functools.partial(
    jax.jit, static_argnames=("group", "model", "num_samples", "num_draws", "batch_size")
)
def pvalues(
    data_keys: jax.Array,
    test_keys: jax.Array,
    *,
    group: str,
    model: Model,
    num_samples: int,
    num_draws: int,
    batch_size: int,
) -> Pvalues:
    """p-values of a group of tests on each of the data sets, [data sets] each."""

    def one(keys: tuple[jax.Array, jax.Array]) -> Pvalues:
        data_key, test_key = keys
        return GROUPS[group](test_key, model, model.draw(data_key, num_samples), num_draws)

    return jax.lax.map(one, (data_keys, test_keys), batch_size=batch_size)


def draws_of(group: str, model: Model, num_samples: int) -> int:
    """Number of draws of the simulated tests."""
    return FEWER_DRAWS.get((group, model.name, num_samples), DRAWS[num_samples])


def counts(group: str, model: Model, num_samples: int, span: tuple[int, int]) -> dict[str, Any]:
    """How often each test of a group rejects, and has no p-value, on the given data sets."""
    num_draws = draws_of(group, model, num_samples)
    # All groups see the same data sets.
    name = f"levels/{model.name}/{model.size}/{num_samples}"
    batch_size = max(1, _BATCH_NUMBERS // (num_draws * num_samples**2))
    values = pvalues(
        keys_of(name, "data", span),
        keys_of(name, group, span),
        group=group,
        model=model,
        num_samples=num_samples,
        num_draws=num_draws,
        batch_size=min(span[1] - span[0], batch_size),
    )
    return {
        test: {"rejected": int(np.sum(p <= ALPHA)), "undefined": int(np.sum(np.isnan(p)))}
        for test, p in ((test, np.asarray(p)) for test, p in values.items())
    }


def all_cells() -> list[tuple[Model, int, str]]:
    """Models, numbers of samples and groups of tests, the cheap ones first."""
    all_models = (*MODELS.values(), *OTHER_MODELS)
    cells = [(model, 4, group) for model in all_models for group in ("exact", "few")]
    cells += [(model, 16, group) for model in OTHER_MODELS for group in ("exact", "few")]
    for model, n, group in itertools.product(MODELS.values(), SIZES, GROUPS):
        if group != "few" and (group != "ece" or model.name == "classes"):
            cells.append((model, n, group))
    return sorted(cells, key=lambda cell: cell[1])


def level_row(line: dict[str, Any], rate: float, number: int) -> dict[str, Any]:
    """Adds standard error, deviation from the level, and the bar of the exact tests."""
    exact = line["test"].startswith("exact")
    error = math.sqrt(ALPHA * (1 - ALPHA) / number)
    calibrated = line["model"] != "uncalibrated"
    line |= {"rejection rate": rate, "s.e.": math.sqrt(rate * (1 - rate) / number)}
    line["(rate - 0.05) / s.e. at 0.05"] = (rate - ALPHA) / error if calibrated else None
    line |= {"bar": None, "met": None}
    if exact and line["model"] == "calibrated":
        line |= {"bar": "within 3 s.e. of 0.05", "met": abs(rate - ALPHA) <= 3 * error}
    elif exact and calibrated:
        line |= {"bar": "at most 0.05 + 3 s.e.", "met": rate <= ALPHA + 3 * error}
    elif exact and line["n"] == 4:
        bar = POWER_BARS[line["model"], line["d or m"]]
        line |= {"bar": f"at least {bar}", "met": rate >= bar}
    return line


def finished_cells(
    folder: Path, num_datasets: int
) -> list[tuple[tuple[Model, int, str], list[dict[str, Any]]]]:
    """Models, numbers of samples, groups of tests, and their counts, computed or read."""
    found = []
    total = sum(len(spans(num_datasets, n)) for _, n, _ in all_cells())
    with tqdm(total=total, unit="cell") as bar:
        for model, n, group in all_cells():
            chunks = []
            for span in spans(num_datasets, n):
                bar.set_description(f"{model.name} {model.size}, n = {n}, {group}, {span[0]}")
                name = f"{model.name}{model.size}/{n}/{group}/{span[0]}"
                parameters = {"draws": draws_of(group, model, n), "last": span[1]}
                compute = functools.partial(counts, group, model, n, span)
                chunks.append(cell(folder, name, parameters, compute))
                bar.update()
            found.append(((model, n, group), chunks))
    return found


def levels(folder: Path, num_datasets: int) -> list[dict[str, Any]]:
    """Rejection rates of all tests in all cells."""
    rows = []
    for (model, n, group), chunks in finished_cells(folder, num_datasets):
        for test in chunks[0]:
            rejected = sum(chunk[test]["rejected"] for chunk in chunks)
            line = {
                "model": model.name,
                "d or m": model.size,
                "n": n,
                "test": test,
                "draws": draws_of(group, model, n) if test in SIMULATED else None,
                "data sets": num_datasets,
                "undefined": sum(chunk[test]["undefined"] for chunk in chunks),
            }
            rows.append(level_row(line, rejected / num_datasets, num_datasets))
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tests by kind of data and number of samples: rejections of calibrated data in percent."""
    rates = {
        (row["test"], label, row["n"]): f"{100 * row['rejection rate']:.1f}"
        for row in rows
        for label, model in MODELS.items()
        if (row["model"], row["d or m"]) == model
    }
    columns = list(itertools.product(MODELS, SIZES))
    names = dict.fromkeys(test for test, _, n in rates if n != 4)
    return [
        {"test": test} | {f"{label} {n}": rates.get((test, label, n)) for label, n in columns}
        for test in sorted(names, key=lambda test: not test.startswith("exact"))
    ]


@functools.partial(jax.jit, static_argnames=("estimator", "model", "num_samples"))
def estimates(keys: jax.Array, *, estimator: Callable, model: Model, num_samples: int) -> jax.Array:
    """Estimates on each of the data sets, [data sets]."""
    return jax.vmap(lambda key: estimator(model.kernel, *model.draw(key, num_samples)))(keys)


def mean_of(
    estimator: Callable, model: Model, num_samples: int, num_datasets: int
) -> dict[str, float]:
    """Mean of an estimator over data sets, and its standard error."""
    keys = jax.random.split(key_of(f"means/{model.name}/{model.size}"), num_datasets)
    values = estimates(keys, estimator=estimator, model=model, num_samples=num_samples)
    error = float(values.std(ddof=1)) / math.sqrt(num_datasets)
    return {"mean": float(values.mean()), "error": error}


def means(folder: Path, num_datasets: int, num_samples: int = 4) -> list[dict[str, Any]]:
    """Means of the unbiased estimators over calibrated data sets; the truth is zero."""
    unbiased = {
        "skce": estimators.skce,
        "skce_block (B = 2)": functools.partial(estimators.skce_block, block_size=2),
    }
    models = [Model("calibrated", 1), Model("classes", 2), Model("classes", 10)]
    rows = []
    for model, (name, estimator) in tqdm(list(itertools.product(models, unbiased.items()))):
        path = f"means/{model.name}{model.size}/{name.split()[0]}"
        parameters = {"data sets": num_datasets, "n": num_samples}
        compute = functools.partial(mean_of, estimator, model, num_samples, num_datasets)
        found = cell(folder, path, parameters, compute)
        ratio = found["mean"] / found["error"]
        rows.append(
            {
                "model": model.name,
                "d or m": model.size,
                "n": num_samples,
                "estimator": name,
                "mean": found["mean"],
                "s.e.": found["error"],
                "mean / s.e.": ratio,
                "bar": "mean / s.e. within 3",
                "met": abs(ratio) <= 3,
            }
        )
    return rows


@program
def main() -> None:
    """Writes the tables unbiasedness, test_levels and test_levels_summary."""
    parser = reporting.option_parser(__doc__)
    parser.add_argument("--num-datasets", type=reporting.positive_integer, default=2000)
    parser.add_argument("--num-means", type=reporting.positive_integer, default=20_000)
    options = parser.parse_args()
    if options.num_means < 2:
        parser.error("--num-means: expected at least 2")
    jax.config.update("jax_enable_x64", True)
    note = f"Calibrated data sets: {options.num_means} in each row."
    folder = options.output / "test_levels"
    rows = means(folder, options.num_means)
    reporting.write_records(options.output, "unbiasedness", rows, note)
    command = f"`python -m experiments.test_levels --num-datasets {options.num_datasets}`"
    rows = levels(folder, options.num_datasets)
    note = (
        f'Level {ALPHA}. "draws": resamples or redraws of each simulated test; the level of exact '
        'tests does not depend on their number. "undefined": data sets without p-value, counted '
        "as not rejected. Exact tests of class labels may be below the level because of ties. "
        f"Spectrum (numerical) and Pearson: {NUM_EIGENVALUES} eigenvalues from n = "
        f"{8 * NUM_EIGENVALUES} on, all below. "
        f"Made by {command}."
    )
    reporting.write_records(options.output, "test_levels", rows, note)
    note = (
        "Rejections of calibrated data in percent at level 5 %: scalar normal predictions and ten "
        f"classes, by number of samples. {options.num_datasets} data sets in each cell; draws and "
        f"standard errors are in test_levels; {NUM_LOCATIONS} locations for the CME tests. Made by "
        f"{command}."
    )
    reporting.write_records(options.output, "test_levels_summary", summary(rows), note)


if __name__ == "__main__":
    main()
