import io
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from calibjax import plotting
from calibjax.hypothesis_tests.result import CalibrationTestResult


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def size_of_png(ax):
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png")
    assert buffer.getvalue().startswith(b"\x89PNG")
    return len(buffer.getvalue())


def result_of(values):
    """Result of a test with these draws."""
    return CalibrationTestResult(np.float64(0.1), np.float64(0.5), np.float64(0.1), values)


@pytest.mark.parametrize(
    "values", [np.zeros(3), np.full(5, 1e-30), np.array([7.0]), np.array([1, 2, 2])]
)
def test_all_draws_are_counted_even_if_equal(values):
    ax = plotting.null_distribution(result_of(values), bins=50)
    shown = ax.patches[0].get_data()
    assert shown.values.sum() == len(values)
    assert np.all(np.diff(shown.edges) > 0)
    size_of_png(ax)


def test_matplotlib_is_imported_to_draw_and_pyplot_never():
    code = """
        import sys
        import jax.numpy as jnp
        import calibjax
        assert not any(name.startswith("matplotlib") for name in sys.modules)
        calibjax.plotting.pvalue_ecdf({"exact": jnp.ones(3)})
        assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
        sys.modules["matplotlib"] = None  # as if it were not installed
        try:
            calibjax.plotting.pvalue_ecdf({"exact": jnp.ones(3)})
        except ImportError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "pip install 'calibjax[plot]'" in shown
