"""Functions of one pair of samples, each compiled as one program and not operation by operation."""

import jax

from calibjax import kernels

centered_kernel = jax.jit(kernels.centered_kernel)
single_expectation = jax.jit(kernels.single_expectation)
double_expectation = jax.jit(kernels.double_expectation)
