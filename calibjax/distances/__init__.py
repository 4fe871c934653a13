"""Distances between predictions (or between targets): records called as `distance(p, q)`.

`distance.squared(p, q)` is the squared distance. Gradients are finite at distance zero.
"""

from calibjax.distances.elementary import (
    Distance,
    Euclidean,
    Features,
    Manhattan,
    MaximumMeanDiscrepancy,
    TotalVariation,
)
from calibjax.distances.wasserstein import MixtureWasserstein, Wasserstein

__all__ = [
    "Distance",
    "Euclidean",
    "Features",
    "Manhattan",
    "MaximumMeanDiscrepancy",
    "MixtureWasserstein",
    "TotalVariation",
    "Wasserstein",
]


def __dir__() -> list[str]:
    return __all__
