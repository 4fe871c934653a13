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
    ("labels", "classes", "error", "message"),
    [
        (["a", "z"], ["a", "b"], ValueError, r"labels: .*\['a', 'b'\], got labels\[1\] = 'z'"),
        (["1"], [0, 1], ValueError, r"labels\[0\] = '1'"),
        ([0.0, np.nan], [0, 1], ValueError, r"labels\[1\] = nan"),
        ([-1], [0, 1], ValueError, r"labels\[0\] = -1"),
        ([0, 1], [1, 1], ValueError, r"classes: expected different labels, got \[1, 1\]"),
        ([[0, 1]], [0, 1], ValueError, r"labels: expected one axis .* got \(1, 2\)"),
        ([], [0, 1], ValueError, r"labels: expected one axis with at least one label, got \(0,\)"),
        (0, [0, 1], ValueError, r"labels: expected one axis .* got \(\)"),
        (
            np.array(["a", None], object),
            ["a"],
            TypeError,
            "labels: expected labels that can be ordered",
        ),
        ([[0], [0, 1]], [0], TypeError, "labels: expected an array of labels, got list"),
        (np.ma.masked_array([0, 1], [0, 1]), [0, 1], ValueError, r"got a masked labels\[1\]"),
    ],
)
def test_wrong_labels(labels, classes, error, message):
    with pytest.raises(error, match=message):
        label_indices(labels, classes)
