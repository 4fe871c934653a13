"""Kernels of original predictions, and of targets that come with repaired predictions."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.pytree import record
from calibjax.kernels import Kernel, NormalScore, TensorProduct
from calibjax.kernels.base import Conditional
from calibjax.kernels.expectations import (
    centered_kernel,
    centered_norm,
    features,
    prepare_features,
    register_expectations,
)
from calibjax.kernels.expectations.residuals import EVERY_FAMILY


@record
class _AfterRepair(Conditional):
    """A target kernel under repaired predictions, which come together with the targets.

    And with their normal scores if they have such that take long: every kernel on these sees the
    same ones, which it would compute again in a program that is much longer.
    """

    kernel: Kernel

    def seen(self, repaired: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        """What the kernel is evaluated at."""
        *samples, scored = repaired
        return scored if scored is not None and is_of_scores(self.kernel) else tuple(samples)


@record
class _OnBoth:
    """A lens on predictions, and on repaired ones that come together with the targets."""

    lens: Callable[..., Any]

    def __call__(self, predictions: Any, repaired: tuple[Any, Any, Any]) -> tuple[Any, Any]:
        """Both as the lens shows them."""
        *samples, _ = repaired
        viewed, _ = self.lens(predictions, samples[1])
        return viewed, (*self.lens(*samples), None)


def _centered(kernel: _AfterRepair, p: object, y: tuple, q: object, z: tuple) -> jax.Array:
    del p, q
    return centered_kernel(kernel.kernel, *kernel.seen(y), *kernel.seen(z))


def is_of_scores(kernel: object) -> bool:
    """Whether a target kernel looks at normal scores."""
    return isinstance(kernel, NormalScore)


def _unknown(*_: object) -> NoReturn:
    raise NotImplementedError("no expectations without repaired predictions")


for _distribution in EVERY_FAMILY:
    register_expectations(
        _AfterRepair,
        _distribution,
        single=_unknown,
        double=_unknown,
        centered=_centered,
        features=(
            lambda kernel, _, repaired: prepare_features(kernel.kernel, *kernel.seen(repaired)),
            lambda kernel, prepared, _, repaired: features(
                kernel.kernel, prepared, *kernel.seen(repaired)
            ),
        ),
    )


def after_repair(lens: Callable[..., Any] | None, kernel: object) -> tuple[Any, TensorProduct]:
    """A member of the family, for targets that come with repaired predictions."""
    if not isinstance(kernel, TensorProduct):
        raise TypeError(
            "kernels: expected tensor products of a kernel on predictions and a target kernel, got "
            f"{checks.described(kernel)}"
        )
    product = TensorProduct(kernel.prediction, _AfterRepair(kernel.target))
    return None if lens is None else _OnBoth(lens), product


def expected_norms(kernel: Any, repaired: Any) -> jax.Array:
    """E h of a target of repaired predictions [b, n] and itself, for a target kernel, [b, n].

    Zero where it is the same for all predictions, as of normal scores, and where it is not known:
    a user's kernel need not have the expectation of k(Z, Z).
    """
    zeros = jnp.zeros(jax.tree.leaves(repaired)[0].shape[:2])
    if is_of_scores(kernel.kernel):
        return zeros
    norm = functools.partial(centered_norm, kernel.kernel)
    try:
        return jax.vmap(jax.vmap(norm))(repaired)
    except NotImplementedError:
        return zeros
