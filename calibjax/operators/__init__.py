"""Sums of a pair function, in tiles.

A pair function is called as `function(args, x, y)` on two samples and returns a scalar; `args` is a
pytree of all other data, such as a kernel. It is written for one pair and batched here. Define it
at the top of a module, because compiled code is cached by its identity. Pass everything that is
traced or differentiated through `args` and the samples, not through a closure.

All devices of `jax.set_mesh` have all samples, and share the tiles.

All reductions need O(n · tile) memory, even in reverse mode. Sums over pairs of one set evaluate
each pair once. Tiles are added with compensation, so long sums are accurate in float32. Derivatives
of all orders exist in forward and reverse mode.
"""

# The other sums are internal.
from calibjax.operators.tiles import block_masses as block_masses
from calibjax.operators.tiles import block_means as block_means
from calibjax.operators.tiles import feature_sums as feature_sums
from calibjax.operators.tiles import kernel_means as kernel_means
from calibjax.operators.tiles import map_rows as map_rows
from calibjax.operators.tiles import mean_over_pairs, weighted_sums
from calibjax.operators.tiles import quadratic_forms as quadratic_forms

__all__ = ["mean_over_pairs", "weighted_sums"]


def __dir__() -> list[str]:
    return __all__
