"""The statistics of W21 App. A.3, evaluated for many predictions of the same targets.

All SKCE statistics of a data set come from one matrix of the calibration kernel h. The kernel of
the ensembles need not be positive semi-definite, see `calibjax.distances.MixtureWasserstein`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.optimize import linear_sum_assignment

from calibjax import scores
from calibjax.distances import MixtureWasserstein, Wasserstein
from calibjax.distributions import Mixture, Normal
from calibjax.hypothesis_tests import exact_test
from calibjax.kernels import Exponential, SquaredExponential, TensorProduct, gram_matrix
from calibjax.kernels.expectations import centered_kernel
from paper_repro.w21.ols import bootstrap_pvalue

SCORES: dict[str, Callable[[Any, Any], jax.Array]] = {
    "NLL": scores.negative_log_likelihood,
    "MSE": scores.mean_squared_error,
    "pinball": scores.pinball_loss,
}
UNBIASED, BIASED, PVALUE = "SKCE (unbiased)", "SKCE (biased)", "p-value"
STATISTICS = (*SCORES, UNBIASED, BIASED, PVALUE)


def kernel_of(predictions: Any) -> TensorProduct:
    """exp(−W₂) exp(−(y − y')² / 2) for normal predictions, with MW₂ for their mixtures."""
    is_mixture = isinstance(predictions, Mixture)
    distance = MixtureWasserstein() if is_mixture else Wasserstein()
    return TensorProduct(Exponential(1.0, distance), SquaredExponential(1.0))


def network_predictions(means: jax.Array, sigmas: jax.Array) -> Normal:
    """Predictions of single networks from means [..., n] and standard deviations [...]."""
    return Normal(means, jnp.broadcast_to(sigmas[..., None], means.shape))


def ensemble_predictions(means: jax.Array, sigmas: jax.Array) -> Mixture:
    """Mixtures with equal weights from means [..., networks, n] and deviations [..., networks]."""
    components = network_predictions(means, sigmas)
    return Mixture(None, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, -1, -2), components))


def skipped_terms(kernel: Any, p: Mixture, y: jax.Array, q: Mixture, z: jax.Array) -> jax.Array:
    """The terms of h that CalibrationErrors.jl leaves out: components (i ≥ 2, 1) of p and q.

    The published statistics of the ensemble were computed without them. Weights must be equal.

    Args:
        kernel: kernel of the targets.
        p: one prediction.
        y: its target.
        q: another prediction.
        z: its target.
    """
    first = jax.tree.map(lambda leaf: leaf[0], q.components)
    rest = jax.tree.map(lambda leaf: leaf[1:], p.components)
    terms = jax.vmap(lambda part: centered_kernel(kernel, part, y, first, z))(rest)
    return terms.sum() / p.components.loc.shape[0] ** 2


def brackets(kernel: Any, x: tuple, y: tuple) -> jax.Array:
    """h(x, y) without the kernel of the predictions: right, and as the authors' software has it.

    Args:
        kernel: kernel of the targets.
        x: a prediction and its target.
        y: another prediction and its target.

    Returns:
        For mixtures [3]: right, and what the software has in h(x, y) and in h(y, x), which differ.
        For other predictions [1].
    """
    right = jnp.array([centered_kernel(kernel, *x, *y)])
    if not isinstance(x[0], Mixture):
        return right
    skipped = [skipped_terms(kernel, *a, *b) for a, b in ((x, y), (y, x))]
    return right - jnp.array([0.0, *skipped])


def pairs_within(sizes: Sequence[int]) -> np.ndarray:
    """Samples i ≥ j of each pair within the same of several data sets in a row, [2, pairs]."""
    parts = zip(np.cumsum([0, *sizes[:-1]]), sizes, strict=True)
    return np.concatenate([i + np.array(np.tril_indices(n)) for i, n in parts], 1)


def similarities(predictions: Any, pairs: np.ndarray) -> np.ndarray:
    """exp(−W₂), or exp(−MW₂) of mixtures, of pairs of predictions.

    This is the kernel of the predictions in `kernel_of`. SciPy solves the assignment problems of
    mixtures with equal weights seven times as fast as a program for batches of them.

    Args:
        predictions: `Normal`s or `Mixture`s of normals with equal weights, [b, n].
        pairs: numbers of two predictions, [2, pairs].

    Returns:
        Values [b, pairs].
    """
    parts = getattr(predictions, "components", predictions)
    points = [np.asarray(leaf).reshape(*leaf.shape[:2], -1) for leaf in (parts.loc, parts.scale)]
    result = []
    for batch in zip(*points, strict=True):
        cost = sum(np.square(x[pairs[0], :, None] - x[pairs[1], None, :]) for x in batch)
        if cost.shape[-1] > 1:
            chosen = np.array([linear_sum_assignment(x)[1] for x in cost])
            cost = np.take_along_axis(cost, chosen[..., None], -1)
        result.append(np.exp(-np.sqrt(cost.mean((1, 2)))))
    return np.stack(result)


@jax.jit
def _evaluate(predictions: Any, targets: tuple[jax.Array, ...]) -> tuple:
    """Scores of each data set, and `brackets` of all pairs, [b, terms, pairs]."""
    ends = np.cumsum([len(y) for y in targets])
    pairs = pairs_within([len(y) for y in targets])

    def of_batch(batch: Any) -> tuple:
        sample = batch, jnp.concatenate(targets)
        x, y = (jax.tree.map(lambda leaf, i=i: leaf[i], sample) for i in pairs)
        terms = jax.vmap(functools.partial(brackets, kernel_of(batch).target))(x, y)
        parts = [slice(end - len(y), end) for end, y in zip(ends, targets, strict=True)]
        samples = [jax.tree.map(lambda leaf, part=part: leaf[part], sample) for part in parts]
        return [{name: f(*x) for name, f in SCORES.items()} for x in samples], terms.T

    return lax.map(of_batch, predictions)


def evaluate(
    predictions: Any, targets: tuple[np.ndarray, ...]
) -> tuple[list[dict[str, np.ndarray]], list[np.ndarray]]:
    """Scores and matrices of h, of many batches of predictions of the same targets.

    Args:
        predictions: `Normal`s or `Mixture`s of all data sets in a row, [b, n].
        targets: those of each data set, [n_s].

    Returns:
        For each data set its scores by name, [b], and its matrices [b, terms, n_s, n_s]. Their
        entries (i, j), i ≥ j, are h(i, j) with the `brackets`; they are symmetric.
    """
    sizes = [len(y) for y in targets]
    scores, terms = jax.tree.map(np.asarray, _evaluate(predictions, targets))
    values = terms * similarities(predictions, pairs_within(sizes))[:, None]
    matrices, start = [], 0
    for n in sizes:
        rows, columns = np.tril_indices(n)
        matrix = np.empty((*values.shape[:2], n, n))
        part = values[..., start : start + len(rows)]
        matrix[..., rows, columns] = matrix[..., columns, rows] = part
        matrices.append(matrix)
        start += len(rows)
    return scores, matrices


def as_published(name: str) -> str:
    """Name of a statistic of the ensemble with the error of the authors' software."""
    return f"{name}, as published"


def estimates(matrix: np.ndarray) -> tuple[float, float]:
    """Unbiased and biased estimate of the SKCE from the matrix of h."""
    n, biased = len(matrix), matrix.mean()
    return float(n * biased - np.trace(matrix) / n) / (n - 1), float(biased)


def calibration_statistics(terms: np.ndarray, counts: np.ndarray) -> dict[str, float]:
    """SKCE and p-value; those of ensembles also as published.

    The authors' software evaluates h(i, j) of samples i < j in the unbiased estimate, and of i > j
    in the biased one and in the test.

    Args:
        terms: matrices of h from `evaluate`, [1 or 3, n, n].
        counts: how often each sample occurs in each resample, [B, n].
    """
    right = terms[0]
    unbiased, biased = estimates(right)
    result = {UNBIASED: unbiased, BIASED: biased, PVALUE: float(bootstrap_pvalue(right, counts))}
    if len(terms) > 1:
        later_first, earlier_first = terms[1:]
        result[as_published(UNBIASED)] = estimates(earlier_first)[0]
        result[as_published(BIASED)] = estimates(later_first)[1]
        result[as_published(PVALUE)] = float(bootstrap_pvalue(later_first, counts))
    return result


@functools.partial(jax.jit, static_argnames="num_redraws")
def exact_pvalues(
    key: jax.Array, predictions: Any, targets: jax.Array, *, num_redraws: int
) -> jax.Array:
    """p-values of `exact_skce_test` with the biased SKCE, of many batches of n predictions, [b].

    The predictions are compared with each other once and not in all redraws, which matters for
    mixtures.
    """

    def pvalue(batch: Any) -> jax.Array:
        kernel = kernel_of(batch)
        similarities = gram_matrix(kernel.prediction, batch)

        def bracket(x: Any, y: Any) -> jax.Array:
            return centered_kernel(kernel.target, *x, *y)

        def biased_skce(predictions: Any, targets: jax.Array) -> jax.Array:
            return jnp.mean(similarities * gram_matrix(bracket, (predictions, targets)))

        return exact_test(key, biased_skce, batch, targets, num_draws=num_redraws).pvalue

    return lax.map(pvalue, predictions)
