"""Derivatives of all orders of sums that are evaluated in loops, from a rule for the first.

Automatic differentiation in reverse mode would hold what each step of a loop computes. The
gradient of a sum over pairs is, however, a sum over pairs again. So here the gradient g of a
scalar is evaluated by such a loop, and the derivative in a direction t is ⟨g, t⟩, which is plain
arithmetic in either mode. The derivative of g in a direction t is H t with the matrix H of second
derivatives: forward mode through the loop of g. H is symmetric, so reverse mode is H times
the cotangents. A third derivative is left to forward mode.
"""

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike

from calibjax._core.pytree import PyTree

Function = Callable[..., Any]
Given = Sequence[Any]  # trees or arrays, or what JAX has in their place


def partition(tree: PyTree) -> tuple[Any, Any]:
    """The tree twice: with None for leaves without derivatives (labels), and the other way."""

    def is_smooth(leaf: ArrayLike) -> bool:
        return jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)

    smooth = jax.tree.map(lambda leaf: leaf if is_smooth(leaf) else None, tree)
    return smooth, jax.tree.map(lambda leaf: None if is_smooth(leaf) else leaf, tree)


def combine(smooth: PyTree, rest: PyTree) -> PyTree:
    """Undoes `partition`."""
    choose = lambda s, r: r if s is None else s  # noqa: E731
    return jax.tree.map(choose, smooth, rest, is_leaf=lambda leaf: leaf is None)


def _is_zero(tangent: jax.Array | SymbolicZero) -> bool:
    return isinstance(tangent, SymbolicZero) or tangent.dtype == jax.dtypes.float0


def differentiable(value: Function, gradient: Function) -> Function:
    """The function `value` with derivatives.

    Args:
        value: (function, smooth, rest) → scalar, with a hashable function and two pytrees of
            arrays, of which the first has derivatives.
        gradient: (function, smooth, rest) → gradient of `value`, a pytree like `smooth`.

    Cost: the first derivative, in either mode, that of `gradient`, and no memory beside it; the
    product of the second with one direction, that of the forward-mode derivative of `gradient`.
    """

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def evaluate(function: Hashable, smooth: PyTree, rest: PyTree) -> jax.Array:
        return value(function, smooth, rest)

    @functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
    def slopes(function: Hashable, smooth: PyTree, rest: PyTree) -> PyTree:
        return gradient(function, smooth, rest)

    def evaluate_jvp(
        function: Hashable, primals: Given, tangents: Given
    ) -> tuple[jax.Array, jax.Array]:
        out = evaluate(function, *primals)
        pairs = zip(
            jax.tree.leaves(slopes(function, *primals)), jax.tree.leaves(tangents[0]), strict=True
        )
        terms = [jnp.sum(g * t) for g, t in pairs if not _is_zero(t)]
        return out, sum(terms, jnp.zeros((), out.dtype)).astype(out.dtype)

    def slopes_jvp(function: Hashable, primals: Given, tangents: Given) -> tuple[Any, Any]:
        smooth, rest = primals
        leaves, structure = jax.tree.flatten(smooth)
        directions = [
            jnp.zeros_like(x) if _is_zero(t) else t
            for x, t in zip(leaves, jax.tree.leaves(tangents[0]), strict=True)
        ]
        rest, rest_structure = jax.tree.flatten(rest)

        def product(*arrays: jax.Array) -> list[jax.Array]:
            one, two, three = (
                arrays[: len(leaves)],
                arrays[len(leaves) : -len(leaves)],
                arrays[-len(leaves) :],
            )
            held = jax.tree.unflatten(rest_structure, two)
            along = lambda x: gradient(function, x, held)  # noqa: E731
            point, direction = (jax.tree.unflatten(structure, x) for x in (one, three))
            return jax.tree.leaves(jax.jvp(along, (point,), (direction,))[1])

        out = _symmetric(product, [*leaves, *rest], directions)
        return slopes(function, *primals), jax.tree.unflatten(structure, out)

    evaluate.defjvp(evaluate_jvp, symbolic_zeros=True)
    slopes.defjvp(slopes_jvp, symbolic_zeros=True)
    return evaluate


def _symmetric(product: Function, point: list[Any], direction: list[Any]) -> list[jax.Array]:
    """The value product(*point, *direction), linear in the direction and its own transpose."""
    return _product_p.bind(*point, *direction, product=product, number=len(direction))


# A function whose transpose is itself: JAX has a public way to say so only for primitives.
_product_p = Primitive("calibjax_symmetric_product")
_product_p.multiple_results = True


def _evaluate(*arrays: jax.Array, product: Function, number: int) -> list[jax.Array]:
    del number
    return product(*arrays)


def _transpose(cotangents: Given, *arrays: PyTree, product: Function, number: int) -> list[Any]:
    point = arrays[:-number]
    cotangents = [ad.instantiate_zeros(c) for c in cotangents]
    return [None] * len(point) + _symmetric(product, list(point), cotangents)


def _jvp(primals: Given, tangents: Given, *, product: Function, number: int) -> tuple[Any, Any]:
    point, tangent = list(primals[:-number]), list(tangents[-number:])
    out = _symmetric(product, point, list(primals[-number:]))
    changes = _symmetric(product, point, [ad.instantiate_zeros(t) for t in tangent])
    if any(type(t) is not ad.Zero for t in tangents[:-number]):
        along = lambda *point: product(*point, *primals[-number:])  # noqa: E731
        others = [ad.instantiate_zeros(t) for t in tangents[:-number]]
        changes = map(jnp.add, changes, jax.jvp(along, tuple(point), tuple(others))[1])
    return out, list(changes)


def _batch(arrays: Given, axes: Given, *, product: Function, number: int) -> tuple[Any, Any]:
    sizes = (x.shape[a] for x, a in zip(arrays, axes, strict=True) if a is not None)
    size = next(sizes)
    # The transpose has a batch where the direction has none, so all of it gets one.
    moved = [
        x
        if a is None and i < len(arrays) - number
        else jnp.broadcast_to(x, (size, *jnp.shape(x)))
        if a is None
        else jnp.moveaxis(x, a, 0)
        for i, (x, a) in enumerate(zip(arrays, axes, strict=True))
    ]
    first = [None if a is None else 0 for a in axes[:-number]] + [0] * number
    mapped = jax.vmap(product, first, 0)
    return _product_p.bind(*moved, product=mapped, number=number), [0] * number


_product_p.def_impl(_evaluate)
_product_p.def_abstract_eval(lambda *avals, product, number: list(avals[-number:]))
ad.primitive_jvps[_product_p] = _jvp
ad.primitive_transposes[_product_p] = _transpose
batching.primitive_batchers[_product_p] = _batch
mlir.register_lowering(_product_p, mlir.lower_fun(_evaluate, multiple_results=True))
