"""Published numbers: G24 Tables 1 to 5, 100 √risk and its standard error over the folds.

In the table of ImageNet, all estimators but kde have the same numbers, "others".
"""

from experiments.harness.tables import published_rows

# By data set and notion, estimator and network, of which LeNet-5 is the first of CIFAR; standard
# errors of the networks whose architectures are among ours.
PUBLISHED: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
ERRORS: dict[tuple[str, str, str, str], float] = {}
for row in published_rows(__file__):
    of_data = PUBLISHED.setdefault((row["data"], row["notion"]), {})
    of_data.setdefault(row["estimator"], {})[row["network"]] = float(row["root"])
    if row["error"]:
        ERRORS[row["data"], row["notion"], row["network"], row["estimator"]] = float(row["error"])
