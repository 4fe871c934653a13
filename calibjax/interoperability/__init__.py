"""Predictions of other packages, and estimators and scorers for scikit-learn.

`from_sklearn`, `from_torch` and `from_numpyro` convert predictions; each imports its package when
it is called. Arrays need no conversion: everything that NumPy reads, such as data frames, series
and tensors on CPUs, is accepted instead of JAX arrays. To convert a record with a row for each
sample to a data frame, use `pandas.DataFrame(vars(jax.device_get(record)), index=frame.index)`.

`RecalibratedClassifier` and `RecalibratedRegressor` need scikit-learn, which is imported with them:
`pip install 'calibjax[sklearn]'`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from calibjax._core import environment
from calibjax.interoperability.sklearn import SKCEScorer, from_numpyro, from_sklearn, from_torch

if TYPE_CHECKING:
    from calibjax.interoperability.recalibrated import RecalibratedClassifier, RecalibratedRegressor

__all__ = [
    "RecalibratedClassifier",
    "RecalibratedRegressor",
    "SKCEScorer",
    "from_numpyro",
    "from_sklearn",
    "from_torch",
]


def __getattr__(name: str) -> Any:
    # They are subclasses of scikit-learn's classes.
    if name in ("RecalibratedClassifier", "RecalibratedRegressor"):
        environment.imported("sklearn", f"{name} is an estimator of scikit-learn", "sklearn")
        return getattr(importlib.import_module("calibjax.interoperability.recalibrated"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
