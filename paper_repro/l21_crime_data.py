"""UCI Communities and Crime as L21 uses it: is violent crime above the median of all communities?

What the paper leaves open is settled as follows.

- Features: the columns that the description of the data calls predictive (not the state, county,
  number, name and fold of a community), but for 22 columns of the police survey, which are missing
  for 1675 of the 1994 communities. One other number is missing, an income, and replaced by the
  median of its column. 100 columns are left. They are numbers in [0, 1] and are taken as they are.
- Label: 1 where `ViolentCrimesPerPop` is larger than its median over all communities, 0.15, which
  49 communities have.
- Groups: the race whose share in the community is largest (L21: "plurality race (White, Black,
  Asian, Indian, Hispanic)"). The data has no share of Indians, and the four shares that it has are
  not percentages: each is rescaled to [0, 1] on its own, so that no percentages can be compared.
  The largest of the four *rescaled* shares is taken: the race that is strongest relative to its
  range over communities. (With the percentages themselves nine in ten communities are white.) The
  five races of the paper do occur in the data, as `whitePerCap`, ..., `HispPerCap`, which are
  incomes; `GROUPINGS` has the largest of these as well, to see what depends on this choice.
- Split: the paper's 1494/500/500 communities are 2494, but there are 1994. The training part has
  994, which leaves 500 for recalibration and 500 for evaluation.
"""

import csv
import dataclasses
from pathlib import Path

import numpy as np

FOLDER = "communities_crime"
TARGET = "ViolentCrimesPerPop"
NOT_PREDICTIVE = ("state", "county", "community", "communityname", "fold")
GROUPINGS = {
    "shares": {
        "black": "racepctblack",
        "white": "racePctWhite",
        "Asian": "racePctAsian",
        "Hispanic": "racePctHisp",
    },
    "incomes": {
        "white": "whitePerCap",
        "black": "blackPerCap",
        "Indian": "indianPerCap",
        "Asian": "AsianPerCap",
        "Hispanic": "HispPerCap",
    },
}
NUM_CALIBRATION = 500
NUM_EVALUATION = 500


@dataclasses.dataclass(frozen=True)
class Communities:
    """The communities.

    Attributes:
        features: predictive columns, float32 [n, d].
        labels: 1 where the crime rate is above the median, [n].
        groups: number of the group of each community, by name of the grouping, [n] each.
    """

    features: np.ndarray
    labels: np.ndarray
    groups: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Split:
    """Indices of the communities for training, for recalibration and for evaluation."""

    training: np.ndarray
    calibration: np.ndarray
    evaluation: np.ndarray

    @property
    def held_out(self) -> np.ndarray:
        """Indices of the communities for recalibration, then of those for evaluation."""
        return np.concatenate([self.calibration, self.evaluation])


def _columns(folder: Path) -> dict[str, list[str]]:
    """The columns as strings, by the name that the description gives them."""
    paths = [folder / f"communities.{suffix}" for suffix in ("names", "data")]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"--data: expected a folder with {FOLDER}/{path.name}, got none")
    lines = paths[0].read_text(encoding="utf-8").splitlines()
    names = [line.split()[1] for line in lines if line.startswith("@attribute")]
    with paths[1].open(newline="", encoding="utf-8") as file:
        rows = [[value.strip() for value in row] for row in csv.reader(file) if row]
    for i, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ValueError(
                f"--data: expected {len(names)} values in each line of {FOLDER}/communities.data, "
                f"got {len(row)} in line {i}"
            )
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def _numbers(values: list[str]) -> np.ndarray:
    return np.array([np.nan if value == "?" else float(value) for value in values])


def read_communities(data: Path) -> Communities:
    """Reads the data in the files in which UCI publishes it.

    Raises:
        ValueError: if a file or a column is missing, or a line has another number of values.
    """
    columns = _columns(data / FOLDER)
    needed = {TARGET, *(column for names in GROUPINGS.values() for column in names.values())}
    if not needed <= columns.keys():
        missing = ", ".join(sorted(needed - columns.keys()))
        raise ValueError(f"--data: expected columns {missing} in {FOLDER}/communities.names")
    crimes = _numbers(columns[TARGET])
    features = []
    for name, values in columns.items():
        if name in (TARGET, *NOT_PREDICTIVE):
            continue
        numbers = _numbers(values)
        is_missing = np.isnan(numbers)
        if 2 * np.sum(is_missing) < len(numbers):
            features.append(np.where(is_missing, np.nanmedian(numbers), numbers))
    groups = {
        grouping: np.argmax([_numbers(columns[column]) for column in names.values()], 0)
        for grouping, names in GROUPINGS.items()
    }
    labels = (crimes > np.median(crimes)).astype(int)
    return Communities(np.stack(features, 1).astype(np.float32), labels, groups)


def random_split(seed: int, num_samples: int) -> Split:
    """Split of the communities that belongs to a seed."""
    order = np.random.default_rng([seed, *b"l21_crime/split"]).permutation(num_samples)
    parts = np.split(order, [-NUM_CALIBRATION - NUM_EVALUATION, -NUM_EVALUATION])
    return Split(*parts)
