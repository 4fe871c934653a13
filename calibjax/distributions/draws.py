"""Draws from predictions, in place of expectations in closed form."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from calibjax._core import checks
from calibjax._core.pytree import PyTree, record
from calibjax.distributions.base import Batch, Distribution
from calibjax.distributions.ensemble import Ensemble
from calibjax.distributions.sampling import draw


@record
class MonteCarlo(Batch):
    """A distribution together with draws from it, made by `monte_carlo`.

    Expectations of target kernels are averages over the draws. Everything else uses the
    distribution itself: kernels on predictions and distances see it, targets are drawn from it, and
    attributes such as `log_prob`, `mean` or the parameters are passed through.

    Attributes:
        distribution: the distribution.
        draws: its draws, a `Ensemble`.
    """

    distribution: Distribution
    draws: Ensemble

    def with_index(self, num_axes: int = 1) -> "MonteCarlo":
        """The batch, with `num_axes` leading axes, in which each prediction has its own index."""
        return dataclasses.replace(self, draws=self.draws.with_index(num_axes))

    def tempered(self, temperature: jax.Array) -> "MonteCarlo":
        """Not defined: the draws belong to one temperature."""
        del temperature
        raise NotImplementedError(
            "tempered is not defined for MonteCarlo, whose draws belong to one temperature: scale "
            "its distribution, and draw again with distributions.monte_carlo"
        )

    def __getattr__(self, name: str) -> PyTree:
        # Existing fields do not get here; they are missing only while Python makes or copies self.
        if name.startswith("__") or name in ("distribution", "draws"):
            raise AttributeError(name)
        return getattr(self.distribution, name)

    def check_structure(self, name: str) -> None:
        """Checks the batches of distributions and draws."""
        if hasattr(self.distribution, "check_structure"):
            self.distribution.check_structure(f"{name}.distribution")
        if not isinstance(self.draws, Ensemble):
            got = checks.described(self.draws)
            raise TypeError(f"{name}.draws: expected distributions.Ensemble, got {got}")
        self.draws.check_structure(f"{name}.draws")

    def check_values(self, name: str) -> "MonteCarlo":
        """Checks the values of distributions and draws, which have to be possible targets."""
        distribution = checks.record_values(self.distribution, f"{name}.distribution")
        draws, place = self.draws.check_values(f"{name}.draws"), f"{name}.draws.values"
        # Traced as they are here, values that are no targets become missing.
        check = jax.vmap(lambda y: checks.targets_of(distribution, place, y), 1, 1)
        checked = check(draws.values)
        bad = checks.is_missing(checked)
        if checks.is_concrete(bad):
            kind = type(self.distribution).__name__
            expected = f"draws from the distributions, {kind}"
            checks.refuse_where(bad, place, expected, draws.values)
        else:  # integers cannot be NaN
            distribution = checks.nan_rows(checks.missing_rows(checked), distribution)
        return checks.replaced(self, distribution=distribution, draws=draws)


def undrawn(p: object) -> Any:
    """A prediction without draws that were added to it."""
    return p.distribution if isinstance(p, MonteCarlo) else p


@functools.partial(jax.jit, static_argnames="num_samples")
def _draw_many(key: jax.Array, predictions: Distribution, num_samples: int) -> jax.Array:
    """Independent draws from each prediction, [n, m] or [n, m, d]."""
    keys = jax.random.split(key, num_samples)
    return jax.vmap(lambda k: draw(k, predictions), out_axes=1)(keys)


def monte_carlo(key: jax.Array, predictions: Distribution, num_samples: int) -> MonteCarlo:
    """Draws from each prediction, which give unbiased estimates of expectations.

    For predictions and target kernels without closed-form expectations: pass the result to
    estimators and tests in place of the predictions. The draws of different predictions are
    independent, so that all expectations, and the unbiased and the biased SKCE, have the mean that
    exact expectations would give; their variance grows by terms of order 1 / num_samples. On the
    diagonal, where a prediction is paired with itself, draws are not paired with themselves. So h
    is no longer positive semi-definite, and even the biased SKCE may be negative. The exact tests
    stay exact.

    Args:
        key: a JAX random key.
        predictions: batch of n distributions.
        num_samples: m ≥ 2, number of draws from each prediction.

    Returns:
        The predictions with their draws.

    Raises:
        TypeError: if an argument is of the wrong kind.
        ValueError: if the parameters have wrong shapes or values, or m < 2.

    Cost: n m draws and their memory; the SKCE then evaluates the target kernel n² m² / 2 times,
    unavoidably for kernels without features: m = 10 costs a hundred times as much as a closed form,
    minutes for n = 30 000. A few draws suffice, since each of the n predictions has its own.

    References: none of the four papers has it.

    >>> import jax, jax.numpy as jnp
    >>> from calibjax import distances, distributions, estimators, kernels
    >>> kernel = kernels.TensorProduct(
    ...     kernels.Exponential(1.0, distances.Wasserstein()), kernels.Exponential(1.0)
    ... )
    >>> predictions = distributions.Normal(jnp.zeros(8), jnp.ones(8))
    >>> drawn = distributions.monte_carlo(jax.random.key(0), predictions, 50)
    >>> print(f"{estimators.skce(kernel, drawn, jnp.full(8, 2.0)):.1f}")
    1.0
    """
    key = checks.random_key(key)
    predictions = undrawn(checks.batch(predictions, keep_logs=True))
    checks.method("predictions", predictions, "sample")
    numbers_each = sum(map(jnp.size, jax.tree.leaves(predictions)))
    num_samples = checks.number_of_draws("num_samples", num_samples, 2, numbers_each=numbers_each)
    values = _draw_many(key, predictions, num_samples)
    return MonteCarlo(predictions, Ensemble(values).with_index())
