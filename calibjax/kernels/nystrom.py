"""Nyström approximation of kernels on predictions, with which sums over pairs take linear time."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from calibjax._core import checks, matrices
from calibjax._core.arithmetic import floating_dtype, matmul
from calibjax._core.pytree import PyTree, record
from calibjax.distributions.base import Distribution
from calibjax.kernels import pivoted_cholesky
from calibjax.kernels.base import Interval, Kernel, without_draws

_NUM_TRIED = 128  # predictions at which a kernel has to be positive semi-definite
_ROUNDING = 10  # in units of the last place, times the number of landmarks


@record
class Nystrom(Kernel):
    """A kernel on predictions by its values at r landmarks.

        k̃(p, q) = ⟨φ(p), φ(q)⟩,   φ(p) = L⁻¹ (k(l_1, p), ..., k(l_r, p)),   L Lᵀ = (k(l_a, l_b))_ab,

    which is k where p or q is a landmark. It is positive semi-definite, so that tests with it are
    exact and estimates are unbiased, for the SKCE of *this* kernel. Together with a target kernel
    that has features, `skce`, `skce_biased` and `exact_skce_test` take linear instead of quadratic
    time. A kernel that is smooth on the scale of the predictions loses nothing by it; of others,
    errors between landmarks are lost.

    Attributes:
        kernel: k, positive semi-definite.
        landmarks: batch of r predictions. They must not be chosen with the targets.
        whitening: L⁻¹, [r, r]; None, as a rule: it is computed where the kernel is used.

    `Nystrom.from_predictions(kernel, predictions, num_landmarks)` chooses the landmarks.

    Cost: r values of k and r² multiplications for the features of a prediction. Without features
    of the target kernel, as in traced programs, that for each pair.

    References: Williams and Seeger (2001), Using the Nyström method to speed up kernel machines.

    >>> import jax.numpy as jnp
    >>> from calibjax import distances, distributions, estimators, kernels
    >>> predictions = distributions.Bernoulli(jnp.linspace(0.1, 0.9, 9))
    >>> smooth = kernels.SquaredExponential(0.5, distances.TotalVariation())
    >>> labels = jnp.array([0, 0, 1, 0, 1, 1, 0, 1, 1])
    >>> for kernel in (smooth, kernels.Nystrom.from_predictions(smooth, predictions, 5)):
    ...     product = kernels.TensorProduct(kernel, kernels.White())
    ...     print(f"{estimators.skce(product, predictions, labels):.4f}")
    -0.0388
    -0.0388
    """

    kernel: Kernel
    landmarks: Distribution
    whitening: jax.Array | None = None

    @classmethod
    def from_predictions(
        cls,
        kernel: Kernel,
        predictions: Distribution,
        num_landmarks: int,
        *,
        key: jax.Array | None = None,
    ) -> "Nystrom":
        """The kernel with landmarks chosen from n predictions.

        By pivoted Cholesky decomposition: each next landmark is the prediction that the earlier
        ones determine worst. With a key the landmarks are random instead, which takes no time, but
        more landmarks for the same accuracy.

        Args:
            kernel: k, positive semi-definite.
            predictions: batch of n distributions.
            num_landmarks: r, from 1 to n. Fewer are chosen if they determine the kernel at all
                predictions up to rounding (not under `jit`).
            key: a JAX random key, to choose the landmarks at random.

        Raises:
            TypeError: if an argument is of the wrong kind.
            ValueError: if shapes or values are wrong, or the kernel is not positive semi-definite.

        Cost: n r values of the kernel and n r² multiplications, O(n r) memory; none at random.

        References: Harbrecht, Peters and Schneider (2012), On the low-rank approximation by the
        pivoted Cholesky decomposition.

        >>> import jax.numpy as jnp
        >>> from calibjax import distances, distributions, kernels
        >>> predictions = distributions.Bernoulli(jnp.array([0.1, 0.11, 0.5, 0.9]))
        >>> kernel = kernels.Exponential(1.0, distances.TotalVariation())
        >>> print(kernels.Nystrom.from_predictions(kernel, predictions, 3).landmarks.probs)
        [0.1 0.9 0.5]
        """
        kernel = checks.kernel_values(kernel)
        predictions = without_draws(checks.batch(predictions))
        n = checks.leading_size("predictions", predictions)
        number = checks.size_in_range("num_landmarks", num_landmarks, 1, n)
        _refuse_indefinite(kernel, predictions)
        if key is not None:
            chosen = jax.random.choice(checks.random_key(key), n, (number,), replace=False)
        else:
            tolerance = pivoted_cholesky.TOLERANCE[floating_dtype(predictions).itemsize]
            approximation = pivoted_cholesky.decompose(kernel, predictions, tolerance, size=number)
            is_known = checks.is_concrete(approximation.rank)
            needed = int(approximation.rank) if is_known else number
            chosen = lax.slice_in_dim(approximation.pivots, 0, needed)
        landmarks = jax.tree.map(lambda leaf: jnp.take(leaf, chosen, 0), predictions)
        return cls(kernel, checks.nan_with(landmarks, predictions))

    def factor(self, predictions: Distribution) -> jax.Array:
        """Features φ of a batch of predictions, [n, r]."""
        whitening = self._whitening() if self.whitening is None else self.whitening
        values = pivoted_cholesky.kernel_values(
            self.kernel, without_draws(predictions), without_draws(self.landmarks)
        )
        return matmul(values, whitening.T)

    def _whitening(self) -> jax.Array:
        landmarks = without_draws(self.landmarks)
        return _inverse_root(pivoted_cholesky.kernel_values(self.kernel, landmarks, landmarks))

    def __call__(self, x: PyTree, y: PyTree) -> jax.Array:
        """Value at one pair of predictions."""
        both = jax.tree.map(lambda a, b: jnp.stack([jnp.asarray(a), jnp.asarray(b)]), x, y)
        first, second = self.factor(both)
        return matmul(first, second)

    def value_range(self) -> Interval:
        """By the inequality of Cauchy and Schwarz, since k̃(p, p) ≤ k(p, p)."""
        _, upper = self.kernel.value_range()
        return -upper, upper

    def check_values(self, name: str) -> "Nystrom":
        """Checks the kernel and the landmarks, and computes the whitening."""
        kernel = checks.kernel_or_function(self.kernel, f"{name}.kernel")
        landmarks = checks.points(f"{name}.landmarks", self.landmarks)
        checked = Nystrom(kernel, landmarks, self.whitening)
        if self.whitening is not None:
            return checked
        whitening = checked._whitening()
        if checks.is_concrete(whitening) and not np.all(np.isfinite(whitening)):
            raise ValueError(
                f"{name}: expected a kernel that is positive semi-definite, got "
                f"{checks.described(kernel)}, whose matrix at the landmarks is not"
            )
        return Nystrom(kernel, landmarks, whitening)


@jax.jit
def _inverse_root(matrix: jax.Array) -> jax.Array:
    """L⁻¹ for the Cholesky factor L of a kernel matrix, [r, r]."""
    identity = jnp.eye(len(matrix), dtype=matrix.dtype)
    # Without it rounding errors could make the matrix of close landmarks indefinite.
    rounding = _ROUNDING * len(matrix) * jnp.finfo(matrix.dtype).eps
    root = matrices.cholesky(matrix + rounding * jnp.max(jnp.diagonal(matrix)) * identity)
    return lax.linalg.triangular_solve(root, identity, left_side=True, lower=True)


def _refuse_indefinite(kernel: Kernel, predictions: Distribution) -> None:
    """Refuses a kernel whose matrix at some of the predictions has a negative eigenvalue."""
    if not checks.is_concrete(kernel, predictions):
        return
    n = checks.leading_size("predictions", predictions)
    some = jax.tree.map(lambda leaf: leaf[:: -(-n // _NUM_TRIED)], predictions)
    eigenvalues = np.linalg.eigvalsh(pivoted_cholesky.kernel_values(kernel, some, some))
    rounding = _ROUNDING * eigenvalues.size * np.finfo(eigenvalues.dtype).eps
    if eigenvalues[0] < -rounding * eigenvalues[-1]:
        raise ValueError(
            f"kernel: expected a kernel that is positive semi-definite, got "
            f"{checks.described(kernel)}, whose matrix at {eigenvalues.size} of the predictions "
            f"has the eigenvalue {eigenvalues[0]:.3g}"
        )
