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


def median_kernel(shape: Any, predictions: Any) -> kernels.Kernel:
    """Length scales: median distance of predictions, median predicted standard deviation."""
    scale = kernels.median_heuristic(distances.Wasserstein(), predictions)
    variances = jax.vmap(lambda p: jnp.sum(p.variance()))(predictions)
    deviation = jnp.sqrt(jnp.median(variances))
    return kernels.TensorProduct(
        shape(scale, distances.Wasserstein()), kernels.SquaredExponential(deviation)
    )


# Wrong in one way each: the mean, and the standard deviation, of (target - mean) / SCALE.
WRONG_NORMALS = {
    "shifted up": (0.3, 1.0),
    "shifted down": (-0.3, 1.0),
    "too narrow": (0.0, 1.4),
    "too wide": (0.0, 0.7),
}
# Labels with probabilities in proportion to p^(1/T).
WRONG_CLASSES = {"overconfident": 1.8, "underconfident": 0.55}


class Model(NamedTuple):
    """A way to make data sets.

    - "calibrated": the calibrated model of Widmann et al. (2021, App. A.2), predictions
      N(c 1_d, 0.1² I_d) with c ~ U(0, 1), targets drawn from them;
    - "uncalibrated": the same predictions, the first component of the targets drawn from
      N(0.1, 0.1²);
    - "classes": class predictions from a symmetric Dirichlet distribution, labels drawn from them;
    - the names of `WRONG_NORMALS`: the predictions of "calibrated" in one dimension, targets whose
      distribution is shifted, or wider or narrower than predicted;
    - the names of `WRONG_CLASSES`: class predictions from a Dirichlet distribution with parameters
      1/2, labels drawn from others.

    Attributes:
        name: one of the above.
        size: the dimension of the targets, or the number of classes.
    """

    name: str
    size: int

    @property
    def kernel(self) -> kernels.Kernel:
        """Kernel for these data."""
        return CLASS_KERNEL if self.is_of_classes else NORMAL_KERNEL

    @property
    def is_of_classes(self) -> bool:
        """Whether the targets are labels."""
        return self.name == "classes" or self.name in WRONG_CLASSES

    @property
    def calibrated(self) -> bool:
        """Whether the null hypothesis is true."""
        return self.name in ("calibrated", "classes")

    def draw(self, key: jax.Array, num_samples: int) -> tuple[Any, jax.Array]:
        """One data set."""
        predictions_key, targets_key = jax.random.split(key)
        if self.is_of_classes:
            temperature = WRONG_CLASSES.get(self.name)
            parameters = jnp.full(self.size, 1.0 if temperature is None else 0.5)
            probs = jax.random.dirichlet(predictions_key, parameters, (num_samples,))
            predictions: Any = distributions.Categorical(probs)
            if temperature is None:
                return predictions, distributions.sample_targets(targets_key, predictions)
            logits = jnp.log(jnp.maximum(probs, jnp.finfo(probs.dtype).tiny)) / temperature
            return predictions, jax.random.categorical(targets_key, logits)
        shape = (num_samples, self.size)
        loc = jnp.broadcast_to(jax.random.uniform(predictions_key, (num_samples, 1)), shape)
        noise = SCALE * jax.random.normal(targets_key, shape)
        shift, factor = WRONG_NORMALS.get(self.name, (0.0, 1.0))
        center = loc.at[:, 0].set(SHIFTED_MEAN) if self.name == "uncalibrated" else loc
        targets = center + SCALE * shift + factor * noise
        if self.size == 1:
            return distributions.Normal(loc[:, 0], jnp.full(num_samples, SCALE)), targets[:, 0]
        return distributions.DiagNormal(loc, jnp.full(shape, SCALE)), targets
