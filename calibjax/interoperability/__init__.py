"""What scikit-learn's searches and pipelines take: a scorer, and a classifier that recalibrates.

Predictions come from other packages by `distributions.from_sklearn`, `from_torch` and
`from_numpyro`. Arrays come as they are: what NumPy reads, such as data frames, series and tensors
on CPUs, is accepted wherever JAX arrays are. The way back, for records of arrays with a row for
each sample, is `pandas.DataFrame(vars(jax.device_get(record)), index=frame.index)`.

`RecalibratedClassifier` needs scikit-learn, which is imported when it is asked for:
`pip install 'calibjax[sklearn]'`.
"""

from typing import TYPE_CHECKING, Any

from calibjax.interoperability.labels import label_indices
from calibjax.interoperability.scorer import SKCEScorer

if TYPE_CHECKING:
    from calibjax.interoperability.recalibrated import RecalibratedClassifier

__all__ = ["RecalibratedClassifier", "SKCEScorer", "label_indices"]


def __getattr__(name: str) -> Any:
    if name == "RecalibratedClassifier":  # a class of scikit-learn's can only be made with it
        from calibjax.interoperability.recalibrated import RecalibratedClassifier

        return RecalibratedClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
