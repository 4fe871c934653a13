"""Kernel density ratios as a calibration estimation function."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.pytree import parameter, record
from calibjax.distributions.base import Distribution
from calibjax.distributions.constraints import nonnegative_integer, positive, unit_interval
from calibjax.estimators.kernel_density import (
    BANDWIDTHS,
    Point,
    dirichlet_kernels,
    label_proportions,
)
from calibjax.risk.base import EstimationFunction, with_hyperparameter
from calibjax.risk.samples import checked, checked_points, vectors


@record
class KernelDensities:
    """What `KernelDensity` learns: the training data.

    Attributes:
        vectors: training predictions, [n, m], or confidences, [n, 1].
        labels: their labels, [n].
        bandwidth: h, scalar.
    """

    vectors: jax.Array = parameter(unit_interval.with_axes("n", "m"))
    labels: jax.Array = parameter(nonnegative_integer.with_axes("n"))
    bandwidth: jax.Array = parameter(positive)

    def check_values(self, name: str) -> "KernelDensities":
        """Refuses what no data set and no bandwidth is."""
        checked, num_columns = checks.constrained(name, self), self.vectors.shape[1]
        vectors = checked.vectors
        if num_columns > 1:
            vectors = checks.simplex(f"{name}.vectors", vectors)
        labels = checks.labels(f"{name}.labels", checked.labels, max(2, num_columns))
        return KernelDensities(vectors, labels, checked.bandwidth)

    def leave_one_out(self) -> jax.Array:
        """Values h(p_i, p_i) of the training predictions, without sample i in the sums, [n].

        Raises:
            ValueError: if there is only one sample.

        Cost: that of the diagonal at n points.
        """
        params = checks.learned("params", self, KernelDensities)
        n = checks.leading_size("vectors", params.vectors, 2)
        return jnp.sum(jnp.square(_residuals(params, params.vectors, jnp.arange(n))), -1)


@record
class KernelDensity(EstimationFunction):
    """The calibration estimation function of kernel density ratios.

        h(p, q) = ⟨p − π(p), q − π(q)⟩,   π(p) = Σ_i k(p; p_i) e_{y_i} / Σ_i k(p; p_i)

    with the Dirichlet kernels of `estimators.kde_calibration_error` around the training samples;
    the hyperparameter is their bandwidth. For confidences, an array [n], h is the single product
    (c − π(c)) (d − π(d)) with beta density kernels, half the value for `Bernoulli`s.

    Kernels are computed as logarithms, and where all kernels are zero, π is a limit: h is finite
    everywhere, whereas G24 had to drop predictions.

    At new predictions all training samples count. At the training predictions each sample would
    have the largest weight at itself, and h would be too small: `params.leave_one_out()` returns
    h(p_i, p_i) without sample i. The mean of these values is `kde_calibration_error(..., order=2)`,
    or half of it for confidences.

    `fit` only stores the training data; `refit` replaces the bandwidth.

    Raises:
        TypeError: by the methods if an argument is of the wrong kind.
        ValueError: by the methods if the bandwidth is not positive, or shapes or values are
            wrong. Invalid traced values give NaN.

    Cost: O(n n' m) time in matrix products and n n' exponentials for n' points, O(n' · tile + n m)
    memory. Rounding errors in float32 are those of `kde_calibration_error`.

    References: G24 eq. (25) and (26), without leaving a sample out; Popordanoska, Sayer and
    Blaschko (2022), A Consistent and Differentiable Lp Canonical Calibration Error Estimator.

    >>> import jax.numpy as jnp
    >>> function = KernelDensity()
    >>> params = function.fit(jnp.array([0.5, 0.5, 0.5]), jnp.array([1, 1, 0]), 0.1)
    >>> print(function.diagonal(params, jnp.array([0.5, 1.0])).round(4))  # π is 2/3
    [0.0278 0.1111]
    >>> print(params.leave_one_out())  # π is 1/2, 1/2, 1
    [0.   0.   0.25]
    """

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        del num_samples, canonical
        return np.array(BANDWIDTHS)

    def fit(
        self, predictions: Distribution, targets: ArrayLike, hyperparameter: ArrayLike
    ) -> KernelDensities:
        """The training data."""
        predictions, targets = checked(predictions, targets)
        samples = vectors(predictions)
        # Invalid traced targets of confidences are NaN, which integers cannot be.
        labels = jnp.where(jnp.isnan(targets), -1, targets).astype(jnp.int32)
        bandwidth = checks.positive_number("hyperparameter", hyperparameter, samples.dtype)
        return KernelDensities(samples, labels, bandwidth)

    def refit(self, params: KernelDensities, hyperparameter: ArrayLike) -> KernelDensities:
        """The training data with another bandwidth."""
        return with_hyperparameter(params, KernelDensities, "bandwidth", hyperparameter)

    def factors(self, params: KernelDensities, p: Distribution) -> tuple[jax.Array, jax.Array]:
        """Residuals p − π(p) of predictions, [n, m], twice."""
        params = checks.learned("params", params, KernelDensities)
        points = vectors(checked_points(p, params.vectors.shape[-1]))
        errors = _residuals(params, points, jnp.full(len(points), -1))
        return errors, errors

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """The unchanged function; checks the grid."""
        del predictions
        checks.positive("grid", grid)
        return self


@jax.jit
def _residuals(params: KernelDensities, points: jax.Array, excluded: jax.Array) -> jax.Array:
    """Points − π(points), without the sample that is excluded at each, [n, m] or [n, 1]."""
    kernels = dirichlet_kernels(_class_probs(params.vectors), params.bandwidth)
    chosen = Point(_class_probs(points), excluded)
    proportions = label_proportions(kernels, params.labels, chosen)
    errors = points - proportions[:, -points.shape[1] :]
    return jnp.where(jnp.isnan(points), jnp.nan, errors)


def _class_probs(samples: jax.Array) -> jax.Array:
    """Vectors of class probabilities, with two entries for confidences."""
    if samples.shape[1] > 1:
        return samples
    return jnp.concatenate([1 - samples, samples], 1)
