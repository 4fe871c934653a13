import numpy as np

from experiments.harness import source
from paper_repro.w21 import ols
from tests.paper_repro import committed
from tests.paper_repro.w21.test_friedman import mixture_matrices


def test_the_papers_data_set_is_rejected():
    """Against numpy, and the bootstrap statistic by its definition."""
    experiment = ols.draw_experiment()
    p, y = experiment.predictions, np.asarray(experiment.targets)
    h, _ = mixture_matrices(np.asarray(p.loc)[None], np.asarray(p.scale)[:1], y)
    rows = ols.rows(experiment)
    pvalue, _, estimate = (row.ours for row in rows)
    n, off = len(y), h - np.diag(np.diag(h))
    np.testing.assert_allclose(estimate, off.sum() / (n * (n - 1)), rtol=1e-10)
    np.testing.assert_allclose(estimate, 0.005277, atol=5e-7)
    centered = h - h.mean(0) - h.mean(1)[:, None] + h.mean()
    counts = experiment.counts[:2000].astype(float)
    assert np.all(counts.sum(1) == n)
    # n SKCE of a resample: the pairs of different draws of it, (c_i c_j − δ_ij c_i) h̃_ij.
    draws = (np.sum(counts @ centered * counts, 1) - counts @ np.diag(centered)) / n
    share = np.mean(draws >= off.sum() / (n - 1))
    assert abs(float(ols.bootstrap_pvalue(h, counts)) - share) < 1e-9
    assert abs(pvalue - 0.0456) < 0.001


def test_the_documentation_says_the_pvalue_of_the_table():
    pvalue = committed("w21_ols", "pvalues")[0]["ours"]
    text = (source.ROOT / "docs/reproductions/w21.md").read_text()
    assert f"p = {float(pvalue):.4f}" in " ".join(text.split())
