"""The level of the CME test: its formula in NumPy against the library, and the committed table."""

import csv

import jax
import jax.numpy as jnp
import numpy as np

from calibjax.distributions import Categorical
from calibjax.hypothesis_tests import cme_test
from experiments import cme_level
from experiments.harness import source


def test_the_formula_in_numpy_is_that_of_the_library():
    with jax.enable_x64(True):
        for seed in range(5):
            sample = cme_level.draw(np.random.default_rng(seed), 10)
            predictions, targets, locations, labels = (jnp.asarray(x) for x in sample)
            assert np.all((sample[1] >= 0) & (sample[1] < 10))
            test = cme_test(
                cme_level.KERNEL, Categorical(predictions), targets, Categorical(locations), labels
            )
            np.testing.assert_allclose(cme_level.reference_pvalue(sample), test.pvalue, rtol=1e-6)


def test_rows():
    found = {"exact": [0.05, 0.2, None, 0.01]}
    (row,) = cme_level.rows_of(2, found)
    assert (row["rejected"], row["not defined"], row["SE"]) == (0.5, 1, 0.25)


def test_what_the_page_of_differences_says():
    """Both asymptotic tests alike up to refusals, exact redraws at the level."""
    path = source.ROOT / "experiments/results/cme_level/cme_level.csv"
    with open(path, newline="") as file:
        rows = {(x["classes"], x["test"]): float(x["rejected"]) for x in csv.DictReader(file)}
    text = (source.ROOT / "docs/differences.md").read_text()
    for classes in ("2", "10"):
        assert abs(rows[classes, "NumPy"] - rows[classes, "cme_test"]) < 0.01
        assert abs(rows[classes, "exact"] - 0.05) < 3.5 * np.sqrt(0.05 * 0.95 / 2000)
        assert f"{100 * rows[classes, 'NumPy']:.4g} ± " in text
        assert f"{100 * rows[classes, 'exact']:.4g} ± " in text
