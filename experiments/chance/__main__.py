"""Which differences between networks, or recalibration methods, are more than chance gives?

Nineteen networks on CIFAR-10 and three on CIFAR-100, and nine recalibration methods for each. The
14 networks of W19 have no validation images: the methods are fitted to one half of their test
images, and judged by the other. The others are fitted to their 5000 validation images. Methods are
judged by 5000 test images everywhere, networks on CIFAR-10 by all 10 000. The files of the three
networks on CIFAR-100 have the images in different orders, so that these are not compared with each
other.

Four measures: the top-label and the class-wise ECE (15 uniform bins), the unbiased SKCE with the
kernel exp(−TV) δ, and the squared kernel-density error of the top label. Two models are compared by
the difference of a measure on the same samples, see `comparisons`; a simulation shows how often
equal models are called different.

The preset full takes more than an hour on two busy cores, most of it for 100 classes and for the
redraws of methods that give every class some probability.

Run: python -m experiments.chance --data DIR [--preset full] [--only networks …] [--output DIR]
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from experiments.chance import chance_figures, networks, simulation, tables
from experiments.chance.comparisons import Compared, Ranges, compare, pool, ranges_of
from experiments.chance.networks import Network, Part
from experiments.chance.tables import Found
from experiments.harness import cells, command_line, data_files
from experiments.harness.cells import Store
from experiments.harness.tables import write_table

NAME = "chance"
KINDS = ("networks", "validated", "halves", "simulation")
MAX_DATA_SETS = 2  # of n samples each


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of a run.

    Attributes:
        sizes: numbers of samples n.
        judged: largest n of the comparison of methods.
        names: networks of each data set at most.
        num_resamples: of the bootstrap.
        num_redraws: of the labels.
        num_datasets: of the simulation.
    """

    sizes: tuple[int, ...]
    judged: int
    names: int
    num_resamples: int
    num_redraws: int
    num_datasets: int


SETTINGS = {
    "quick": Settings((100, 200), 200, 1, 50, 19, 10),
    "full": Settings((250, 500, 1000, 2500, 5000, 10000), 5000, 14, 300, 199, 400),
}


def data_sets(part_size: int, n: int) -> int:
    """Number of disjoint data sets of n samples."""
    return min(part_size // n, MAX_DATA_SETS)


def compared(name: str, probs: jax.Array, labels: jax.Array, n: int, settings: Settings) -> Any:
    """`Compared` for disjoint data sets of n samples each, as arrays by name."""
    found = []
    for i in range(data_sets(len(labels), n)):
        own = slice(i * n, (i + 1) * n)
        key = cells.key_of(f"{NAME}/{name}/{n}/{i}")
        found.append(compare(key, probs[:, own], labels[own], settings.num_resamples))
    return {key: np.stack([getattr(x, key) for x in found]) for key in Compared._fields}


def ranged(name: str, probs: jax.Array, labels: jax.Array, settings: Settings) -> Any:
    """`Ranges` of all models, as arrays by name."""
    key = cells.key_of(f"{NAME}/{name}/redraws")
    found = [ranges_of(pool(key, p, labels, settings.num_redraws)) for p in probs]
    return {key: np.stack([getattr(x, key) for x in found]) for key in Ranges._fields}


class Study:
    """Cells of a run, computed or read."""

    def __init__(self, store: Store, settings: Settings, bar: tqdm) -> None:
        """Keeps the store of the cells, the sizes, and the bar that shows the progress."""
        self.store, self.settings, self.bar = store, settings, bar

    def found(
        self,
        family: str,
        group: str,
        models: tuple[str, ...],
        limit: int,
        data: Any,
        *,
        all_sizes: bool = True,
    ) -> Iterator[Found]:
        """What is found for each n up to a limit.

        Args:
            family: what is compared.
            group: the network whose methods are compared, or "all".
            models: their names.
            limit: the largest n, of which the ranges are found too.
            data: digest of what the predictions come from; a function that returns predictions
                [M, N, m] and labels [N], which is called where a cell is not there.
            all_sizes: whether n takes all sizes up to the limit, or the limit only.
        """
        digest, read = data
        name = f"{family}/{group}".replace(" ", "_")
        parameters = dataclasses.asdict(self.settings) | {"data": digest, "models": models}
        del parameters["sizes"], parameters["num_datasets"], parameters["names"]
        for n in (n for n in self.settings.sizes if n <= limit and (all_sizes or n == limit)):
            self.bar.set_description(f"{family}, {group}, n = {n}")

            def compute(n: int = n) -> Any:
                return compared(name, *read(), n, self.settings)

            def compute_ranges(n: int = n) -> Any:
                probs, labels = read()
                return ranged(name, probs[:, :n], labels[:n], self.settings)

            arrays = cells.arrays(self.store, f"{name}/{n}", parameters, compute)
            self.bar.update()
            ranges = None
            if n == limit:
                ranges = cells.arrays(self.store, f"{name}/ranges", parameters, compute_ranges)
                ranges = Ranges(**ranges)
            yield Found(family, group, models, n, Compared(**arrays), ranges)

    def methods(self, family: str, network: Network) -> list[Found]:
        """All methods on one network."""
        size = self.settings.judged
        judging = Part(network.judging.probs[:size], network.judging.labels[:size])
        network = network._replace(judging=judging)

        @functools.cache
        def read() -> tuple[jax.Array, jax.Array]:
            return networks.recalibrated(network), jnp.asarray(network.judging.labels)

        digest = data_files.digest(*network.fitting, *judging)
        models = tuple(networks.METHODS)
        sizes = not network.halves  # one n suffices for 14 more networks
        return list(self.found(family, network.name, models, size, (digest, read), all_sizes=sizes))

    def all_networks(self, parts: dict[str, Part]) -> list[Found]:
        """All networks on CIFAR-10, as they are."""
        labels = next(iter(parts.values())).labels
        for name, part in parts.items():
            wrong = part.labels != labels
            expected = "the images of all networks in one order"
            data_files.refuse_where("--data", name, wrong, expected, part.labels)
        digest = data_files.digest(labels, *(part.probs for part in parts.values()))
        limit = self.settings.sizes[-1]

        def read() -> tuple[jax.Array, jax.Array]:
            probs = np.stack([part.probs for part in parts.values()])
            return jnp.asarray(probs), jnp.asarray(labels)

        found = self.found("networks, CIFAR-10", "all", tuple(parts), limit, (digest, read))
        return list(found)

    def levels(self, parts: dict[str, Part]) -> list[dict[str, Any]]:
        """How often equal models are called different; the first two networks are swapped."""
        one, other = list(parts.values())[:2]
        pair = jnp.stack([one.probs, other.probs]), jnp.asarray(one.labels)
        number, counts = self.settings.num_datasets, {}
        parameters = {"number": number, "data": data_files.digest(*pair)}
        for name in simulation.SCENARIOS:
            for n in self.settings.sizes[:2]:
                self.bar.set_description(f"simulation, {name}, n = {n}")
                compute = functools.partial(simulation.rejections, name, n, pair, number)
                counts[name, n] = cells.cell(
                    self.store, f"simulation/{name}/{n}", parameters, compute
                )
                self.bar.update()
        return simulation.level_rows(counts, number)


def read_parts(data: Path, settings: Settings) -> dict[str, Part]:
    """Test images of all networks on CIFAR-10, in one order."""
    folder, names = "cifar10_logits", settings.names
    parts = {name: networks.read_published(data, name) for name in networks.PUBLISHED[:names]}
    for name in networks.LOGITS[folder][:names]:
        parts[f"{name} (logits)"] = networks.read_logits(data, folder, name, "test")
    return {name: networks.shuffled(part, folder) for name, part in parts.items()}


def validated(data: Path, settings: Settings) -> Iterator[tuple[str, Network]]:
    """Networks with validation images, and the family that they are in."""
    for folder, names in networks.LOGITS.items():
        for name in names[: settings.names]:
            fitting, judging = (
                networks.read_logits(data, folder, name, part) for part in ("val", "test")
            )
            judging = networks.shuffled(judging, folder)
            family = f"methods, {'CIFAR-100' if '100' in folder else 'CIFAR-10'}"
            yield family, Network(name, fitting, judging, halves=False)


def halves(data: Path, settings: Settings) -> Iterator[tuple[str, Network]]:
    """Networks without validation images."""
    for name in networks.PUBLISHED[: settings.names]:
        part = networks.shuffled(networks.read_published(data, name), "cifar10_logits")
        yield "methods, CIFAR-10, halves", networks.in_halves(name, part)


NOTE = (
    "Share of the pairs that are decided at level 0.05, by both rules of `comparisons`: each pair "
    "alone; after Holm's adjustment "
    "for all pairs of the network (of methods: 36; of networks: all) by this measure; and by the "
    "numbers alone, whose bias is not taken into account. Half-width: of the 95 % interval of the "
    "difference of two models, median over the pairs; smaller differences are within chance. "
    "Neither, one, both beyond the range: of the two models, those with exact p <= 0.05 by this "
    "measure, whose error is more than what a calibrated model of the same sharpness gives. Shares "
    "are means over the networks and over up to two disjoint data sets of n samples."
)


def published_note(data: Path, found: list[Found]) -> str:
    """How many published differences of the SKCE are within chance."""
    columns = {"model": str, "SKCEuq_median": float}
    path = data_files.existing_file(data, "cifar10_networks", "errors.csv")
    published = {
        row["model"]: float(row["SKCEuq_median"]) for row in data_files.read_table(path, columns)
    }
    within = [
        tables.published_within(one, published)
        for one in found
        if one.group == "all" and one.ranges is not None
    ]
    return " ".join(
        f"Of {number} pairs of the networks of W19, {k} differ by less than the half-width of the "
        "pair in the published SKCEuq_median."
        for k, number in within
    )


def write(folder: Path, found: list[Found], command: str, published: str) -> None:
    """All tables of the comparisons, and the figure."""
    rows = tables.share_rows(found)
    made = f"Made by `{command}`."
    write_table(folder, NAME, rows, f"{NOTE} {published} {made}", show=True)
    note = (
        "low, high: estimate without its bias, plus and minus 1.96 standard errors, the larger one "
        "of both rules. calibrated: mean and 2.5 % and "
        "97.5 % quantiles with labels redrawn from the predictions; the exact p-value is the rank "
        f"of the estimate among these. {made}"
    )
    write_table(folder, f"{NAME}_models", tables.model_rows(found), note)
    note = f"Differences without bias, and p-values after Holm's adjustment. {made}"
    write_table(folder, f"{NAME}_pairs", tables.pair_rows(found), note)
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
    parts = (
        read_parts(options.data, settings) if {"networks", "simulation"} & {*options.only} else {}
    )
    found: list[Found] = []
    command = f"python -m experiments.{NAME} --data DIR --preset {run.preset}"
    with tqdm(unit="cell") as bar:
        study = Study(run.store(NAME, __file__), settings, bar)
        if "networks" in options.only:
            found += study.all_networks(parts)
        for kind, read in (("validated", validated), ("halves", halves)):
            if kind in options.only:
                for family, network in read(options.data, settings):
                    found += study.methods(family, network)
        levels = study.levels(parts) if "simulation" in options.only else []
    if levels:
        note = f"{simulation.__doc__} Made by `{command}`."
        write_table(folder, f"{NAME}_levels", levels, note, show=True)
    if found:
        write(folder, found, command, published_note(options.data, found))


if __name__ == "__main__":
    main()
