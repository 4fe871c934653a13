"""Results of cross-validation."""

import math

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.pytree import record


@record
class CrossValidation:
    """Risks of a calibration estimation function in all folds and at all grid points.

    Attributes:
        grid: the hyperparameters, [k].
        folds: the fold 0, ..., F − 1 in which each sample is held out, [n].
        losses: mean loss over the pairs of each sample with the others of its fold, by the function
            fitted to the other folds, [k, n].
        test_values: h(p_i, p_i) of predictions in no fold by the function of each fold, [F, k, t];
            t = 0 except in `squared_calibration_error`.
    """

    grid: jax.Array
    folds: jax.Array
    losses: jax.Array
    test_values: jax.Array

    @property
    def num_folds(self) -> int:
        """Number of folds, F."""
        return self.test_values.shape[0]

    @property
    def risks(self) -> jax.Array:
        """Risk in each fold, [F, k]."""
        return _risks(self)

    @property
    def risk(self) -> jax.Array:
        """Mean risk over the folds, [k]."""
        return jnp.mean(self.risks, 0)

    @property
    def standard_error(self) -> jax.Array:
        """Standard error of the mean risk over the folds, as if they were independent, [k]."""
        return jnp.std(self.risks, 0, ddof=1) / math.sqrt(self.num_folds)

    @property
    def best(self) -> jax.Array:
        """Index of the smallest mean risk, the first in case of ties."""
        return jnp.argmin(self.risk)

    @property
    def hyperparameter(self) -> jax.Array:
        """The hyperparameter with the smallest mean risk.

        NaN if the risks are NaN, unless the grid contains integers.
        """
        chosen = self.grid[self.best]
        if jnp.issubdtype(chosen.dtype, jnp.integer):
            return chosen
        return jnp.where(jnp.isnan(self.risk[self.best]), jnp.nan, chosen)

    @property
    def is_at_edge(self) -> jax.Array:
        """Whether the best hyperparameter is the smallest or largest: the grid may be too small."""
        best = self.grid[self.best]
        return (self.grid.size > 1) & ((best == jnp.min(self.grid)) | (best == jnp.max(self.grid)))


@jax.jit
def _risks(result: CrossValidation) -> jax.Array:
    """Mean loss in each fold, [F, k]."""

    def risk(fold: jax.Array) -> jax.Array:
        members = result.folds == fold
        return jnp.sum(jnp.where(members, result.losses, 0), -1) / jnp.sum(members)

    return lax.map(risk, jnp.arange(result.num_folds))
