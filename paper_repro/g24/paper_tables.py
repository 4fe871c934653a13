"""Tables 1, 2, 3 and 5 of G24 in the paper's layout, our networks to the right of the paper's."""

from collections.abc import Iterator
from pathlib import Path

from experiments.harness.tables import note_of, write_table
from paper_repro.g24.networks_tables import ZERO, Results, root_risk
from paper_repro.g24.published import PUBLISHED

TABLES = {
    "table_1": ("cifar10", "top-label"),
    "table_2": ("cifar100", "top-label"),
    "table_3": ("cifar100", "canonical"),
    "table_5": ("cifar10", "canonical"),
}
LABELS = {
    "densenet121": "DenseNet-121",
    "googlenet": "GoogLeNet",
    "resnet18": "ResNet-18",
    "vgg16_bn": "VGG-16",
    "resnet50": "ResNet-50",
    "resnet110": "ResNet-110",
    "logits_resnet110": "ResNet-110 (logits)",
    "logits_densenet121": "DenseNet-121 (logits)",
}


def label_of(network: str) -> str:
    """Name of one of our networks in tables and figures."""
    return LABELS.get(network.partition("_")[2], network)


def networks_of(results: Results, data: str, notion: str) -> list[str]:
    """Our networks for a data set, or the stand-in for each."""
    networks = dict.fromkeys(key[0] for key in results if key[1] == notion)
    stand_ins = [x for x in networks if x.startswith("digits")]
    return [x for x in networks if x.startswith(f"{data}_")] or stand_ins


def table_rows(results: Results, data: str, notion: str) -> Iterator[dict[str, str | None]]:
    """A row for each estimator, a column for each network: 100 √risk ± its standard error."""
    published = PUBLISHED[data, notion]
    networks = next(iter(published.values()))
    for name in [*published, ZERO]:
        row: dict[str, str | None] = {"estimator": name}
        for network in networks:
            found = published.get(name, {}).get(network)
            row[f"G24: {network}"] = found and f"{found.root:.2f} ± {found.error:.2f}"
        for network in networks_of(results, data, notion):
            root, error = root_risk(results[network, notion, name])
            row[f"here: {label_of(network)}"] = f"{root:.3f} ± {error:.2g}"
        yield row


def write_tables(folder: Path, results: Results) -> None:
    """Writes the tables, whose published part needs no data."""
    for name, place in TABLES.items():
        write_table(folder, name, table_rows(results, *place), note_of(__file__, "note"))
