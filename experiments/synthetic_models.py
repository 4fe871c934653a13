"""Simulated data sets whose calibration is known, with kernels for them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from calibjax import distances, distributions, kernels

NORMAL_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.Wasserstein()), kernels.SquaredExponential(1.0)
)
CLASS_KERNEL = kernels.TensorProduct(
    kernels.Exponential(1.0, distances.TotalVariation()), kernels.White()
)
SCALE = 0.1  # of normal predictions
SHIFTED_MEAN = 0.1


class Model(NamedTuple):
    """A way to make data sets.

    - "calibrated": the calibrated model of Widmann et al. (2021, App. A.2), predictions
      N(c 1_d, 0.1² I_d) with c ~ U(0, 1), targets drawn from them;
    - "uncalibrated": the same predictions, the first component of the targets drawn from
      N(0.1, 0.1²);
    - "classes": class predictions from a symmetric Dirichlet distribution, labels drawn from them.

    Attributes:
        name: one of the above.
        size: the dimension of the targets, or the number of classes.
    """

    name: str
    size: int

    @property
    def kernel(self) -> kernels.Kernel:
        """Kernel for these data."""
        return CLASS_KERNEL if self.name == "classes" else NORMAL_KERNEL

    @property
    def calibrated(self) -> bool:
        """Whether the null hypothesis is true."""
        return self.name != "uncalibrated"

    def draw(self, key: jax.Array, num_samples: int) -> tuple[Any, jax.Array]:
        """One data set."""
        predictions_key, targets_key = jax.random.split(key)
        if self.name == "classes":
            ones = jnp.ones(self.size)
            probs = jax.random.dirichlet(predictions_key, ones, (num_samples,))
            predictions: Any = distributions.Categorical(probs)
            return predictions, distributions.sample_targets(targets_key, predictions)
        shape = (num_samples, self.size)
        loc = jnp.broadcast_to(jax.random.uniform(predictions_key, (num_samples, 1)), shape)
        noise = SCALE * jax.random.normal(targets_key, shape)
        targets = (loc if self.calibrated else loc.at[:, 0].set(SHIFTED_MEAN)) + noise
        if self.size == 1:
            return distributions.Normal(loc[:, 0], jnp.full(num_samples, SCALE)), targets[:, 0]
        return distributions.DiagNormal(loc, jnp.full(shape, SCALE)), targets
