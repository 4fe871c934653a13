"""Plain NumPy versions, written from the papers with loops, and the data they are compared on."""

import functools

import jax
import numpy as np

from calibjax import distances, distributions, kernels
from calibjax._core.gate import checked
from calibjax.estimators.kernel import sample_matrix


def squared_exponential_moments(loc, scale, other_loc, other_scale, length_scale):
    """E exp(−‖Z − Z'‖²/(2ℓ²)), Z ~ N(loc, scale²), Z' ~ N(other_loc, other_scale²), W21 D.1."""
    value = 1.0
    for m, s, n, t in zip(
        *(np.atleast_1d(v) for v in (loc, scale, other_loc, other_scale)), strict=True
    ):
        total = length_scale**2 + s**2 + t**2
        value *= length_scale / np.sqrt(total) * np.exp(-((m - n) ** 2) / (2 * total))
    return value


def normal_h(p, y, q, z, length_scale=1.0, prediction_scale=1.0):
    """h for k = exp(−W2(p, q)/ℓ_P) exp(−‖y − z‖²/(2ℓ²)) and p, q = (loc, scale)."""
    (m, s), (n, t) = p, q
    zero = np.zeros_like(s)
    w2 = np.sqrt(np.sum((m - n) ** 2) + np.sum((s - t) ** 2))

    def expect(*arguments):
        return squared_exponential_moments(*arguments, length_scale)

    bracket = (
        expect(y, zero, z, zero)
        - expect(m, s, z, zero)
        - expect(y, zero, n, t)
        + expect(m, s, n, t)
    )
    return np.exp(-w2 / prediction_scale) * bracket


def categorical_h(p, y, q, z, matrix, nu):
    """h for k = exp(−TV(p, q)/ν) A[y, z]: the four sums over classes, term by term."""
    m = len(p)
    value = matrix[y, z]
    value -= sum(p[c] * matrix[c, z] for c in range(m))
    value -= sum(q[c] * matrix[y, c] for c in range(m))
    value += sum(p[c] * q[d] * matrix[c, d] for c in range(m) for d in range(m))
    return np.exp(-0.5 * np.sum(np.abs(p - q)) / nu) * value


def h_matrix(h, samples):
    """All values of h by a double loop."""
    return np.array([[h(*a, *b) for b in samples] for a in samples])


def unbiased(matrix):
    """U-statistic of a matrix of values of h."""
    n = len(matrix)
    return sum(matrix[i, j] for i in range(n) for j in range(i + 1, n)) * 2 / (n * (n - 1))


def estimation_risk(values, residuals):
    """G24 eq. (20), by a double loop over values [n, n] and residuals [n, m]."""
    n = len(residuals)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    return np.mean([(residuals[i] @ residuals[j] - values[i, j]) ** 2 for i, j in pairs])


def block_estimates(matrix, size):
    """U-statistics of the blocks of so many samples; samples that are left over do not count."""
    starts = range(0, len(matrix) - size + 1, size)
    return [unbiased(matrix[b : b + size, b : b + size]) for b in starts]


def gaussian(x, y):
    """exp(−(x − y)² / 2) of all pairs of two vectors."""
    return np.exp(-0.5 * np.subtract.outer(x, y) ** 2)


def sorted_distance(p, q):
    """The Wasserstein distance of equally many draws."""
    return np.sqrt(np.mean((np.sort(p) - np.sort(q)) ** 2))


def pool_matrix(pools, shown=None, distance=sorted_distance):
    """h of pools whose first value is the target, with exp(−distance) of what is shown of them."""
    shown, h = pools if shown is None else shown, np.empty((len(pools), len(pools)))
    for i, j in np.ndindex(h.shape):
        values = gaussian(pools[i], pools[j])
        centered = values[0, 0] - values[0].mean() - values[:, 0].mean() + values.mean()
        h[i, j] = np.exp(-distance(shown[i], shown[j])) * centered
    return h


def energy_score(draws, y, weights=None, fair=False):
    """E‖Z − y‖ − ½ E‖Z − Z'‖ of draws [m] or [m, d] by loops; of fair scores draws that differ."""
    z, m = np.reshape(draws, (len(draws), -1)), len(draws)
    w = np.full(m, 1 / m) if weights is None else weights
    near = sum(w[j] * np.linalg.norm(z[j] - y) for j in range(m))
    pairs = [(w[j] * w[k], z[j] - z[k]) for j in range(m) for k in range(m) if j != k]
    total = sum(share for share, _ in pairs) if fair else 1
    return near - sum(share * np.linalg.norm(x) for share, x in pairs) / total / 2


def normal_data(n, d=None, seed=0):
    """W21's models with random scales: predictions, targets, and a list of NumPy samples."""
    rng = np.random.default_rng(seed)
    shape = (n,) if d is None else (n, d)
    loc, scale = rng.uniform(size=shape), rng.uniform(0.05, 0.3, size=shape)
    targets = loc + scale * rng.normal(size=shape)
    family = distributions.Normal if d is None else distributions.DiagNormal
    predictions = family(jax.device_put(loc), jax.device_put(scale))
    samples = list(zip(zip(loc, scale, strict=True), targets, strict=True))
    return predictions, jax.device_put(targets), samples


def covariances(n, d, scale=1.0, seed=0):
    """Random covariance matrices [n, d, d] of moderate condition."""
    root = scale * np.random.default_rng(seed).normal(size=(n, d, 2 * d)) / np.sqrt(2 * d)
    return root @ root.swapaxes(1, 2)


def categorical_data(n, m, seed=0, dtype=np.float64):
    """Calibrated class predictions: predictions, targets, and a list of NumPy samples."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(m), size=n).astype(dtype)
    targets = np.array([rng.choice(m, p=p / p.sum()) for p in probs.astype(np.float64)])
    predictions = distributions.Categorical(jax.device_put(probs))
    return predictions, jax.device_put(targets), list(zip(probs, targets, strict=True))


def normal_kernel(length_scale=1.0, prediction_scale=1.0):
    """W21's kernel."""
    return kernels.TensorProduct(
        kernels.Exponential(prediction_scale, distances.Wasserstein()),
        kernels.SquaredExponential(length_scale),
    )


def label_matrix(m, seed=0):
    """A positive semi-definite matrix [m, m] that is not diagonal."""
    root = np.random.default_rng(seed).normal(size=(m, m))
    return root @ root.T / m


def categorical_kernel(nu=0.5, matrix=None):
    """W19's kernel, with a matrix on the labels or the white kernel."""
    target = kernels.White() if matrix is None else kernels.LabelKernel(jax.device_put(matrix))
    return kernels.TensorProduct(kernels.Exponential(nu, distances.TotalVariation()), target)


def cases():
    """One data set of every family: name → (kernel, predictions, targets, NumPy h, samples)."""
    rows, h = {}, functools.partial(normal_h, length_scale=0.7, prediction_scale=0.4)
    for d in (None, 3):
        predictions, targets, samples = normal_data(23, d, seed=3)
        rows[f"normal-{d}"] = normal_kernel(0.7, 0.4), predictions, targets, h, samples
    predictions, targets, samples = categorical_data(23, 5, seed=4)
    for name, matrix in (("white", np.eye(5)), ("label", label_matrix(5))):
        kernel = categorical_kernel(0.5, None if name == "white" else matrix)
        h = functools.partial(categorical_h, matrix=matrix, nu=0.5)
        rows[f"categorical-5-{name}"] = kernel, predictions, targets, h, samples
    return rows


CASE_NAMES = "normal-None", "normal-3", "categorical-5-white", "categorical-5-label"


@checked
def calibration_kernel_matrix(kernel, predictions, targets):
    """Values h_ij of all pairs, [n, n]."""
    return sample_matrix(kernel, (predictions, targets))
