"""Risks of networks of the paper's architectures beside the published ones."""

from collections.abc import Iterator
from pathlib import Path

from experiments.harness import stand_in
from experiments.harness.tables import note_of, write_table
from paper_repro.g24.networks_tables import (
    Results,
    compare,
    critical_value,
    difference_text,
    root_risk,
)
from paper_repro.g24.published import ERRORS, PUBLISHED

# Ours and the published ones; the DenseNet of the paper has 40 layers, ours 121.
ARCHITECTURES = {
    "cifar10_logits_resnet110": "ResNet-110",
    "cifar10_logits_densenet121": "DenseNet-40",
    "cifar100_resnet110": "ResNet-110",
    "cifar100_densenet121": "DenseNet-40",
}
BASE = "ukkr"  # whose risk is subtracted
ROUNDING = 0.005  # of the published roots


def published_difference(root: float, base: float) -> tuple[float, float]:
    """Difference of two published risks times 10⁴, and the most that rounding changes it."""
    return root**2 - base**2, 2 * ROUNDING * (root + base)


def architecture_rows(results: Results) -> Iterator[tuple]:
    """Rows of the table, of the networks that are there."""
    chosen = {key: x for key, x in results.items() if key[0] in ARCHITECTURES}
    pairs = {key: x for key, x in compare(chosen).items() if key[3] == BASE and key[2] != "h = 0"}
    critical = critical_value(dict.fromkeys([*pairs, *(key[::-1] for key in pairs)]))
    for (network, notion, name), found in chosen.items():
        data, other = network.split("_")[0], ARCHITECTURES[network]
        published = PUBLISHED[data, notion]
        if name not in published:
            continue
        roots = {x: published[x][other] for x in (name, BASE)}
        root, error = root_risk(found)
        difference, rounding = published_difference(roots[name], roots[BASE])
        is_base = name == BASE
        yield (
            data,
            notion,
            network.rpartition("_")[2],
            other,
            name,
            f"{root:.3f} ± {error:.2g}",
            f"{roots[name]:.2f} ± {ERRORS[data, notion, other, name]:.2f}",
            None if is_base else difference_text(pairs[network, notion, name, BASE], critical),
            None if is_base else f"{difference:.2g} ± {rounding:.1g}",
        )


def write_tables(folder: Path, results: Results) -> None:
    """Writes the table; not of stand-in data, nor where no such network is there."""
    rows = list(architecture_rows(results))
    if rows and not stand_in.header():
        note = note_of(__file__, "note", num=sum(row[-1] is not None for row in rows))
        write_table(folder, "architectures", rows, note)
