"""Sums of a pair function, in tiles: the only place that knows how they are computed.

A pair function is called as `function(args, x, y)` on two samples and returns a scalar; `args` is
a pytree of everything else it depends on (a kernel, say). It is written for one pair; batching is
done here. It must be a function that lives as long as the program (defined at the top of a
module), because compiled code is cached by its identity, and everything that is traced or
differentiated must come through `args` and the samples, not through a closure.

All devices of `jax.set_mesh` have all samples, and share the tiles.

All reductions need O(n · tile) memory, also in reverse mode, and work for every n. Sums over
pairs of one set evaluate each pair once. Tiles are added with compensation, so that float32 loses
nothing to long sums. Derivatives are those of JAX, of all orders and in both
modes; `fold_pairs` has none.
"""

from calibjax.operators.features import feature_sums
from calibjax.operators.kernel_means import kernel_means
from calibjax.operators.line import line_forms, line_sums, sums_of_earlier
from calibjax.operators.reductions import (
    block_masses,
    block_means,
    mean_over_all_pairs,
    mean_over_pairs,
    quadratic_forms,
    split_quadratic_forms,
    weighted_sums,
)
from calibjax.operators.rows import map_rows
from calibjax.operators.tiles import fold_pairs

__all__ = [
    "block_masses",
    "block_means",
    "feature_sums",
    "fold_pairs",
    "kernel_means",
    "line_forms",
    "line_sums",
    "map_rows",
    "mean_over_all_pairs",
    "mean_over_pairs",
    "quadratic_forms",
    "split_quadratic_forms",
    "sums_of_earlier",
    "weighted_sums",
]


def __dir__() -> list[str]:
    return __all__
