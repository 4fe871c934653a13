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

from experiments.harness.data_files import DataError, existing_file, number_of, read_lines

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
        held_out: sizes of the parts for recalibration and for evaluation; None for those of L21.
    """

    features: np.ndarray
    labels: np.ndarray
    groups: dict[str, np.ndarray]
    held_out: tuple[int, int] | None = None


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


def _names(path: Path) -> list[str]:
    """Names of the columns, from the description of the data."""
    lines = [line.split() for line in read_lines(path) if line.startswith("@attribute")]
    names = [line[1] for line in lines if len(line) > 1]
    if not names or len(names) < len(lines) or len(set(names)) < len(names):
        expected = "--data: expected a line '@attribute NAME' for each column, with another name"
        raise DataError(f"{expected}, got {len(lines)} lines, {len(set(names))} names in {path}")
    return names


def _columns(path: Path, names: list[str]) -> dict[str, list[str]]:
    """The columns as strings, by name."""
    rows = list(csv.reader(read_lines(path)))
    for i, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise DataError(
                f"--data: expected {len(names)} values in each line, "
                f"got {len(row)} in row {i} of {path}"
            )
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def read_communities(data: Path) -> Communities:
    """Reads the data in the files in which UCI publishes it.

    Raises:
        DataError: if a file or a column is missing, a line has another number of values, or holds
            something else than numbers; only predictive columns may have missing ones, "?".
    """
    names_path, path = (
        existing_file(data, FOLDER, f"communities.{suffix}") for suffix in ("names", "data")
    )
    columns = _columns(path, _names(names_path))
    needed = {TARGET, *(column for names in GROUPINGS.values() for column in names.values())}
    if not needed <= columns.keys():
        missing = ", ".join(sorted(needed - columns.keys()))
        raise DataError(f"--data: expected columns {missing} in {FOLDER}/communities.names")

    def numbers_of(column: str) -> np.ndarray:
        # Of a race whose share is not known, nobody can say whether it is the largest.
        missing = () if column in needed else ("?",)
        return np.array([number_of(path, i, x, missing) for i, x in enumerate(columns[column], 1)])

    numbers = {name: numbers_of(name) for name in columns if name not in NOT_PREDICTIVE}
    crimes = numbers.pop(TARGET)
    labels = (crimes > np.median(crimes)).astype(int)
    if not np.any(labels):
        expected = f"--data: expected {TARGET} above its median somewhere"
        raise DataError(f"{expected}, got none of {len(labels)} communities in {path}")
    features = []
    for values in numbers.values():
        is_missing = np.isnan(values)
        if 2 * np.sum(is_missing) < len(values):
            features.append(np.where(is_missing, np.nanmedian(values), values))
    groups = {
        grouping: np.argmax([numbers[column] for column in names.values()], 0)
        for grouping, names in GROUPINGS.items()
    }
    features = np.stack(features, 1).astype(np.float32)
    return Communities(features, labels, groups)


def random_split(seed: int, num_samples: int, held_out: tuple[int, int] | None = None) -> Split:
    """Split of the communities that belongs to a seed.

    Args:
        seed: the seed.
        num_samples: number of communities.
        held_out: sizes of the parts for recalibration and for evaluation; None for those of L21.

    Raises:
        DataError: if there are too few communities.
    """
    calibrating, evaluating = held_out or (NUM_CALIBRATION, NUM_EVALUATION)
    if num_samples <= calibrating + evaluating:
        least = calibrating + evaluating + 1
        raise DataError(f"--data: expected {least} communities or more, got {num_samples}")
    order = np.random.default_rng([seed, *b"l21_crime/split"]).permutation(num_samples)
    return Split(*np.split(order, [-calibrating - evaluating, -evaluating]))
