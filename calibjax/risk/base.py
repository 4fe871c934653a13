"""Base class of estimators of ⟨p − E[e_Y | p], q − E[e_Y | q]⟩, their samples and results."""

import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from calibjax._core import checks
from calibjax._core.arithmetic import floating_dtype, matmul, one_hot, segment_sums
from calibjax._core.gate import Seen, checked, confidence_array
from calibjax._core.pytree import Numbers, PyTree, record
from calibjax.distributions.base import Distribution, has_class_probs


def _points(name: str, value: Any, seen: Seen) -> PyTree:
    """Class predictions, or confidences, with the number of classes of `fit`."""
    if checks.is_distribution(value):
        if not has_class_probs(value):
            raise TypeError(f"{name}: expected class predictions, got {checks.described(value)}")
        value = checks.batch(value, minimum=seen.minimum, name=name)
    else:
        value = confidence_array(name, value, Seen({}))
    seen.lengths.setdefault("", (name, checks.leading_size(name, value, seen.minimum)))
    return value


def _positive(name: str, value: Any, seen: Seen) -> jax.Array:
    """Hyperparameter in the precision of the data."""
    leaves = jax.tree.leaves(seen.get("predictions", seen.get("params")))
    dtype = floating_dtype([x for x in leaves if not getattr(x, "weak_type", False)])
    return checks.positive_scalar(name, value, dtype)


# Checks of arguments in this subpackage: predictions may be confidences.
def meanings(*names: str) -> dict[str, Any]:
    """Checks of the arguments of these names."""
    return {name: _positive if name == "hyperparameter" else _points for name in names}


def vectors(predictions: Any) -> jax.Array:
    """Predictions as vectors: class probabilities, [n, m], or confidences, [n, 1]."""
    has_classes = hasattr(predictions, "class_probs")
    return predictions.class_probs if has_classes else predictions[:, None]


def residuals(predictions: Any, targets: jax.Array) -> jax.Array:
    """Predictions minus observations, p_i − e_{y_i}, [n, m], or c_i − y_i, [n, 1].

    Under `jit`, targets out of range give NaN.
    """
    probs = vectors(predictions)
    if hasattr(predictions, "class_probs"):
        return probs - one_hot(targets, probs.shape[1], probs.dtype)
    return probs - targets[:, None]


@record
class EstimationFunction:
    """Base class of calibration estimation functions h, which are fitted and evaluated.

        h(p, q) ≈ h*(p, q) = ⟨p − E[e_Y | p], q − E[e_Y | q]⟩,

    so the mean of h(p_i, p_i) over other predictions estimates the squared calibration error. h is
    symmetric. A function of your own is a subclass, decorated with `calibjax.record`, with the
    methods `fit` and `evaluate`, or `fit` and `factors`; the other methods save time.
    `cross_validate` passes the record to compiled code: its methods are called with tracers, and
    compiled once for all records that differ only in the values of arrays.

    Predictions are a batch of n class distributions, or confidences: an array [n], with targets
    0 and 1.

    References: G24 eq. (12) and §3.2.2.
    """

    def fit(self, predictions: Distribution, targets: Numbers, hyperparameter: Numbers) -> PyTree:
        """Fit params, a pytree of arrays, with a hyperparameter."""
        raise NotImplementedError(f"{type(self).__name__} does not define fit")

    def factors(self, params: PyTree, p: Distribution) -> tuple[jax.Array, jax.Array] | None:
        """Two arrays [n, r], left and right, with h(p_i, q_j) = Σ_k left(p)_ik right(q)_jk.

        With them the diagonal takes O(n r) time, and the risk O(n r²). None if h has no such
        factors.
        """
        return None

    @checked(**meanings("p", "q"))
    def evaluate(self, params: PyTree, p: Distribution, q: Distribution) -> jax.Array:
        """Values h(p_i, q_j) of two batches, [n, n']; by default from the factors."""
        left, right = self.factors(params, p), self.factors(params, q)
        if left is None or right is None:
            raise NotImplementedError(f"{type(self).__name__} defines neither evaluate nor factors")
        return matmul(left[0], right[1].T)

    @checked(**meanings("p"))
    def diagonal(self, params: PyTree, p: Distribution) -> jax.Array:
        """Values h(p_i, p_i) of a batch of predictions, [n]."""
        factors = self.factors(params, p)
        if factors is not None:
            return jnp.sum(factors[0] * factors[1], -1)

        def one(p: Distribution) -> jax.Array:
            batch = jax.tree.map(lambda leaf: leaf[None], p)
            values = self.evaluate(params, batch, batch)
            checks.shape("function.evaluate", values, (1, 1), "[n, n'] = (1, 1)")
            return values[0, 0]

        return jax.vmap(one)(p)

    def refit(self, params: PyTree, hyperparameter: Numbers) -> PyTree:
        """Params for another hyperparameter and the same data.

        With it a grid shares the expensive part. None if `fit` has to be called again.
        """

    @checked
    def grid(self, num_samples: int, *, canonical: bool = False) -> np.ndarray:
        """Grid of hyperparameters of G24, App. B.

        Numbers of bins 5, 10, ..., 100 for `Binning`; for `KernelDensity` 15 log-spaced bandwidths
        from 1e-5 to 0.1, and 0.2, 0.4, ..., 1;
        penalties λ in falling order

            √n 10^(1 − 2i), i = 1, ..., 9,  canonical: √n 10^(9 − i), i = 1, ..., 18

        for `KernelRidge`, and for `KernelRidge(two_step=True)`

            √n 10^(−i), i = 1, ..., 9,  canonical: √n 10^((9 − i)/2), i = 1, ..., 18.

        n is the number of samples to which a function is fitted, as in equations (27) to (32): 0.64
        times the number of all samples for an 80/20 split and 5 folds. The appendix also admits n
        as the number of all samples (§5.2), which moves the grid by a factor of 1.25, less than
        half its smallest step.

        Args:
            num_samples: n, number of training samples of a fold.
            canonical: whether the grid is for predictions of many classes instead of confidences.

        Returns:
            A NumPy array, concrete even under `jit`.

        Raises:
            NotImplementedError: if the paper has no grid for the function.
            TypeError: if an argument is of the wrong kind.
            ValueError: if n < 2.

        >>> from calibjax import risk
        >>> print(risk.KernelRidge().grid(100)[:3], risk.Binning().grid(100)[:3])
        [1.e+00 1.e-02 1.e-04] [ 5 10 15]
        """
        return self._grid(num_samples, canonical)

    def _grid(self, num_samples: int, canonical: bool) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} has no grid of hyperparameters in G24")

    def specialise(self, predictions: Distribution, grid: ArrayLike) -> Self:
        """Function with fixed array sizes, for compiled code."""
        return self


@record
class CrossValidation:
    """Risks of a calibration estimation function in all folds and at all grid points.

    Attributes:
        grid: hyperparameters, [k]; traced ones without a risk are NaN, unless all are integers.
        folds: fold 0, ..., F − 1 in which each sample is held out, [n].
        losses: mean loss over the pairs of each sample with the others of its fold, by the function
            fitted to the other folds, [k, n].
        test_values: h(p_i, p_i) of predictions in no fold, by the function of each fold, [F, k, t];
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
        sizes = jnp.bincount(self.folds, length=self.num_folds).astype(self.losses.dtype)
        return segment_sums(self.losses.T, self.folds, sizes) / sizes[:, None]

    @property
    def risk(self) -> jax.Array:
        """Mean risk over the folds, [k]."""
        return jnp.mean(self.risks, 0)

    @property
    def standard_error(self) -> jax.Array:
        """Standard error of the mean risk, treating folds as independent, [k]."""
        return jnp.std(self.risks, 0, ddof=1) / math.sqrt(self.num_folds)

    @property
    def best(self) -> jax.Array:
        """Index of the smallest mean risk, the first in a tie."""
        return jnp.argmin(self.risk)

    @property
    def hyperparameter(self) -> jax.Array:
        """Hyperparameter with the smallest mean risk."""
        return self.grid[self.best]
