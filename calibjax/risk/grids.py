"""The hyperparameter grids of G24, App. B.

Kernel ridge penalties grow with √n. The appendix does not say whether n is the number of samples to
which a function is fitted, as in its equations (27) to (32), or of all samples, as in §5.2. We
assume the former: with an 80/20 split and 5 folds, n is 0.64 times the number of all samples. The
other reading moves the grid by a factor of 1.25, less than half its smallest step.

Grids are NumPy arrays, whose values are known even under `jit`.
"""

import math

import numpy as np

from calibjax import _checks
from calibjax.estimators.kernel_density import BANDWIDTHS


def bin_number_grid() -> np.ndarray:
    """Numbers of bins for `Binning`: 5, 10, ..., 100.

    References: G24 App. B.

    >>> print(bin_number_grid()[:3])
    [ 5 10 15]
    """
    return np.arange(5, 101, 5)


def bandwidth_grid() -> np.ndarray:
    """Bandwidths for `KernelDensity`, the candidates of `estimators.kde_bandwidth`.

    15 log-spaced values from 1e-5 to 0.1, and 0.2, 0.4, ..., 1.

    References: G24 App. B; Popordanoska, Sayer and Blaschko (2022), A Consistent and
    Differentiable Lp Canonical Calibration Error Estimator.

    >>> print(bandwidth_grid()[-6:])
    [0.1 0.2 0.4 0.6 0.8 1. ]
    """
    return np.array(BANDWIDTHS)


def kernel_ridge_grid(num_samples: int, *, canonical: bool = False) -> np.ndarray:
    """Penalties λ for `KernelRidge`.

        √n 10^(1 − 2i), i = 1, ..., 9,   canonical: √n 10^(9 − i), i = 1, ..., 18

    Args:
        num_samples: n, number of training samples of a fold.
        canonical: whether it is for predictions of many classes rather than confidences.

    Returns:
        The penalties in falling order, [9] or [18].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if n < 1.

    References: G24 App. B.

    >>> print(kernel_ridge_grid(100)[:3])
    [1.e+00 1.e-02 1.e-04]
    """
    return _penalties(num_samples, canonical, 1 - 2 * np.arange(1, 10), 9 - np.arange(1, 19))


def two_step_kernel_ridge_grid(num_samples: int, *, canonical: bool = False) -> np.ndarray:
    """Penalties λ for `TwoStepKernelRidge`.

        √n 10^(−i), i = 1, ..., 9,   canonical: √n 10^((9 − i)/2), i = 1, ..., 18

    Args:
        num_samples: n, number of training samples of a fold.
        canonical: whether it is for predictions of many classes rather than confidences.

    Returns:
        The penalties in falling order, [9] or [18].

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if n < 1.

    References: G24 App. B.

    >>> print(two_step_kernel_ridge_grid(100)[:3])
    [1.   0.1  0.01]
    """
    return _penalties(num_samples, canonical, -np.arange(1, 10), (9 - np.arange(1, 19)) / 2)


def _penalties(
    num_samples: int, canonical: bool, exponents: np.ndarray, canonical_exponents: np.ndarray
) -> np.ndarray:
    """√n times powers of ten."""
    num_samples = _checks.size_in_range("num_samples", num_samples, 1, 2**53)
    canonical = _checks.truth_value("canonical", canonical)
    powers = 10.0 ** (canonical_exponents if canonical else exponents)
    return math.sqrt(num_samples) * powers
