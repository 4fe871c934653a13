"""Files of figures."""

import pytest
from matplotlib.figure import Figure

from experiments.harness.figures import save_figure


@pytest.mark.parametrize(
    ("dots", "ending", "start"), [(False, "svg", b"<?xml"), (True, "png", b"\x89PNG")]
)
def test_the_same_figure_is_the_same_file(tmp_path, dots, ending, start):
    contents = []
    for name in ("one", "two"):
        figure = Figure(figsize=(5, 3), layout="constrained")
        figure.subplots().plot([0, 1], [0, 1], label="a line")
        save_figure(tmp_path, name, figure, dots=dots)
        contents.append((tmp_path / f"{name}.{ending}").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(start)
