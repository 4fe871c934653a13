"""Figures: small files."""

import io
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image  # comes with matplotlib

from experiments.harness.files import write
from experiments.harness.messages import log


def save_figure(folder: Path, name: str, figure: Figure) -> None:
    """Writes a figure as NAME.png, with a palette of 64 colours, which makes it small."""
    write(folder / f"{name}.png", _drawn(figure))
    log(f"wrote {folder / name}.png")


def _drawn(figure: Figure) -> bytes:
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110)  # a bare Figure draws with Agg
    Image.open(drawn).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()
