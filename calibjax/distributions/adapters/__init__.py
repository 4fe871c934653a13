"""Predictions made with other packages, each imported only when its function is called."""

from calibjax.distributions.adapters.numpyro_distributions import NumpyroDistribution, from_numpyro
from calibjax.distributions.adapters.sklearn_models import from_sklearn
from calibjax.distributions.adapters.torch_distributions import from_torch

__all__ = ["NumpyroDistribution", "from_numpyro", "from_sklearn", "from_torch"]
