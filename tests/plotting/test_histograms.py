import io
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from calibjax import plotting
from calibjax.distributions import Bernoulli

VALUES = np.random.default_rng(0).normal(0.1, 0.02, 1000)


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def size_of_png(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    return len(buffer.getvalue())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray])
def test_bars_and_lines(as_array, dtype):
    values = VALUES.astype(dtype)
    ax = plotting.estimate_histogram(as_array(values), true_value=0.07, bins=20)
    heights, edges = np.histogram(values.astype(np.float64), 20)
    shown = ax.patches[0].get_data()
    np.testing.assert_array_equal(shown.values, heights)
    np.testing.assert_allclose(shown.edges, edges, rtol=1e-9)
    mean, truth = lines(ax)["mean"], lines(ax)["true value"]
    np.testing.assert_allclose(mean.get_xdata(), values.astype(np.float64).mean())
    np.testing.assert_array_equal(truth.get_xdata(), 0.07)
    assert (mean.get_linestyle(), truth.get_linestyle()) == ("-", "--")
    assert ax.get_xlabel() == "calibration error estimate"
    assert ax.get_ylabel() == "data sets"
    assert size_of_png(ax) > 5000


def test_without_true_value():
    ax = plotting.estimate_histogram(VALUES)
    assert list(lines(ax)) == ["mean"]
    assert len(ax.patches[0].get_data().values) == 50
    texts = plotting.estimate_histogram(VALUES, true_value=jnp.array(0.1)).figure.legends[0].texts
    assert {text.get_text() for text in texts} == {"estimates", "mean", "true value"}


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(3),
        np.full(5, 1e-30),
        np.full(5, -1e30),
        np.array([0.5, np.nextafter(0.5, 1)]),
        np.array([7.0]),
        np.array([1, 2, 2]),
    ],
)
def test_all_estimates_are_counted_even_if_equal(values):
    ax = plotting.estimate_histogram(values, bins=50)
    shown = ax.patches[0].get_data()
    assert shown.values.sum() == len(values)
    assert np.all(np.diff(shown.edges) > 0)
    size_of_png(ax)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((np.array([]), {}), ValueError, "estimates: expected at least 1 sample, got 0"),
        ((np.ones((2, 3)), {}), ValueError, r"estimates: expected shape \[B\].*got \(2, 3\)"),
        ((np.array(1.0), {}), ValueError, r"estimates: expected shape \[B\].*got \(\)"),
        (
            (np.array([1, np.nan]), {}),
            ValueError,
            r"estimates: expected finite values, got estimates\[1\] = nan",
        ),
        ((np.array([1, np.inf]), {}), ValueError, "estimates: expected finite values"),
        ((["a"], {}), TypeError, "estimates: expected numbers, got list"),
        ((np.array(["a"]), {}), TypeError, "estimates: expected numbers"),
        ((np.array([1j]), {}), TypeError, "estimates: expected real numbers"),
        ((VALUES, {"true_value": np.nan}), ValueError, "true_value: expected finite values"),
        ((VALUES, {"true_value": VALUES}), ValueError, r"true_value: expected shape \(\)"),
        ((VALUES, {"true_value": "0"}), TypeError, "true_value: expected a number, got str"),
        ((VALUES, {"bins": 0}), ValueError, "bins: expected an integer between 1 and .*, got 0"),
        ((VALUES, {"bins": "auto"}), TypeError, "bins: expected an integer, got 'auto'"),
        ((VALUES, {"ax": Figure()}), TypeError, "ax: expected a matplotlib Axes or None, got"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    values, options = arguments
    with pytest.raises(error, match=message):
        plotting.estimate_histogram(values, **options)


def run(code):
    """Output of Python code in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_import_needs_no_matplotlib():
    code = """
        import sys
        sys.modules["matplotlib"] = None  # as if it were not installed
        import jax.numpy as jnp
        import calibjax
        assert not any(name.startswith("matplotlib.") for name in sys.modules)
        try:
            calibjax.plotting.estimate_histogram(jnp.ones(3))
        except ImportError as error:
            print(error)
    """
    assert "pip install 'calibjax[plot]'" in run(code)


def test_pyplot_is_never_imported():
    code = """
        import sys
        import jax.numpy as jnp
        import calibjax
        assert "matplotlib" not in sys.modules
        calibjax.plotting.estimate_histogram(jnp.ones(3))
        assert "matplotlib" in sys.modules
        print("matplotlib.pyplot" in sys.modules)
    """
    assert run(code) == "False\n"


def test_sharpness():
    widths = np.array([1.0, 2.0, 2.5, 4.0])
    ax = plotting.sharpness_histogram(widths, bins=3, xlabel="width (m)")
    np.testing.assert_array_equal(ax.patches[0].get_data().values, np.histogram(widths, 3)[0])
    np.testing.assert_array_equal(lines(ax)["median 2.25"].get_xdata(), 2.25)
    assert ax.get_xlabel() == "width (m)"
    confidences = plotting.sharpness_histogram(Bernoulli(np.array([0.5, 0.9])), bins=2)
    np.testing.assert_array_equal(confidences.patches[0].get_data().values, [1, 1])
    with pytest.raises(ValueError, match=r"values: expected values >= 0, got values\[1\] = -1"):
        plotting.sharpness_histogram(np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"values: expected shape \[n\]"):
        plotting.sharpness_histogram(np.ones((2, 2)))


def test_sharpness_with_weights():
    values, weights = np.array([1.0, 9.0, 1.5, 2.0, 3.0]), np.array([2, 0, 3, 1, 4])
    copies = plotting.sharpness_histogram(np.repeat(values, weights), bins=4)
    for factor in (1, 0.1):
        ax = plotting.sharpness_histogram(values, weights=factor * weights, bins=4)
        shown, expected = ax.patches[0].get_data(), copies.patches[0].get_data()
        np.testing.assert_allclose(shown.values, factor * expected.values, rtol=1e-12)
        np.testing.assert_array_equal(shown.edges, expected.edges)
        np.testing.assert_allclose(ax.lines[0].get_xdata(), copies.lines[0].get_xdata())
    assert ax.lines[0].get_label() == "median 1.75"  # half of the weights are up to 1.5
    for wrong, words in (
        (-weights, ">= 0"),
        (weights[1:], "one weight"),
        (0 * weights, "positive"),
    ):
        with pytest.raises(ValueError, match=f"weights: .*{words}"):
            plotting.sharpness_histogram(values, weights=wrong)
