"""Published numbers of G24: Tables 1, 2, 3 and 5, and Fig. 2 to 4.

The figures are read off the pictures in the published notebook, to 0.001; an estimate is NaN where
another point hides it.
"""

from typing import NamedTuple

from experiments.harness.tables import published_rows


class Published(NamedTuple):
    """100 √risk with its standard error over the folds, and the estimated calibration error."""

    root: float
    error: float
    estimate: float


# By data set and notion, estimator, and network.
PUBLISHED: dict[tuple[str, str], dict[str, dict[str, Published]]] = {}
for row in published_rows(__file__):
    of_data = PUBLISHED.setdefault((row["data"], row["notion"]), {})
    values = (float(row[name] or "nan") for name in Published._fields)
    of_data.setdefault(row["estimator"], {})[row["network"]] = Published(*values)
