"""Files of figures, and labels beside lines."""

import pytest
from matplotlib.figure import Figure

from experiments.harness.figures import save_figure

ENDS = (1.0, 1.01, 0.99, 0.3, 0.31, 0.0, 2.0, 2.0)


def drawn():
    axes = Figure(figsize=(5, 3), layout="constrained").subplots()
    lines = [axes.plot([0, 1], [0, y], label=f"ends at {y}")[0] for y in ENDS]
    return axes, lines


@pytest.mark.parametrize(
    ("dots", "ending", "start"), [(False, "svg", b"<?xml"), (True, "png", b"\x89PNG")]
)
def test_the_same_figure_is_the_same_file(tmp_path, dots, ending, start):
    contents = []
    for name in ("one", "two"):
        save_figure(tmp_path, name, drawn()[0].figure, dots=dots)
        contents.append((tmp_path / f"{name}.{ending}").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(start)
