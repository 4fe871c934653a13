import numpy as np
import pandas as pd
import pytest

from calibjax.interoperability.sklearn import label_indices

WORDS = ["owl", "cat", "owl", "dog"]


@pytest.mark.parametrize(
    "labels", [WORDS, np.array(WORDS), np.array(WORDS, object), pd.Series(WORDS, dtype="category")]
)
def test_words(labels):
    for classes in (["cat", "dog", "owl"], np.array(["owl", "cat", "emu", "dog"], object)):
        found = label_indices(labels, classes)
        assert [list(classes)[i] for i in found] == WORDS
        assert found.dtype == int


def test_numbers():
    np.testing.assert_array_equal(label_indices([7, -1, 7], [-1, 3, 7]), [2, 0, 2])
    np.testing.assert_array_equal(label_indices([True, False], [0, 1]), [1, 0])


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(["a", "z"], ["a", "b"]), (["1"], [0, 1]), ([0.0, np.nan], [0, 1]), ([-1], [0, 1]), ([0], 0)],
)
def test_labels_that_are_no_class(labels, classes):
    with pytest.raises(ValueError, match=r"(labels|classes): expected (labels among|one axis)"):
        label_indices(labels, classes)
