"""Three components of the squared kernel calibration error, and one test of all of them.

Write n SKCE_b = D + (n − 1) SKCE_u, where D is the mean of the diagonal h((p_i, y_i), (p_i, y_i)).
SKCE_u, the mean off the diagonal, is large if targets deviate in the same way for similar
predictions: in their means or, to a lesser extent, in anything else that the target kernel detects.
D is a kernel score: under calibration its mean is known; it exceeds this mean if the targets
scatter more than predicted, and is **below** it if they scatter less. Within SKCE_b a small D makes
the statistic smaller than its redraws, so that the biased SKCE alone is blind to predictions that
are too wide. Therefore D is tested two-sided here.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._pytree import record
from calibjax.hypothesis_tests.pools import simulated_pvalue, standardised

STATISTICS = ("omnibus", "biased", "unbiased", "spread")


@record
class Component:
    """One component of a test, with its own exact p-value.

    Attributes:
        statistic: its value.
        score: standardised cube root of the value (signed), with mean and standard deviation over
            the observed and the redrawn values.
        pvalue: probability of such a value under calibration, in (0, 1].
        null_samples: draws of the value under calibration, [num_samples].
    """

    statistic: jax.Array
    score: jax.Array
    pvalue: jax.Array
    null_samples: jax.Array


@record
class SKCEComponents:
    """The components of an exact SKCE test.

    Their p-values are not adjusted for multiple testing; that of the test is.

    Attributes:
        biased: SKCE_b, all errors together except predictions that are too wide; p-value for
            large values.
        unbiased: SKCE_u, errors that similar predictions share, above all wrong means; p-value for
            large values.
        spread: D, the mean of h on the diagonal; two-sided p-value. A positive score says that
            the targets scatter more than predicted (predictions too narrow, overconfident), a
            negative one that they scatter less (too wide, underconfident).
        num_targets: n.
        ranked: which statistic the test ranks, one of `STATISTICS`.
    """

    biased: Component
    unbiased: Component
    spread: Component
    num_targets: int = dataclasses.field(metadata={"static": True})
    ranked: str = dataclasses.field(metadata={"static": True})

    @property
    def loudest(self) -> str:
        """Name of the component with the largest score (in absolute value for the spread)."""
        scores = {
            "biased": self.biased.score,
            "unbiased": self.unbiased.score,
            "spread": abs(self.spread.score),
        }
        return max(scores, key=scores.__getitem__)

    def described(self) -> str:
        """The components in words, one line each; needs concrete values."""
        more = float(self.spread.score) > 0
        spread = "more than predicted: too narrow" if more else "less than predicted: too wide"
        words = {
            "biased": "distance from calibration",
            "unbiased": "off in the same way for similar predictions",
            "spread": f"targets scatter {spread}",
        }
        width = max(map(len, words.values()))
        lines = []
        for name, text in words.items():
            part = getattr(self, name)
            mark = "  <- loudest" if name == self.loudest else ""
            numbers = f"p = {float(part.pvalue):<8.2g} score {float(part.score):+.1f}"
            lines.append(f"  {name:8}  {text:{width}}  {numbers}{mark}")
        return "\n".join(lines)


@functools.partial(jax.jit, static_argnames=("num_targets", "ranked"))
def skce_components(
    unbiased: jax.Array, diagonal: jax.Array, *, num_targets: int, ranked: str
) -> tuple[jax.Array, SKCEComponents]:
    """The components of a pool, and the statistic to rank.

        C₁ = z(∛(n SKCE_b)),   C₂ = z(∛(D̄ + (n − 1) SKCE_u)),   C₃ = |z(∛D)|,

    where z standardises over the pool and D̄ is the mean of D over it. The cube roots make the
    distributions similarly symmetric, so that no component dominates. The omnibus statistic is the
    largest of the three. It treats the observed value and the draws alike, so that its rank is
    exact.

    Args:
        unbiased: SKCE_u, observed value first, [B + 1].
        diagonal: D, [B + 1].
        num_targets: n.
        ranked: one of `STATISTICS`.

    Returns:
        The pool of the statistic, [B + 1], and the components.
    """
    n = num_targets
    off_diagonal = (n - 1) * unbiased
    typical = jnp.mean(diagonal, where=jnp.isfinite(diagonal))
    both = standardised(jnp.cbrt(off_diagonal + diagonal))
    mean_only = standardised(jnp.cbrt(off_diagonal + typical))
    spread = standardised(jnp.cbrt(diagonal))
    biased = (off_diagonal + diagonal) / n
    statistics = {
        "omnibus": jnp.maximum(jnp.maximum(both, mean_only), jnp.abs(spread)),
        "biased": biased,
        "unbiased": unbiased,
        "spread": jnp.abs(spread),
    }

    def component(values: jax.Array, score: jax.Array, ranks: jax.Array) -> Component:
        return Component(values[0], score[0], simulated_pvalue(ranks[0], ranks[1:]), values[1:])

    components = SKCEComponents(
        component(biased, both, biased),
        component(unbiased, mean_only, unbiased),
        component(diagonal, spread, jnp.abs(spread)),
        num_targets,
        ranked,
    )
    return statistics[ranked], components


def pooled(first: SKCEComponents, *others: SKCEComponents) -> tuple[jax.Array, SKCEComponents]:
    """The statistic and the components of several runs with pooled draws."""
    parts = (first, *others)

    def pool(component: Any) -> jax.Array:
        draws = [component(part).null_samples for part in parts]
        return jnp.concatenate([component(first).statistic[None], *draws])

    return skce_components(
        pool(lambda part: part.unbiased),
        pool(lambda part: part.spread),
        num_targets=first.num_targets,
        ranked=first.ranked,
    )
