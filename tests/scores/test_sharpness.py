import numpy as np
import pytest
import scipy.stats

from calibjax import distributions as d
from calibjax import scores


def test_widths_are_differences_of_quantiles():
    a, b = np.array([1.0, 2.0, 5.0]), np.array([2.0, 2.0, 0.5])
    found = scores.interval_widths(d.Gamma(a, b), level=0.8)
    expected = scipy.stats.gamma.ppf(0.9, a, scale=1 / b) - scipy.stats.gamma.ppf(
        0.1, a, scale=1 / b
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_wrong_arguments():
    normals = d.Normal(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match=r"level: expected values in \(0, 1\)"):
        scores.interval_widths(normals, level=90)
    with pytest.raises(TypeError, match=r"classes have confidences, estimators.top_label"):
        scores.interval_widths(d.Bernoulli(np.full(2, 0.5)))
    with pytest.raises(TypeError, match="icdf"):
        scores.interval_widths(d.Quantiles(np.array([0.5]), np.zeros((3, 1))))
