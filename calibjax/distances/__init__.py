"""Distances between predictions (or between targets): records called as `distance(p, q)`.

`distance.squared(p, q)` is the squared distance. Gradients are finite at distance zero.
"""

from calibjax.distances.base import Distance
from calibjax.distances.euclidean import Euclidean, SquaredEuclidean
from calibjax.distances.features import Features
from calibjax.distances.manhattan import Manhattan
from calibjax.distances.maximum_mean_discrepancy import MaximumMeanDiscrepancy
from calibjax.distances.mixture_wasserstein import MixtureWasserstein
from calibjax.distances.total_variation import TotalVariation
from calibjax.distances.wasserstein import Wasserstein

__all__ = [
    "Distance",
    "Euclidean",
    "Features",
    "Manhattan",
    "MaximumMeanDiscrepancy",
    "MixtureWasserstein",
    "SquaredEuclidean",
    "TotalVariation",
    "Wasserstein",
]


def __dir__() -> list[str]:
    return __all__
