"""Files of figures, and labels beside lines."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from experiments.harness.figures import _compact, save_figure

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


def test_drawings_are_compact_and_complete(tmp_path):
    """Against what matplotlib writes: the same elements, none that is used is without its name."""
    axes = drawn()[0]
    axes.scatter([0.2, 0.4], [1, 2], [9, 30], label="dots")
    axes.legend()
    save_figure(tmp_path, "compact", axes.figure)
    axes.figure.savefig(tmp_path / "full.svg", metadata={"Date": None})
    compact, full = (ElementTree.parse(tmp_path / f"{x}.svg") for x in ("compact", "full"))
    assert [x.tag for x in compact.iter()] == [x.tag for x in full.iter()]
    text = (tmp_path / "compact.svg").read_text()
    assert len(text) < 0.75 * (tmp_path / "full.svg").stat().st_size
    assert _compact(text.encode()) == text.encode()  # again: nothing is lost
    used = {name.rstrip('")') for name in re.findall(r'(?:href="|url\()#([^ ]*?["\)])', text)}
    assert used
    assert used <= {x.get("id") for x in compact.iter()}
    for ours, theirs in zip(compact.iter(), full.iter(), strict=True):
        for place in {"x", "y"} & {*ours.keys()}:
            assert abs(float(ours.get(place)) - float(theirs.get(place))) <= 0.051
