"""Long experiments go on where they were."""

import jax
import numpy as np
import pytest

from experiments import levels
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


def test_finished_cells_are_not_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(levels, "all_cells", lambda: [(Model("classes", 2), 1024, "exact")])
    stand_in, store = Interrupted(COUNTS), Store(tmp_path, "code")
    monkeypatch.setattr(levels, "counts", stand_in)
    with pytest.raises(KeyboardInterrupt):
        levels.levels(store, 120)
    first = levels.levels(store, 120)
    assert stand_in.calls == 3 + 1  # the interrupted one counts twice
    np.testing.assert_equal(levels.levels(store, 120), first)
    assert stand_in.calls == 3 + 1
