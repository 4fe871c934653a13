import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from calibjax import plotting
from tests.plotting.test_histograms import lines, size_of_png

X = np.append(np.logspace(-3, 0, 8), 0.3)
RUNS = np.random.default_rng(0).random((5, 9))
MODELS = ["DenseNet", "ResNet"]
ESTIMATES = {
    "bins": jnp.array([0.05, 0.03]),
    "kde": np.float32([-0.01, 0.2]),
    "kkr": np.array([0.04, 0.0]),
}


def bars(ax):
    """Lower and upper ends of the error bars of each container, [k, 2]."""
    found = []
    for container in ax.containers:
        segments = [c.get_segments() for c in container.lines[2]]
        found.append(np.array(segments[0])[:, :, 1] if segments else None)
    return found


def test_risks_of_runs():
    ax = plotting.risk_curve(jnp.asarray(X), jnp.asarray(RUNS), marked=jnp.array(0.1))
    drawn, order = lines(ax), np.argsort(X)
    np.testing.assert_allclose(drawn["risk"].get_xdata(), X[order])
    np.testing.assert_allclose(drawn["risk"].get_ydata(), RUNS.mean(0)[order])
    np.testing.assert_array_equal(drawn["hyperparameter 0.1"].get_xdata(), 0.1)
    half = RUNS.std(0, ddof=1)
    ends = np.stack([RUNS.mean(0) - half, RUNS.mean(0) + half], 1)[order]
    np.testing.assert_allclose(bars(ax)[0], ends)
    assert ax.get_xscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("hyperparameter", "risk")
    assert size_of_png(ax) > 5000


def test_risks_with_errors():
    left = Figure(layout="constrained").subplots()
    bins = np.arange(5, 14)
    right = plotting.risk_curve(bins, RUNS[0], errors=RUNS[1], xlabel="bins")
    np.testing.assert_allclose(bars(right)[0], RUNS[0][:, None] + RUNS[1][:, None] * [-1, 1])
    assert (right.get_xscale(), right.get_xlabel()) == ("linear", "bins")
    plotting.risk_curve(X - X.min(), RUNS[:1], ax=left)
    assert list(lines(left)) == ["risk"]
    assert not left.containers
    assert left.get_xscale() == "linear"


def test_estimates_side_by_side():
    errors = {"kde": np.array([0.01, 0.02]), "bins": jnp.array([0.0, 0.1])}
    ax = plotting.estimate_comparison(MODELS, ESTIMATES, errors=errors, ylabel="TCE")
    assert [container.get_label() for container in ax.containers] == list(ESTIMATES)
    for container, offset in zip(ax.containers, (-0.8 / 3, 0, 0.8 / 3)):
        x, y = container.lines[0].get_data()
        np.testing.assert_allclose(x, np.arange(2) + offset, atol=1e-12)
        np.testing.assert_allclose(y, ESTIMATES[container.get_label()])
    found = dict(zip(ESTIMATES, bars(ax)))
    assert found["kkr"] is None
    np.testing.assert_allclose(found["kde"], [[-0.02, 0], [0.18, 0.22]], atol=1e-7)
    assert [text.get_text() for text in ax.get_xticklabels()] == MODELS
    assert ax.get_ylabel() == "TCE"
    assert len(ax.figure.legends[0].texts) == 3
    assert size_of_png(ax) > 5000
    other = Figure().subplots()
    assert plotting.estimate_comparison(MODELS, ESTIMATES, ax=other) is other
    assert not other.figure.legends


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"hyperparameters": X[None]}, ValueError, r"hyperparameters: expected shape \[k\]"),
        ({"hyperparameters": X[:0]}, ValueError, "hyperparameters: expected at least 1"),
        ({"hyperparameters": X * np.nan}, ValueError, "hyperparameters: expected finite"),
        ({"risks": RUNS[:, 1:]}, ValueError, r"risks: expected shape \(9,\) or \[runs, 9\], got"),
        ({"risks": RUNS[:0]}, ValueError, "risks: expected at least 1"),
        ({"risks": RUNS * np.inf}, ValueError, "risks: expected finite"),
        ({"errors": RUNS}, ValueError, r"errors: expected shape \(9,\), as the hyperparameters"),
        ({"errors": -X}, ValueError, r"errors: expected values >= 0, got errors\[0\] = -0.001"),
        ({"marked": X}, ValueError, r"marked: expected shape \(\)"),
        ({"marked": np.nan}, ValueError, "marked: expected finite"),
        ({"marked": "1"}, TypeError, "marked: expected a number, got str"),
        ({"ax": 3}, TypeError, "ax: expected a matplotlib Axes or None, got int"),
    ],
)
def test_wrong_curves(changed, error, message):
    given = {"hyperparameters": X, "risks": RUNS} | changed
    with pytest.raises(error, match=message):
        plotting.risk_curve(**given)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"models": "DR"}, TypeError, "models: expected a list of names, got"),
        ({"models": []}, ValueError, r"len\(models\): expected an integer >= 1, got 0"),
        ({"estimates": [0.1, 0.2]}, TypeError, "estimates: expected a dict of names and arrays"),
        ({"estimates": {}}, ValueError, r"len\(estimates\): .* between 1 and 9, got 0"),
        (
            {"estimates": {"kde": np.array([0.1])}},
            ValueError,
            r"estimates\['kde'\]: expected shape \(2,\)",
        ),
        (
            {"estimates": {"kde": np.array([0, np.nan])}},
            ValueError,
            r"estimates\['kde'\]: expected finite",
        ),
        (
            {"errors": {"mmd": np.array([0.1, 0.1])}},
            ValueError,
            "errors: expected names of .* got 'mmd'",
        ),
        (
            {"errors": {"kde": np.array([0.1, -0.1])}},
            ValueError,
            r"errors\['kde'\]: expected values >= 0",
        ),
        ({"errors": [0.1, 0.1]}, TypeError, "errors: expected a dict of names and arrays"),
    ],
)
def test_wrong_comparisons(changed, error, message):
    given = {"models": MODELS, "estimates": ESTIMATES} | changed
    with pytest.raises(error, match=message):
        plotting.estimate_comparison(**given)
