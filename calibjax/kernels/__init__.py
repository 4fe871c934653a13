"""Kernels on predictions, on targets, and on pairs (prediction, target).

A kernel is a record called on one pair, `kernel(x, y)`; kernels are added, multiplied and scaled
with `+` and `*`. `TensorProduct(prediction, target)` is the kernel on pairs that the estimators
and tests take. Hyperparameters are leaves of the pytree: changing them never retraces, and `grad`
and `vmap` work over them.

**A kernel of your own** is a subclass of `Kernel` that `calibjax.record` makes a pytree, so that it
can be passed to compiled functions. Its hyperparameters are fields `parameter(constraint)`, which
are checked where the kernel is used, and `__call__(x, y)` is its value at one pair of points.
Functions, and classes that are not registered, are refused. A distance of your own is a subclass of
`calibjax.distances.Distance` instead. As a kernel on predictions:

>>> import jax, jax.numpy as jnp
>>> from calibjax import distributions, estimators, record
>>> @record
... class InnerProduct(Kernel):
...     scale: jax.Array | float = distributions.parameter(
...         distributions.constraints.positive, default=1.0
...     )
...     def __call__(self, p, q):
...         return self.scale * jnp.sum(p.probs * q.probs)
>>> predictions = distributions.Categorical(jnp.array([[0.5, 0.5], [0.75, 0.25]]))
>>> kernel = TensorProduct(InnerProduct(), White())
>>> print(estimators.skce(kernel, predictions, jnp.array([1, 1])))
0.375

A target kernel needs expectations under the predictions, see `register_expectations`; for class
predictions and draws every kernel has them. Class labels are names: kernels of distances between
labels (`SquaredExponential`, `Exponential`, `PowerExponential`, `Matern`) are
refused, unless a `LabelKernel` asks for them explicitly:

>>> order = LabelKernel(gram_matrix(SquaredExponential(), jnp.arange(2.0)))
>>> kernel = TensorProduct(InnerProduct(), order)
>>> print(f"{estimators.skce(kernel, predictions, jnp.array([1, 1])):.4f}")
0.1476
"""

from calibjax.kernels.base import Constant, Kernel, LabelKernel, TensorProduct, White, gram_matrix
from calibjax.kernels.defaults import default_kernel, default_kernels, median_heuristic
from calibjax.kernels.expectations import classes, normal, others
from calibjax.kernels.nystrom import Nystrom
from calibjax.kernels.residuals import Fisher, NormalScore, PearsonResidual
from calibjax.kernels.stationary import Exponential, Matern, SquaredExponential, Stein

del classes, normal, others

__all__ = [
    "Constant",
    "Exponential",
    "Fisher",
    "Kernel",
    "LabelKernel",
    "Matern",
    "NormalScore",
    "Nystrom",
    "PearsonResidual",
    "SquaredExponential",
    "Stein",
    "TensorProduct",
    "White",
    "default_kernel",
    "default_kernels",
    "gram_matrix",
    "median_heuristic",
]


def __dir__() -> list[str]:
    return __all__
