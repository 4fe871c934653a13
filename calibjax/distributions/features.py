"""Predictions with the features that they were made from."""

import dataclasses
from typing import Any

import jax

from calibjax._core import checks
from calibjax._core.pytree import PyTree, record
from calibjax.distributions.base import Batch, Distribution
from calibjax.distributions.draws import MonteCarlo


@record
class WithFeatures(Batch):
    """A prediction together with features, made by `with_features`.

    The distance `calibjax.distances.Features` sees the features. Everything else sees the
    distribution: other distances, target kernels, scores, and attributes such as `log_prob`, `mean`
    or the parameters, which are passed through.

    Attributes:
        distribution: the distribution.
        features: an array or pytree of arrays, with a leading axis n for a batch.
    """

    distribution: Any
    features: Any

    def __getattr__(self, name: str) -> PyTree:
        # Existing fields do not get here; they are missing only while Python makes or copies self.
        is_special = name.startswith("__") and name != "__jax_array__"  # confidences are arrays
        if is_special or name in ("distribution", "features"):
            raise AttributeError(name)
        return getattr(self.distribution, name)

    def with_index(self, num_axes: int = 1) -> "WithFeatures":
        """The batch in which draws know their prediction, see `Ensemble`."""
        if not hasattr(self.distribution, "with_index"):
            return self
        return dataclasses.replace(self, distribution=self.distribution.with_index(num_axes))

    def without_index(self) -> "WithFeatures":
        """The batch as kernels on predictions see it."""
        if not hasattr(self.distribution, "without_index"):
            return self
        return dataclasses.replace(self, distribution=self.distribution.without_index())

    def tempered(self, temperature: jax.Array) -> "WithFeatures":
        """The tempered distribution with the same features."""
        return dataclasses.replace(self, distribution=self.distribution.tempered(temperature))

    def check_structure(self, name: str) -> None:
        """Checks the structure of the distributions; features are checked with the values."""
        if hasattr(self.distribution, "check_structure"):
            self.distribution.check_structure(f"{name}.distribution")

    def check_values(self, name: str) -> "WithFeatures":
        """Checks the values of the distributions, and that features are finite."""
        n = checks.leading_size(f"{name}.distribution", self.distribution)
        return checks.replaced(
            self,
            distribution=checks.record_values(self.distribution, f"{name}.distribution"),
            features=checks.features(f"{name}.features", self.features, n),
        )


def with_features(predictions: Distribution, features: PyTree) -> PyTree:
    """Predictions that carry features, so that kernels on predictions can look at these.

    With the distance `calibjax.distances.Features` in the kernel on predictions, tests and
    estimators ask for more than calibration: that the predictions are right *given the features*,
    Y | X ~ P_X. A posterior that equals the prior for all data is calibrated, and still wrong given
    the data. For a kernel on both use a product of kernels.

    All functions of `calibjax` take the result in place of the predictions; lenses and
    recalibration keep the features.

    Args:
        predictions: batch of n distributions of any family.
        features: [n, d], [n], or any pytree of arrays with leading axis n.

    Returns:
        The predictions with their features, a `WithFeatures`.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if shapes or values are wrong.

    Cost: none.

    References: none of the four papers has it; with features as conditioning variables, the SKCE is
    the kernel conditional goodness-of-fit statistic of Jitkrittum, Kanagawa and Schölkopf (2020)
    for other target kernels.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, hypothesis_tests, kernels
    >>> keys = jax.random.split(jax.random.key(0), 3)
    >>> truth = jax.random.normal(keys[0], (200,))
    >>> data = truth + jax.random.normal(keys[1], (200,))
    >>> prior = distributions.Normal(jnp.zeros(200), jnp.ones(200))  # a posterior without the data
    >>> predictions = distributions.with_features(prior, data)
    >>> k = kernels.SquaredExponential(1.0, distances.Features(distances.Euclidean()))
    >>> kernel = kernels.TensorProduct(k, kernels.SquaredExponential(1.0))
    >>> test = hypothesis_tests.exact_skce_test(keys[2], kernel, predictions, truth)
    >>> print(f"{test.pvalue:.3f}")
    0.001
    """
    checks.same_rows(predictions=predictions, features=features)
    predictions = checks.batch(predictions, keep_logs=True)
    if isinstance(predictions, WithFeatures):
        raise ValueError(
            "predictions: expected predictions without features, got some that have them; pass all "
            "features together, for example as a dictionary"
        )
    n = checks.leading_size("predictions", predictions)
    features = checks.features("features", features, n)
    if isinstance(predictions, MonteCarlo):  # whose distribution is what kernels see
        inner = with_features(predictions.distribution, features)
        return dataclasses.replace(predictions, distribution=inner)
    return WithFeatures(predictions, features)


def like(original: object, predictions: Any) -> Any:
    """New predictions with the features of the original ones, if these have any."""
    if not isinstance(original, WithFeatures):
        return predictions
    return WithFeatures(predictions, original.features)


def bare(p: object) -> Any:
    """A prediction without its features."""
    return p.distribution if isinstance(p, WithFeatures) else p
