from types import SimpleNamespace

import numpy as np
import pytest

from experiments import digits


def test_parts_have_no_image_in_common():
    parts = digits.split(1797)
    assert [len(part) for part in parts] == [898, 449, 450]
    assert sorted(np.concatenate(parts)) == list(range(1797))


def test_no_probability_is_zero():
    probs = np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    found = digits.raised(probs)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-15)
    np.testing.assert_allclose(found[0, 0], 1e-6, rtol=1e-5)
    np.testing.assert_allclose(found[1], probs[1], rtol=1e-15)


@pytest.mark.parametrize(
    ("pvalue", "of_spread", "score", "words"),
    [
        (0.01, 0.01, -5.0, "underconfident"),
        (0.01, 0.01, 5.0, "overconfident"),
        (0.01, 0.2, -1.0, "miscalibrated"),
        (0.06, 0.01, 3.0, "nothing"),
    ],
)
def test_words(pvalue, of_spread, score, words):
    part = SimpleNamespace(pvalue=0.5)
    spread = SimpleNamespace(pvalue=of_spread, score=score)
    components = SimpleNamespace(biased=part, unbiased=part, spread=spread)
    found = digits.components_of(SimpleNamespace(pvalue=pvalue, components=components))
    assert found["the test says"] == words
    assert found["score of the spread"] == score


@pytest.mark.slow
def test_the_test_agrees_with_the_temperature():
    data = pytest.importorskip("sklearn.datasets").load_digits()
    expected = {
        "logistic regression": ("underconfident", "nothing"),
        "random forest": ("underconfident", "nothing"),
        "naive Bayes": ("overconfident", "miscalibrated"),
    }
    for name, classifier in digits.classifiers().items():
        samples = digits.samples_of(classifier, data.data / 16, data.target)
        before, after = digits.rows_of(name, *samples, 999)
        assert (before["the test says"], after["the test says"]) == expected[name]
        is_wide = before["the test says"] == "underconfident"
        assert (after["T, applied"] < 1) == (before["best T left"] < 1) == is_wide
        assert after["top-label ECE"] < before["top-label ECE"]
        assert abs(np.log(after["best T left"])) < 0.1 < abs(np.log(before["best T left"]))
