import pytest
from matplotlib.figure import Figure

from paper_repro.w19 import networks_figures
from paper_repro.w19.figures import add_legend, with_subscripts
from paper_repro.w19.networks import PvalueRow


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("SKCE_uq, median heuristic", r"SKCE$_{\text{uq}}$, median heuristic"),
        ("C_data-dependent", r"C$_{\text{data-dependent}}$"),
        ("exact (ours)", "exact (ours)"),
    ],
)
def test_labels(label, shown):
    assert with_subscripts(label) == shown


def test_a_legend_has_each_label_once_and_the_shared_one_last():
    figure = Figure()
    axes = figure.subplots()
    for label in ("a", "truth", "b", "truth"):
        axes.plot([0, 1], label=label)
    add_legend(figure, axes, "lower center")
    assert [text.get_text() for text in figure.legends[0].texts] == ["a", "b", "truth"]


def test_all_networks_are_shown(tmp_path, monkeypatch):
    """Fig. 36 of 14 networks: those of a test in its panel, published where there is a number."""
    saved = []
    monkeypatch.setattr(networks_figures, "save_figure", lambda *args: saved.append(args[-1]))
    rows = [
        PvalueRow(f"net{i}", test, 0.1 if test == "A_l" else None, None, i / 20, None, 1.0)
        for i in range(14)
        for test in ("A_l", "exact")
    ]
    networks_figures.plot_pvalues(tmp_path, rows, {"ours": "ours, first 9 images"})
    texts = [text.get_text() for text in saved[0].legends[0].texts]
    assert texts == ["published", "ours, first 9 images"]
    assert len(saved[0].axes) == 2
    for axes, published in zip(saved[0].axes, ([0.1] * 14, [float("nan")] * 14), strict=True):
        circles, dots = axes.lines
        assert list(circles.get_xdata()) == pytest.approx(published, nan_ok=True)
        assert list(dots.get_xdata()) == pytest.approx([i / 20 for i in range(14)])
        assert [*dots.get_ydata()] == [f"net{i}" for i in range(14)]
