"""Sums of a pair function, in tiles: the only place that knows how they are computed.

A pair function is called as `function(args, x, y)` on two samples and returns a scalar; `args` is
a pytree of everything else it depends on (a kernel, say). It is written for one pair; batching is
done here. It must be a function that lives as long as the program (defined at the top of a
module), because compiled code is cached by its identity, and everything that is traced or
differentiated must come through `args` and the samples, not through a closure.

All devices of `jax.set_mesh` have all samples, and share the tiles.

All reductions need O(n · tile) memory, also in reverse mode, and work for every n. Sums over
pairs of one set evaluate each pair once. Tiles are added with compensation, so that float32 loses
nothing to long sums. Derivatives are those of JAX, of all orders and in both modes.
"""

# The other sums are the library's own, and are not shown.
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
