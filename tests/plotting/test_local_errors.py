import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from calibjax import plotting
from tests.plotting.test_histograms import size_of_png

RNG = np.random.default_rng(0)
N = 200
FEATURES, SIGNED = RNG.normal(size=(N, 2)), RNG.uniform(-0.3, 0.2, N)
ERRORS = np.abs(SIGNED)


def collections(ax):
    return {c.get_label(): c for c in ax.collections}


@pytest.mark.parametrize("as_array", [np.asarray, lambda x: jnp.asarray(x, jnp.float32)])
def test_map_of_absolute_errors(as_array):
    ax = plotting.local_error_map(as_array(FEATURES), as_array(ERRORS))
    (points,) = ax.collections
    np.testing.assert_allclose(points.get_offsets(), FEATURES, rtol=1e-6)
    np.testing.assert_allclose(points.get_array(), ERRORS, rtol=1e-6)
    np.testing.assert_allclose(points.get_clim(), (0, ERRORS.max()), rtol=1e-6)
    assert points.get_alpha() is None
    assert points.get_rasterized()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("first feature", "second feature")
    bar = ax.figure.axes[1]
    assert bar.get_ylabel() == "local calibration error"
    assert not ax.figure.legends
    assert size_of_png(ax) > 5000


def test_map_of_signed_errors_has_zero_in_its_middle_and_shows_how_certain_they_are():
    sizes, pvalues = RNG.uniform(0, 60, N), RNG.random(N)
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    options = {"signed": True, "effective_sizes": sizes, "pvalues": jnp.asarray(pvalues)}
    assert (
        plotting.local_error_map(FEATURES, SIGNED, **options, significance_level=0.1, ax=right)
        is right
    )
    assert not left.collections
    assert not figure.legends
    points, ring = collections(right)["samples"], collections(right)["p ≤ 0.1"]
    low, high = points.get_clim()
    assert (low, high) == (-ERRORS.max(), ERRORS.max())
    np.testing.assert_allclose(points.get_alpha(), np.clip(sizes / 30, 0.1, 1))
    np.testing.assert_array_equal(ring.get_offsets(), FEATURES[pvalues <= 0.1])
    assert figure.axes[2].get_ylabel() == "local confidence - accuracy"
    one = plotting.local_error_map(FEATURES[:1], np.zeros(1), pvalues=np.ones(1))
    assert one.collections[0].get_clim() == (0, 1)
    assert not one.figure.legends
    size_of_png(one)


def test_many_points_make_small_files(tmp_path):
    n = 25_000
    ax = plotting.local_error_map(RNG.normal(size=(n, 2)), RNG.random(n))
    ax.figure.savefig(tmp_path / "map.pdf")
    assert (tmp_path / "map.pdf").stat().st_size < 400_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"errors": -ERRORS}, r"errors: expected absolute errors .or signed=True."),
        ({"effective_sizes": ERRORS[1:]}, r"effective_sizes: expected shape \[n\]"),
        ({"pvalues": ERRORS + 1}, r"pvalues: expected probabilities in \[0, 1\]"),
    ],
)
def test_wrong_maps(options, message):
    with pytest.raises(ValueError, match=message):
        plotting.local_error_map(**{"features": FEATURES, "errors": ERRORS} | options)
