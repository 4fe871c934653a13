"""Predicted distributions as records of their parameters.

One instance describes *one* distribution; a batch of n predictions is the same class with a
leading axis n on every parameter. All formulas are written for one instance and batched with
`jax.vmap`.

**A distribution of your own** is a subclass of `Distribution` that `calibjax.record` makes a
pytree. Its parameters are fields `parameter(constraint)`. The constraints determine the checks of
parameters, and `support` the checks of targets; see `distributions.constraints`. It has

- `sample(key)`: one draw,
- `log_prob(y)`, `mean()`, `variance()`, and `cdf(y)`, `icdf(level)`, `crps(y)`, if they exist,
- `tempered(temperature)` for temperature scaling,
- the two expectations of each target kernel, registered with
  `calibjax.kernels.expectations.register_expectations`,
- `distances.Wasserstein.register(Family, squared)` if kernels on predictions use this distance.

Any other frozen dataclass pytree with a method `sample(key)` can be used. Then only the common
length of the leading axes and finiteness are checked, unless it has methods `check_values(name)`
and `check_targets(name, targets)`. These are called on a batch and raise `ValueError` or
`TypeError`. They may return the batch and the targets with NaN for invalid traced values (the
smallest integer for integers). In a family with declared parameters, `check_values` adds to the
constraints.

Parameters and targets may be anything that NumPy reads as real numbers; float16 and bfloat16 are
converted to float32.

A Rayleigh distribution, whose square is exponential, with the target kernel
exp(−y²) exp(−z²) (one feature, exp(−y²)):

>>> import jax, jax.numpy as jnp
>>> from calibjax import estimators, hypothesis_tests, kernels, record
>>> @record
... class Rayleigh(Distribution):
...     support = constraints.nonnegative
...     scale: jax.Array = parameter(constraints.positive)
...     def sample(self, key):
...         return self.scale * jnp.sqrt(2 * jax.random.exponential(key, dtype=self.scale.dtype))
...     def log_prob(self, y):
...         return jnp.log(y / self.scale**2) - 0.5 * (y / self.scale) ** 2
...     def mean(self):
...         return self.scale * jnp.sqrt(jnp.pi / 2)
>>> @record
... class OneFeature(kernels.Kernel):
...     def __call__(self, y, z):
...         return jnp.exp(-(y**2) - z**2)
>>> def mean(kernel, p, z):  # E exp(−Z²) = 1 / (1 + 2 scale²)
...     return jnp.exp(-(z**2)) / (1 + 2 * p.scale**2)
>>> def inner(kernel, p, q):
...     return 1 / ((1 + 2 * p.scale**2) * (1 + 2 * q.scale**2))
>>> kernels.expectations.register_expectations(OneFeature, Rayleigh, mean=mean, inner=inner)
>>> predictions = Rayleigh(scale=jnp.array([0.5, 1.0, 1.5]))
>>> kernel = kernels.TensorProduct(kernels.SquaredExponential(), OneFeature())
>>> targets = jnp.array([0.4, 1.2, 0.9])
>>> print(f"{estimators.skce(kernel, predictions, targets):.5f}")
-0.00286
>>> test = hypothesis_tests.exact_skce_test(jax.random.key(0), kernel, predictions, targets)
>>> bool(0 < test.pvalue <= 1)
True

Without expectations, `monte_carlo` estimates them from draws, for any target kernel:

>>> drawn = monte_carlo(jax.random.key(1), predictions, num_samples=50)
>>> kernel = kernels.TensorProduct(kernels.SquaredExponential(), kernels.Exponential())
>>> test = hypothesis_tests.exact_skce_test(jax.random.key(0), kernel, drawn, targets)
>>> bool(0 < test.pvalue <= 1)
True
"""

from calibjax._core.pytree import parameter
from calibjax.distributions import constraints
from calibjax.distributions.base import Distribution, sample_targets
from calibjax.distributions.composed import Mixture, with_features
from calibjax.distributions.continuous import (
    Beta,
    DiagNormal,
    Gamma,
    GeneralizedNormal,
    Laplace,
    Logistic,
    LogNormal,
    MvNormal,
    Normal,
    StudentT,
    Uniform,
)
from calibjax.distributions.discrete import (
    Bernoulli,
    Categorical,
    CategoricalLogits,
    Dirichlet,
    NegativeBinomial,
    Poisson,
)
from calibjax.distributions.ensembles import Ensemble, Quantiles, monte_carlo

__all__ = [
    "Bernoulli",
    "Beta",
    "Categorical",
    "CategoricalLogits",
    "DiagNormal",
    "Dirichlet",
    "Distribution",
    "Ensemble",
    "Gamma",
    "GeneralizedNormal",
    "Laplace",
    "LogNormal",
    "Logistic",
    "Mixture",
    "MvNormal",
    "NegativeBinomial",
    "Normal",
    "Poisson",
    "Quantiles",
    "StudentT",
    "Uniform",
    "constraints",
    "monte_carlo",
    "parameter",
    "sample_targets",
    "with_features",
]


def __dir__() -> list[str]:
    return __all__
