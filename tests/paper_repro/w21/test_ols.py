import numpy as np
import pytest
import scipy.stats

from experiments.harness import source
from paper_repro.w21 import ols

COMMITTED = source.ROOT / "paper_repro/results/w21_ols"


@pytest.fixture(scope="module")
def drawn():
    return ols.draw()


def test_heat_maps_show_the_conditional_distributions(drawn):
    """That of the paper's formula, and that of a line fitted by numpy."""
    x = np.linspace(-0.995, 0.995, 200)
    y = np.linspace(-1.99, 1.99, 200)
    training, targets = drawn["training"]
    slope, intercept = np.polyfit(training, targets, 1)
    residuals = targets - intercept - slope * training
    moments = {
        "data": (np.sin(np.pi * x), 0.15 * (1 + x)),
        "linear model": (intercept + slope * x, np.sqrt(residuals @ residuals / 98)),
    }
    assert [conditional.title for conditional in drawn["conditionals"]] == list(moments)
    for title, density in drawn["conditionals"]:
        mean, scale = (np.broadcast_to(m, 200)[:, None] for m in moments[title])
        expected = scipy.stats.norm.pdf(y, mean, scale)
        np.testing.assert_allclose(density, expected, rtol=2e-3, atol=1e-5)


def test_the_documentation_says_the_share_of_the_table():
    text = (source.ROOT / "docs/reproductions/w21.md").read_text()
    row = next(
        line
        for line in (COMMITTED / "pvalues.md").read_text().splitlines()
        if line.startswith("| share with p < 0.05 of 200 data sets, bootstrap")
    )
    share = float(row.split("|")[-2])
    assert f"p < 0.05 in {100 * share:.0f} % of 200 data sets" in " ".join(text.split())
