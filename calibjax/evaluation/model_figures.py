"""Figures of several models: differences of their scores, and the calibration of each."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from calibjax.evaluation.classes import overall_reliability_panel
from calibjax.evaluation.entries import Panel, Section
from calibjax.evaluation.models import Compared
from calibjax.evaluation.numbers import pit_panel
from calibjax.plotting import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class _Differences(NamedTuple):
    """Score differences from one model."""

    names: list[str]
    values: np.ndarray
    reaches: np.ndarray
    ylabel: str


def panels_of(c: Compared, sections: Mapping[str, Section]) -> tuple[Panel, ...]:
    """The score of each model less that of one, and what is drawn of each model by itself."""
    return (*_score_panel(c, sections), *_model_panels(c))


def _score_panel(c: Compared, sections: Mapping[str, Section]) -> Iterator[Panel]:
    """Differences from the reference, or from the model with the best score."""
    entries = {x.name: x for section in sections.values() for x in section.entries}
    name, unit = c.score_name
    best = c.reference
    if best is None:
        best = min(c.models, key=lambda x: entries[f"{x}: {name}"].value)
    found = {}
    for a, b in c.pairs:
        entry = entries[f"{a} - {b}: {name}"]
        if best not in (a, b) or entry.low is None or entry.high is None:
            continue
        reach = (entry.high - entry.low) / 2
        if np.isfinite([entry.value, reach]).all():
            found[a if b == best else b] = entry.value if b == best else -entry.value, reach
    if not found:
        return
    values, reaches = np.array(list(found.values())).T
    of = f"that of {best}" + (", which is the smallest" if c.reference is None else "")
    caption = f"The {name} of each model less {of}, with 95 % intervals of each difference "
    caption += "(not adjusted for their number): above zero it is worse."
    unit_of = f" ({unit.strip()})" if unit else ""
    shown = _Differences(list(found), values, reaches, f"{name} less that of {best}{unit_of}")
    yield Panel("score differences", caption, _draw_differences, shown, 0)


def _draw_differences(shown: _Differences, *, ax: "Axes | None" = None) -> "Axes":
    size = len(shown.names)
    style = {"color": figures.CURVE_COLORS[0], "elinewidth": 0.9, "capsize": 2.5, "markersize": 4}
    with figures.figure(ax, (1.6 + 1.1 * size, 3.4)) as ax:
        label = "difference, 95 % interval"
        ax.errorbar(np.arange(size), shown.values, shown.reaches, fmt="o", label=label, **style)
        ax.set_xticks(np.arange(size), shown.names)
        ax.set(ylabel=shown.ylabel, xlim=(-0.5, size - 0.5))
        ax.axhline(0, color=figures.GRAY, linewidth=1, linestyle="--", zorder=1)
        if max(map(len, shown.names)) * size > 40:
            ax.tick_params("x", rotation=60)
    return ax


def _model_panels(c: Compared) -> Iterator[Panel]:
    """The reliability diagram of classes, or the PIT histogram of numbers, of each model."""
    for name, data in c.data.items():
        if data.is_of_classes:
            panel = overall_reliability_panel(data)
        elif data.pit is not None:
            panel = pit_panel(data)
        else:
            continue
        caption = f"{name}: {panel.caption}"
        if c.clusters is not None:
            caption += " That is so for independent samples: clusters scatter more."
        yield dataclasses.replace(panel, name=f"{name}, {panel.name}", caption=caption)
