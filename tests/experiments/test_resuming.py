"""Long experiments go on where they were."""

import jax
import numpy as np
import pytest

from experiments import coverage, levels, null_approximations
from experiments.harness import cells
from experiments.harness.cells import Store
from experiments.synthetic_models import Model


def test_cells_of_data_sets():
    assert cells.spans(1200, 64) == [(0, 500), (500, 1000), (1000, 1200)]
    assert cells.spans(120, 1024) == [(0, 50), (50, 100), (100, 120)]


def test_keys_do_not_depend_on_the_cells():
    key_data = jax.random.key_data
    whole = key_data(jax.random.split(cells.key_of("x/500/data"), 500))
    for span in ((500, 1000), (550, 600), (990, 1000)):
        found = key_data(cells.keys_of("x", "data", span))
        np.testing.assert_array_equal(found, whole[span[0] - 500 : span[1] - 500])


class Interrupted:
    """Stands in for what computes a cell: the third call is interrupted."""

    def __init__(self, result):
        self.result, self.calls = result, 0

    def __call__(self, *arguments, **options):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return self.result


COUNTS = {"exact SKCE": {"rejected": 1, "undefined": 0}}
TALLY = {"two-sided": [1, 0], "lower": [1, 0], "width": 1.0, "estimates": 1.0, "squares": 1.0}
TIMES = {"seconds": {"all eigenvalues": [1.0, 2.0]}, "load": 1.0}
APPROXIMATE = {
    "pvalues": {"bootstrap": 0.5, "gamma": 0.5},
    "curves": {"bootstrap": [0.5, 0.05], "gamma": [0.4, 0.05]},
}
# Module, the function that computes a cell, what it returns, the number of cells, and the run.
LONG = {
    "levels": (levels, "counts", COUNTS, 3, lambda x: levels.levels(x, 120)),
    "unbiasedness": (
        *(levels, "mean_of", {"mean": 0.1, "error": 1.0}, 6),
        lambda x: levels.means(x, 9),
    ),
    "coverage": (coverage, "tally", TALLY, 23, lambda x: coverage.coverages(x, 120)),
    "null": (
        *(null_approximations, "approximate", APPROXIMATE, 28),
        lambda x: null_approximations.approximation_rows(x, 10),
    ),
    "times": (
        *(null_approximations, "time_once", TIMES, 4),
        lambda x: null_approximations.times_of(x, "a", 4),
    ),
}


@pytest.mark.parametrize(("module", "name", "result", "number", "run"), LONG.values(), ids=LONG)
def test_finished_cells_are_not_computed_again(
    tmp_path, monkeypatch, module, name, result, number, run
):
    monkeypatch.setattr(levels, "all_cells", lambda: [(Model("classes", 2), 1024, "exact")])
    stand_in, store = Interrupted(result), Store(tmp_path, "code")
    monkeypatch.setattr(module, name, stand_in)
    with pytest.raises(KeyboardInterrupt):
        run(store)
    first = run(store)
    assert stand_in.calls == number + 1  # the interrupted one counts twice
    np.testing.assert_equal(run(store), first)
    assert stand_in.calls == number + 1
