"""Tables of what is not in G24: debiased bins, and what its kernel density ratio lacks."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.harness import stand_in
from experiments.harness.tables import note_of, write_table
from paper_repro.g24.naive_density import LEAST_SUM
from paper_repro.g24.networks_tables import (
    Results,
    compare,
    difference_text,
    root_risk,
    selected_text,
)
from paper_repro.g24.published import PUBLISHED


def debiased_rows(results: Results) -> Iterator[tuple]:
    """Rows of the table of debiased bins."""
    names = ("15 bins", "15 debiased bins", "bins", "debiased bins", "ukkr")
    chosen = {key: x for key, x in results.items() if key[1] == "top-label" and key[2] in names}
    pairs = compare(chosen)
    for network in dict.fromkeys(key[0] for key in chosen):
        for name in names:
            found = chosen[network, "top-label", name]
            plain = name.replace("debiased ", "")
            pair = pairs.get((network, "top-label", name, plain))
            yield (
                network,
                name,
                selected_text(found) if name != "ukkr" else "",
                f"{root_risk(found)[0]:.3f}",
                difference_text(pair) if pair else None,
                1e4 * float(found["estimate"]),
                1e4 * float(found["standard_error"]),
            )


def naive_rows(
    stable: dict[str, dict[str, np.ndarray]], naive: dict[str, dict[str, np.ndarray]]
) -> Iterator[tuple]:
    """Rows of the table of ratios, by name of the network."""
    for network, found in naive.items():
        best = found["risks"].mean(1).argmin(-1)  # of each of LEAST_SUM
        places = range(len(LEAST_SUM)), slice(None), best
        roots = [100 * np.sqrt(found["risks"][i].mean(0)[best[i]]) for i in places[0]]
        missing = [float(found["missing"][i].mean(0)[best[i]]) for i in places[0]]
        root, _ = root_risk(stable[network])
        expected = root / (1 - missing[0])
        yield (
            network,
            float(found["saturated"]),
            root,
            float(roots[0]),
            missing[0],
            expected,
            float(roots[1]),
            missing[1],
        )


def implied_rows() -> Iterator[tuple]:
    """Rows of the table of published risks of kde for the top label, and what explains them."""
    for (data, notion), of in PUBLISHED.items():
        for network, kde in of["kde"].items() if notion == "top-label" else ():
            smallest = min(of[name][network] for name in of if name != "kde")
            yield data, network, smallest, kde, 1 - smallest / kde


def write_tables(
    folder: Path,
    results: Results,
    stable: dict[str, dict[str, np.ndarray]],
    naive: dict[str, dict[str, np.ndarray]],
    power: float,
) -> None:
    """Writes the tables of debiased bins and of kernel density ratios."""
    write_table(folder, "debiased_bins", debiased_rows(results), note_of(__file__, "debiased"))
    note = note_of(__file__, "naive", power=power)
    rows = naive_rows(stable, naive)
    write_table(folder, "naive_density", rows, note)
    if not stand_in.header():
        write_table(folder, "published_density", implied_rows(), note_of(__file__, "implied"))
