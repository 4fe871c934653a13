"""Figures as addresses that hold the picture itself, so that a page needs no other file."""

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGEST_DRAWING = 300_000  # bytes; beyond, a picture of points is the smaller file
_RESOLUTION = 180  # points per inch of such a picture


def data_address(figure: "Figure") -> str:
    """A drawing (SVG), or a picture (PNG) where a drawing would be large, as a data: address.

    Args:
        figure: of matplotlib. The same figure gives the same address.
    """
    drawing = _saved(figure, "svg")
    if len(drawing) <= _LARGEST_DRAWING:
        return _address("image/svg+xml", drawing)
    return _address("image/png", _saved(figure, "png"))


def _saved(figure: "Figure", kind: str) -> bytes:
    import matplotlib

    file = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {}
    # Lines of text stay text only if the reader has the font; as curves they look the same for all.
    with matplotlib.rc_context({"svg.hashsalt": "calibjax", "svg.fonttype": "path"}):
        figure.savefig(file, format=kind, dpi=_RESOLUTION, metadata=metadata, facecolor="white")
    return file.getvalue()


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
