"""Long experiments go on where they were."""

import jax
import numpy as np

from experiments.harness import cells


def test_cells_of_data_sets():
    assert cells.spans(1200, 64) == [(0, 500), (500, 1000), (1000, 1200)]
    assert cells.spans(120, 1024) == [(0, 50), (50, 100), (100, 120)]


def test_keys_do_not_depend_on_the_cells():
    key_data = jax.random.key_data
    whole = key_data(jax.random.split(cells.key_of("x/500/data"), 500))
    for span in ((500, 1000), (550, 600), (990, 1000)):
        found = key_data(cells.keys_of("x", "data", span))
        np.testing.assert_array_equal(found, whole[span[0] - 500 : span[1] - 500])
