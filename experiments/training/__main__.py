"""Does a network need the SKCE in its training loss, or a temperature afterwards?

A network with one hidden layer is trained with the loss NLL + λ · SKCE on 500 samples, until it
fits them all; 250 others are for what is chosen or fitted afterwards, and 1000 for the table. Its
competitors are the same network trained with the NLL alone, from the same start and with the same
batches: as it is, with a temperature fitted to the 250 samples, and stopped early, at the number of
steps that has the lowest NLL on them. λ is chosen in the same way, alone or with the number of
steps. Everything is repeated with ten seeds: other data, another start, other batches.

The SKCE in the loss is the biased estimate of a batch of 100, with the kernel exp(−2 TV) δ; the one
in the table is the unbiased estimate, with the same kernel. Data: a simulated problem of five
classes that overlap, where the truth is known and stands in the table, too, and scikit-learn's
digits.

Run: python -m experiments.training [--num-seeds 10] [--only simulated …] [--output DIR]
"""

from typing import Any

import numpy as np

from experiments.harness import cells, command_line
from experiments.harness.tables import note_of, write_table
from experiments.training import study
from experiments.training.networks import BATCH, CHECKPOINTS, NUM_STEPS
from experiments.training.problems import PROBLEMS, SIZES
from experiments.training.study import DRAWS, NAME, NUM_BINS, WEIGHTS

LEVEL = 0.05


def summary(records: list[dict[str, float]]) -> dict[str, Any]:
    """Mean ± standard error over seeds; of p-values the median and how many are small."""
    row: dict[str, Any] = {}
    for measure in records[0]:
        values = np.array([record[measure] for record in records])
        if measure == "exact p":
            small = int(np.sum(values <= LEVEL))
            row["median exact p"] = float(np.median(values))
            row[f"p ≤ {LEVEL:g}"] = f"{small} of {len(values)}"
            continue
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        digits = 2 if measure == "1000 SKCE" else 3
        row[measure] = f"{np.mean(values):.{digits}f} ± {error:.{digits}f}"
    return row


@command_line.program
def main(arguments: list[str] | None = None) -> None:
    """Writes the table training."""
    parser = command_line.option_parser(__file__, __doc__, only=PROBLEMS)
    parser.add_argument("--num-seeds", type=command_line.positive_integer, default=10)
    parser.add_argument("--num-steps", type=command_line.positive_integer, default=NUM_STEPS)
    run, options = command_line.parse(parser, arguments)
    if options.num_steps % CHECKPOINTS:
        parser.error(f"--num-steps: expected a multiple of {CHECKPOINTS}, got {options.num_steps}")
    store = run.store(NAME, study.__file__)
    rows = []
    for problem in options.only:
        results = [
            cells.cell(
                store,
                f"{problem}/{seed}",
                {"steps": options.num_steps},
                lambda problem=problem, seed=seed: study.found(problem, seed, options.num_steps),
            )
            for seed in range(options.num_seeds)
        ]
        for model in results[0]:
            records = [result[model] for result in results]
            rows.append({"data": problem, "loss": model, **summary(records)})
    note = note_of(
        __file__,
        "note",
        sizes_0=SIZES[0],
        batch=BATCH,
        sizes_1=SIZES[1],
        sizes_2=SIZES[2],
        weights=", ".join(f"{weight:g}" for weight in WEIGHTS),
        checkpoints=CHECKPOINTS,
        draws=DRAWS,
        num_bins=NUM_BINS,
        seeds=options.num_seeds,
        steps=options.num_steps,
    )
    write_table(run.folder(NAME), NAME, rows, note, show=True)


if __name__ == "__main__":
    main()
