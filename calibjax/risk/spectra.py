"""Spectra of kernel matrices, also of low numerical rank."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from calibjax._core.arithmetic import matmul
from calibjax.kernels.pivoted_cholesky import PivotedCholesky, factor_at_pivots

_ROUNDING = 8  # in units of the last place of the largest eigenvalue; up to three were observed


class Spectrum(NamedTuple):
    """Eigenvalues of a kernel matrix K ≈ Q diag(s) Qᵀ, and coordinates in its eigenvectors.

    Attributes:
        eigenvalues: s, [r], zero for those that are only rounding errors.
        basis: B, [R, r], such that k(p, points)ᵀ B is the row of Q for any point p,
            k(p, x)ᵀ Q / s. It is zero where s is.
        projections: Qᵀ y for some vectors y, [r, m].
    """

    eigenvalues: jax.Array
    basis: jax.Array
    projections: jax.Array


def low_rank_spectrum(root: PivotedCholesky, vectors: jax.Array) -> Spectrum:
    """The spectrum of F Fᵀ, with the precision of F rather than that of a product."""
    features = root.features
    _, roots, rotation = jnp.linalg.svd(jnp.linalg.qr(features, mode="r"))
    inverse = _inverse(roots, _ROUNDING * jnp.finfo(roots.dtype).eps * roots[0])
    # Features of any point p are L⁻¹ k(points, p), with the rows L of F at the pivots.
    basis = lax.linalg.triangular_solve(
        factor_at_pivots(root), rotation.T * inverse, left_side=True, lower=True, transpose_a=True
    )
    projections = inverse[:, None] * matmul(rotation, matmul(features.T, vectors))
    return Spectrum(jnp.where(inverse > 0, jnp.square(roots), 0), basis, projections)


def full_spectrum(matrix: jax.Array, vectors: jax.Array) -> Spectrum:
    """The spectrum of a matrix."""
    eigenvectors, eigenvalues = lax.linalg.eigh(matrix, symmetrize_input=False)
    inverse = _inverse(eigenvalues, _ROUNDING * jnp.finfo(matrix.dtype).eps * eigenvalues[-1])
    projections = matmul(eigenvectors.T, vectors)
    return Spectrum(jnp.where(inverse > 0, eigenvalues, 0), eigenvectors * inverse, projections)


def _inverse(values: jax.Array, rounding: jax.Array) -> jax.Array:
    """1 / x, or zero where x is only a rounding error; NaN for NaN."""
    is_zero = values <= rounding
    return jnp.where(is_zero, 0, 1 / jnp.where(is_zero, 1, values))
