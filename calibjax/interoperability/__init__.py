"""Other packages: predictions of theirs, and what scikit-learn's searches and pipelines take.

Predictions come from other packages by `from_sklearn`, `from_torch` and `from_numpyro`, each of
which imports the package only when it is called. Arrays come as they are: what NumPy reads, such as
data frames, series and tensors on CPUs, is accepted wherever JAX arrays are. The way back, for
records of arrays with a row for each sample, is
`pandas.DataFrame(vars(jax.device_get(record)), index=frame.index)`.

`RecalibratedClassifier` and `RecalibratedRegressor` need scikit-learn, which is imported when they
are asked for:
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
    if name in ("RecalibratedClassifier", "RecalibratedRegressor"):  # of scikit-learn's classes
        environment.imported("sklearn", f"{name} is an estimator of scikit-learn", "sklearn")
        return getattr(importlib.import_module("calibjax.interoperability.recalibrated"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
