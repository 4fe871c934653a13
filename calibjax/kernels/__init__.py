"""Kernels on predictions, on targets, and on pairs (prediction, target).

A kernel is a record called on one pair, `kernel(x, y)`; kernels are added, multiplied and scaled
with `+` and `*`. `TensorProduct(prediction, target)` is the kernel on pairs that the estimators
and tests take. Hyperparameters are leaves of the pytree: changing them never retraces, and `grad`
and `vmap` work over them.
"""

from calibjax.kernels import (  # registers the expectations
    beta,
    categorical,
    laplace,
    mixture,
    multivariate_normal,
    normal,
    poisson,
    samples,
)
from calibjax.kernels.bandwidth import median_heuristic
from calibjax.kernels.base import Kernel, Product, Scaled, Sum, TensorProduct
from calibjax.kernels.bounds import ValueRange, value_range
from calibjax.kernels.expectations import (
    centered_kernel,
    double_expectation,
    register_expectations,
    single_expectation,
)
from calibjax.kernels.labels import LabelKernel, White
from calibjax.kernels.matrix import gram_matrix
from calibjax.kernels.stationary import Exponential, PowerExponential, SquaredExponential
from calibjax.kernels.transforms import Linear, linear_map

del beta, categorical, laplace, mixture, multivariate_normal, normal, poisson, samples

__all__ = [
    "Exponential",
    "Kernel",
    "LabelKernel",
    "Linear",
    "PowerExponential",
    "Product",
    "Scaled",
    "SquaredExponential",
    "Sum",
    "TensorProduct",
    "ValueRange",
    "White",
    "centered_kernel",
    "double_expectation",
    "gram_matrix",
    "linear_map",
    "median_heuristic",
    "register_expectations",
    "single_expectation",
    "value_range",
]
