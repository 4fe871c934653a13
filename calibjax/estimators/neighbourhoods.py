"""Neighbourhoods of a prediction: samples with similar features in the same confidence bin."""

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.binnings import UniformBins, bins_of
from calibjax.distances import Manhattan
from calibjax.distributions import Bernoulli
from calibjax.kernels import Exponential, Kernel


@record
class Neighbourhood:
    """Weights of the samples near a point: a kernel on features, within a bin of confidences.

        w_i(x) = k(φ(x), φ_i) if the confidences of x and of sample i share a bin, otherwise 0.

    Local errors (`lce`), their test (`hypothesis_tests.local_calibration_test`) and local
    recalibration (`recalibration.LocalRecalibration`) are means with these weights.

    Attributes:
        kernel: kernel record on features with values ≥ 0. Its field `length_scale` may hold G
            length scales, [G], which are evaluated at once.
        binning: binning of batches of `Bernoulli`s, such as `UniformBins(15)`, or a function of
            such batches; a function sees the samples and other points together.

    References: L21 §3.1; App. A for bins of equal mass.

    >>> import jax.numpy as jnp
    >>> from calibjax import kernels
    >>> from calibjax.estimators import EqualMassBins, Neighbourhood, lce
    >>> features = jnp.array([[0.0], [0.0], [9.0], [9.0]])
    >>> confidences, correct = jnp.array([0.75, 0.75, 1.0, 1.0]), jnp.array([1, 0, 1, 1])
    >>> neighbourhood = Neighbourhood(kernels.SquaredExponential(0.1), EqualMassBins(1))
    >>> print(lce(neighbourhood, features, confidences, correct))
    [0.25 0.25 0.   0.  ]
    """

    kernel: Kernel
    binning: Callable[[Any], jax.Array]

    @classmethod
    def laplacian(cls, length_scale: Any, num_bins: int) -> Self:
        """The neighbourhood of L21: the Laplacian kernel in confidence bins of equal width.

            k(φ, φ') = exp(−‖φ − φ'‖₁ / (d γ)) for features of d numbers.

        Args:
            length_scale: bandwidth γ > 0, in units of the features per dimension: a number, or G
                of them, [G]. L21 uses 0.2 for t-SNE and 0.4 for PCA features.
            num_bins: number of confidence bins of equal width, as in `UniformBins`; 15 in L21.
        """
        return cls(Exponential(length_scale, Manhattan(mean=True)), UniformBins(num_bins))

    def groups(
        self,
        samples: jax.Array,
        points: jax.Array | None,
        weights: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Confidence bins of the points (by default the samples), and of the samples."""
        at = None if points is None else Bernoulli(points)
        bins = bins_of(self.binning, Bernoulli(samples), at, weights=weights)
        return (bins, bins) if points is None else bins[::-1]


def checked_neighbourhood(neighbourhood: object) -> Neighbourhood:
    """The neighbourhood with a checked kernel, whose length scale may be of shape [G]."""
    if not isinstance(neighbourhood, Neighbourhood):
        raise TypeError(
            "neighbourhood: expected an estimators.Neighbourhood(kernel, binning), such as "
            f"Neighbourhood.laplacian(0.2, 15), got {checks.described(neighbourhood)}"
        )
    name = "neighbourhood.kernel"
    kernel = neighbourhood.kernel
    binning = neighbourhood.binning
    if isinstance(binning, types.FunctionType | functools.partial):  # which are not pytrees
        neighbourhood = dataclasses.replace(neighbourhood, binning=Partial(binning))
    scales = getattr(kernel, "length_scale", 0.0)
    if isinstance(scales, list | tuple):
        got = checks.described(scales)
        raise TypeError(f"{name}.length_scale: expected a number or an array [G], got {got}")
    if np.ndim(scales) != 1 or isinstance(kernel, type):
        return checks.replaced(neighbourhood, kernel=checks.kernel_values(kernel, name))
    scales = checks.length_scales(f"{name}.length_scale", scales)
    one = checks.kernel_values(dataclasses.replace(kernel, length_scale=scales[0]), name)
    kernel = dataclasses.replace(one, length_scale=jnp.asarray(scales))
    return dataclasses.replace(neighbourhood, kernel=kernel)
