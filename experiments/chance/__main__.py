"""Which differences between networks, or between recalibration methods, are more than chance gives?

Nineteen networks on CIFAR-10 and three on CIFAR-100, and nine recalibration methods for each. The
14 networks of W19 have no validation images: the methods are fitted to one half of their test
images, and judged by the other. The others are fitted to their 5000 validation images. Methods are
judged by 5000 test images everywhere, networks on CIFAR-10 by all 10 000. The files of the three
networks on CIFAR-100 have the images in different orders, so that these are not compared with each
other.

Four measures: the top-label and the class-wise ECE (15 uniform bins), the unbiased SKCE with the
kernel exp(−TV) δ, and the squared kernel-density error of the top label (`measures`). Two models
are compared by the difference of a measure on the same samples (`comparisons`); a simulation shows
how often equal models are called different.

Run: python -m experiments.chance --data DIR [--preset full] [--only networks …] [--output DIR]
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

from experiments.chance import chance_figures, networks, simulation, tables
from experiments.chance.comparisons import Compared, compare
from experiments.chance.networks import Network, Part
from experiments.chance.tables import Found
from experiments.harness import cells, command_line, data_files
from experiments.harness.cells import Store
from experiments.harness.tables import note_of, write_table
from paper_repro.data import cifar

NAME = "chance"
KINDS = ("networks", "validated", "halves", "simulation")
MAX_DATA_SETS = 2  # of n samples each
ORDER = "cifar10"  # of the test images, the same for all networks on CIFAR-10


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a run.

    Attributes:
        sizes: numbers of samples n.
        judged: largest n of the comparison of methods.
        halved: numbers of samples of the networks without validation images.
        names: networks of each data set at most.
        redraws: of the labels.
        data_sets: of the simulation.
        simulated: its numbers of samples.
    """

    sizes: tuple[int, ...]
    judged: int
    halved: tuple[int, ...]
    names: int
    redraws: int
    data_sets: int
    simulated: tuple[int, ...]


SETTINGS = {
    "quick": Settings((100, 200), 200, (100, 200), 1, 19, 10, (100,)),
    "full": Settings((500, 1000, 2500, 5000, 10000), 5000, (1000, 5000), 14, 199, 400, (250, 500)),
}
Models = tuple[list[np.ndarray], np.ndarray]  # predictions [n, m] of each model, labels [n]


def rng_of(name: str) -> np.random.Generator:
    """Random numbers that belong to a name."""
    return np.random.default_rng(np.asarray(jax.random.key_data(cells.key_of(name))))


@dataclasses.dataclass
class Study:
    """Cells of a run, computed or read."""

    store: Store
    settings: Settings
    bar: tqdm

    def compared(
        self,
        family: str,
        group: str,
        models: tuple[str, ...],
        sizes: tuple[int, ...],
        digest: str,
        read: Callable[[], Models],
    ) -> Iterator[Found]:
        """What is found for each n; `read` is called where a cell is not there."""
        for n in sizes:
            name = f"{family}/{group}/{n}".replace(" ", "_")
            self.bar.set_description(name)

            def compute(n: int = n, name: str = name) -> dict[str, np.ndarray]:
                probs, labels = read()
                found = []
                for i in range(min(len(labels) // n, MAX_DATA_SETS)):
                    own, rng = slice(i * n, (i + 1) * n), rng_of(f"{NAME}/{name}/{i}")
                    parts = [p[own] for p in probs]
                    found.append(compare(rng, parts, labels[own], self.settings.redraws))
                arrays = map(np.stack, zip(*found, strict=True))
                return dict(zip(Compared._fields, arrays, strict=True))

            parameters = {"data": digest, "models": models, "redraws": self.settings.redraws}
            arrays = cells.arrays(self.store, name, parameters, compute)
            sets = [Compared(*x) for x in zip(*(arrays[x] for x in Compared._fields), strict=True)]
            self.bar.update()
            yield Found(family, group, models, n, sets, n == sizes[-1])

    def methods(self, family: str, network: Network, *, is_halved: bool) -> Iterator[Found]:
        """All methods on one network."""
        size = self.settings.judged
        sizes = tuple(n for n in self.settings.sizes if n <= size)
        sizes = self.settings.halved if is_halved else sizes
        network = network._replace(judging=Part(*(x[:size] for x in network.judging)))

        @functools.cache
        def read() -> Models:
            return networks.recalibrated(network), network.judging.labels

        digest = data_files.digest(*network.fitting, *network.judging)
        return self.compared(family, network.name, tuple(networks.METHODS), sizes, digest, read)

    def networks(self, parts: dict[str, Part]) -> Iterator[Found]:
        """All networks on CIFAR-10, as they are."""
        labels = next(iter(parts.values())).labels
        for name, part in parts.items():
            expected = "the images of all networks in one order"
            data_files.refuse_where("--data", name, part.labels != labels, expected, part.labels)
        probs = [part.probs for part in parts.values()]
        digest, sizes = data_files.digest(labels, *probs), self.settings.sizes
        return self.compared(
            "networks, CIFAR-10", "all", tuple(parts), sizes, digest, lambda: (probs, labels)
        )

    def levels(self, parts: dict[str, Part]) -> list[dict[str, Any]]:
        """How often equal models are called different; the first two networks are swapped."""
        one, other = list(parts.values())[:2]
        pair = np.stack([one.probs, other.probs]), one.labels
        number, counts = self.settings.data_sets, {}
        parameters = {"number": number, "data": data_files.digest(*pair)}
        for name in simulation.SCENARIOS:
            for n in self.settings.simulated:
                cell = f"simulation/{name}/{n}"
                self.bar.set_description(cell)

                def compute(name: str = name, n: int = n, cell: str = cell) -> dict[str, Any]:
                    rng = rng_of(f"{NAME}/{cell}")
                    return {"counts": simulation.rejections(rng, name, n, pair, number)}

                found = cells.cell(self.store, cell, parameters, compute)
                counts[name, n] = found["counts"]
                self.bar.update()
        return simulation.level_rows(counts, number)


def read_parts(data: Path, settings: Settings) -> dict[str, Part]:
    """Test images of all networks on CIFAR-10, in one order."""
    parts = {x: networks.read_part(data, x) for x in networks.PUBLISHED[: settings.names]}
    for name in networks.validated("cifar10")[: settings.names]:
        label = name.replace("cifar10_logits_", "logits, ")
        parts[label] = networks.read_part(data, name)
    return {name: networks.shuffled(part, ORDER) for name, part in parts.items()}


def networks_of(kind: str, data: Path, settings: Settings) -> Iterator[tuple[str, Network]]:
    """Networks whose methods are compared, and the family that they are in."""
    if kind == "halves":
        for name in networks.PUBLISHED[: settings.names]:
            part = networks.shuffled(networks.read_part(data, name), ORDER)
            yield "methods, CIFAR-10, halves", networks.in_halves(name, part)
        return
    for images in ("cifar10", "cifar100"):
        for name in networks.validated(images)[: settings.names]:
            fitting, judging = (networks.read_part(data, name, x) for x in ("val", "test"))
            judging = networks.shuffled(judging, ORDER if images == "cifar10" else name)
            yield f"methods, {images.upper().replace('R', 'R-')}", Network(name, fitting, judging)


def published_note(data: Path, found: list[Found]) -> str:
    """How many published differences of the SKCE are within chance, if networks are compared."""
    columns = {"model": str, "SKCEuq_median": float}
    path = data_files.existing_file(data, cifar.CIFAR10, "errors.csv")
    rows = data_files.read_table(path, columns)
    published = {row["model"]: float(row["SKCEuq_median"]) for row in rows}
    for one in found:
        if one.group == "all" and one.is_largest:
            k, number = tables.published_within(one, published)
            return (
                f"Of {number} pairs of the networks of W19, {k} differ by less than the half-width "
                "of the pair in the published SKCEuq_median."
            )
    return ""


def write(folder: Path, found: list[Found], made: str, published: str) -> None:
    """All tables of the comparisons, and the figure."""
    rows = tables.share_rows(found)
    write_table(folder, NAME, rows, f"{note_of(__file__, 'note')}{published} {made}", show=True)
    write_table(
        folder, f"{NAME}_models", tables.model_rows(found), note_of(__file__, "models") + made
    )
    write_table(
        folder, f"{NAME}_pairs", tables.pair_rows(found), f"{note_of(__file__, 'pairs')} {made}"
    )
    chance_figures.draw(folder, rows)


@command_line.program
def main() -> None:
    """Writes the tables and the figure; finished cells are read again."""
    parser = command_line.option_parser(
        __file__, __doc__, data="required", presets=tuple(SETTINGS), only=KINDS
    )
    run, options = command_line.parse(parser)
    jax.config.update("jax_enable_x64", True)
    settings, folder = SETTINGS[str(run.preset)], run.folder(NAME)
    needs_parts = {"networks", "simulation"} & {*options.only}
    parts = read_parts(options.data, settings) if needs_parts else {}
    found: list[Found] = []
    made = f"Made by `python -m experiments.{NAME} --data DIR --preset {run.preset}`."
    with tqdm(unit="cell") as bar:
        study = Study(run.store(NAME, __file__), settings, bar)
        if "networks" in options.only:
            found += study.networks(parts)
        for kind in ("validated", "halves"):
            if kind in options.only:
                for family, network in networks_of(kind, options.data, settings):
                    found += study.methods(family, network, is_halved=kind == "halves")
        levels = study.levels(parts) if "simulation" in options.only else []
    if levels:
        note = f"{simulation.__doc__}\n{made}"
        write_table(folder, f"{NAME}_levels", levels, note, show=True)
    if found:
        write(folder, found, made, published_note(options.data, found))


if __name__ == "__main__":
    main()
