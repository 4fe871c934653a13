"""Figures of all experiments: one style, one palette, and the same file for the same figure."""

import io
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from experiments.harness import stand_in
from experiments.harness.data_files import write
from experiments.harness.messages import log

# Of Okabe and Ito (2008), Color universal design, which the colour-blind can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", (0, (1.5, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), "-")  # without colours
HEAT = "viridis"  # the colour map of heat maps
WIDTH = 7.3  # inches, 700 pixels, which the documentation shows as they are
FONT_SIZE = 10  # of everything, which can still be read at 400 pixels
RESOLUTION = 200  # dots per inch of pictures with too many points for a drawing
SHADES = 128  # colours of such pictures, which makes files a third as large

matplotlib.rcParams.update(
    {
        "axes.prop_cycle": matplotlib.cycler(color=COLORS),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": FONT_SIZE,
        **{
            f"{name}size": FONT_SIZE
            for name in ("axes.title", "axes.label", "xtick.label", "ytick.label", "legend.font")
        },
        **{f"figure.{name}size": FONT_SIZE for name in ("title", "label")},
        "legend.frameon": False,
        "svg.hashsalt": "calibjax",  # the same figure is the same file
    }
)


def panels(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure over the whole width, and its panels [rows, columns].

    Args:
        rows: number of rows.
        columns: number of columns.
        height: of a row, in inches.
        options: of `Figure.subplots`.
    """
    figure = Figure(figsize=(WIDTH, rows * height + 0.8), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def add_legend(figure: Figure, columns: int, title: str | None = None) -> None:
    """One legend above all panels, with each label once, where the panel with most has it."""
    entries: dict[str, Any] = {}
    by_axes = [axes.get_legend_handles_labels() for axes in figure.axes]
    for handles, labels in sorted(by_axes, key=lambda entries: len(set(entries[1]))):
        for handle, label in zip(handles, labels, strict=True):
            entries.pop(label, None)
            entries[label] = handle
    names = list(entries.values()), list(entries)
    figure.legend(*names, loc="outside upper center", ncols=columns, title=title)


def save_figure(
    folder: Path, name: str, figure: Figure, *, dots: bool = False, resolution: int = RESOLUTION
) -> None:
    """Writes a figure as NAME.svg, or as NAME.png; of stand-in data its legend says so.

    Args:
        folder: where to.
        name: name of the file, without its ending.
        figure: the figure.
        dots: whether it has more points than a vector file should hold.
        resolution: of a picture, and of what is one within a drawing, in dots per inch.
    """
    kind = "png" if dots else "svg"
    if mark := stand_in.header():
        legend = figure.legends[0]
        legend.set_title(f"{mark}\n{legend.get_title().get_text()}".rstrip())
    write(folder / f"{name}.{kind}", _drawn(figure, kind, resolution))
    log(f"wrote {folder / name}.{kind}")


def _drawn(figure: Figure, kind: str, resolution: int = RESOLUTION) -> bytes:
    drawn = io.BytesIO()
    metadata = {} if kind == "png" else {"Date": None}
    figure.savefig(drawn, format=kind, dpi=resolution, metadata=metadata)
    return _few_colors(drawn) if kind == "png" else _compact(drawn.getvalue())


def _few_colors(picture: io.BytesIO) -> bytes:
    """The same picture with a palette."""
    palette = io.BytesIO()
    colors = Image.open(picture).convert("RGB").quantize(SHADES, dither=Image.Dither.NONE)
    colors.save(palette, "png", optimize=True)
    return palette.getvalue()


def _compact(svg: bytes) -> bytes:
    """Two thirds of the size: places to 0.1 points, nothing that only readers of the file need."""
    svg = re.sub(rb"\n *<!-- .*? -->", b"", svg)
    svg = re.sub(rb"\n +", b"\n", svg)
    svg = re.sub(rb' id="[a-z][a-z0-9.]*_\d+"', b"", svg)  # of groups; nothing refers to them
    svg = re.sub(rb' style="[^"]*"', lambda style: re.sub(rb"([:;]) ", rb"\1", style[0]), svg)
    svg = re.sub(rb' (?:x|y|transform)="[^"]*"', _rounded, svg)
    lines = rb'(?<= d=")M [^"CQAS]*'  # of lines only; the letters of texts are curves
    svg = re.sub(lines, lambda path: _compact_lines(path[0].decode()).encode(), svg)
    svg = re.sub(rb' d="[^"]*"', lambda path: re.sub(rb" ?\n ?|(?<=[A-Z]) ", b"", path[0]), svg)
    return _with_short_names(svg)


def _rounded(attribute: re.Match[bytes]) -> bytes:
    """Places with one decimal, scales as they are; letters are 100 units wide."""

    def short(numbers: re.Match[bytes]) -> bytes:
        return re.sub(rb"-?\d+\.\d+", lambda x: _text_of(float(x[0])).encode(), numbers[0])

    is_place = not attribute[0].startswith(b" transform")
    return re.sub(rb".+" if is_place else rb"translate\([^)]*\)", short, attribute[0])


def _text_of(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _with_short_names(svg: bytes) -> bytes:
    """Names of letters and markers, which are referred to thousands of times, in few characters."""
    names = dict.fromkeys(re.findall(rb' id="([^"]+)"', svg))
    short = {name: b"%s%x" % (b"i", i) for i, name in enumerate(names)}

    def renamed(found: re.Match[bytes]) -> bytes:
        return found[1] + short.get(found[2], found[2]) + found[3]

    svg = re.sub(rb'( id=")([^"]+)(")', renamed, svg)
    svg = re.sub(rb'(href="#)([^"]+)(")', renamed, svg)
    return re.sub(rb"(url\(#)([^)]+)(\))", renamed, svg)


def _compact_lines(path: str) -> str:
    """The same lines with horizontal and vertical ones as such: M x y, L x y, H x, V y and z."""
    parts, last = [], ("", "")
    for command, numbers in re.findall(r"([MLz]) ?([-.\d ]*)", path):
        point = tuple(_text_of(float(number)) for number in numbers.split())
        is_line = command == "L"
        if is_line and point == last:
            continue
        if is_line and point[1] == last[1]:
            parts.append(f"H{point[0]}")
        elif is_line and point[0] == last[0]:
            parts.append(f"V{point[1]}")
        else:
            parts.append(command + " ".join(point))
        last = point or last
    return "".join(parts)
